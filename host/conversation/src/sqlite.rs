//! Conversations in one SQLite file.

use std::path::Path;

use annex_database::{Database, Migrations, OpenError, SqliteDatabase, Value};

use crate::fence::Replica;
use crate::limits::Limits;
use crate::sql::SqlStore;

/// Conversations in one SQLite file, which one process has at a time.
pub type SqliteStore = SqlStore<SqliteDatabase>;

const MIGRATIONS: Migrations = Migrations {
    table: "_sqlx_conversation_migrations",
    files: &[(1, "conversations", include_str!("../migrations/sqlite/1_conversations.sql"))],
};

impl SqlStore<SqliteDatabase> {
    /// Opens the file for this process, creates it if needed, readable for its owner only, and brings its tables up to date.
    /// Turns of earlier processes are lost from then on ([`take_lost`](crate::ConversationStore::take_lost)).
    ///
    /// # Errors
    /// [`OpenError::File`] when the file cannot be created or written, [`OpenError::Database`] when it is not a database,
    /// [`OpenError::Migration`] when a later version of the software wrote it.
    pub async fn open(path: &Path, replica: &Replica, limits: Limits) -> Result<Self, OpenError> {
        let database = SqliteDatabase::open(path, MIGRATIONS).await?;
        let mut transaction = database.begin().await?;
        SqliteDatabase::execute(&mut transaction, "DELETE FROM replica", &[]).await?;
        let values = [Value::Text(replica.id())];
        SqliteDatabase::execute(&mut transaction, "INSERT INTO replica (id) VALUES ($1)", &values).await?;
        SqliteDatabase::commit(transaction).await?;
        Ok(Self::on(database, limits))
    }
}
