//! The holder of a token that sends a request to the admin API, for the log.

use std::net::IpAddr;
use std::sync::Arc;

use axum::response::Response;

use super::error::RefusalReason;

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
    pub(super) fn was_refused(&self, method: &str, path: &str, response: &Response) {
        let (from, status) = (self.address, response.status().as_u16());
        let reason = response.extensions().get::<RefusalReason>().map(|RefusalReason(reason)| &**reason);
        tracing::info!(by = &*self.name, %from, method, path, status, reason, "a change over the admin API was refused");
    }
}

/// Says whose something is, behind its name: nothing for the agent of the config itself.
pub(super) fn of_tenant(tenant: Option<&str>) -> String {
    tenant.map_or_else(String::new, |tenant| format!(" of tenant {tenant}"))
}
