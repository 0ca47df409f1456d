//! The contract between the server and an agent.

use std::error::Error;
use std::sync::Arc;

use annex_protocol::{
    A2aError, AgentCard, Artifact, ContextId, Message, Metadata, SendMessageRequest, StreamResponse, TaskId, TaskState,
};
use annex_session::{SessionError, StateDelta, TurnSession};
use async_trait::async_trait;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::remote::UpstreamContext;
use crate::steps::Steps;

/// An agent: given one user message, it sends events until its turn is over.
#[async_trait]
pub trait AgentExecutor: Send + Sync {
    /// The agent's name: the author of its events and the app of its sessions.
    fn name(&self) -> &str;

    /// Called before the user's message is stored and before any task exists. An agent that is compiled into the server
    /// may add to the delta that is stored with the message, or refuse the request.
    ///
    /// # Errors
    /// Goes to the client as it is; nothing of the request is stored.
    fn before_turn(
        &self,
        _request: &SendMessageRequest,
        _session: &TurnSession,
        _delta: &mut StateDelta,
    ) -> Result<(), A2aError> {
        Ok(())
    }

    /// Called for each event that the agent sends, before the extensions see it and before it is stored. An agent that
    /// is compiled into the server may add metadata here.
    fn before_event(&self, _session: &TurnSession, _event: &mut AgentEvent) {}

    /// Tells whether the agent reads keys that sessions share, those of `user:` and `app:`. Where it does not, the
    /// server does not look for them in a conversation that begins.
    fn reads_shared_state(&self) -> bool {
        true
    }

    /// The number of latest events of the conversation that the agent asks for in a turn
    /// ([`TurnSession::history`](annex_session::TurnSession::history)). They are read together with the session.
    fn reads_history(&self) -> usize {
        0
    }

    /// Tells whether the agent may have an effect outside of its turn before it first waits for something else than its
    /// session: it asks a model or another agent, or calls a tool. Then the user's message is stored before the agent
    /// runs. Otherwise the one that begins a conversation may be stored together with the agent's first event.
    fn reaches_out(&self) -> bool {
        true
    }

    /// Runs one turn. The user's message and its state delta are in the session that the agent sees. The server has announced the
    /// task as submitted; the agent announces that it works, and sends artifacts.
    ///
    /// Returning `Ok` completes the task, unless the agent has sent another final status. When
    /// [`TurnContext::cancel`] fires, the agent stops soon and sends `Canceled` if it still can.
    ///
    /// # Errors
    /// Fails the task, see [`AgentError`].
    async fn execute(&self, turn: TurnContext, events: EventSender) -> Result<(), AgentError>;

    /// Called once, when the server has ended its last turn: stops what the agent has started.
    async fn close(&self) {}

    /// The card of an agent that lives elsewhere, as it is and whenever it changes. Such an agent is given
    /// [`TurnContext::remote`].
    fn remote_card(&self) -> Option<watch::Receiver<Arc<AgentCard>>> {
        None
    }

    /// Tells whether an agent that lives elsewhere answered when something was last asked of it. Nobody asks it for this. `None`
    /// for all other agents.
    fn is_reached(&self) -> Option<bool> {
        None
    }

    /// Asks an agent that lives elsewhere whether a task that waits for its client has gone on there without a message. The
    /// server waits for a few seconds at most.
    async fn has_gone_on(&self, _task: &TaskId, _remote: &UpstreamContext) -> bool {
        false
    }

    /// Called when a task ends before the agent has ended it: it was cancelled, or its turn took too long. An agent that
    /// lives elsewhere tells whoever works on the task. The server waits for a few seconds at most.
    async fn give_up(&self, _task: &TaskId, _remote: &UpstreamContext) {}
}

/// An agent's knowledge of its turn.
#[derive(Clone)]
pub struct TurnContext {
    /// The task that the turn works on.
    pub task_id: TaskId,
    /// The conversation it belongs to.
    pub context_id: ContextId,
    /// The user's message.
    pub message: Arc<Message>,
    /// The metadata of the request, not of the message.
    pub metadata: Arc<Metadata>,
    /// The session, live.
    pub session: TurnSession,
    /// The agent's steps in the turn, for whoever may read them.
    pub steps: Steps,
    /// Fires when the client cancels the task or the server stops.
    pub cancel: CancellationToken,
    /// The parts of the request that an agent elsewhere needs; `None` for all others.
    pub remote: Option<Arc<UpstreamContext>>,
}

