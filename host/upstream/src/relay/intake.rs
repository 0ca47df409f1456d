//! What comes of the upstream in a turn: made readable, and counted before anything is stored or sent on.

use annex_protocol::StreamResponse;

use super::measure::{replace_unreadable, size};
use crate::failure::Deviation;

/// Artifacts of one turn.
const MAX_ARTIFACTS: usize = 1_000;

/// The events that have come. An upstream that never stops must not fill the task.
pub(super) struct Intake {
    /// The most bytes that may come.
    room: usize,
    /// Bytes of the events, roughly.
    bytes: usize,
    /// Bytes of the largest form in which the task has come as a whole.
    task_bytes: usize,
    /// The number of events.
    taken: usize,
    /// The number of events in which bytes were not base64.
    unreadable: usize,
}

impl Intake {
    pub(super) fn new(room: usize) -> Self {
        Self { room, bytes: 0, task_bytes: 0, taken: 0, unreadable: 0 }
    }

    /// The number of events that have come.
    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    /// Bytes of the events that have come, roughly.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes an event. `artifacts` were sent on so far.
    pub(super) fn take(&mut self, event: &mut StreamResponse, artifacts: usize) -> Result<(), Deviation> {
        let bytes = self.read(event);
        if matches!(event, StreamResponse::Task(_)) {
            self.task_bytes = self.task_bytes.max(bytes);
        }
        self.count(bytes, artifacts)
    }

    /// Takes the task as a whole, which repeats what it had before. That counts once.
    pub(super) fn take_asked(&mut self, event: &mut StreamResponse, artifacts: usize) -> Result<(), Deviation> {
        let bytes = self.read(event);
        let before = self.task_bytes;
        self.task_bytes = before.max(bytes);
        self.count(bytes.saturating_sub(before), artifacts)
    }

    /// Takes the task as it was before this turn. It may have as many bytes as it has.
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

    /// Replaces what no client could read, which the log tells once for the turn. Returns the bytes of the event.
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
