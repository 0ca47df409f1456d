//! The parts that serve one agent, and letting them go while its last turns run.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use annex_operations::request_handler::RequestHandler;
use annex_telemetry::OutcomeCounts;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::added::{Leaving, Loaded};
use crate::installation::installer::Installer;

/// The time between two looks at whether the last turn is over.
const LOOK: Duration = Duration::from_millis(200);
/// For how long turns of a removed tenant are looked for that were just about to begin.
const STOPPING: Duration = Duration::from_secs(2);

/// The parts that serve one agent: that of the config itself, or a tenant's.
#[derive(Clone)]
pub(crate) struct Serving {
    pub(crate) handler: Arc<RequestHandler>,
    pub(crate) installer: Arc<Installer>,
    /// The requests of a tenant since it was loaded, by how they ended.
    pub(crate) requests: Arc<OutcomeCounts>,
    /// Fires when nothing more is begun with it.
    ended: CancellationToken,
}

impl Serving {
    pub(crate) fn new(handler: Arc<RequestHandler>, installer: Arc<Installer>) -> Self {
        Self { handler, installer, requests: Arc::default(), ended: CancellationToken::new() }
    }

    /// Has its files looked at whenever they change.
    pub(super) fn watch(&self, stop: &CancellationToken) {
        if let Some(watch) = self.installer.take_watch() {
            let ended = self.ended.clone();
            let watching = Box::pin(watch.run(Arc::clone(&self.installer), stop.clone()));
            tokio::spawn(async move { ended.run_until_cancelled(watching).await });
        }
    }
}

impl Loaded for Serving {
    fn is_in_use(&self) -> bool {
        // A request has the handler until it is answered, and a turn the agent until it ends. A stream of a task that waits
        // needs neither.
        Arc::strong_count(&self.handler) > 1 || Arc::strong_count(&self.handler.agent) > 1
    }

    fn leave(self, name: &str, why: Leaving) {
        self.ended.cancel();
        if why != Leaving::Changed {
            self.installer.pins().leave(name);
        }
        if why == Leaving::Removed {
            self.handler.removed.store(true, Ordering::Relaxed);
        }
        let name = name.to_owned();
        let left = Instant::now();
        tokio::spawn(async move {
            loop {
                // Not for good, because another tenant may have the name soon.
                if why == Leaving::Removed && left.elapsed() < STOPPING {
                    self.handler.tasks.stop_turns_of(&name);
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
