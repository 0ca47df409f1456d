//! Performs SendMessage and SendStreamingMessage (A2A 1.0 sections 3.1.1 and 3.1.2).
//!
//! A message passes five stages, each with a type of its own. The value of a stage is made from the value of the previous
//! stage. It holds everything that must be released if the message is refused.
//!
//! ```text
//!  Checked ──> Claimed ──> Entered ──> Asked ──> Begun ──> the turn runs (`turn`)
//!              │           │           │
//!              │ repeated  │ waits     │ holds the chain of extensions, which have agreed
//!              │           │           └ Entered: holds the permit and the place in the queue; reads the conversation
//!              │           └ the message is accepted: its task is SUBMITTED, and the client is answered now. The turn
//!              │             goes on to Asked when it comes (`waiting`)
//!              └ the task or the answer of the first arrival
//! ```
//!
//! A message that is refused before Begun leaves nothing behind. Begun is one append. Once this append has started, the turn
//! continues even if the client disconnects.

use std::sync::Arc;

use annex_protocol::{A2aError, SendMessageRequest, StreamResponse};
use futures::future::BoxFuture;
use tracing::Instrument;
use tracing::field::Empty;

use crate::activation::Occasion;
use crate::answer::{Answer, EventStream, Sent, ShownTask, Until};
use crate::counters::Reception;
use crate::request_handler::RequestHandler;
use crate::service_parameters::ServiceParameters;
use crate::tasks::list;
use crate::tasks::log::{LogReader, LoggedEvent};
use crate::tasks::record::{Subscription, TaskRecord};
use crate::turn::{Outcome, TaskOutcome};

pub(crate) mod asked;
pub(crate) mod begun;
mod checked;
mod claimed;
pub(crate) mod entered;
mod forgotten;
pub(crate) mod incoming;
pub mod input_modes;
pub(crate) mod request_check;
pub(crate) mod waiting;

pub(crate) use checked::{installed_with, steps_for};
use claimed::Claiming;
use entered::QueueStanding;

/// The name of the operation whose client reads the events of the turn as they are stored.
pub(crate) const STREAMING: &str = "SendStreamingMessage";

impl RequestHandler {
    /// Performs SendMessage. Waits for the end or an interruption of the turn, unless the client wants the task at
    /// once.
    pub(crate) async fn send_message(
        &self,
        call: &ServiceParameters,
        request: SendMessageRequest,
    ) -> Result<Answer<Sent>, A2aError> {
        let configuration = &request.configuration;
        let at_once = configuration.return_immediately;
        let history_length = configuration.history_length;
        let hidden = self.hidden_on(&Occasion::message(call, &request));
        let TaskOutcome { record, subscription, mut active, running } =
            match self.accept(call, "SendMessage", request).await? {
                Outcome::Message { mut message, active } => {
                    hidden.leave_out_of_message(&mut message);
                    return Ok(Answer { value: Sent::Message(message), active });
                }
                Outcome::Task(task) => task,
            };
        let snapshot = if at_once {
            subscription.snapshot
        } else {
            // An extension may become inactive during the turn. The client gets those that were active until its end.
            match running {
                Some(running) => {
                    active = running.ended().await?;
                    // Another process has taken over the task and ends it.
                    if record.runs_elsewhere() {
                        self.turn_over(&record, record.subscribe_to_turn().reader).await;
                    }
                }
                // The message is a repetition, and its turn may still run.
                None => self.turn_over(&record, subscription.reader).await,
            }
            record.snapshot()
        };
        Ok(Answer { value: Sent::Task(ShownTask::snapshot(snapshot, history_length, &hidden).await), active })
    }

    /// Waits for the end of a turn that another request has begun, here or in another process.
    async fn turn_over(&self, record: &TaskRecord, reader: Option<LogReader>) {
        if record.is_running() {
            record.turn_over().await;
            if !record.runs_elsewhere() {
                return;
            }
        }
        let Some(mut reader) = reader else { return };
        let read = self.for_tenant(async { while reader.next().await.is_some_and(|logged| !logged.interrupts()) {} });
        tokio::select! {
            () = read => {}
            () = self.process.closing.cancelled() => {}
        }
    }

    /// Performs SendStreamingMessage: streams the task or the message, and then the events until the end of the turn.
    pub(crate) async fn send_streaming_message(
        &self,
        call: &ServiceParameters,
        request: SendMessageRequest,
    ) -> Result<Answer<EventStream>, A2aError> {
        let history_length = request.configuration.history_length;
        let hidden = self.hidden_on(&Occasion::message(call, &request));
        let (first, reader, active) = match self.accept(call, STREAMING, request).await? {
            Outcome::Message { mut message, active } => {
                hidden.leave_out_of_message(&mut message);
                (LoggedEvent::new(Arc::new(StreamResponse::Message(*message)), 0), None, active)
            }
            Outcome::Task(TaskOutcome { subscription: Subscription { snapshot, seq, reader }, active, .. }) => {
                let mut task = snapshot.into_task();
                list::trim_history(&mut task, history_length);
                hidden.leave_out_of_task(&mut task);
                let reader = reader.map(|reader| reader.hiding(hidden));
                (LoggedEvent::new(Arc::new(StreamResponse::Task(task)), seq), reader, active)
            }
        };
        let value = self.events(Some(first), reader, Until::TurnEnds);
        Ok(Answer { value, active })
    }

    /// Takes a message, and adds the outcome to the counters and the trace.
    async fn accept(
        &self,
        call: &ServiceParameters,
        operation: &'static str,
        request: SendMessageRequest,
    ) -> Result<Outcome, A2aError> {
        let span = tracing::debug_span!(target: crate::LOG_TARGET, "request", operation, context = Empty, task = Empty, verdict = Empty);
        // Boxed, because the future is large, and its type names all that a chain of extensions holds.
        let taken: BoxFuture<'_, _> = Box::pin(self.take(call, operation, request));
        let (reception, outcome) = match self.for_tenant(taken).instrument(span.clone()).await {
            Ok((reception, outcome)) => (reception, Ok(outcome)),
            Err(error) => (Reception::from(&error), Err(error)),
        };
        self.process.counters.message(reception);
        if !span.is_disabled() {
            span.record("verdict", reception.name());
            tracing::debug!(target: crate::LOG_TARGET, parent: &span, "the message has been taken or refused");
        }
        outcome
    }

    /// Takes a message through the five stages. A refused message leaves nothing behind, with one exception: if the push config
    /// of a message whose turn has begun cannot be stored, the client gets an error and the task continues.
    async fn take(
        &self,
        call: &ServiceParameters,
        operation: &'static str,
        request: SendMessageRequest,
    ) -> Result<(Reception, Outcome), A2aError> {
        let checked = self.checked(call, operation, request).await?;
        let claimed = match self.claimed(checked).await? {
            Claiming::Claimed(claimed) => claimed,
            Claiming::Repeated(outcome) => return Ok((Reception::Repeated, outcome)),
        };
        let outcome = match self.entered(*claimed).await? {
            QueueStanding::Runs(entered) => match self.asked(*entered).await {
                Ok(asked) => self.begun_and_answered(asked).await?,
                Err(refused) => return Err(refused.leave_nothing().await),
            },
            QueueStanding::Waits(accepted) => self.wait_for_turn(*accepted).await?,
        };
        Ok((Reception::Started, outcome))
    }
}
