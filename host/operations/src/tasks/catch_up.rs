//! Polls a remote agent about waiting tasks, which the agent may continue without a message of the client, for example after a
//! login in a browser or an approval in a console (A2A 1.0 section 7.6.1).
//!
//! The remote agent sends no notification. The agent is polled when a client reads the task or sends a message to the
//! task, and periodically while the task's events have a reader. A task that has continued is followed in a turn of its
//! own.

use std::sync::Arc;
use std::time::Duration;

use annex_agent::TurnStart;
use annex_fairness::of_same_tenant;
use annex_protocol::{A2aError, ExtensionUri};
use annex_runtime::Extension;
use tokio::time::{Instant, sleep, timeout};

use crate::extension_set::ExtensionSet;
use crate::request_handler::RequestHandler;
use crate::service_parameters::ServiceParameters;
use crate::tasks::Tasks;
use crate::tasks::record::TaskRecord;

/// The time limit for the remote agent's answer.
const ASK_PATIENCE: Duration = Duration::from_secs(2);
/// The longest time that a request waits for events that the task has missed.
const FOLLOW_PATIENCE: Duration = Duration::from_secs(1);
/// The shortest time between two polls for one task. Requests that read the task more often cause no further poll.
const REST: Duration = Duration::from_secs(1);
/// The first pause between two polls while the task's events have a reader. Each further pause is twice as long, up to
/// `LONGEST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

impl RequestHandler {
    /// Polls the remote agent, unless the last poll was a moment ago.
    pub(crate) async fn catch_up(&self, call: &ServiceParameters, record: &Arc<TaskRecord>) {
        self.poll(call, record, REST).await;
    }

    /// Polls the remote agent, even if the last poll was a moment ago. Called before a message is sent: if the task has
    /// ended at the remote agent, the message must not reach the remote agent.
    pub(crate) async fn catch_up_now(&self, call: &ServiceParameters, record: &Arc<TaskRecord>) {
        self.poll(call, record, Duration::ZERO).await;
    }

    async fn poll(&self, call: &ServiceParameters, record: &Arc<TaskRecord>, rest: Duration) {
        if !self.agent_is_remote || !record.waits() || self.check_begins().is_err() {
            return;
        }
        // Another request polls already, or a turn follows the task.
        let Ok(mut asked) = Arc::clone(record.asked()).try_lock_owned() else { return };
        if asked.is_some_and(|at| at.elapsed() < rest) {
            return;
        }
        *asked = Some(Instant::now());
        // Only the extension that interrupted the task, or the client, may continue it.
        if Tasks::waits_for_extension(record) {
            return;
        }
        let remote = self.upstream_context_about(call, record);
        if !timeout(ASK_PATIENCE, self.agent.has_gone_on(record.id(), &remote)).await.unwrap_or_default() {
            return;
        }
        let Some(handler) = self.me.upgrade() else { return };
        let (call, record) = (call.clone(), Arc::clone(record));
        let following = self.process.running.spawn(async move {
            if let Err(error) = handler.for_task(record.id(), handler.follow_waiting(call, &record)).await {
                let tenant = handler.tenant_name();
                tracing::warn!(target: crate::LOG_TARGET, tenant, task = %record.id(), %error, "a task that has continued at its remote agent is not followed");
            }
            drop(asked);
        });
        // The turn continues without this request.
        let _ = timeout(FOLLOW_PATIENCE, following).await;
    }

    /// Follows the task in a turn that sends nothing to the agent, and waits for the end of that turn.
    async fn follow_waiting(&self, call: ServiceParameters, record: &Arc<TaskRecord>) -> Result<(), A2aError> {
        let permit = self.turn_limiter.try_take(&call.owner).await?;
        let extensions = self.extensions.current()?;
        let requested = self.requested_for(record, &extensions);
        // The reader whose request notices that the task has continued is not the caller of the turn.
        let call = call.of_earlier(record.owner().clone(), requested);
        let incoming = self.incoming_again(call, (record, TurnStart::WaitingTask))?;
        // A message of the client, or another process, may have been faster.
        self.make_turn((incoming, extensions, permit), |record| Ok(record.task_state().is_interrupted())).await
    }

    /// The extensions that the host activates in place of the task's client: the extensions that the task has pinned,
    /// and the required extensions. The host does not know which extensions the client asked for, because the store
    /// does not keep these extensions.
    fn requested_for(&self, record: &TaskRecord, extensions: &ExtensionSet) -> Vec<ExtensionUri> {
        let mut requested: Vec<ExtensionUri> =
            self.process.tasks.pinned(record).iter().map(|extension| extension.uri().clone()).collect();
        // A required extension for some callers is pinned if it applied to this client.
        let is_for_all = |extension: &&Arc<Extension>| extension.selection().allow.is_none();
        for extension in extensions.installed.iter().filter(is_for_all).filter(|extension| extension.is_required()) {
            requested.push(extension.uri().clone());
            requested.extend(extension.descriptor().depends_on.iter().cloned());
        }
        let passed_on = extensions.passed_on.iter().filter(|extension| extension.required);
        requested.extend(passed_on.map(|extension| extension.uri.clone()));
        requested
    }

    /// Polls the remote agent periodically while the task waits and its events have a reader: a stream, or push notifications.
    /// Replaces the polling that an earlier request began, which may use an old handler and old header fields.
    pub(crate) fn watch(&self, call: &ServiceParameters, record: &Arc<TaskRecord>) {
        if !self.agent_is_remote {
            return;
        }
        let (me, call, record) = (self.me.clone(), call.clone(), Arc::clone(record));
        let (closing, replaced) = (self.process.closing.clone(), record.next_watcher());
        tokio::spawn(of_same_tenant(async move {
            let mut pause = FIRST_PAUSE;
            loop {
                tokio::select! {
                    () = sleep(pause) => {}
                    () = closing.cancelled() => return,
                    () = replaced.cancelled() => return,
                }
                if record.is_finished() || !record.has_readers() {
                    return;
                }
                let Some(handler) = me.upgrade() else { return };
                pause = if record.waits() { LONGEST_PAUSE.min(pause * 2) } else { FIRST_PAUSE };
                handler.catch_up(&call, &record).await;
            }
        }));
    }
}
