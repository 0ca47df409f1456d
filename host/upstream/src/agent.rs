//! The upstream agent as an agent of this server.

use std::fmt;
use std::sync::Arc;

use annex_agent::{AgentError, AgentExecutor, CallerToken, EventSender, StepKind, TurnContext, UpstreamContext};
use annex_conversation::StateDelta;
use annex_protocol::{A2aError, AgentCard, StreamResponse, TaskId};
use async_trait::async_trait;
use futures::future::BoxFuture;
use tokio::sync::watch;

use crate::authorization;
use crate::config::UpstreamConfig;
use crate::follow::{self, Follower};
use crate::links::Link;
use crate::upstream::{ConnectError, Upstream};

/// An [`AgentExecutor`] that forwards each message to another A2A server and relays the answer.
pub struct UpstreamAgent {
    upstream: Arc<Upstream>,
}

impl UpstreamAgent {
    /// Connects to the upstream: reads its card, waiting for at most [`UpstreamConfig::start`]. Must be called within a
    /// tokio runtime. A background task refreshes the card until the agent is dropped.
    ///
    /// # Errors
    /// [`ConnectError`] names the URL and the cause.
    pub fn connect(config: UpstreamConfig) -> BoxFuture<'static, Result<Self, ConnectError>> {
        Box::pin(async move {
            config.check()?;
            Ok(Self { upstream: Upstream::connect(config).await? })
        })
    }
}

/// The error when a turn of the upstream agent begins without an [`UpstreamContext`]. The server never causes this
/// error: each turn of an agent with a remote card has a context.
#[derive(Debug, thiserror::Error)]
#[error("a turn of the upstream agent began without the context of its call")]
struct NoRemoteCall;

#[async_trait]
impl AgentExecutor for UpstreamAgent {
    fn name(&self) -> &str {
        &self.upstream.config.name
    }

    fn admits(&self, caller: &CallerToken) -> Result<(), A2aError> {
        authorization::check(&self.upstream, caller)
    }

    fn state_in_content(&self, event: &StreamResponse) -> StateDelta {
        let mapping = &self.upstream.config.state;
        if mapping.is_in_content() { mapping.received(event) } else { StateDelta::new() }
    }

    async fn execute(&self, turn: TurnContext, events: EventSender) -> Result<(), AgentError> {
        let remote = turn.remote.clone().ok_or_else(|| AgentError::internal(NoRemoteCall))?;
        authorization::admit(&self.upstream, &remote)?;
        // Checked before the step begins, because steps are only for calls that are made.
        follow::admit(&self.upstream, remote.begins_with)?;
        let agent = self.upstream.agent();
        let step = turn.steps.begin(StepKind::Agent, &agent.card().name);
        let follower = Follower::new(&self.upstream, (&turn, &remote), &agent);
        let ran = step.within(Box::pin(follower.run(events))).await;
        match &ran {
            Ok(()) => step.finish(),
            Err(error) => step.fail(&error.to_string()),
        }
        ran
    }

    fn remote_card(&self) -> Option<watch::Receiver<Arc<AgentCard>>> {
        Some(self.upstream.card())
    }

    fn is_reached(&self) -> Option<bool> {
        Some(self.upstream.is_reached())
    }

    async fn has_gone_on(&self, task: &TaskId, remote: &UpstreamContext) -> bool {
        match Link::of_task(remote, task).await {
            Ok(Some(link)) => follow::has_gone_on(&self.upstream, remote, &link).await,
            Ok(None) => false,
            Err(error) => {
                let ids = annex_telemetry::ids();
                tracing::warn!(%error, tenant = ids.tenant(), %task, "cannot read which task of the upstream agent waits");
                false
            }
        }
    }

    async fn give_up(&self, task: &TaskId, remote: &UpstreamContext) {
        match Link::of_task(remote, task).await {
            Ok(Some(Link { task: Some(task), .. })) => follow::cancel(&self.upstream, remote, &task).await,
            // The upstream never named a task, so there is nothing to cancel.
            Ok(_) => {}
            Err(error) => {
                let ids = annex_telemetry::ids();
                tracing::warn!(%error, tenant = ids.tenant(), %task, "cannot read which task of the upstream agent to cancel")
            }
        }
    }
}

impl fmt::Debug for UpstreamAgent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("UpstreamAgent").field("name", &self.upstream.config.name).finish_non_exhaustive()
    }
}
