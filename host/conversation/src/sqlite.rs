//! Conversations in one SQLite file.

use std::path::Path;

use annex_database::{Database, Migrations, OpenError, SqliteDatabase, Value};

use crate::limits::Limits;
use crate::sql::SqlStore;
use annex_leases::Replica;

/// Conversations in one SQLite file. One process uses the file at a time.
pub type SqliteStore = SqlStore<SqliteDatabase>;

const MIGRATIONS: Migrations = Migrations {
    table: "_sqlx_conversation_migrations",
    files: &[
        (1, "conversations", include_str!("../migrations/sqlite/1_conversations.sql")),
        (2, "retention", include_str!("../migrations/sqlite/2_retention.sql")),
        (3, "receipts", include_str!("../migrations/sqlite/3_receipts.sql")),
    ],
};

impl SqlStore<SqliteDatabase> {
    /// Opens the file and runs the migrations of its tables. Creates a missing file, which only its owner can read. With `by`,
    /// this process becomes the owner of the file, and turns of earlier processes are lost
    /// ([`take_lost`](crate::ConversationStore::take_lost)). Without `by`, no turn can run.
    ///
    /// # Errors
    /// [`OpenError::File`] when the file cannot be created or written, [`OpenError::Database`] when the file is not a database,
    /// [`OpenError::Migration`] when a later version of the software wrote the file.
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
