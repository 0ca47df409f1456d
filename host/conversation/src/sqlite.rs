//! Conversations in one SQLite file.

use std::path::Path;

use annex_database::{Database, Migrations, OpenError, SqliteDatabase, Value};

use crate::limits::Limits;
use crate::sql::SqlStore;
use annex_leases::Replica;

/// Conversations in one SQLite file, which one process has at a time.
pub type SqliteStore = SqlStore<SqliteDatabase>;

const MIGRATIONS: Migrations = Migrations {
    table: "_sqlx_conversation_migrations",
    files: &[(1, "conversations", include_str!("../migrations/sqlite/1_conversations.sql"))],
};

impl SqlStore<SqliteDatabase> {
    /// Opens the file, creates it if needed, readable for its owner only, and brings its tables up to date. With `by`, this
    /// process has the file from then on, and turns of earlier processes are lost
    /// ([`take_lost`](crate::ConversationStore::take_lost)). Without `by`, no turn can run.
    ///
    /// # Errors
    /// [`OpenError::File`] when the file cannot be created or written, [`OpenError::Database`] when it is not a database,
    /// [`OpenError::Migration`] when a later version of the software wrote it.
    pub async fn open(path: &Path, by: Option<&Replica>, limits: Limits) -> Result<Self, OpenError> {
        let database = SqliteDatabase::open(path, MIGRATIONS).await?;
        if let Some(by) = by {
            let mut transaction = database.begin().await?;
            SqliteDatabase::execute(&mut transaction, "DELETE FROM process", &[]).await?;
            let values = [Value::Text(by.id())];
            SqliteDatabase::execute(&mut transaction, "INSERT INTO process (id) VALUES ($1)", &values).await?;
            SqliteDatabase::commit(transaction).await?;
        }
        Ok(Self::on(database, limits))
    }
}
