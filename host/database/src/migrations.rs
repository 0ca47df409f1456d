//! Migrations that are part of the program.

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

/// The migrations of one store. One that was released never changes.
#[derive(Clone, Copy, Debug)]
pub struct Migrations {
    /// The table in which it is noted which ones have run; each store in a database has its own.
    pub table: &'static str,
    /// Number, name and SQL of each.
    pub files: &'static [(i64, &'static str, &'static str)],
}

impl Migrations {
    pub(crate) fn migrator(&self) -> Migrator {
        let migrations = self.files.iter().map(|&(version, name, sql)| {
            Migration::new(version, name.into(), MigrationType::Simple, sql.into_sql_str(), false)
        });
        let mut migrator = Migrator::with_migrations(migrations.collect());
        migrator.dangerous_set_table_name(self.table);
        migrator
    }
}
