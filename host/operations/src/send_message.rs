//! SendMessage and SendStreamingMessage (A2A 1.0 sections 3.1.1 and 3.1.2).

use std::sync::Arc;

use annex_protocol::{A2aError, SendMessageRequest, StreamResponse};
use futures::stream::{self, StreamExt};
use tokio::sync::mpsc;

use crate::answer::{Answer, EventStream, Sent, ShownTask, Until};
use crate::request_handler::RequestHandler;
use crate::service_parameters::ServiceParameters;
use crate::tasks::list;
use crate::tasks::log::{LogReader, LoggedEvent};
use crate::tasks::record::{Subscription, TaskRecord};
use crate::turn::{Outcome, TaskOutcome};

pub(crate) mod accept;
mod claim;
pub mod input_modes;
pub(crate) mod request_check;

/// The operation whose client reads the events of the turn as they are stored.
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
        let TaskOutcome { record, subscription, mut active, running } =
            match self.accept(call, "SendMessage", request).await? {
                Outcome::Message { message, active } => return Ok(Answer { value: Sent::Message(message), active }),
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
        Ok(Answer { value: Sent::Task(ShownTask::snapshot(snapshot, history_length).await), active })
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
            () = self.closing.cancelled() => {}
        }
    }

    /// Performs SendStreamingMessage: streams the task or the message, and then the events until the end of the turn.
    /// If the message waits long for the turn before it, the stream begins during the wait, and a refusal becomes an
    /// event of the stream.
    pub(crate) async fn send_streaming_message(
        &self,
        call: &ServiceParameters,
        request: SendMessageRequest,
    ) -> Result<Answer<EventStream>, A2aError> {
        let (notice, mut notices) = mpsc::unbounded_channel();
        let call = ServiceParameters { wait_notice: Some(notice), ..call.clone() };
        let Some(handler) = self.me.upgrade() else { return self.begin_stream(&call, request).await };
        let mut begun = Box::pin(async move { handler.begin_stream(&call, request).await });
        let active = tokio::select! {
            biased;
            answer = &mut begun => return answer,
            Some(active) = notices.recv() => active,
        };
        // A client that drops the stream gives up the message's place in the queue.
        let events = stream::once(begun).flat_map(|begun| match begun {
            Ok(answer) => answer.value,
            Err(error) => stream::iter([Err(error)]).boxed(),
        });
        Ok(Answer { value: events.boxed(), active })
    }

    async fn begin_stream(
        &self,
        call: &ServiceParameters,
        request: SendMessageRequest,
    ) -> Result<Answer<EventStream>, A2aError> {
        let history_length = request.configuration.history_length;
        let (first, reader, active) = match self.accept(call, STREAMING, request).await? {
            Outcome::Message { message, active } => {
                (LoggedEvent::new(Arc::new(StreamResponse::Message(*message)), 0), None, active)
            }
            Outcome::Task(TaskOutcome { subscription: Subscription { snapshot, seq, reader }, active, .. }) => {
                let mut task = snapshot.into_task();
                list::trim_history(&mut task, history_length);
                (LoggedEvent::new(Arc::new(StreamResponse::Task(task)), seq), reader, active)
            }
        };
        let value = self.events(Some(first), reader, Until::TurnEnds);
        Ok(Answer { value, active })
    }
}
