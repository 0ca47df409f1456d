//! Changes of tasks, encoded.

use std::iter;

use annex_database::{Change, Database, Row, Value};
use annex_protocol::{ContextId, Task, TaskId};

use super::{from_sql, statements, to_sql};
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

impl Change for Write {
    /// The number of the last event.
    type Answer = u64;
    type Error = StoreError;

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

    fn is_refusal(error: &StoreError) -> bool {
        !matches!(error, StoreError::Database(_))
    }
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
