//! The contract between the server and an agent.

use std::error::Error;
use std::sync::Arc;

use annex_conversation::{AppendError, Conversation, Event, StateDelta};
use annex_protocol::{
    A2aError, AgentCard, Artifact, ContextId, Json, Message, Metadata, Part, Parts, SendMessageRequest, StreamResponse,
    TaskId, TaskState,
};
use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::remote::{CallerToken, UpstreamContext};
use crate::steering::{MadeCall, ModelPlan, Pause, ToolDecision, ToolPlan};
use crate::steps::Steps;

/// An agent. It receives a user's message and sends events until its turn ends.
#[async_trait]
pub trait AgentExecutor: Send + Sync {
    /// The agent's name: the author of its events and the app of its conversations.
    fn name(&self) -> &str;

    /// Checks whether the agent can be called for a caller with this token. Called before an extension sees the caller's message
    /// and before the message waits: a process that runs the turn of a message from a queue may not know the token.
    ///
    /// # Errors
    /// The client gets the error unchanged. Nothing of the request is stored.
    fn admits(&self, _caller: &CallerToken) -> Result<(), A2aError> {
        Ok(())
    }

    /// Called before the user's message is stored and before a task exists. An agent that is compiled into the server
    /// may add to the delta that is stored with the message, or refuse the request.
    ///
    /// # Errors
    /// The client gets the error unchanged. Nothing of the request is stored.
    fn before_turn(
        &self,
        _request: &SendMessageRequest,
        _conversation: &Conversation,
        _delta: &mut StateDelta,
    ) -> Result<(), A2aError> {
        Ok(())
    }

    /// Called for each event that the agent sends, before the extensions see it and before it is stored. An agent that
    /// is compiled into the server may add metadata here.
    fn before_event(&self, _conversation: &Conversation, _event: &mut AgentEvent) {}

    /// Reads a change of the session's state from the content of an event that a remote agent has sent. Called only if
    /// [`TurnContext::is_revised`] is true, with the event as the extensions have left it. The server stores the change.
    fn state_in_content(&self, _event: &StreamResponse) -> StateDelta {
        StateDelta::new()
    }

    /// The number of latest events that the agent reads in a turn with
    /// [`Conversation::history`](annex_conversation::Conversation::history). The server loads them together with the
    /// conversation.
    fn reads_history(&self) -> usize {
        0
    }

    /// Runs one turn. The conversation already contains the user's message and its state delta. The server has announced the
    /// task as submitted; the agent announces `Working` itself and sends artifacts.
    ///
    /// Returning `Ok` completes the task, unless the agent has sent another final status. When [`TurnContext::cancel`] fires,
    /// the agent stops soon and sends `Canceled` if it still can.
    ///
    /// # Errors
    /// An error fails the task; see [`AgentError`].
    async fn execute(&self, turn: TurnContext, events: EventSender) -> Result<(), AgentError>;

    /// Called once, after the agent's last turn. Stops everything that the agent has started.
    async fn close(&self) {}

    /// The card of a remote agent, updated at each change; `None` for a local agent. If the agent has a card here, the server
    /// fills in [`TurnContext::remote`] for the agent's turns.
    fn remote_card(&self) -> Option<watch::Receiver<Arc<AgentCard>>> {
        None
    }

    /// Tells whether a remote agent answered the last request of this server. Sends no request. `None` for local
    /// agents.
    fn is_reached(&self) -> Option<bool> {
        None
    }

    /// Asks a remote agent whether a task that waits for its client has continued without a message. The server waits a
    /// few seconds at most.
    async fn has_gone_on(&self, _task: &TaskId, _remote: &UpstreamContext) -> bool {
        false
    }

    /// Called when a task ends while its agent is still working, because the task was cancelled or its turn took too long. An
    /// agent that calls a remote agent cancels the remote agent's task. The server waits a few seconds at most.
    async fn give_up(&self, _task: &TaskId, _remote: &UpstreamContext) {}
}

/// An agent's access to its turn.
#[derive(Clone)]
pub struct TurnContext {
    /// The task that the turn works on.
    pub task_id: TaskId,
    /// The conversation of the task.
    pub context_id: ContextId,
    /// The user's message.
    pub message: Arc<Message>,
    /// The metadata of the request, not of the message.
    pub metadata: Arc<Metadata>,
    /// The conversation, with the changes of this turn so far.
    pub conversation: Conversation,
    /// The recorded steps of the agent in this turn, which extensions may read.
    pub steps: Steps,
    /// Fires when the client cancels the task or the server stops.
    pub cancel: CancellationToken,
    /// The facts about the request that only a remote agent needs; `None` for a local agent.
    pub remote: Option<Arc<UpstreamContext>>,
    /// True if an extension may change what the client sees of the answer. The server changes staged events of the session
    /// likewise. For an event that is stored at once, the agent asks [`Question::Unsent`].
    pub is_revised: bool,
    /// True if an extension may steer the steps of the agent. The agent then asks about each call of the model and of tools.
    pub is_steered: bool,
}

