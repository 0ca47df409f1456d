//! Conversations in a SQL database. SQLite and PostgreSQL share this code.

mod admin;
mod append;
mod artifacts;
mod checks;
mod cursors;
mod delete;
mod enter;
mod late;
mod leased;
mod read;
mod recover;
mod scopes;
mod statements;
mod sweep;
mod upkeep_statements;
mod values;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_database::{Row, Value, Writer};
use annex_protocol::{Message, TaskId, Timestamp};
use async_trait::async_trait;
use tokio::sync::Notify;

use crate::claim::{self, Claim, Claimant, MessageKey};
use crate::entry::StoredEntry;
use crate::error::{AppendError, StoreError};
use crate::fence::Fence;
use crate::history::{ConversationSnapshot, StoredArtifact, Window};
use crate::key::{ConversationKey, Owner, check_key, check_name};
use crate::limits::Limits;
use crate::numbering::next_number;
use crate::page::{TaskPage, TaskQuery};
use crate::queue::{Departure, Entrance, LostTurn, Submission, TurnOfTask};
use crate::retention::{Retention, Swept};
use crate::store::{Append, Appended, ConversationStore, Position};
use crate::stored_task::StoredTask;
use annex_leases::Replica;
use append::Write;
use leased::Leased;
use values::message as message_names;

/// Conversations and tasks in a SQL database.
pub struct SqlStore<D> {
    database: Arc<D>,
    writer: Writer<D, Write>,
    limits: Limits,
    hints: Hints,
}

impl<D> fmt::Debug for SqlStore<D> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SqlStore").field("writer", &self.writer).finish_non_exhaustive()
    }
}

/// The signals that wake waiting turns of this process, by conversation.
#[derive(Debug, Default)]
struct Hints(Mutex<HashMap<ConversationKey, Arc<Notify>>>);

/// A turn that waits for hints about its conversation. When the last waiting turn of a conversation is dropped, the signal of
/// the conversation is removed.
struct WaitingTurn<'a> {
    hints: &'a Hints,
    key: &'a ConversationKey,
    /// Fires when the queue of the conversation may have moved.
    hint: Arc<Notify>,
}

impl Hints {
    fn wait<'a>(&'a self, key: &'a ConversationKey) -> WaitingTurn<'a> {
        let hint = Arc::clone(self.lock().entry(key.clone()).or_default());
        WaitingTurn { hints: self, key, hint }
    }

