//! The names of the tenants' agents. Sessions are stored under these names.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// The agent's name for each tenant that was served since the process started. The key of the agent of the config itself is
/// empty. A clone shares the same names.
#[derive(Clone, Default)]
pub struct AgentNames(Arc<RwLock<HashMap<String, Arc<str>>>>);

impl AgentNames {
    /// Stores the name of the agent that serves the tenant.
    pub fn set(&self, tenant: &str, agent: &str) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(tenant.to_owned(), agent.into());
    }

    /// The name of the tenant's agent.
    pub fn of(&self, tenant: &str) -> Option<Arc<str>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(tenant).cloned()
    }
}
