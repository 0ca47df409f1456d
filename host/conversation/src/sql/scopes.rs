//! A change of the keys of one scope. The result is checked first, and the rows are written then.

use std::collections::HashMap;

use annex_database::{Database, Row, Value};
use annex_protocol::Json;

use super::statements;
use super::values::named;
use crate::encoding::encoded_name;
use crate::error::AppendError;
use crate::key::ConversationKey;
use crate::limits::{Limits, ScopeSize};
use crate::state::{Scope, StateDelta};

/// A number that is not the id of any conversation.
const NO_CONVERSATION: i64 = -1;

/// The rows that a delta writes and deletes in one scope.
pub(super) struct ScopeChange<'a> {
    scope: Scope,
    /// The rows in the order of their names, so that no two writers wait for each other.
    rows: Vec<KeyRow<'a>>,
}

struct KeyRow<'a> {
    name: String,
    /// The value of the key; `None` for a key that is removed.
    value: Option<&'a Json>,
    size: usize,
    position: i64,
}

/// The stored size and position of a key.
struct StoredKey {
    size: usize,
    position: i64,
}

impl<'a> ScopeChange<'a> {
    /// Reads the stored keys of the scope and computes the rows that change. `id` is the id of the conversation.
    ///
    /// # Errors
    /// When the scope would grow beyond its limits.
    pub(super) async fn plan<D: Database>(
        transaction: &mut D::Transaction,
        (scope, delta): (Scope, &'a StateDelta),
        (key, id): (&ConversationKey, i64),
        limits: &Limits,
    ) -> Result<Self, AppendError> {
        let select = match scope {
            Scope::User => statements::SELECT_USER_KEYS,
            Scope::App => statements::SELECT_APP_KEYS,
            Scope::Conversation | Scope::Temp => statements::SELECT_OWN_KEYS,
        };
        let mut kept = HashMap::new();
        // Others may be adding to a shared scope in transactions that are open. What they add is not seen, so that
        // turns at the same moment can exceed the limit by it.
        for row in D::query(transaction, select, &owner(scope, key, id)).await? {
            let size = usize::try_from(row.int(1)?).unwrap_or_default();
            kept.insert(row.text(0)?, StoredKey { size, position: row.int(2)? });
        }
        let before = size_of(&kept);
        let change = Self::over(&mut kept, (scope, delta), limits);
        limits.check_change(scope, before, size_of(&kept))?;
        Ok(change)
    }

    /// The rows to write and to delete. Changes `kept`, the stored keys of the scope, to the keys after the delta.
    fn over(kept: &mut HashMap<String, StoredKey>, (scope, delta): (Scope, &'a StateDelta), limits: &Limits) -> Self {
        let last = kept.values().map(|kept| kept.position).max().unwrap_or_default();
        let mut rows = Vec::new();
        for ((name, value), position) in delta.within(scope).zip(last.saturating_add(1)..) {
            let size = name.len() + value.get().len();
            let name = encoded_name(name);
            if limits.removes(value) {
                if kept.remove(&name).is_some() {
                    rows.push(KeyRow { name, value: None, size: 0, position });
                }
                continue;
            }
            kept.insert(name.clone(), StoredKey { size, position });
            rows.push(KeyRow { name, value: Some(value), size, position });
        }
        // Two transactions that lock the same rows in one order cannot end up waiting for each other.
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        Self { scope, rows }
    }

    /// Writes and deletes the rows. An existing key keeps its position.
    pub(super) async fn write<D: Database>(
        &self,
        transaction: &mut D::Transaction,
        key: &ConversationKey,
        id: i64,
    ) -> Result<(), AppendError> {
        let put = match self.scope {
            Scope::User => statements::PUT_USER_KEY,
            Scope::App => statements::PUT_APP_KEY,
            Scope::Conversation | Scope::Temp => statements::PUT_OWN_KEY,
        };
        for row in &self.rows {
            let mut values = vec![Value::Text(&row.name)];
            let statement = match row.value {
                Some(value) => {
                    values.extend([Value::Text(value.get()), Value::count(row.size), Value::Int(row.position)]);
                    put
                }
                None => delete(self.scope),
            };
            values.extend(owner(self.scope, key, id));
            D::execute(transaction, statement, &values).await?;
        }
        Ok(())
    }
}

/// Deletes a key, given its encoded name. Returns true if the key existed.
pub(super) async fn delete_key<D: Database>(
    transaction: &mut D::Transaction,
    (scope, name): (Scope, &str),
    key: &ConversationKey,
) -> sqlx::Result<bool> {
    let rows = D::query(transaction, statements::SELECT_ID, &named(key)).await?;
    let id = rows.first().map_or(Ok(NO_CONVERSATION), |row| row.int(0))?;
    let values: Vec<Value<'_>> = [Value::Text(name)].into_iter().chain(owner(scope, key, id)).collect();
    Ok(D::execute(transaction, delete(scope), &values).await? > 0)
}

/// The statement that deletes a key of a scope.
fn delete(scope: Scope) -> &'static str {
    match scope {
        Scope::User => statements::DELETE_USER_KEY,
        Scope::App => statements::DELETE_APP_KEY,
        Scope::Conversation | Scope::Temp => statements::DELETE_OWN_KEY,
    }
}

fn size_of(kept: &HashMap<String, StoredKey>) -> ScopeSize {
    ScopeSize { bytes: kept.values().map(|kept| kept.size).sum(), keys: kept.len() }
}

/// The parameters that name the owner of the keys of a scope.
fn owner(scope: Scope, key: &ConversationKey, id: i64) -> Vec<Value<'_>> {
    match scope {
        Scope::User => vec![Value::Text(&key.tenant), Value::Text(&key.app), Value::Text(&key.user)],
        Scope::App => vec![Value::Text(&key.tenant), Value::Text(&key.app)],
        Scope::Conversation | Scope::Temp => vec![Value::Int(id)],
    }
}