    fn give(&self, key: &ConversationKey) {
        if let Some(hint) = self.lock().get(key) {
            hint.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ConversationKey, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WaitingTurn<'_> {
    fn drop(&mut self) {
        let mut hints = self.hints.lock();
        // This one, and the one in the map.
        if Arc::strong_count(&self.hint) <= 2 {
            hints.remove(self.key);
        }
    }
}

impl<D: Leased> SqlStore<D> {
    pub(crate) fn on(database: D, limits: Limits) -> Self {
        let database = Arc::new(database);
        Self { writer: Writer::new(Arc::clone(&database)), database, limits, hints: Hints::default() }
    }
}

/// Takes back a claim after an error that does not tell whether the database has made the claim. While this process
/// lives, no other process would remove the claim.
fn give_claim_back<D: Leased>(database: Arc<D>, (owner, message): (Owner, MessageKey), by: Claimant) {
    late::undo(by.replica.clone(), move || {
        let (database, owner, message, by) = (Arc::clone(&database), owner.clone(), message.clone(), by.clone());
        async move { release_claim(database.as_ref(), (&owner, &message), &by).await }
    });
}

/// Deletes this claim. A later claim of the same message has another number, and stays.
async fn release_claim<D: Leased>(
    database: &D,
    (owner, message): (&Owner, &MessageKey),
    by: &Claimant,
) -> Result<(), StoreError> {
    let [tenant, principal, context, id] = message_names(owner, message);
    let values = [tenant, principal, context, id, Value::Text(by.replica.id()), Value::count(by.number)];
    database.change(statements::RELEASE_CLAIM, &values).await?;
    Ok(())
}

#[async_trait]
impl<D: Leased> ConversationStore for SqlStore<D> {
    async fn claim(
        &self,
        owner: &Owner,
        message: &MessageKey,
        task: &TaskId,
        by: &Claimant,
    ) -> Result<Claim, AppendError> {
        claim::check_names(owner, message, task)?;
        let [tenant, principal, context, id] = message_names(owner, message);
        let values = [
            tenant,
            principal,
            context,
            id,
            Value::Bytes(&message.digest),
            Value::Text(task.as_str()),
            Value::Int(Timestamp::now().as_millis()),
            Value::Text(by.replica.id()),
            Value::count(by.number),
        ];
        let rows = self.database.change(D::STATEMENTS.claim, &values).await.inspect_err(|_| {
            let (database, owner, message, by) = (&self.database, owner.clone(), message.clone(), by.clone());
            give_claim_back(Arc::clone(database), (owner, message), by);
        })?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let (task, replica, answer) = (TaskId::from(row.text(1)?), row.text(2)?, row.text(4)?);
        if row.bytes(0)? != message.digest {
            return Ok(Claim::Different);
        }
        if !answer.is_empty() {
            let what = || format!("the answer to message {}", message.message);
            let answer: Message =
                serde_json::from_str(&answer).map_err(|source| StoreError::Unreadable { what: what(), source })?;
            return Ok(Claim::Answered(Box::new(answer)));
        }
        Ok(match replica.as_str() {
            "" => Claim::Repeated(task),
            // The claim that holds is this very one: the statement has made it.
            other if other == by.replica.id() && annex_database::from_sql::<u64>(row.int(3)?) == by.number => {
                Claim::New(task)
            }
            _ => Claim::Open(task),
        })
    }

    async fn release(&self, owner: &Owner, message: &MessageKey, by: &Claimant) -> Result<(), StoreError> {
        if check_key("message id", message.message.as_str()).is_err() {
            return Ok(());
        }
        release_claim(self.database.as_ref(), (owner, message), by).await
    }

    async fn enter(
        &self,
        key: &ConversationKey,
        submission: Submission,
        window: Window,
    ) -> Result<Entrance, AppendError> {
        key.check()?;
        check_name("task id", submission.task.as_str())?;
        let fence = Fence { replica: submission.replica.clone(), epoch: next_number() };
        let entered = enter::enter(self.database.as_ref(), key, (&submission, &fence), window).await;
        if let Err(AppendError::Store(_)) = entered {
            enter::give_back(Arc::clone(&self.database), key.clone(), fence);
        }
        entered
    }

    async fn wait(
        &self,
        key: &ConversationKey,
        fence: &Fence,
        window: Window,
    ) -> Result<ConversationSnapshot, AppendError> {
        let waiting = self.hints.wait(key);
        enter::wait(self.database.as_ref(), key, fence, &waiting.hint).await?;
        drop(waiting);
        Ok(read::conversation(self.database.as_ref(), key, window).await?)
    }

    async fn leave(&self, key: &ConversationKey, fence: &Fence, departure: Departure) -> Result<(), StoreError> {
        enter::leave(self.database.as_ref(), key, fence, departure).await?;
        self.hints.give(key);
        Ok(())
    }

    async fn append(&self, key: &ConversationKey, at: &Position, append: Append<'_>) -> Result<Appended, AppendError> {
        if append.by.is_none() {
            key.check()?;
            if let Some(task) = &at.task {
                check_name("task id", task.as_str())?;
            }
        }
        let write = Write::new::<D>(key, at, &append, &self.limits)?;
        let number = match append.by {
            // A turn outlasts the absence of its database for as long as its lease holds.
            Some(fence) => {
                let stored = self.writer.store_until(write, fence.replica.over()).await;
                stored.unwrap_or(Err(AppendError::Fenced))?
            }
            None => self.writer.store(write).await?,
        };
        if append.ends {
            self.hints.give(key);
        }
        Ok(Appended { number, ..Appended::default() })
    }

    async fn entries_after(
        &self,
        task: &TaskId,
        after: u64,
        limit: (usize, usize),
    ) -> Result<Vec<StoredEntry>, StoreError> {
        read::entries_after(self.database.as_ref(), task, after, limit).await
    }

    async fn conversation(&self, key: &ConversationKey, window: Window) -> Result<ConversationSnapshot, StoreError> {
        read::conversation(self.database.as_ref(), key, window).await
    }

    async fn artifact(&self, key: &ConversationKey, name: &str) -> Result<Option<StoredArtifact>, StoreError> {
        read::artifact(self.database.as_ref(), key, name).await
    }

    async fn task(&self, id: &TaskId) -> Result<Option<StoredTask>, StoreError> {
        read::task(self.database.as_ref(), id).await
    }

    async fn tasks(&self, owner: &Owner, query: &TaskQuery) -> Result<TaskPage, StoreError> {
        read::tasks(self.database.as_ref(), owner, query).await
    }

    async fn changed(&self, known: &[(TaskId, u64)]) -> Result<Vec<(TaskId, Option<u64>)>, StoreError> {
        recover::changed(self.database.as_ref(), known).await
    }

    async fn cancel(&self, task: &TaskId) -> Result<Option<TurnOfTask>, StoreError> {
        recover::cancel(self.database.as_ref(), task).await
    }

    async fn turns_to_stop(&self, running: &[(TaskId, Fence)]) -> Result<Vec<TaskId>, StoreError> {
        recover::turns_to_stop(self.database.as_ref(), running).await
    }

    async fn take(&self, task: &TaskId, from: &Fence, by: &Replica) -> Result<Option<LostTurn>, StoreError> {
        let taken = recover::take(self.database.as_ref(), task, from, by).await?;
        let Some((turn, _)) = taken else { return Ok(None) };
        self.hints.give(&turn.key);
        Ok(Some(turn))
    }

    async fn take_lost(&self, by: &Replica, limit: usize) -> Result<Vec<LostTurn>, StoreError> {
        let lost = recover::take_lost(self.database.as_ref(), by, limit).await?;
        lost.iter().for_each(|turn| self.hints.give(&turn.key));
        Ok(lost)
    }

    async fn sweep(&self, retention: &Retention) -> Result<Swept, StoreError> {
        annex_database::with_long_statements(sweep::sweep(self.database.as_ref(), retention)).await
    }

    async fn sweep_tenant(&self, tenant: &str, count: u64) -> Result<u64, StoreError> {
        sweep::sweep_tenant(self.database.as_ref(), tenant, count).await
    }

    fn hint(&self, key: &ConversationKey) {
        self.hints.give(key);
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    async fn probe(&self) -> Result<(), StoreError> {
        self.database.read(statements::PROBE, &[]).await?;
        Ok(())
    }

    async fn close(&self) {
        self.database.close().await;
    }
}

#[cfg(test)]
mod tests {
    use super::Hints;
    use crate::key::ConversationKey;

    #[test]
    fn a_conversation_is_forgotten_with_the_last_turn_that_waits_in_it() {
        let hints = Hints::default();
        let key = ConversationKey::new("tenant", "app", "user", "context");
        let (one, other) = (hints.wait(&key), hints.wait(&key));
        drop(one);
        assert_eq!(hints.lock().len(), 1);
        drop(other);
        assert!(hints.lock().is_empty());
    }
}
