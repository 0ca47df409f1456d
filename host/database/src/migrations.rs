//! Migrations that are part of the program.

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::postgres::PgConnection;
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection, SqlSafeStr};

/// The migrations of one store. One that was released never changes.
#[derive(Clone, Copy, Debug)]
pub struct Migrations {
    /// The table in which it is noted which ones have run; each store in a database has its own.
    pub table: &'static str,
    /// Number, name and SQL of each.
    pub files: &'static [(i64, &'static str, &'static str)],
}

/// Why tables that a later version wrote are not used.
#[derive(Debug, thiserror::Error)]
#[error(
    "{table} is at {found}, and this program knows {known} and works beside the version after that: start a later one"
)]
struct TooNew {
    table: &'static str,
    found: i64,
    known: i64,
}

/// The reason why tables that an unreleased version made are not used. A released migration never changes, so only the
/// migrations of such a version differ.
#[derive(Debug, thiserror::Error)]
#[error(
    "{table} has another migration {number}: a version before 0.1.0 made these tables, and 0.1.0 begins with empty databases; \
     name an empty database or another data_dir"
)]
struct BeforeFirstRelease {
    table: &'static str,
    number: i64,
}

impl Migrations {
    /// The number of the last one; 0 without any.
    #[must_use]
    pub const fn latest(&self) -> i64 {
        match self.files {
            [.., (number, ..)] => *number,
            [] => 0,
        }
    }

    fn migrator(&self) -> Migrator {
        let migrations = self.files.iter().map(|&(version, name, sql)| {
            Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
        });
        let mut migrator = Migrator::with_migrations(migrations.collect());
        migrator.dangerous_set_table_name(self.table);
        migrator
    }

    /// Runs the migrations of a file.
    pub(crate) async fn run(&self, connection: &mut SqliteConnection) -> Result<(), MigrateError> {
        self.migrator().run(connection).await.map_err(|error| self.refusal(error))
    }

    fn refusal(&self, error: MigrateError) -> MigrateError {
        match error {
            MigrateError::VersionMismatch(number) => {
                MigrateError::Source(Box::new(BeforeFirstRelease { table: self.table, number }))
            }
            other => other,
        }
    }

    /// Runs the migrations of a database in which the next version may have run its own already: processes of both work on it
    /// side by side while one is rolled out, or taken back.
    pub(crate) async fn run_beside_the_next(&self, connection: &mut PgConnection) -> Result<(), MigrateError> {
        let mut migrator = self.migrator();
        migrator.set_ignore_missing(true);
        migrator.run(&mut *connection).await.map_err(|error| self.refusal(error))?;
        // Where the tables are newer, all that are known here have run before, and none did now.
        let latest = format!("SELECT coalesce(max(version), 0) FROM {}", self.table);
        let found: i64 = sqlx::query_scalar(AssertSqlSafe(latest)).fetch_one(connection).await?;
        let known = self.latest();
        if found > known.saturating_add(1) {
            return Err(MigrateError::Source(Box::new(TooNew { table: self.table, found, known })));
        }
        Ok(())
    }

    /// Runs the migrations of a file whose version is in `PRAGMA user_version`: those up to this version have run, whether
    /// or not the table says so.
    pub(crate) async fn run_from_user_version(&self, connection: &mut SqliteConnection) -> Result<(), MigrateError> {
        // One transaction, which takes the lock at once: another process that opens the file waits for its end.
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        let version: i64 = sqlx::query_scalar("PRAGMA user_version").fetch_one(&mut *transaction).await?;
        if self.files.iter().all(|&(number, ..)| number < version) {
            return Err(MigrateError::VersionMissing(version));
        }
        let migrator = self.migrator();
        migrator.skip(&mut *transaction, Some(version)).await?;
        migrator.run(&mut *transaction).await.map_err(|error| self.refusal(error))?;
        transaction.commit().await?;
        Ok(())
    }
}
