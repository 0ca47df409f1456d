//! Handles messages that are accepted while another turn of their conversation runs.
//!
//! The task of such a message is stored as SUBMITTED with its place in the queue, and the client gets this task as the answer.
//! The turn runs when it reaches the head of the queue, in this process or in another process. It runs even if its client has
//! disconnected.

use std::sync::Arc;
use std::time::Duration;

use annex_conversation::{
    AppendError, Appended, ConversationSnapshot, Departure, Entry, Fence, TaskSnapshot, UserMessage,
};
use annex_fairness::of_same_tenant;
use annex_protocol::{
    A2aError, Message, Part, StreamResponse, TaskState, TaskStatus, TaskStatusUpdateEvent, Timestamp,
};
use annex_telemetry::of_same_request;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span};

use crate::counters::TurnEnd;
use crate::fault;
use crate::request_handler::RequestHandler;
use crate::send_message::asked::Refused;
use crate::send_message::entered::{Accepted, Entered};
use crate::tasks::Tasks;
use crate::tasks::record::TaskRecord;
use crate::tasks::running_turn::RunningTurn;
use crate::turn::{Outcome, Running, TaskOutcome, TurnResult, closing_event};

/// The status message of a task whose turn still waits when its server shuts down, and whose store ends with the
/// server.
const SHUTTING_DOWN: &str = "The server is shutting down; send the message again.";
/// The status message of a task whose message was refused for a reason that cannot be stored.
const UNSTORED: &str = "The message was refused, and the reason cannot be stored with it.";

/// The reasons why the wait of a turn ends.
enum Comes {
    Now(ConversationSnapshot),
    Canceled,
    /// The server cannot wait any longer.
    Stopped,
    /// Another process has the turn, or will take it.
    Lost,
}

impl RequestHandler {
    /// Answers the client of an accepted message with its task. The turn waits in a tokio task of its own.
    pub(super) async fn wait_for_turn(&self, mut accepted: Accepted) -> Result<Outcome, A2aError> {
        let call = accepted.incoming.call.clone();
        let push_config = accepted.incoming.request.configuration.task_push_notification_config.take();
        let active = accepted.active.iter().map(|extension| extension.uri().clone()).collect();
        let continues = accepted.incoming.record.is_some();
        let (record, cancel) = self.show_accepted(&mut accepted);
        let subscription = record.subscribe();
        // From here on no client is needed.
        let running = self.run_when_it_comes(accepted, (Arc::clone(&record), cancel))?;
        let outcome = TaskOutcome { record, subscription, active, running: Some(running) };
        self.notify(&outcome, &call, (push_config, continues)).await?;
        Ok(Outcome::Task(outcome))
    }

    /// Makes the accepted task available to other requests, with a turn that can be cancelled.
    fn show_accepted(&self, accepted: &mut Accepted) -> (Arc<TaskRecord>, CancellationToken) {
        let cancel = CancellationToken::new();
        let turn = RunningTurn::new(cancel.clone(), accepted.queued.fence().clone(), true);
        let record = match &accepted.incoming.record {
            Some(record) => {
                record.begin_turn(turn);
                Arc::clone(record)
            }
            None => {
                let (id, key) = (accepted.incoming.task_id.clone(), accepted.incoming.key.clone());
                let task = TaskSnapshot::submitted(id, key.context.clone(), accepted.queued.since());
                let record = Arc::new(TaskRecord::new(key, task, turn, &self.process.tasks));
                self.process.tasks.insert(&record);
                accepted.incoming.record = Some(Arc::clone(&record));
                record
            }
        };
        (record, cancel)
    }

    /// Waits in the queue for a turn that an ended process has left there.
    pub(crate) fn wait_again(&self, mut accepted: Accepted) -> Result<Running, A2aError> {
        let shown = self.show_accepted(&mut accepted);
        self.run_when_it_comes(accepted, shown)
    }

    fn run_when_it_comes(
        &self,
        accepted: Accepted,
        shown: (Arc<TaskRecord>, CancellationToken),
    ) -> Result<Running, A2aError> {
        let Some(handler) = self.me.upgrade() else {
            return Err(A2aError::Overloaded { reason: "the agent is being replaced".to_owned() });
        };
        let waits = async move { handler.wait(accepted, shown).await };
        let waits = of_same_request(of_same_tenant(waits)).instrument(Span::current());
        Ok(Running::Waiting(tokio::spawn(self.process.running.track_future(waits))))
    }

    async fn wait(&self, accepted: Accepted, (record, cancel): (Arc<TaskRecord>, CancellationToken)) -> TurnResult {
        let fence = accepted.queued.fence().clone();
        match self.comes(&accepted, &cancel).await {
            Comes::Now(found) => {
                let Accepted { incoming, extensions, active, permit, queued, counted } = accepted;
                let conversation = queued.begin(found);
                let (claim, waited) = (None, Some(cancel));
                let entered = Entered { incoming, extensions, active, claim, permit, conversation, counted, waited };
                self.run_entered(entered).await
            }
            Comes::Canceled => {
                self.end_in_queue(accepted, &record, (TaskState::Canceled, None)).await;
                Ok(Vec::new())
            }
            Comes::Stopped if !self.process.tasks.process().store_outlives() => {
                self.end_in_queue(accepted, &record, (TaskState::Failed, Some(SHUTTING_DOWN))).await;
                Ok(Vec::new())
            }
            Comes::Stopped => {
                if let Err(error) = accepted.queued.leave(Departure::HandedOver { has_begun: false }).await {
                    fault::log(&error);
                }
                record.end_turn(&fence, true);
                Ok(Vec::new())
            }
            Comes::Lost => {
                record.end_turn(&fence, true);
                Ok(Vec::new())
            }
        }
    }

