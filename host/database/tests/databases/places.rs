//! Databases for tests, and their one table.

use std::path::PathBuf;

use annex_database::{Database, Migrations, OpenError, PostgresDatabase, Row, Rows, SqliteDatabase, Value};
use tempfile::TempDir;

use crate::cluster::Scratch;

/// A table of names, each with a number below 100.
pub(crate) const ENTRIES: Migrations = Migrations { table: "entry_migrations", files: &[TABLE] };
pub(crate) const TABLE: (i64, &str, &str) = (
    1,
    "entry",
    "CREATE TABLE entry (name TEXT PRIMARY KEY, number BIGINT NOT NULL CONSTRAINT is_small CHECK (number < 100))",
);
pub(crate) const INSERT: &str = "INSERT INTO entry (name, number) VALUES ($1, $2)";

/// Inserts entries.
pub(crate) static ENTRIES_TO_INSERT: Rows = Rows { tail: "", ..FREE };

/// Inserts entries, except those whose name exists.
pub(crate) static FREE: Rows = Rows {
    head: "INSERT INTO entry (name, number) VALUES",
    row: "($1, $2)",
    parameters: 2,
    tail: " ON CONFLICT (name) DO NOTHING",
    of_first: None,
};

/// An initially empty database that can be opened several times.
pub(crate) trait TestDatabase {
    type Database: Database;

    async fn open(&self, migrations: Migrations) -> Result<Self::Database, OpenError>;

    /// Opens the database with the table of the tests.
    async fn entries(&self) -> Self::Database {
        self.open(ENTRIES).await.unwrap()
    }
}

/// A folder for one SQLite file.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn create() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.path().join("entries.sqlite")
    }

    /// Names of all files in the folder.
    pub(crate) fn files(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.0.path()).unwrap().map(Result::unwrap);
        let mut names: Vec<String> = files.map(|file| file.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl TestDatabase for Folder {
    type Database = SqliteDatabase;

    async fn open(&self, migrations: Migrations) -> Result<SqliteDatabase, OpenError> {
        SqliteDatabase::open(&self.file(), migrations).await
    }
}

impl TestDatabase for Scratch {
    type Database = PostgresDatabase;

    async fn open(&self, migrations: Migrations) -> Result<PostgresDatabase, OpenError> {
        PostgresDatabase::connect(self.url(), 4, migrations).await
    }
}

/// Inserts one entry.
pub(crate) async fn insert<D: Database>(transaction: &mut D::Transaction, name: &str, number: i64) -> u64 {
    D::execute(transaction, INSERT, &[Value::Text(name), Value::Int(number)]).await.unwrap()
}

/// The committed entries, by name.
pub(crate) async fn committed<D: Database>(database: &D) -> Vec<(String, i64)> {
    let rows = database.read("SELECT name, number FROM entry ORDER BY name", &[]).await.unwrap();
    rows.iter().map(|row| (row.text(0).unwrap(), row.int(1).unwrap())).collect()
}
