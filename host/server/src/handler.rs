//! What the operations do, whichever binding they came by.

use std::sync::{Arc, Weak};
use std::time::Duration;

use annex_agent::AgentExecutor;
use annex_auth::{AuthError, Authenticator};
use annex_protocol::{
    A2aError, AgentCard, GetExtendedAgentCardRequest, GetTaskRequest, ListTasksRequest, ListTasksResponse,
    SendMessageRequest, StreamResponse, SubscribeToTaskRequest,
};
use annex_session::{SessionService, Turns};
use annex_tasks::{Owner, TaskSnapshot};
use axum::http::HeaderMap;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::accept::{Accepted, Started, runs_elsewhere};
use crate::answer::{self, Answer, EventStream, Sent, ShownTask, Until};
use crate::call::Call;
use crate::claim::Claims;
use crate::counters::Counters;
use crate::edition::Editions;
use crate::input_modes::InputModes;
use crate::list;
use crate::long_work::LongWork;
use crate::places::Places;
use crate::push::PushNotifications;
use crate::services::Services;
use crate::task_log::LoggedEvent;
use crate::tasks::Tasks;
use crate::tenants::Tenants;
use crate::turn::Opening;

/// The A2A operations over the agent, its sessions and its tasks.
pub(crate) struct RequestHandler {
    /// Itself, for what goes on when a request is answered.
    pub(crate) me: Weak<RequestHandler>,
    /// The tenants, where this is the handler of the whole server.
    pub(crate) tenants: Tenants,
    pub(crate) editions: Arc<Editions>,
    pub(crate) agent: Arc<dyn AgentExecutor>,
    /// Its name, which all its sessions share.
    pub(crate) app: Arc<str>,
    /// Whether that lives elsewhere.
    pub(crate) agent_is_remote: bool,
    /// Says who calls; `None` lets everybody in.
    pub(crate) authenticator: Option<Arc<Authenticator>>,
    pub(crate) input_modes: InputModes,
    /// `None` when the config has no `[push]`.
    pub(crate) push: Option<Arc<PushNotifications>>,
    /// Whether clients of A2A 0.3 are served too.
    pub(crate) speaks_v0_3: bool,
    pub(crate) sessions: Arc<dyn SessionService>,
    pub(crate) turns: Turns,
    pub(crate) tasks: Arc<Tasks>,
    /// What extensions get besides session and task.
    pub(crate) services: Services,
    /// Messages that are being looked at.
    pub(crate) claims: Arc<Claims>,
    /// How many turns there may be.
    pub(crate) places: Arc<Places>,
    /// The longest that one turn may take.
    pub(crate) max_turn: Duration,
    /// The running turns.
    pub(crate) running: TaskTracker,
    /// How messages were taken and how turns ended.
    pub(crate) counters: Arc<Counters>,
    /// Fires when running turns must end.
    pub(crate) stop: CancellationToken,
    /// Fires when streams must end, whatever their tasks do.
    pub(crate) closing: CancellationToken,
}

impl RequestHandler {
    /// Who calls (A2A 1.0 section 7.4).
    pub(crate) async fn identify(&self, headers: &HeaderMap) -> Result<Owner, A2aError> {
        let Some(authenticator) = &self.authenticator else { return Ok(Owner::default()) };
        match authenticator.authenticate(headers).await {
            Ok(principal) => Ok(Owner { tenant: String::new(), principal: principal.id }),
            Err(AuthError::Unavailable) => {
                Err(A2aError::Overloaded { reason: "the identity provider is unavailable".to_owned() })
            }
            Err(error) => {
                let challenge = error.www_authenticate().and_then(|value| value.to_str().ok()).unwrap_or_default();
                Err(A2aError::Unauthenticated { reason: error.to_string(), challenge: challenge.to_owned() })
            }
        }
    }

    /// Ends what the agents have running, those of the tenants too.
    pub(crate) async fn close_agents(&self) {
        self.agent.close().await;
        for tenant in self.tenants.values() {
            tenant.handler.agent.close().await;
        }
    }

    /// The header fields of a request, as far as the agent may want some of them.
    pub(crate) fn headers_of(&self, headers: &HeaderMap) -> Option<Arc<HeaderMap>> {
        let mut handlers = self.tenants.values().map(|tenant| &*tenant.handler).chain([self]);
        handlers.any(|handler| handler.agent_is_remote).then(|| Arc::new(headers.clone()))
    }

