//! The holder of a token that sends a request to the admin API, for the log.

use std::net::IpAddr;
use std::sync::Arc;

/// The name of the token of a request, and the address that the request comes from. A handler takes it as an extension.
#[derive(Clone, Debug)]
pub(super) struct AdminCaller {
    pub(super) name: Arc<str>,
    pub(super) address: IpAddr,
}

impl AdminCaller {
    /// Logs that it has made a change. `what` is a sentence of what was changed.
    pub(super) fn has_changed(&self, what: &str) {
        tracing::info!(by = &*self.name, from = %self.address, "{what}");
    }

    /// Logs that a change of it was refused, or failed.
    pub(super) fn was_refused(&self, method: &str, path: &str, status: u16) {
        let from = self.address;
        tracing::info!(by = &*self.name, %from, method, path, status, "a change over the admin API was refused");
    }
}

/// Says whose something is, behind its name: nothing for the agent of the config itself.
pub(super) fn of_tenant(tenant: Option<&str>) -> String {
    tenant.map_or_else(String::new, |tenant| format!(" of tenant {tenant}"))
}
