//! Old sessions, and which of them stay.

use std::sync::Arc;

use annex_session::{Retention, SessionService};

use crate::fault;

/// Deletes old sessions.
pub struct SessionSweep {
    sessions: Arc<dyn SessionService>,
    retention: Retention,
}

impl SessionSweep {
    /// Deletes sessions that `retention` does not keep.
    pub fn new(sessions: &Arc<dyn SessionService>, retention: Retention) -> Self {
        Self { sessions: Arc::clone(sessions), retention }
    }

    /// Deletes those that need not stay. An error is logged.
    pub(crate) async fn run(&self) {
        match self.sessions.sweep(&self.retention).await {
            Ok(0) => {}
            Ok(sessions) => tracing::info!(target: crate::LOG_TARGET, sessions, "swept old sessions"),
            Err(error) => drop(fault::logged(&error)),
        }
    }
}