    /// Waits until the turn is the first in the queue, is cancelled, or is left to another process.
    async fn comes(&self, accepted: &Accepted, cancel: &CancellationToken) -> Comes {
        let _in_queue = self.process.tasks.waits_in(&accepted.incoming.key);
        let queued = &accepted.queued;
        tokio::select! {
            biased;
            found = queued.comes() => match found {
                Ok(found) => Comes::Now(found),
                Err(AppendError::Fenced) => Comes::Lost,
                Err(error) => {
                    fault::log(&error);
                    Comes::Lost
                }
            },
            () = cancel.cancelled() => Comes::Canceled,
            () = queued.fence().replica.over() => Comes::Lost,
            () = self.process.draining.cancelled() => Comes::Stopped,
            () = self.process.stop.cancelled() => Comes::Stopped,
        }
    }

    /// Runs a turn whose message was accepted before. If the turn is refused now, its task ends.
    pub(crate) async fn run_entered(&self, entered: Entered) -> TurnResult {
        let checked = match &entered.incoming.record {
            Some(record) if record.numbered().1 > 0 => {
                let followed = entered.follow_task(record).await;
                followed.and_then(|()| Tasks::check_question(record, entered.incoming.asked))
            }
            _ => Ok(()),
        };
        let begun = match checked.and_then(|()| self.check_removed()) {
            Ok(()) => self.asked_and_begun(entered).await,
            Err(error) => Err(Box::new(Refused { entered, error })),
        };
        match begun {
            Ok(begun) => begun.run_to_the_end().await,
            Err(refused) => {
                self.reject(*refused).await;
                Ok(Vec::new())
            }
        }
    }

    /// Ends the task of an accepted message that is refused now. A task that waited for its client before goes on
    /// waiting.
    pub(crate) async fn reject(&self, refused: Refused) {
        let Refused { entered, error } = refused;
        let Entered { incoming, conversation, .. } = entered;
        let Some(record) = incoming.record.clone() else { return };
        let fence = conversation.fence().clone();
        let state = match record.task_state() {
            state if state.is_interrupted() => state,
            _ if error.http_status() >= 500 => TaskState::Failed,
            _ => TaskState::Rejected,
        };
        let mut entries = Vec::new();
        if incoming.again.is_none() {
            entries.push(unheard(&incoming.request.message, &record));
        } else if conversation.is_unanswered() {
            entries.push(closing_event(&conversation, record.id(), Some((state, Some(error.to_string())))).into());
        }
        entries.push(update(&record, state, Some(&error.to_string())));
        let mut ended = conversation.end(&entries).await;
        if let Err(unstored) = &ended
            && !conversation.is_over()
        {
            // The entries may be too large. A turn that did not end would be tried again.
            fault::log(unstored);
            entries = vec![update(&record, state, Some(UNSTORED))];
            ended = conversation.end(&entries).await;
        }
        let task = conversation.task().await;
        self.show_end(&record, &fence, (&entries, task, state), ended);
    }

    /// Ends a turn that waits in the queue, and ends its task.
    async fn end_in_queue(
        &self,
        accepted: Accepted,
        record: &Arc<TaskRecord>,
        (state, text): (TaskState, Option<&str>),
    ) {
        let fence = accepted.queued.fence().clone();
        let said = unheard(&accepted.incoming.request.message, record);
        let entries = [said, update(record, state, text)];
        let task = record.snapshot().with(&entries);
        let ended = accepted.queued.end(&entries).await;
        self.show_end(record, &fence, (&entries, task, state), ended);
    }

    /// Passes the last entries of an accepted message to the readers of its task. The turn has left the queue with
    /// these entries.
    fn show_end(
        &self,
        record: &Arc<TaskRecord>,
        fence: &Fence,
        (entries, task, state): (&[Entry], TaskSnapshot, TaskState),
        ended: Result<Appended, AppendError>,
    ) {
        match ended {
            Ok(appended) => {
                record.show(entries, appended.number, task);
                record.end_turn(fence, false);
                self.process.tasks.follow(&appended);
                self.process.tasks.tell_queue(record.key());
                self.process.counters.turn(TurnEnd::from(state), Duration::ZERO);
            }
            Err(error) => {
                fault::log(&error);
                // The turn is left to others, or is theirs already.
                record.end_turn(fence, true);
            }
        }
        self.process.tasks.leave_if_finished(record);
    }
}

/// The entry for a message whose turn has not run. The message becomes a part of its task but not of the history.
fn unheard(message: &Message, record: &TaskRecord) -> Entry {
    let (context_id, task_id) = (Some(record.context_id().clone()), Some(record.id().clone()));
    let message = Message { context_id, task_id, ..message.clone() };
    Entry::Message(Arc::new(UserMessage { message, event: None, opens: record.opens() }))
}

/// The update that brings a task into another state.
fn update(record: &TaskRecord, state: TaskState, text: Option<&str>) -> Entry {
    let (task_id, context_id) = (record.id().clone(), record.context_id().clone());
    let says = |text: &str| Message::agent(context_id.clone(), Some(task_id.clone()), vec![Part::text(text)]);
    let status = TaskStatus { state, message: text.map(says), timestamp: Some(Timestamp::now()) };
    let update = TaskStatusUpdateEvent { task_id, context_id, status, ..TaskStatusUpdateEvent::default() };
    StreamResponse::StatusUpdate(update).into()
}