    /// Waits for the turn to end or be interrupted, unless the client wants the task at once.
    pub(crate) async fn send_message(
        &self,
        call: &Call,
        request: SendMessageRequest,
    ) -> Result<Answer<Sent>, A2aError> {
        let (handler, call) = self.serving(call, request.tenant.as_deref())?;
        let configuration = &request.configuration;
        let (at_once, history_length) = (configuration.return_immediately, configuration.history_length);
        let shown = async |task| Sent::Task(ShownTask::snapshot(task, history_length).await);
        let Started { mut active, opening, running } = match handler.accept(&call, "SendMessage", request).await? {
            Accepted::Started(started) => started,
            Accepted::Answered(message) => return Ok(Answer { value: Sent::Message(message), active: Vec::new() }),
            Accepted::Repeated(record) => {
                if !at_once {
                    record.turn_over().await;
                }
                return Ok(Answer { value: shown(record.snapshot()).await, active: Vec::new() });
            }
        };
        let value = match opening {
            Opening::Message(message) => Sent::Message(message),
            Opening::Task { snapshot, .. } if at_once => shown(snapshot).await,
            Opening::Task { record, .. } => {
                active = running.ended().await?;
                shown(record.snapshot()).await
            }
        };
        Ok(Answer { value, active })
    }

    /// The task or the message, and what follows to the end of the turn.
    pub(crate) async fn send_streaming_message(
        &self,
        call: &Call,
        request: SendMessageRequest,
    ) -> Result<Answer<EventStream>, A2aError> {
        let (handler, call) = self.serving(call, request.tenant.as_deref())?;
        let task = |task: TaskSnapshot| StreamResponse::Task(task.into_task());
        let (first, reader, active) = match handler.accept(&call, "SendStreamingMessage", request).await? {
            Accepted::Started(Started { active, opening, .. }) => match opening {
                Opening::Message(message) => (StreamResponse::Message(*message), None, active),
                Opening::Task { snapshot, reader, .. } => (task(snapshot), reader, active),
            },
            Accepted::Answered(message) => (StreamResponse::Message(*message), None, Vec::new()),
            Accepted::Repeated(record) => {
                let (snapshot, reader) = record.subscribe_to_turn();
                (task(snapshot), reader, Vec::new())
            }
        };
        let value = answer::events(LoggedEvent::new(Arc::new(first)), reader, self.closing.clone(), Until::TurnEnds);
        Ok(Answer { value, active })
    }

    /// Whoever gets here has been authenticated: without `[auth]` there is no extended card.
    pub(crate) fn get_extended_agent_card(
        &self,
        call: &Call,
        request: &GetExtendedAgentCardRequest,
    ) -> Result<Arc<AgentCard>, A2aError> {
        let (handler, _) = self.serving(call, request.tenant.as_deref())?;
        let reason = "this agent has no extended card; the public one is all there is".to_owned();
        let edition = handler.editions.current();
        edition.extended_card.clone().ok_or(A2aError::UnsupportedOperation { reason })
    }

    pub(crate) async fn get_task(&self, call: &Call, request: &GetTaskRequest) -> Result<ShownTask, A2aError> {
        let (handler, call) = self.serving(call, request.tenant.as_deref())?;
        list::check_history_length(request.history_length)?;
        if let Some(snapshot) = handler.tasks.large_snapshot(&call.owner, &request.id).await? {
            return Ok(ShownTask::snapshot(snapshot, request.history_length).await);
        }
        ShownTask::stored(handler.tasks.load(&call.owner, &request.id).await?, request.history_length).await
    }

    pub(crate) async fn list_tasks(
        &self,
        call: &Call,
        request: &ListTasksRequest,
    ) -> Result<ListTasksResponse, A2aError> {
        let (handler, call) = self.serving(call, request.tenant.as_deref())?;
        handler.services.lister.list(&call.owner, request).await
    }

    /// The task as it is now and all that follows, over as many turns as it takes.
    pub(crate) async fn subscribe_to_task(
        &self,
        call: &Call,
        request: &SubscribeToTaskRequest,
    ) -> Result<EventStream, A2aError> {
        self.follow(call, request, Until::TaskEnds).await
    }

    /// The task as it is now and what follows to the end of the turn, as clients of 0.3 expect it.
    pub(crate) async fn follow_turn(
        &self,
        call: &Call,
        request: &SubscribeToTaskRequest,
    ) -> Result<EventStream, A2aError> {
        self.follow(call, request, Until::TurnEnds).await
    }

    async fn follow(
        &self,
        call: &Call,
        request: &SubscribeToTaskRequest,
        until: Until,
    ) -> Result<EventStream, A2aError> {
        let (handler, call) = self.serving(call, request.tenant.as_deref())?;
        let record = handler.tasks.open(&call.owner, &request.id).await?;
        if record.runs_elsewhere() {
            return Err(runs_elsewhere(&request.id));
        }
        let (snapshot, Some(reader)) = record.subscribe() else {
            return Err(A2aError::UnsupportedOperation {
                reason: format!("task {} is finished; use GetTask to read it", request.id),
            });
        };
        let long = LongWork::begin(snapshot.size().bytes).await;
        let first = LoggedEvent::new(Arc::new(StreamResponse::Task(snapshot.into_task())));
        if long.is_some() {
            // Encoded now, as the stream is read without the permit.
            first.json();
        }
        drop(long);
        Ok(answer::events(first, Some(reader), self.closing.clone(), until))
    }
}
