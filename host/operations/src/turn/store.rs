//! Stores the entries of a turn, and answers its client when the first entries are stored.

use std::mem;
use std::time::{Duration, Instant};

use annex_conversation::{AppendError, Entry};
use annex_protocol::{A2aError, StreamResponse};
use annex_telemetry::timeline::{Part, Work};

use super::{Outcome, TaskOutcome, Turn};
use crate::fault;
use crate::tasks::record::Subscription;

impl Turn {
    /// Stores the pending events. The first call also answers the client.
    pub(super) async fn store(&mut self) -> Result<(), A2aError> {
        let entries = mem::take(&mut self.pending);
        if entries.is_empty() {
            return Ok(());
        }
        // The client subscribes before the events are stored, so that it misses none of them.
        self.announce();
        match self.append(&entries).await {
            // The events before the one that does not fit are stored.
            Err(AppendError::TooLarge(_)) if entries.len() > 1 => {
                for entry in entries.chunks(1) {
                    self.append(entry).await.map_err(fault::of_append)?;
                }
                Ok(())
            }
            other => other.map_err(fault::of_append),
        }
    }

    /// Stores entries, and then passes them to the readers of the task.
    pub(super) async fn append(&mut self, entries: &[Entry]) -> Result<(), AppendError> {
        let conversation = &self.context.conversation;
        let appended = conversation.append(entries).await?;
        add_to_timeline(entries);
        self.record.show(entries, appended.number, conversation.task().await);
        self.handler.process.tasks.follow(&appended);
        Ok(())
    }

    /// Stores the last entries, with which the turn leaves the queue. The last status has the receipt of the turn, if the config
    /// asks for receipts.
    pub(super) async fn append_last(&mut self, entries: &[Entry]) -> Result<(), AppendError> {
        let with_receipt = match self.handler.receipts {
            // Boxed, so that the future of a turn without receipts stays small.
            Some(_) => Box::pin(self.with_receipt(entries)).await,
            None => None,
        };
        let Some((with_receipt, signed)) = with_receipt else { return self.append_end(entries).await };
        match self.append_end(&with_receipt).await {
            Ok(()) => {
                self.send_copy(signed);
                Ok(())
            }
            // The task ends in any case, also if it has no room for its receipt.
            Err(error @ AppendError::TooLarge(_)) => {
                let ended = self.append_end(entries).await;
                if ended.is_ok() {
                    self.log_unsigned(&error);
                }
                ended
            }
            Err(error) => Err(error),
        }
    }

    async fn append_end(&mut self, entries: &[Entry]) -> Result<(), AppendError> {
        let conversation = &self.context.conversation;
        let appended = conversation.end(entries).await?;
        add_to_timeline(entries);
        self.record.show(entries, appended.number, conversation.task().await);
        self.handler.process.tasks.tell_queue(self.record.key());
        self.handler.process.tasks.follow(&appended);
        Ok(())
    }

    /// Answers the client with the present task, if the client has no answer yet.
    pub(super) fn announce(&mut self) {
        let Some(client) = self.take_client() else { return };
        let subscription = self.record.subscribe();
        let reader = subscription.reader.filter(|_| self.is_followed);
        let (record, active) = (self.record.clone(), self.active());
        let outcome =
            TaskOutcome { record, subscription: Subscription { reader, ..subscription }, active, running: None };
        // A client that has hung up does not stop the task.
        let _ = client.send(Ok(Outcome::Task(outcome)));
        self.record.decide();
    }
}

/// Adds the events that readers of the task got to the timeline of the request.
fn add_to_timeline(entries: &[Entry]) {
    annex_telemetry::with(|request| {
        let Some(timeline) = request.timeline() else { return };
        let at = Instant::now();
        for entry in entries {
            let Entry::Update(update) = entry else { continue };
            let (what, state) = match &**update {
                StreamResponse::Task(task) => ("task", task.status.state.name()),
                StreamResponse::Message(_) => ("message", ""),
                StreamResponse::StatusUpdate(update) => ("status", update.status.state.name()),
                StreamResponse::ArtifactUpdate(_) => ("artifact", ""),
            };
            timeline.add("", &Part { verdict: state, ..Part::new(Work::Event, what, at, Duration::ZERO) });
        }
    });
}
