//! The names of the tenants' agents, under which their sessions are kept.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// The name of each tenant's agent; the tenant of the config itself has no name. A tenant that has not been served since the
/// process began is not in it. Clones are the same.
#[derive(Clone, Default)]
pub struct AgentNames(Arc<RwLock<HashMap<String, Arc<str>>>>);

impl AgentNames {
    /// The tenant is served by this agent from now on.
    pub fn set(&self, tenant: &str, agent: &str) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(tenant.to_owned(), agent.into());
    }

    /// The tenant's agent.
    pub fn of(&self, tenant: &str) -> Option<Arc<str>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(tenant).cloned()
    }
}
