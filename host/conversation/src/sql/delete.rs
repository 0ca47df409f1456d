//! The deletion of a conversation.

use annex_database::{Database, Row, Value};

use super::values::{members, named};
use super::{statements, upkeep_statements};
use crate::error::StoreError;
use crate::key::ConversationKey;

/// Deletes a conversation. Its row stays as long as it has tasks or a queue.
pub(super) async fn conversation<D: Database>(database: &D, key: &ConversationKey) -> Result<bool, StoreError> {
    clear(database, key, (upkeep_statements::CLEAR_CONVERSATION, &named(key))).await
}

/// Deletes a conversation without a turn that was last changed at this time.
pub(super) async fn old_conversation<D: Database>(
    database: &D,
    key: &ConversationKey,
    changed_at: i64,
) -> Result<bool, StoreError> {
    let [tenant, app, user, context] = named(key);
    let values = [tenant, app, user, context, Value::Int(changed_at)];
    clear(database, key, (upkeep_statements::CLEAR_OLD_CONVERSATION, &values)).await
}

async fn clear<D: Database>(
    database: &D,
    key: &ConversationKey,
    (clear, values): (&'static str, &[Value<'_>]),
) -> Result<bool, StoreError> {
    let names = named(key);
    let [tenant, app, user, _] = names;
    let mut transaction = database.begin().await?;
    let rows = D::query(&mut transaction, clear, values).await?;
    let Some(row) = rows.first() else { return Ok(false) };
    let (id, turns) = (Value::Int(row.int(0)?), row.text(1)?);
    if let Some(running) = members(&turns).next() {
        D::execute(&mut transaction, upkeep_statements::SET_ORPHAN, &[id, Value::Text(running)]).await?;
    }
    for sql in [upkeep_statements::DELETE_OWN_KEYS, upkeep_statements::DELETE_ARTIFACTS, statements::DELETE_CLEARED] {
        D::execute(&mut transaction, sql, &[id]).await?;
    }
    if key.is_anonymous() {
        D::execute(&mut transaction, statements::DELETE_USER_KEYS, &[tenant, app, user]).await?;
    }
    D::execute(&mut transaction, statements::FORGET_CONVERSATION, &names).await?;
    D::commit(transaction).await?;
    Ok(true)
}
