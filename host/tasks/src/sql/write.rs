//! Changes of tasks. Where a database has one writer, those that come while it is busy wait together and go in one
//! transaction, which costs little more than one of them alone.

use std::iter;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_protocol::{ContextId, Task, TaskId};
use tokio::sync::oneshot;

use super::{Database, Row, Value, from_sql, statements, to_sql};
use crate::record::{Kind, Standing};
use crate::{Owner, StoreError, TaskEvent};

/// A change of one task, encoded.
pub(super) struct Write {
    id: TaskId,
    place: Place,
    standing: Standing,
    json: String,
    /// The kind of each event and its JSON.
    events: Vec<(Kind, String)>,
}

enum Place {
    New { owner: Owner, context: ContextId },
    After(u64),
}

/// Who waits for a change learns the number of its last event.
type Answer = oneshot::Sender<Result<u64, StoreError>>;

/// Changes that wait for the writer.
#[derive(Default)]
pub(super) struct Queue(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    writes: Vec<(Write, Answer)>,
    /// Whether somebody takes what is added.
    is_served: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // What clients sent is not for logs.
        formatter.debug_struct("Queue").field("waiting", &self.lock().writes.len()).finish_non_exhaustive()
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the caller has to see to it that the queue is served.
    fn add(&self, write: Write, answer: Answer) -> bool {
        let mut waiting = self.lock();
        waiting.writes.push((write, answer));
        !mem::replace(&mut waiting.is_served, true)
    }

    /// All that wait; none ends the service.
    fn take(&self) -> Vec<(Write, Answer)> {
        let mut waiting = self.lock();
        waiting.is_served = !waiting.writes.is_empty();
        mem::take(&mut waiting.writes)
    }
}

/// Stores the change, with others that wait where that is cheaper.
pub(super) async fn store<D: Database>(database: &Arc<D>, queue: &Arc<Queue>, write: Write) -> Result<u64, StoreError> {
    if !D::HAS_ONE_WRITER {
        return write.store_alone(database.as_ref()).await;
    }
    let (answer, answered) = oneshot::channel();
    if queue.add(write, answer) {
        // In a task of its own: a caller that goes away must not take the changes of others with it.
        tokio::spawn(serve(Arc::clone(database), Arc::clone(queue)));
    }
    answered.await.unwrap_or(Err(StoreError::Database(sqlx::Error::WorkerCrashed)))
}

async fn serve<D: Database>(database: Arc<D>, queue: Arc<Queue>) {
    loop {
        let taken = queue.take();
        if taken.is_empty() {
            return;
        }
        let (writes, answers): (Vec<Write>, Vec<Answer>) = taken.into_iter().unzip();
        for (result, answer) in store_together(database.as_ref(), &writes).await.into_iter().zip(answers) {
            // Whoever has gone away needs no answer.
            let _ = answer.send(result);
        }
    }
}

async fn store_together<D: Database>(database: &D, writes: &[Write]) -> Vec<Result<u64, StoreError>> {
    let transaction = match database.begin().await {
        Ok(transaction) => transaction,
        // The writer is not to be had, for none of them.
        Err(error) => {
            let same = |_| Err(sqlx::Error::Protocol(error.to_string()).into());
            return writes.iter().map(same).collect();
        }
    };
    match in_one_transaction::<D>(transaction, writes).await {
        Ok(results) => results,
        Err(error) if writes.len() == 1 => vec![Err(error)],
        // One of them is what cannot be stored: each for itself.
        Err(_) => {
            let mut results = Vec::with_capacity(writes.len());
            for write in writes {
                results.push(write.store_alone(database).await);
            }
            results
        }
    }
}

async fn in_one_transaction<D: Database>(
    mut transaction: D::Transaction,
    writes: &[Write],
) -> Result<Vec<Result<u64, StoreError>>, StoreError> {
    let mut results = Vec::with_capacity(writes.len());
    for write in writes {
        results.push(match write.apply::<D>(&mut transaction).await {
            Err(error @ StoreError::Database(_)) => return Err(error),
            // One that is refused has changed nothing.
            result => result,
        });
    }
    D::commit(transaction).await?;
    Ok(results)
}

impl Write {
    /// A new task with its first events.
    pub(super) fn create(owner: &Owner, events: &[TaskEvent], task: &Task) -> Result<Self, StoreError> {
        let place = Place::New { owner: owner.clone(), context: task.context_id.clone() };
        Self::encode(place, events, task)
    }

