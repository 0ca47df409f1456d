//! Stores a message that was accepted, and begins its turn (the stage `Begun`).

use std::sync::Arc;

use annex_agent::TurnContext;
use annex_conversation::{AppendError, Entry};
use annex_protocol::{A2aError, TaskPushNotificationConfig};
use annex_telemetry::of_same_request;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::{Instrument, Span};

use crate::completed::completed;
use crate::fault;
use crate::request_handler::RequestHandler;
use crate::send_message::STREAMING;
use crate::send_message::asked::{Asked, Refused};
use crate::send_message::entered::Entered;
use crate::service_parameters::ServiceParameters;
use crate::tasks::Tasks;
use crate::tasks::record::TaskRecord;
use crate::tasks::running_turn::RunningTurn;
use crate::turn::{Outcome, Stage, TaskOutcome, Turn, TurnResult};

/// A turn whose message is stored.
pub(crate) struct Begun {
    turn: Turn,
    outcome: oneshot::Receiver<Result<Outcome, A2aError>>,
    call: ServiceParameters,
    push_config: Option<TaskPushNotificationConfig>,
    continues: bool,
    counted: TaskTrackerToken,
}

impl RequestHandler {
    /// Asks the extensions and the agent, and stores the message if they agree.
    pub(crate) async fn asked_and_begun(&self, entered: Entered) -> Result<Begun, Box<Refused>> {
        let (handler, asked) = self.upgraded(self.asked(entered).await?)?;
        handler.begun(asked).await
    }

    /// Stores the message and waits for the answer to its client. This continues to the end even if the client disconnects:
    /// once the append has started, the message may be accepted, and then its turn must run.
    pub(super) async fn begun_and_answered(&self, asked: Asked) -> Result<Outcome, A2aError> {
        let (handler, asked) = match self.upgraded(asked) {
            Ok(upgraded) => upgraded,
            Err(refused) => return Err(refused.leave_nothing().await),
        };
        let answered = async move {
            match handler.begun(asked).await {
                Ok(begun) => begun.run().await,
                Err(refused) => Err(refused.leave_nothing().await),
            }
        };
        completed(of_same_request(answered).instrument(Span::current())).await
    }

    /// Makes the reference to this handler that the turn keeps. Refuses the message if the handler is about to be
    /// dropped.
    fn upgraded(&self, asked: Asked) -> Result<(Arc<Self>, Asked), Box<Refused>> {
        match self.me.upgrade() {
            Some(handler) => Ok((handler, asked)),
            None => {
                let reason = "the agent is being replaced; send the message again".to_owned();
                Err(Box::new(Refused { entered: asked.entered, error: A2aError::Overloaded { reason } }))
            }
        }
    }

    /// Stores the message with its change of state and its task, in one append. From here on the message is accepted.
    async fn begun(self: Arc<Self>, asked: Asked) -> Result<Begun, Box<Refused>> {
        let Asked { mut entered, chain, beginning, said, remote } = asked;
        let fence = entered.conversation.fence().clone();
        // A task that was accepted before is known, and so is its turn.
        let cancel = entered.waited.clone().unwrap_or_default();
        let is_answered = entered.waited.is_some() || entered.incoming.again.is_some();
        let running = || RunningTurn::new(cancel.clone(), fence.clone(), is_answered);
        let continues = entered.incoming.record.is_some();
        let record = self.record_with(&entered, running).await;
        if let Err(error) = self.store_message(&entered, &record, said).await {
            record.end_turn(&fence, false);
            if !continues {
                self.process.tasks.remove(&record);
            }
            return Err(Box::new(Refused { entered, error: not_stored(error, &record, continues) }));
        }
        if let Some(claim) = entered.claim.take() {
            claim.settle();
        }
        let Entered { incoming, permit, conversation, counted, waited, .. } = entered;
        let (client, outcome) = oneshot::channel();
        let stage = match (is_answered, continues) {
            (true, _) => Stage::Working,
            (false, true) => Stage::Joined { client },
            (false, false) => Stage::Opening { client },
        };
        let push_config = incoming.request.configuration.task_push_notification_config;
        let (is_revised, is_steered) = (chain.rewrites_answers(), chain.steers_steps());
        let turn = Turn {
            is_followed: incoming.operation == STREAMING || push_config.is_some() || continues,
            _permit: permit,
            shown: is_revised.then(Box::default),
            relays: false,
            chain,
            requested: incoming.lasting,
            context: TurnContext {
                task_id: incoming.task_id,
                context_id: incoming.key.context.clone(),
                message: Arc::new(incoming.request.message),
                metadata: Arc::new(incoming.request.metadata),
                conversation,
                steps: incoming.steps,
                cancel,
                remote: remote.map(Arc::new),
                is_revised,
                is_steered,
            },
            turn_task: incoming.turn_task,
            stage,
            beginning: Some(beginning),
            pending: Vec::new(),
            opened: waited.is_some() || !continues,
            began: Instant::now(),
            handler: self,
            record,
        };
        Ok(Begun { turn, outcome, call: incoming.call, push_config, continues, counted })
    }

