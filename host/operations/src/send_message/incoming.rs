//! The data of a message that all steps of SendMessage use.

use std::sync::Arc;

use annex_agent::{Steps, TurnStart};
use annex_conversation::{Conversation, ConversationKey};
use annex_protocol::{A2aError, ContextId, ExtensionUri, Message, SendMessageRequest, TaskId};
use annex_runtime::{TurnRequest, TurnView};
use tracing::Span;
use tracing::field::display;

use crate::request_handler::RequestHandler;
use crate::send_message::forgotten::ForgottenMetadata;
use crate::service_parameters::ServiceParameters;
use crate::tasks::Tasks;
use crate::tasks::record::TaskRecord;
use crate::views::VisibleTurn;
use crate::views::turn_task::TurnTask;

/// A message with its conversation and its task. All steps of SendMessage use it.
pub(crate) struct Incoming {
    pub(crate) call: ServiceParameters,
    /// The URIs that activate the same extensions if the turn runs again.
    pub(crate) lasting: Vec<ExtensionUri>,
    pub(crate) operation: &'static str,
    /// The request without the metadata in `forgotten`.
    pub(crate) request: SendMessageRequest,
    /// The metadata of the request that is never stored.
    pub(crate) forgotten: ForgottenMetadata,
    pub(crate) key: ConversationKey,
    pub(crate) task_id: TaskId,
    /// The task that the message continues. `None` for a new task.
    pub(crate) record: Option<Arc<TaskRecord>>,
    /// The question of the task when the message came: the result of [`Tasks::question`]. `None` for a new task, and for a
    /// turn without a new message.
    pub(crate) asked: Option<u64>,
    /// True if this server has just made the context id. No other client can know such a context.
    pub(crate) is_new: bool,
    /// How this turn starts if it has no message of the client and uses the last message of the task again. `None` for a turn
    /// with a new message.
    pub(crate) again: Option<TurnStart>,
    /// The task as extensions see it.
    pub(crate) turn_task: TurnTask,
    /// The recorded steps of the agent, which extensions may read.
    pub(crate) steps: Steps,
}

impl RequestHandler {
    /// Determines the ids of the conversation and the task (A2A 1.0 section 3.4) and adds them to the log. `record`
    /// belongs to the task that the message names.
    pub(super) fn incoming(
        &self,
        call: &ServiceParameters,
        operation: &'static str,
        request: SendMessageRequest,
        record: Option<Arc<TaskRecord>>,
    ) -> Result<Incoming, A2aError> {
        let named = request.message.context_id.clone();
        let is_new = record.is_none() && named.is_none();
        let incoming = match record {
            Some(record) if named.as_ref().is_some_and(|named| named != record.context_id()) => {
                let description = format!("is not the context of task {}; leave it out", record.id());
                return Err(A2aError::invalid_field("message.contextId", description));
            }
            Some(record) => Incoming::of_task((call.clone(), operation, request), record),
            None => {
                let context_id = named.unwrap_or_else(ContextId::generate);
                let task_id = TaskId::generate();
                Incoming {
                    call: call.clone(),
                    lasting: Vec::new(),
                    operation,
                    request,
                    forgotten: ForgottenMetadata::default(),
                    key: ConversationKey::of(Arc::clone(&self.app), &call.owner, &context_id),
                    turn_task: TurnTask::new(task_id.clone(), context_id),
                    task_id,
                    record: None,
                    asked: None,
                    is_new,
                    again: None,
                    steps: Steps::default(),
                }
            }
        };
        incoming.tell_context();
        Ok(incoming)
    }

    /// Makes the data of a turn that has no new message of the client. The turn uses the last message of the user in its task.
    pub(crate) fn incoming_again(
        &self,
        call: ServiceParameters,
        (record, starts): (&Arc<TaskRecord>, TurnStart),
    ) -> Result<Incoming, A2aError> {
        let snapshot = record.snapshot();
        let is_users = |message: &&Message| message.role == annex_protocol::Role::User;
        let reason = || format!("task {} has no message", record.id());
        let message = snapshot.history.iter().rev().find(is_users).cloned();
        let message = message.ok_or_else(|| A2aError::UnsupportedOperation { reason: reason() })?;
        let request = SendMessageRequest { message, ..SendMessageRequest::default() };
        let steps = self.counted(Steps::default(), &call.owner.principal);
        let lasting = call.requested.clone();
        let incoming = Incoming::of_task((call, "SendMessage", request), Arc::clone(record));
        Ok(Incoming { again: Some(starts), asked: None, lasting, steps, ..incoming })
    }
}

impl Incoming {
    /// Makes the data of a message to an existing task.
    pub(crate) fn of_task(
        (call, operation, request): (ServiceParameters, &'static str, SendMessageRequest),
        record: Arc<TaskRecord>,
    ) -> Self {
        let task_id = record.id().clone();
        let key = record.key().clone();
        let turn_task = TurnTask::new(task_id.clone(), key.context.clone());
        let snapshot = record.snapshot();
        turn_task.show(snapshot.state(), snapshot.status_at());
        let asked = Some(Tasks::question(&record));
        let (record, is_new, again, steps) = (Some(record), false, None, Steps::default());
        let (lasting, forgotten) = (Vec::new(), ForgottenMetadata::default());
        Self {
            call,
            lasting,
            operation,
            request,
            forgotten,
            key,
            task_id,
            record,
            asked,
            is_new,
            again,
            turn_task,
            steps,
        }
    }

    pub(crate) fn context_id(&self) -> &ContextId {
        &self.key.context
    }

    /// Adds the ids of the context and the task to the span, and the context to the request's log line. The log line
    /// does not get the task yet: the message may still get another task, or none.
    fn tell_context(&self) {
        Span::current().record("context", display(self.context_id())).record("task", display(&self.task_id));
        annex_telemetry::with(|request| request.is_about(Some(self.context_id().clone().into()), None));
    }

    /// Adds the task to the request's log line. Called once the message is known to be new.
    pub(super) fn tell_task(&self) {
        annex_telemetry::with(|request| request.is_about(None, Some(self.task_id.clone().into())));
    }

    /// Replaces the task id by the one that another process had chosen when it claimed the message.
    pub(super) fn take_task_id(&mut self, task: &TaskId) {
        // A message that continues a task has the same task id in both processes.
        if *task != self.task_id {
            Span::current().record("task", display(task));
            self.turn_task = TurnTask::new(task.clone(), self.context_id().clone());
            self.task_id = task.clone();
        }
    }

    /// The data of the turn that its extensions may see.
    pub(crate) fn visible<'a>(&'a self, conversation: &'a Conversation) -> VisibleTurn<'a> {
        VisibleTurn { conversation, task: &self.turn_task, steps: &self.steps }
    }

    /// The request as the hooks see it.
    pub(crate) fn for_hooks<'a>(&'a self, operation: &'a str, view: Arc<dyn TurnView>) -> TurnRequest<'a> {
        TurnRequest {
            operation,
            context_id: Some(self.context_id()),
            task_id: self.request.message.task_id.as_ref(),
            requested: &self.call.requested,
            message: &self.request.message,
            request: &self.request.metadata,
            view,
            resumed: self.again.is_some(),
        }
    }

    /// Sets the ids of the message. Called after the hooks, because a task id would tell a hook that the message
    /// continues a task.
    pub(super) fn place(&mut self) {
        self.request.message.context_id = Some(self.key.context.clone());
        self.request.message.task_id = Some(self.task_id.clone());
    }
}