    /// Events after event number `expected`.
    pub(super) fn append(expected: u64, events: &[TaskEvent], task: &Task) -> Result<Self, StoreError> {
        Self::encode(Place::After(expected), events, task)
    }

    fn encode(place: Place, events: &[TaskEvent], task: &Task) -> Result<Self, StoreError> {
        let events = events.iter().map(|event| Ok((event.kind(), event.encode()?)));
        let events = events.collect::<Result<_, StoreError>>()?;
        let (id, standing, json) = (task.id.clone(), Standing::of(task), serde_json::to_string(task)?);
        Ok(Self { id, place, standing, json, events })
    }

    async fn store_alone<D: Database>(&self, database: &D) -> Result<u64, StoreError> {
        let mut transaction = database.begin().await?;
        let last = self.apply::<D>(&mut transaction).await?;
        D::commit(transaction).await?;
        Ok(last)
    }

    /// The number of the last event.
    async fn apply<D: Database>(&self, transaction: &mut D::Transaction) -> Result<u64, StoreError> {
        let before = match &self.place {
            Place::New { .. } => 0,
            Place::After(expected) => *expected,
        };
        let last = before.saturating_add(self.events.len() as u64);
        let changed = match &self.place {
            Place::New { owner, context } => self.insert_task::<D>(transaction, owner, context, last).await?,
            // The row stays locked until the end, so that a second writer waits here and then finds another number.
            Place::After(expected) => self.update_task::<D>(transaction, *expected, last).await?,
        };
        if changed == 0 {
            return Err(self.refusal::<D>(transaction).await?);
        }
        self.insert_events::<D>(transaction, before).await?;
        Ok(last)
    }

    async fn insert_task<D: Database>(
        &self,
        transaction: &mut D::Transaction,
        owner: &Owner,
        context: &ContextId,
        last: u64,
    ) -> sqlx::Result<u64> {
        let row = [
            Value::Text(self.id.as_str()),
            Value::Text(&owner.tenant),
            Value::Text(&owner.principal),
            Value::Text(context.as_str()),
            Value::Text(self.standing.state.name()),
            Value::Int(self.standing.status_at),
            Value::MaybeInt(self.standing.finished_at),
            Value::Int(to_sql(last)),
            Value::Text(&self.json),
        ];
        D::execute(transaction, statements::INSERT_TASK, &row).await
    }

    async fn update_task<D: Database>(
        &self,
        transaction: &mut D::Transaction,
        expected: u64,
        last: u64,
    ) -> sqlx::Result<u64> {
        let change = [
            Value::Text(self.id.as_str()),
            Value::Int(to_sql(expected)),
            Value::Int(to_sql(last)),
            Value::Text(self.standing.state.name()),
            Value::Int(self.standing.status_at),
            Value::MaybeInt(self.standing.finished_at),
            Value::Text(&self.json),
        ];
        D::execute(transaction, statements::UPDATE_TASK, &change).await
    }

    /// Inserts the events after number `before`.
    async fn insert_events<D: Database>(&self, transaction: &mut D::Transaction, before: u64) -> sqlx::Result<()> {
        let mut numbered = self.events.iter().zip(1..);
        let (fours, _) = self.events.as_chunks::<4>();
        for _ in fours {
            let values = self.event_values(before, numbered.by_ref().take(4));
            D::execute(transaction, statements::INSERT_FOUR_EVENTS, &values).await?;
        }
        for event in numbered {
            D::execute(transaction, statements::INSERT_EVENT, &self.event_values(before, [event])).await?;
        }
        Ok(())
    }

    /// The task's id, and number, kind and JSON of each event.
    fn event_values<'a>(
        &'a self,
        before: u64,
        events: impl IntoIterator<Item = (&'a (Kind, String), u64)>,
    ) -> Vec<Value<'a>> {
        let events = events.into_iter().flat_map(|((kind, json), number)| {
            [Value::Int(to_sql(before.saturating_add(number))), Value::Text(kind.name()), Value::Text(json)]
        });
        iter::once(Value::Text(self.id.as_str())).chain(events).collect()
    }

    /// Why no row was changed.
    async fn refusal<D: Database>(&self, transaction: &mut D::Transaction) -> sqlx::Result<StoreError> {
        let task = self.id.clone();
        let Place::After(expected) = self.place else { return Ok(StoreError::AlreadyExists { task }) };
        let rows = D::query(transaction, statements::SELECT_SEQ, &[Value::Text(task.as_str())]).await?;
        Ok(match rows.first() {
            Some(row) => StoreError::Stale { expected, found: from_sql(row.int(0)?) },
            None => StoreError::NotFound { task },
        })
    }
}