    /// Returns the record of the task, and begins the turn in this record. Makes the record of a new task available to
    /// requests.
    async fn record_with(&self, entered: &Entered, running: impl FnOnce() -> RunningTurn) -> Arc<TaskRecord> {
        if let Some(record) = &entered.incoming.record {
            if entered.waited.is_none() {
                record.begin_turn(running());
            }
            return Arc::clone(record);
        }
        let task = entered.conversation.task().await;
        let record = Arc::new(TaskRecord::new(entered.incoming.key.clone(), task, running(), &self.process.tasks));
        // Nobody knows the id of the task before the message is stored.
        self.process.tasks.insert(&record);
        record
    }

    /// Stores the message and the end of the task's interruption, in one append.
    async fn store_message(
        &self,
        entered: &Entered,
        record: &Arc<TaskRecord>,
        said: Option<Entry>,
    ) -> Result<(), AppendError> {
        // The interruption ends here, so that no extension can resume the task for it again.
        let entries: Vec<_> = said.into_iter().chain(Tasks::end_of_interruption(record)).collect();
        if !entries.is_empty() {
            let appended = entered.conversation.append(&entries).await?;
            record.show(&entries, appended.number, entered.conversation.task().await);
            self.process.tasks.follow(&appended);
        }
        Ok(())
    }

    /// Starts the push notifications of a turn without a client.
    pub(crate) async fn forward(&self, record: &Arc<TaskRecord>) {
        let (Some(push), Some(reader)) = (&self.process.push, record.subscribe().reader) else { return };
        if let Err(error) = push.forward(record, reader).await {
            fault::log(&error);
        }
    }

    /// Starts the push notifications for the events of the task.
    pub(super) async fn notify(
        &self,
        task: &TaskOutcome,
        call: &ServiceParameters,
        (config, continues): (Option<TaskPushNotificationConfig>, bool),
    ) -> Result<(), A2aError> {
        let (Some(reader), Some(push)) = (&task.subscription.reader, &self.process.push) else { return Ok(()) };
        if config.is_some() {
            self.watch(call, &task.record);
        }
        match config {
            Some(config) => push.put(&task.record, task.subscription.clone(), config).await.map(drop),
            None if continues => push.forward(&task.record, reader.clone()).await,
            // A new task has no other configs. A later registration brings its own reader.
            None => Ok(()),
        }
    }
}

impl Begun {
    /// Runs the turn, and waits for its answer to the client.
    pub(crate) async fn run(self) -> Result<Outcome, A2aError> {
        let Self { turn, outcome, call, push_config, continues, counted } = self;
        let handler = Arc::clone(&turn.handler);
        let running = turn.begin_running();
        // The turn is now counted by itself.
        drop(counted);
        let mut outcome = outcome.await.map_err(|gone| fault::internal(&gone))??;
        if let Outcome::Task(task) = &mut outcome {
            task.running = Some(running);
            handler.notify(task, &call, (push_config, continues)).await?;
        }
        Ok(outcome)
    }

    /// Runs the turn to its end. Used if no client waits for an answer.
    pub(crate) async fn run_to_the_end(self) -> TurnResult {
        self.turn.begin_running().ended().await
    }

    /// The task of the turn.
    pub(crate) fn record(&self) -> &Arc<TaskRecord> {
        &self.turn.record
    }
}

/// The error for a message that was not stored. `continues` tells whether the client named the task.
fn not_stored(error: AppendError, record: &TaskRecord, continues: bool) -> A2aError {
    match error {
        AppendError::Missing if continues => A2aError::TaskNotFound { task_id: record.id().clone() },
        error => fault::of_append(error),
    }
}
