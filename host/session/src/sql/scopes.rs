//! A change of the keys of one scope: first the plan, which checks the limits, then the writes.

use std::collections::HashMap;

use annex_database::{Database, Row, Value};
use annex_protocol::Json;

use super::encoding::encoded_name;
use super::statements;
use super::values::{NO_SESSION, named};
use crate::SessionError;
use crate::limits::{Limits, ScopeSize};
use crate::session::SessionKey;
use crate::state::{Scope, StateDelta};

/// The rows that a delta makes in one scope.
pub(super) struct ScopeChange<'a> {
    scope: Scope,
    /// In the order of their names, so that no two writers wait for each other.
    rows: Vec<KeyRow<'a>>,
}

struct KeyRow<'a> {
    name: String,
    /// `None` for a key that is removed.
    value: Option<&'a Json>,
    size: usize,
    place: i64,
}

/// The stored size and place of a key.
struct Kept {
    size: usize,
    place: i64,
}

impl<'a> ScopeChange<'a> {
    /// Reads the stored keys of the scope and plans the change. `id` is the session's.
    ///
    /// # Errors
    /// When the scope would grow beyond its limits.
    pub(super) async fn plan<D: Database>(
        transaction: &mut D::Transaction,
        (scope, delta): (Scope, &'a StateDelta),
        (key, id): (&SessionKey, i64),
        limits: &Limits,
    ) -> Result<Self, SessionError> {
        let select = match scope {
            Scope::User => statements::SELECT_KEYS_OF_USER,
            Scope::App => statements::SELECT_KEYS_OF_APP,
            Scope::Session | Scope::Temp => statements::SELECT_KEYS_OF_SESSION,
        };
        let mut kept = HashMap::new();
        // Others may be adding to a shared scope in transactions that are open. What they add is not seen, so that
        // turns at the same moment can exceed the limit by it.
        for row in D::query(transaction, select, &owner(scope, key, id)).await? {
            let size = usize::try_from(row.int(1)?).unwrap_or_default();
            kept.insert(row.text(0)?, Kept { size, place: row.int(2)? });
        }
        let before = size_of(&kept);
        let change = Self::over(&mut kept, (scope, delta), limits);
        limits.check_change(scope, before, size_of(&kept))?;
        Ok(change)
    }

    /// The rows to write and to delete. Updates `kept` to the keys after the change.
    fn over(kept: &mut HashMap<String, Kept>, (scope, delta): (Scope, &'a StateDelta), limits: &Limits) -> Self {
        let last = kept.values().map(|kept| kept.place).max().unwrap_or_default();
        let mut rows = Vec::new();
        for ((name, value), place) in delta.within(scope).zip(last.saturating_add(1)..) {
            let size = name.len() + value.get().len();
            let name = encoded_name(name);
            if limits.removes(value) {
                if kept.remove(&name).is_some() {
                    rows.push(KeyRow { name, value: None, size: 0, place });
                }
                continue;
            }
            kept.insert(name.clone(), Kept { size, place });
            rows.push(KeyRow { name, value: Some(value), size, place });
        }
        // Two transactions that lock the same rows in one order cannot end up waiting for each other.
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        Self { scope, rows }
    }

    /// Writes and deletes the rows. An existing key keeps its place.
    pub(super) async fn write<D: Database>(
        &self,
        transaction: &mut D::Transaction,
        key: &SessionKey,
        id: i64,
    ) -> Result<(), SessionError> {
        let put = match self.scope {
            Scope::User => statements::PUT_KEY_OF_USER,
            Scope::App => statements::PUT_KEY_OF_APP,
            Scope::Session | Scope::Temp => statements::PUT_KEY_OF_SESSION,
        };
        for row in &self.rows {
            let mut values = vec![Value::Text(&row.name)];
            let statement = match row.value {
                Some(value) => {
                    values.extend([Value::Text(value.get()), Value::count(row.size), Value::Int(row.place)]);
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

/// Deletes the key of an encoded name. Returns true if the key existed.
pub(super) async fn delete_key<D: Database>(
    transaction: &mut D::Transaction,
    (scope, name): (Scope, &str),
    key: &SessionKey,
) -> Result<bool, SessionError> {
    let mut id = NO_SESSION;
    if scope == Scope::Session {
        let rows = D::query(transaction, statements::LOCK_SESSION, &named(key)).await?;
        id = rows.first().map_or(Ok(NO_SESSION), |row| row.int(0))?;
    }
    let values: Vec<Value<'_>> = [Value::Text(name)].into_iter().chain(owner(scope, key, id)).collect();
    Ok(D::execute(transaction, delete(scope), &values).await? > 0)
}

/// The statement that deletes a key of a scope.
fn delete(scope: Scope) -> &'static str {
    match scope {
        Scope::User => statements::DELETE_KEY_OF_USER,
        Scope::App => statements::DELETE_KEY_OF_APP,
        Scope::Session | Scope::Temp => statements::DELETE_KEY_OF_SESSION,
    }
}

fn size_of(kept: &HashMap<String, Kept>) -> ScopeSize {
    ScopeSize { bytes: kept.values().map(|kept| kept.size).sum(), keys: kept.len() }
}

/// The parameters that name the owner of the keys of a scope.
fn owner(scope: Scope, key: &SessionKey, id: i64) -> Vec<Value<'_>> {
    match scope {
        Scope::User => vec![Value::Text(&key.tenant), Value::Text(&key.app), Value::Text(&key.user)],
        Scope::App => vec![Value::Text(&key.tenant), Value::Text(&key.app)],
        Scope::Session | Scope::Temp => vec![Value::Int(id)],
    }
}
