//! Migrations of an SQLite file. The table that lists them is that of sqlx.

use std::collections::BTreeMap;

use rusqlite::{Connection, Transaction, TransactionBehavior, params};
use sqlx::migrate::{MigrateError, Migration};

use super::error::failed;
use crate::Migrations;

/// Selects the migrations to run from those that the table does not list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unlisted {
    /// All migrations.
    Run,
    /// The migrations after the version in `PRAGMA user_version`. Earlier ones are added to the table without being run.
    AfterUserVersion,
}

impl Migrations {
    /// Runs migrations in one transaction. An error changes nothing.
    ///
    /// # Errors
    /// [`sqlx::Error::Migrate`] if a migration fails or the file has other migrations, another error if the file cannot be
    /// written.
    pub(super) fn run(&self, connection: &Connection, unlisted: Unlisted) -> sqlx::Result<()> {
        // This takes the lock at once: another process that opens the file waits until this transaction ends.
        let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate).map_err(failed)?;
        self.run_in(&transaction, unlisted)?;
        transaction.commit().map_err(failed)
    }

    fn run_in(&self, transaction: &Connection, unlisted: Unlisted) -> Result<(), MigrateError> {
        let done = match unlisted {
            Unlisted::Run => 0,
            Unlisted::AfterUserVersion => self.user_version(transaction)?,
        };
        let listed = self.listed(transaction).map_err(failed)?;
        let migrator = self.migrator();
        if let Some(unknown) = listed.keys().find(|number| !migrator.version_exists(**number)) {
            return Err(MigrateError::VersionMissing(*unknown));
        }
        for migration in migrator.iter() {
            let number = migration.version;
            match listed.get(&number) {
                Some(checksum) if *checksum == *migration.checksum => continue,
                Some(_) => return Err(self.refusal(MigrateError::VersionMismatch(number))),
                None => {}
            }
            if number > done {
                let ran = transaction.execute_batch(migration.sql.as_str());
                ran.map_err(|error| MigrateError::ExecuteMigration(failed(error), number))?;
            }
            self.list(transaction, migration).map_err(failed)?;
        }
        Ok(())
    }

    fn user_version(&self, connection: &Connection) -> Result<i64, MigrateError> {
        let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(failed)?;
        if version > self.latest() { Err(MigrateError::VersionMissing(version)) } else { Ok(version) }
    }

    /// Numbers and checksums of the migrations that have run.
    fn listed(&self, connection: &Connection) -> rusqlite::Result<BTreeMap<i64, Vec<u8>>> {
        connection.execute_batch(&format!(
            "CREATE TABLE IF NOT EXISTS {} (
                version BIGINT PRIMARY KEY,
                description TEXT NOT NULL,
                installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
                success BOOLEAN NOT NULL,
                checksum BLOB NOT NULL,
                execution_time BIGINT NOT NULL
            )",
            self.table
        ))?;
        let mut listed = connection.prepare(&format!("SELECT version, checksum FROM {}", self.table))?;
        listed.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
    }

    fn list(&self, connection: &Connection, migration: &Migration) -> rusqlite::Result<usize> {
        let insert = format!(
            "INSERT INTO {} (version, description, success, checksum, execution_time) VALUES (?, ?, TRUE, ?, -1)",
            self.table
        );
        connection.execute(&insert, params![migration.version, &*migration.description, &*migration.checksum])
    }
}
