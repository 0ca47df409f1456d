//! Migrations embedded in the program.

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, SqlSafeStr};

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

/// The error for tables that an unreleased version made, with other migrations. Such tables are not used. Migrations of
/// released versions never change.
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

    pub(crate) fn migrator(&self) -> Migrator {
        let migrations = self.files.iter().map(|&(version, name, sql)| {
            Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
        });
        let mut migrator = Migrator::with_migrations(migrations.collect());
        migrator.dangerous_set_table_name(self.table);
        migrator
    }

    /// Replaces the error for a migration that differs from the one that ran.
    pub(crate) fn refusal(&self, error: MigrateError) -> MigrateError {
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
}