/// An event that an agent sends. The server adds the task and context ids.
#[derive(Debug)]
pub enum AgentEvent {
    /// A message that the agent answers with, instead of a task.
    Message(Message),
    /// The task is in a new state.
    Status {
        /// The new state.
        state: TaskState,
        /// The agent's message to the user about the state.
        message: Option<Message>,
    },
    /// An artifact, or a piece of an artifact.
    Artifact {
        /// The artifact; pieces of one artifact carry the same id.
        artifact: Artifact,
        /// True if the parts are appended to the parts that were sent before under the artifact's id.
        append: bool,
        /// True if no more pieces of the artifact follow.
        last_chunk: bool,
    },
    /// An event of a remote agent. The server replaces the remote agent's ids with the ids of this server. A whole task
    /// cannot be relayed, because it is not an event.
    Relayed(Box<StreamResponse>),
    /// A remote agent has accepted the message and works on its task, but has sent no event yet. The client gets this
    /// server's task at once.
    Begun,
    /// An extension lets the task wait before a tool is called. The agent sends nothing afterwards.
    Waits {
        /// The wait.
        pause: Box<Pause>,
        /// Further parts of the status message: a text of the model, and calls whose results the client sends.
        parts: Vec<Part>,
        /// The note that the client knows of the wait. The server stores it with the state of the task if the client gets
        /// the text of the extension.
        note: Box<Event>,
    },
    /// A question to the server. The agent waits for the answer, which comes in the order of the events.
    Question(Box<Question>),
}

/// A question of an agent to the server.
#[derive(Debug)]
pub enum Question {
    /// Lets the extensions revise parts that are stored in the session and not sent to the client. Asked only if
    /// [`TurnContext::is_revised`] is true.
    Unsent {
        /// The parts.
        parts: Parts,
        /// Takes the revised parts.
        answer: oneshot::Sender<Parts>,
    },
    /// Lets the extensions change a call of the model. Asked only if [`TurnContext::is_steered`] is true, as the next two.
    Model {
        /// The call.
        plan: ModelPlan,
        /// Takes the call as it is to be made.
        answer: oneshot::Sender<ModelPlan>,
    },
    /// Lets the extensions decide about a call of a tool, before the call is stored.
    Tool {
        /// The call.
        plan: ToolPlan,
        /// Takes the decision.
        answer: oneshot::Sender<ToolDecision>,
    },
    /// Lets the extensions replace the result of a tool, before the result is stored.
    Result {
        /// The call with its result.
        made: MadeCall,
        /// Takes the result for the model.
        answer: oneshot::Sender<Json>,
    },
}

/// Sends an agent's events. Sending waits while the receiver is behind.
#[derive(Clone, Debug)]
pub struct EventSender {
    sender: mpsc::Sender<AgentEvent>,
}

impl EventSender {
    /// Creates a sender and its receiver. The buffer holds `capacity` (at least 1) unread events.
    pub fn bounded(capacity: usize) -> (Self, mpsc::Receiver<AgentEvent>) {
        // tokio panics on a channel without room.
        let (sender, receiver) = mpsc::channel(capacity.max(1));
        (Self { sender }, receiver)
    }

    /// Sends one event.
    ///
    /// # Errors
    /// [`AgentError::Closed`] if the receiver was dropped: the turn has ended, and the agent should return.
    pub async fn send(&self, event: AgentEvent) -> Result<(), AgentError> {
        self.sender.send(event).await.map_err(|_| AgentError::Closed)
    }

    /// Asks the server, and waits for the answer. `question` gets the sender of the answer.
    ///
    /// # Errors
    /// [`AgentError::Closed`] if the turn has ended, for example because an extension refuses the step or the content.
    pub async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Question) -> Result<T, AgentError> {
        let (answer, answered) = oneshot::channel();
        self.send(AgentEvent::Question(Box::new(question(answer)))).await?;
        answered.await.map_err(|_| AgentError::Closed)
    }
}

/// The reason why a turn failed.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A failure with a remedy for the user. The task fails with this text.
    #[error("{message}")]
    Failed {
        /// The fault and the remedy, in whole sentences.
        message: String,
    },
    /// A failure without a remedy for the user. The task fails with an error id, and the log has the cause under that
    /// id.
    #[error("the agent failed")]
    Internal {
        /// The cause.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// A failure like [`Internal`](Self::Internal), but with a text for the user about the kind of failure.
    #[error("{message}")]
    Broken {
        /// The kind of failure, in whole sentences without internals.
        message: String,
        /// The cause itself.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The agent refuses the message. If the turn has sent no event yet, no task is created, and the client gets this error. A
    /// task that waits for its client keeps waiting, and its status contains the reason.
    #[error(transparent)]
    Refused(A2aError),
    /// The receiver of the events was dropped.
    #[error("the receiver of events is closed")]
    Closed,
}

impl AgentError {
    /// Converts the error of an append: the conversation has not stored an event of the agent. The user gets the
    /// reason, unless the error is an internal one.
    pub fn unstored(error: AppendError) -> Self {
        let message = match &error {
            AppendError::TooLarge(_) | AppendError::Name(_) => {
                // Also logged, because the operator's limit may be too low.
                let ids = annex_telemetry::ids();
                let (tenant, context, task) = ids.all();
                tracing::warn!(%error, tenant, context, task, "a conversation cannot store an agent's answer");
                return Self::Failed { message: format!("The conversation cannot keep the answer: {error}.") };
            }
            AppendError::Stale { .. } | AppendError::Fenced => {
                "Another process has changed the conversation in the meantime, so the answer was not stored. Send a new \
                 message to continue."
            }
            AppendError::Missing => "The conversation was deleted in the meantime, so the answer was not stored.",
            // The user can do nothing about these, so the cause goes to the log only.
            AppendError::Full | AppendError::QueueFull { .. } | AppendError::Store(_) => return Self::internal(error),
        };
        Self::Broken { message: message.to_owned(), source: error.into() }
    }

    /// Wraps a cause that users must not see.
    pub fn internal(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Internal { source: source.into() }
    }
}
