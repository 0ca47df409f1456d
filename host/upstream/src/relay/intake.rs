//! Counts the events of a turn and makes them readable before they are stored or relayed.

use annex_protocol::StreamResponse;

use super::measure::{replace_unreadable, size};
use crate::failure::Deviation;

/// The maximum number of artifacts of one turn.
const MAX_ARTIFACTS: usize = 1_000;

/// Counts the events of a turn and their bytes. Both are limited, so that an upstream that never stops cannot fill the
/// task.
pub(super) struct Intake {
    /// The maximum size of all events of the turn together, in bytes.
    room: usize,
    /// The approximate bytes of all events so far.
    bytes: usize,
    /// The bytes of the largest whole task so far.
    task_bytes: usize,
    /// The number of events.
    taken: usize,
    /// The number of events with bytes that were not valid base64.
    unreadable: usize,
}

impl Intake {
    pub(super) fn new(room: usize) -> Self {
        Self { room, bytes: 0, task_bytes: 0, taken: 0, unreadable: 0 }
    }

    /// The number of events so far.
    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    /// The approximate bytes of all events so far.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Counts an event. `artifacts` is the number of relayed artifacts. Fails if a limit is exceeded.
    pub(super) fn take(&mut self, event: &mut StreamResponse, artifacts: usize) -> Result<(), Deviation> {
        let bytes = self.read(event);
        if matches!(event, StreamResponse::Task(_)) {
            self.task_bytes = self.task_bytes.max(bytes);
        }
        self.count(bytes, artifacts)
    }

    /// Counts a whole task that was read again. Only the growth of the task since the last whole task counts. Fails if
    /// a limit is exceeded.
    pub(super) fn take_asked(&mut self, event: &mut StreamResponse, artifacts: usize) -> Result<(), Deviation> {
        let bytes = self.read(event);
        let before = self.task_bytes;
        self.task_bytes = before.max(bytes);
        self.count(bytes.saturating_sub(before), artifacts)
    }

    /// Counts the whole task as it was before this turn. Does not check the limit.
    pub(super) fn take_first(&mut self, event: &mut StreamResponse) {
        self.taken += 1;
        self.task_bytes = self.read(event);
        self.bytes = self.bytes.saturating_add(self.task_bytes);
    }

    pub(super) fn check_number(&self, artifacts: usize) -> Result<(), Deviation> {
        let endless = Deviation::Endless { bytes: self.bytes, artifacts };
        if artifacts > MAX_ARTIFACTS { Err(endless) } else { Ok(()) }
    }

    fn count(&mut self, bytes: usize, artifacts: usize) -> Result<(), Deviation> {
        self.taken += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.room {
            return Err(Deviation::Endless { bytes: self.bytes, artifacts });
        }
        self.check_number(artifacts)
    }

    /// Replaces bytes that no client could read, and logs the first such event of the turn. Returns the size of the
    /// event in bytes.
    fn read(&mut self, event: &mut StreamResponse) -> usize {
        if replace_unreadable(event) {
            self.unreadable += 1;
            if self.unreadable == 1 {
                tracing::warn!("the upstream agent sent bytes that are not base64; they were replaced");
            }
        }
        size(event)
    }
}
