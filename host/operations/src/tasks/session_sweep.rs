//! The sweep of old sessions.

use std::sync::{Arc, Mutex, PoisonError};

use annex_session::{Retention, SessionService};

use crate::fault;

/// Deletes old sessions.
pub struct SessionSweep {
    sessions: Arc<dyn SessionService>,
    /// A reload of the config replaces the limits.
    retention: Mutex<Retention>,
}

impl SessionSweep {
    /// A sweep that deletes all sessions beyond `retention`.
    pub fn new(sessions: &Arc<dyn SessionService>, retention: Retention) -> Self {
        Self { sessions: Arc::clone(sessions), retention: Mutex::new(retention) }
    }

    /// Replaces the limits for the next sweep.
    pub fn set_retention(&self, retention: Retention) {
        *self.retention.lock().unwrap_or_else(PoisonError::into_inner) = retention;
    }

    /// Deletes the sessions beyond the limits. A failure is logged.
    pub(crate) async fn run(&self) {
        let retention = *self.retention.lock().unwrap_or_else(PoisonError::into_inner);
        match self.sessions.sweep(&retention).await {
            Ok(0) => {}
            Ok(sessions) => tracing::info!(target: crate::LOG_TARGET, sessions, "swept old sessions"),
            Err(error) => fault::log(&error),
        }
    }
}
