//! The parts that serve one agent, and their closing after their last turn.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use annex_operations::request_handler::RequestHandler;
use annex_telemetry::OutcomeCounts;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::installation::installer::Installer;

/// The interval at which it is checked whether the last turn has ended.
const LOOK: Duration = Duration::from_millis(200);
/// The time after the removal of a tenant in which the tenant's turns are cancelled. It is long enough to cancel even a
/// turn that was about to begin.
const STOPPING: Duration = Duration::from_secs(2);

/// The parts that serve one agent. The agent is either the agent of the config itself or the agent of a tenant.
#[derive(Clone)]
pub(crate) struct Serving {
    pub(crate) handler: Arc<RequestHandler>,
    pub(crate) installer: Arc<Installer>,
    /// The number of requests of a tenant since its load, by their outcomes.
    pub(crate) requests: Arc<OutcomeCounts>,
    /// Cancelled when these parts no longer serve requests.
    ended: CancellationToken,
}

/// The parts that serve a tenant.
pub(crate) trait ServingParts: Clone + Send + Sync + 'static {
    /// True while a request or a turn uses these parts.
    fn is_in_use(&self) -> bool;

    /// Ends the use of these parts. They begin no new work. Their running turns continue, unless `why` is
    /// [`UnloadReason::Removed`], which cancels the turns.
    fn leave(self, name: &str, why: UnloadReason);
}

/// Why a tenant is unloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnloadReason {
    /// The tenant was not used for a while, or it is suspended.
    Idle,
    /// A new version of the tenant replaces this one.
    Changed,
    /// The tenant was removed.
    Removed,
}

impl Serving {
    pub(crate) fn new(handler: Arc<RequestHandler>, installer: Arc<Installer>) -> Self {
        Self { handler, installer, requests: Arc::default(), ended: CancellationToken::new() }
    }

    /// Watches the files of the agent's extensions.
    pub(super) fn watch(&self, stop: &CancellationToken) {
        if let Some(watch) = self.installer.take_watch() {
            let ended = self.ended.clone();
            let watching = Box::pin(watch.run(Arc::clone(&self.installer), stop.clone()));
            tokio::spawn(async move { ended.run_until_cancelled(watching).await });
        }
    }
}

impl ServingParts for Serving {
    fn is_in_use(&self) -> bool {
        // A request holds the handler until it is answered, and a turn holds the agent until it ends. The stream of a
        // task that waits for its client holds neither.
        Arc::strong_count(&self.handler) > 1 || Arc::strong_count(&self.handler.agent) > 1
    }

    fn leave(self, name: &str, why: UnloadReason) {
        self.ended.cancel();
        if why != UnloadReason::Changed {
            self.installer.pins().leave(name);
        }
        if why == UnloadReason::Removed {
            self.handler.removed.store(true, Ordering::Relaxed);
        }
        let name = name.to_owned();
        let left = Instant::now();
        tokio::spawn(async move {
            loop {
                // Cancelling stops after a while, because a new tenant may get the same name.
                if why == UnloadReason::Removed && left.elapsed() < STOPPING {
                    self.handler.process.tasks.stop_turns_of(&name);
                }
                if !self.is_in_use() {
                    break;
                }
                sleep(LOOK).await;
            }
            self.handler.agent.close().await;
        });
    }
}
