//! The writes of a turn to its task, and the first notification of the client.

use std::mem;
use std::sync::Arc;

use annex_protocol::{A2aError, StreamResponse, Task, TaskState, TaskStatus, Timestamp};
use annex_tasks::{StoreError, TaskEvent};

use super::stage::Client;
use super::{Outcome, Stage, TaskOutcome, Turn};
use crate::fault;
use crate::tasks::FirstTurn;
use crate::tasks::record::{Subscription, TaskRecord};

impl Turn {
    /// Stores the pending events. The first call also answers the client, and creates the task of a new turn.
    pub(super) async fn store(&mut self) -> Result<(), A2aError> {
        let events = mem::take(&mut self.pending);
        if events.is_empty() {
            return Ok(());
        }
        match mem::replace(&mut self.stage, Stage::Taskless) {
            Stage::Joined { task, client } => {
                // The client subscribes before the events are stored, so that it misses none of them.
                self.announce(client, &task, task.subscribe());
                self.stage = Stage::Working { task };
            }
            other => self.stage = other,
        }
        match &self.stage {
            Stage::Working { task } => Arc::clone(task).append(events).await.map_err(fault::of_store),
            Stage::Opening { .. } => self.create(events).await,
            // The client has got another answer than this task.
            Stage::Accepted { .. } | Stage::Joined { .. } | Stage::Taskless | Stage::Ended => Ok(()),
        }
    }

    pub(super) fn announce(&self, client: Client, record: &Arc<TaskRecord>, subscription: Subscription) {
        let record = Arc::clone(record);
        let active = self.active();
        let outcome = TaskOutcome { record, subscription, active, running: None };
        // A client that has hung up does not stop the task.
        let _ = client.send(Ok(Outcome::Task(outcome)));
    }

    /// Creates the task of a new turn with these events.
    pub(super) async fn create(&mut self, events: Vec<StreamResponse>) -> Result<(), A2aError> {
        let events: Vec<TaskEvent> = events.into_iter().map(TaskEvent::from).collect();
        let Err(error) = self.try_create(&events).await else { return Ok(()) };
        if matches!(error, StoreError::AlreadyExists { .. }) {
            return Err(self.yield_to_other());
        }
        if matches!(error, StoreError::Fenced { .. }) {
            let error = fault::lost_place();
            self.refuse(error.clone());
            return Err(error);
        }
        let is_too_large = matches!(error, StoreError::TooLarge { .. });
        let error = fault::of_store(error);
        // One of the events may be impossible to store. The task is then created without them, so that it can report
        // the failure.
        if self.try_create(&[]).await.is_err() {
            self.refuse(error.clone());
        } else if is_too_large && let Stage::Working { task } = &self.stage {
            // The events before the one that does not fit are stored.
            return task.append_all(&events).await.map_err(fault::of_store);
        }
        Err(error)
    }

    /// Gives way to another process that has created the task. That process had claimed the message first, but was so
    /// slow that this one claimed it as well.
    fn yield_to_other(&mut self) -> A2aError {
        if let Stage::Opening { delivery, .. } = &mut self.stage
            && let Some(delivery) = delivery.take()
        {
            // A repetition of the message gets that task.
            delivery.settle();
        }
        let reason =
            "another process of this server works on this message; send it again under the same messageId".to_owned();
        let error = A2aError::Overloaded { reason };
        self.refuse(error.clone());
        error
    }

    pub(super) async fn try_create(&mut self, events: &[TaskEvent]) -> Result<(), StoreError> {
        let task = Task {
            id: self.context.task_id.clone(),
            context_id: self.context.context_id.clone(),
            status: TaskStatus { state: TaskState::Submitted, message: None, timestamp: Some(Timestamp::now()) },
            history: vec![(*self.context.message).clone()],
            ..Task::default()
        };
        let turn = FirstTurn {
            cancel: self.context.cancel.clone(),
            is_followed: self.is_followed,
            runner: self.replica.clone(),
            stored: self.stored.as_deref(),
        };
        let (task, subscription) = self.tasks.create(&self.owner, task, events, turn).await?;
        if let Stage::Opening { client, delivery } =
            mem::replace(&mut self.stage, Stage::Working { task: Arc::clone(&task) })
        {
            self.announce(client, &task, subscription);
            if let Some(delivery) = delivery {
                delivery.settle();
            }
        }
        Ok(())
    }
}