/// An event that an agent sends. The server adds the task and context ids.
#[derive(Clone, Debug)]
pub enum AgentEvent {
    /// A message instead of a task.
    Message(Message),
    /// The task is in a new state.
    Status {
        /// The new state.
        state: TaskState,
        /// The message to the user about it.
        message: Option<Message>,
    },
    /// A result or a piece of one.
    Artifact {
        /// The artifact; pieces of one artifact carry the same id.
        artifact: Artifact,
        /// The parts belong after those that were sent under this id before.
        append: bool,
        /// Nothing more comes for this artifact.
        last_chunk: bool,
    },
    /// An event of another agent with all that it says of itself. The server puts its own ids in the place of that agent's.
    /// A whole task is not relayed: it has no place among the events of this one.
    Relayed(Box<StreamResponse>),
    /// Another agent has taken the message and works on it as a task, of which there is nothing to tell yet. The client gets
    /// the task at once.
    Begun,
}

/// The sender of an agent's events. Sending waits while the receiver is behind.
#[derive(Clone, Debug)]
pub struct EventSender {
    sender: mpsc::Sender<AgentEvent>,
}

impl EventSender {
    /// A sender and the receiver of at most `capacity` (at least 1) events that are not read yet.
    pub fn bounded(capacity: usize) -> (Self, mpsc::Receiver<AgentEvent>) {
        // tokio panics on a channel without room.
        let (sender, receiver) = mpsc::channel(capacity.max(1));
        (Self { sender }, receiver)
    }

    /// Sends one event.
    ///
    /// # Errors
    /// [`AgentError::Closed`] if nobody reads any more: the turn is over, the agent should return.
    pub async fn send(&self, event: AgentEvent) -> Result<(), AgentError> {
        self.sender.send(event).await.map_err(|_| AgentError::Closed)
    }
}

/// The reason that a turn failed.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The user can do something about it: the task fails with this text.
    #[error("{message}")]
    Failed {
        /// The fault and the way around it, in whole sentences.
        message: String,
    },
    /// The user cannot: the task fails with an error id, and the cause goes to the log under that id.
    #[error("the agent failed")]
    Internal {
        /// The cause.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The same, and the user can be told the kind of cause.
    #[error("{message}")]
    Broken {
        /// The kind of cause, in whole sentences that tell nothing internal.
        message: String,
        /// The cause itself.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// The message is refused. When nothing has been sent of its turn there is no task, and the error goes to the
    /// client as it is. A task that waits goes on waiting, and its status says why.
    #[error(transparent)]
    Refused(A2aError),
    /// Nobody reads the events any more.
    #[error("the receiver of events is closed")]
    Closed,
}

impl AgentError {
    /// The error that ends a turn whose session does not take an event. The user hears the reason as far as it is not
    /// internal.
    pub fn unstored(error: SessionError) -> Self {
        let message = match &error {
            SessionError::StateTooLarge { .. }
            | SessionError::TooManyStateKeys { .. }
            | SessionError::StateTooDeep { .. }
            | SessionError::InvalidKey { .. }
            | SessionError::UnseenCharacters { .. }
            | SessionError::ArtifactTooLarge { .. } => {
                // Logged too: it may be the operator's limit that is too low.
                let ids = annex_telemetry::ids();
                let (tenant, context, task) = ids.all();
                tracing::warn!(%error, tenant, context, task, "a conversation cannot keep what an agent came to");
                return Self::Failed { message: format!("The conversation cannot keep the answer: {error}.") };
            }
            SessionError::Stale { .. } | SessionError::Fenced { .. } => {
                "Another process has changed the conversation meanwhile, so the answer is not part of it; send a new \
                 message to go on."
            }
            SessionError::NotFound { .. } => "The conversation was deleted meanwhile, so the answer is not part of it.",
            // The user can do nothing about these, so the cause goes to the log only.
            SessionError::AlreadyExists { .. }
            | SessionError::TooManyTurns { .. }
            | SessionError::InvalidContextId { .. }
            | SessionError::EventConflict { .. }
            | SessionError::Unreadable { .. }
            | SessionError::Encoding(_)
            | SessionError::Database(_) => return Self::internal(error),
        };
        Self::Broken { message: message.to_owned(), source: error.into() }
    }

    /// Wraps a cause that is no business of the user.
    pub fn internal(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Internal { source: source.into() }
    }
}
