//! The parts that all handlers of a process share.

use std::sync::Arc;

use annex_telemetry::traces::Tracer;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::claims::Claims;
use crate::counters::Counters;
use crate::permits::shared::SharedPlaces;
use crate::push::PushNotifications;
use crate::quota::Quotas;
use crate::tasks::Tasks;
use crate::views::ExtensionViews;

/// The parts that all handlers of a process share, such as the live tasks and the running turns.
pub struct ProcessParts {
    /// The live tasks, and the store of all conversations and tasks.
    pub tasks: Arc<Tasks>,
    /// The views of turns that extensions get.
    pub views: ExtensionViews,
    /// Recognises repeated messages.
    pub claims: Arc<Claims>,
    /// The places for turns that all processes share.
    pub places: Arc<SharedPlaces>,
    /// The quotas and consumption of tenants.
    pub quotas: Arc<Quotas>,
    /// Push notifications. `None` if they are disabled.
    pub push: Option<Arc<PushNotifications>>,
    /// Counters for messages and turns.
    pub counters: Counters,
    /// Begins the traces of turns that continue without a request. `None` if the server has no traces.
    pub tracer: Option<Tracer>,
    /// The running turns. No turn begins after it is closed.
    pub running: TaskTracker,
    /// Cancelled when this process drains, if other processes share its store. Waiting turns then go to another
    /// process.
    pub draining: CancellationToken,
    /// Cancelled when running turns must end.
    pub stop: CancellationToken,
    /// Cancelled when all streams must end, even those of running tasks.
    pub closing: CancellationToken,
}

impl ProcessParts {
    /// Stops accepting turns. If other processes share the store, they get the waiting turns at once.
    pub fn begin_to_drain(&self) {
        self.running.close();
        if self.tasks.process().is_shared() {
            self.draining.cancel();
        }
    }
}
