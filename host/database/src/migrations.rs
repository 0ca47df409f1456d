//! Migrations embedded in the program.

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::postgres::PgConnection;
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection, SqlSafeStr};

/// The migrations of one store. A released migration never changes.
#[derive(Clone, Copy, Debug)]
pub struct Migrations {
    /// Table that records which migrations have run. Each store in a database has its own.
    pub table: &'static str,
    /// Number, name and SQL of each migration.
    pub files: &'static [(i64, &'static str, &'static str)],
}

/// The error for tables that a later version has migrated: at least two of their migrations are unknown to this
/// version.
#[derive(Debug, thiserror::Error)]
#[error(
    "{table} is at migration {found}; this program has {known} and works with at most one more: start a later version"
)]
struct TooNew {
    table: &'static str,
    found: i64,
    known: i64,
}

/// The tables were made by an unreleased version, whose migrations differ. They are not used. Migrations of released
/// versions never change.
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
    /// Number of the last migration, or 0 if there are no migrations.
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

    /// Runs the migrations on a SQLite file.
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

    /// Runs migrations on a database that the next version may already have migrated. During a rolling update or a
    /// rollback, processes of both versions use the same database.
    pub(crate) async fn run_beside_the_next(&self, connection: &mut PgConnection) -> Result<(), MigrateError> {
        let mut migrator = self.migrator();
        migrator.set_ignore_missing(true);
        migrator.run(&mut *connection).await.map_err(|error| self.refusal(error))?;
        // If the tables are newer, all migrations known here had run before, and none ran now.
        let latest = format!("SELECT coalesce(max(version), 0) FROM {}", self.table);
        let found: i64 = sqlx::query_scalar(AssertSqlSafe(latest)).fetch_one(connection).await?;
        let known = self.latest();
        if found > known.saturating_add(1) {
            return Err(MigrateError::Source(Box::new(TooNew { table: self.table, found, known })));
        }
        Ok(())
    }

    /// Runs migrations on a file that keeps its version in `PRAGMA user_version`. Migrations up to that version are
    /// marked as done, even if the table does not list them.
    pub(crate) async fn run_from_user_version(&self, connection: &mut SqliteConnection) -> Result<(), MigrateError> {
        // `BEGIN IMMEDIATE` takes the lock at once: another process that opens the file waits until this transaction
        // ends.
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
