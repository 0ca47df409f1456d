//! The writes of a record, and the reads of events that other processes have stored.
//!
//! The store is the truth: after a failure or a write of another process, the record reads the stored events. A turn
//! whose task belongs to another process stores nothing.

use std::sync::Arc;

use annex_leases::Replica;
use annex_protocol::{Message, StreamResponse};
use annex_tasks::{Place, StoreError, TaskEvent, TaskSnapshot, is_worked_on};

use super::{NextTurn, TaskRecord};
use crate::tasks::running_turn::RunningTurn;

/// The number of events that one query reads.
const CATCH_UP: usize = 100;

impl TaskRecord {
    /// Stores events together, applies them and passes them to every reader. Events after the final state are dropped.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] if the task would become too large; the events that fit are stored.
    /// [`StoreError::Fenced`] if another process works on the task.
    pub(crate) async fn append(&self, events: impl IntoIterator<Item = StreamResponse>) -> Result<(), StoreError> {
        let events: Vec<TaskEvent> = events.into_iter().map(TaskEvent::from).collect();
        self.append_all(&events).await
    }

    /// Like [`append`](Self::append), for events that are ready to be stored.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub(crate) async fn append_all(&self, events: &[TaskEvent]) -> Result<(), StoreError> {
        let mut last = self.last.lock().await;
        match self.store(&mut last, events).await {
            Err(StoreError::Fenced { .. }) if !self.is_running() => {
                // The task has had other turns since this record was made.
                self.reload(&mut last).await?;
                if self.runs_elsewhere() {
                    return Err(StoreError::Fenced { task: self.id.clone() });
                }
                self.store(&mut last, events).await
            }
            Err(StoreError::TooLarge { .. }) if events.len() > 1 => {
                // Stored one by one, so that the events that fit are stored.
                for event in events.chunks(1) {
                    self.store(&mut last, event).await?;
                }
                Ok(())
            }
            other => other,
        }
    }

    /// Applies the events that were stored together with the new task.
    pub(crate) async fn show_first(&self, events: &[TaskEvent], task: TaskSnapshot) {
        let mut last = self.last.lock().await;
        last.seq += events.len() as u64;
        self.show(events, (last.seq, task));
    }

    /// Reads and applies the events that other processes have stored.
    pub(crate) async fn refresh(&self) -> Result<(), StoreError> {
        let mut last = self.last.lock().await;
        self.catch_up(&mut last).await
    }

    /// Like [`refresh`](Self::refresh), and also reads the task's epoch.
    pub(crate) async fn learn_epoch(&self) -> Result<(), StoreError> {
        let mut last = self.last.lock().await;
        self.reload(&mut last).await
    }

    /// Stores a message of the client. Refused if another process works on the task, or if the lease of the turn's
    /// replica has ended.
    pub(super) async fn join(&self, last: &mut Place, message: Message, turn: NextTurn) -> Result<bool, StoreError> {
        let events = [TaskEvent::from(message)];
        let NextTurn { runner, stored, .. } = turn;
        let begins_at = |last: &Place| Place { runner: runner.clone(), turn: stored.clone(), ..last.clone() };
        let stored = match self.try_store(&begins_at(last), &events).await {
            Err(StoreError::Stale { .. } | StoreError::Fenced { .. }) => {
                self.reload(last).await?;
                if self.runs_elsewhere() {
                    return Ok(false);
                }
                match self.try_store(&begins_at(last), &events).await {
                    Err(error @ StoreError::Fenced { .. }) if runner.as_ref().is_some_and(Replica::is_over) => {
                        return Err(error);
                    }
                    Err(StoreError::Stale { .. } | StoreError::Fenced { .. }) => return Ok(false),
                    other => other?,
                }
            }
            other => other?,
        };
        self.apply(last, &events, stored);
        Ok(true)
    }

    pub(super) async fn store(&self, last: &mut Place, events: &[TaskEvent]) -> Result<(), StoreError> {
        let stored = self.try_store(last, events).await;
        let stored = match stored {
            Err(StoreError::Stale { .. }) => {
                // The store made the first append although it reported an error, or another process wrote.
                let is_stored = self.are_stored(last.seq, events).await?;
                self.catch_up(last).await?;
                if is_stored {
                    return Ok(());
                }
                self.try_store(last, events).await?
            }
            other => other?,
        };
        self.apply(last, events, stored);
        Ok(())
    }

    fn apply(&self, last: &mut Place, events: &[TaskEvent], stored: Option<(Place, TaskSnapshot)>) {
        if let Some((place, task)) = stored {
            *last = place;
            self.lock().last_is_ours = true;
            self.show(events, (last.seq, task));
            self.wake.tell(self.id.as_str(), last.seq);
        }
    }

    /// Stores events. Returns the next place and the task with the events, or `None` if the task accepts no further
    /// events. Nothing is stored for a turn whose task may belong to another process.
    async fn try_store(&self, last: &Place, events: &[TaskEvent]) -> Result<Option<(Place, TaskSnapshot)>, StoreError> {
        let before = {
            let state = self.lock();
            if state.log.is_none() {
                return Ok(None);
            }
            if state.turn.as_ref().is_some_and(RunningTurn::is_lost) {
                return Err(StoreError::Fenced { task: self.id.clone() });
            }
            state.task.clone()
        };
        let task = before.with(events);
        task.check(&before, &self.limits).map_err(|excess| StoreError::TooLarge { excess })?;
        match self.store.append(&self.id, last, events, &task).await {
            Ok(place) => Ok(Some((place, task))),
            Err(error) => {
                if let (StoreError::Fenced { .. }, Some(turn)) = (&error, &mut self.lock().turn) {
                    turn.is_fenced = true;
                }
                Err(error)
            }
        }
    }

    /// True if the stored log continues with exactly these events.
    async fn are_stored(&self, last: u64, events: &[TaskEvent]) -> Result<bool, StoreError> {
        let stored = self.store.events_after(&self.id, last, events.len()).await?;
        Ok(stored.len() == events.len() && stored.iter().zip(events).all(|(stored, event)| stored.is(event)))
    }

    /// Takes over the task in the epoch of this place.
    pub(super) async fn take_at(&self, last: &mut Place) -> Result<bool, StoreError> {
        let Some(place) = self.store.take(&self.id, last.epoch).await? else { return Ok(false) };
        // Set first: the task belongs to this process even if its events cannot be read.
        *last = Place { seq: last.seq, ..place };
        self.catch_up(last).await?;
        Ok(true)
    }

    /// Reads new events, the task's epoch, and whether a turn works on it.
    async fn reload(&self, last: &mut Place) -> Result<(), StoreError> {
        let stored = self.store.load(&self.owner, &self.id).await?;
        let stored = stored.ok_or_else(|| StoreError::NotFound { task: self.id.clone() })?;
        self.catch_up(last).await?;
        *last = Place { seq: last.seq, ..stored.place() };
        self.lock().is_worked_on = stored.is_worked_on;
        Ok(())
    }

    async fn catch_up(&self, last: &mut Place) -> Result<(), StoreError> {
        loop {
            let events = self.store.events_after(&self.id, last.seq, CATCH_UP).await?;
            if events.is_empty() {
                return Ok(());
            }
            let unreadable = |source| StoreError::Unreadable { task: self.id.clone(), source };
            let decoded = events.iter().map(|stored| stored.decode().map_err(unreadable));
            let decoded: Vec<TaskEvent> = decoded.collect::<Result<_, _>>()?;
            last.seq += decoded.len() as u64;
            self.lock().last_is_ours = false;
            self.show(&decoded, (last.seq, self.snapshot().with(&decoded)));
        }
    }

    /// Applies stored events and passes them to readers. `task` includes the events, and `seq` is the number of the
    /// last one.
    fn show(&self, events: &[TaskEvent], (seq, task): (u64, TaskSnapshot)) {
        let mut state = self.lock();
        let is_final = task.state().is_terminal();
        state.is_worked_on = is_worked_on(state.is_worked_on, events, task.state());
        state.task = task;
        state.seq = seq;
        let Some(log) = &state.log else { return };
        // A new reader begins at the end of the log, so an event that is appended without readers would never be read.
        if log.has_readers() {
            let first = seq.saturating_sub(events.len() as u64).saturating_add(1);
            let shown = (first..).zip(events).filter_map(|(seq, event)| match event {
                TaskEvent::Stream(event) => Some((seq, Arc::clone(event))),
                TaskEvent::Message(_) => None,
            });
            log.append(shown);
        }
        if is_final && let Some(log) = state.log.take() {
            log.close();
        }
    }
}
