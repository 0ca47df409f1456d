//! The holder of a token that sends a request to the admin API, for the log.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::Request;
use axum::http::{Method, StatusCode};

/// The name of the token of a request, and the address that the request comes from. A handler takes it as an extension. Clones
/// are of one request.
#[derive(Clone, Debug)]
pub(super) struct AdminCaller {
    name: Arc<str>,
    address: IpAddr,
    asked: Arc<Asked>,
}

/// What a request asks for.
#[derive(Debug)]
struct Asked {
    method: Method,
    path: String,
    /// True once the log says that it was refused.
    is_told: AtomicBool,
}

impl AdminCaller {
    pub(super) fn new(name: Arc<str>, address: IpAddr, request: &Request) -> Self {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        Self { name, address, asked: Arc::new(Asked { method, path, is_told: AtomicBool::new(false) }) }
    }

    /// Logs that it has made a change. `what` is a sentence of what was changed.
    pub(super) fn has_changed(&self, what: &str) {
        tracing::info!(by = &*self.name, from = %self.address, "{what}");
    }

    /// Logs that a change of it was refused, or failed: once, whoever notices first. What reads is no change.
    pub(super) fn was_refused(&self, status: StatusCode, reason: Option<&str>) {
        let Asked { method, path, is_told } = &*self.asked;
        if !is_change(method) || is_told.swap(true, Ordering::Relaxed) {
            return;
        }
        let (from, method, status) = (self.address, method.as_str(), status.as_u16());
        tracing::info!(by = &*self.name, %from, method, path, status, reason, "a change over the admin API was refused");
    }

    #[cfg(test)]
    pub(super) fn is_told(&self) -> bool {
        self.asked.is_told.load(Ordering::Relaxed)
    }
}

/// True if a request with this method asks for a change.
pub(super) fn is_change(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
}

/// Says whose something is, behind its name: nothing for the agent of the config itself.
pub(super) fn of_tenant(tenant: Option<&str>) -> String {
    tenant.map_or_else(String::new, |tenant| format!(" of tenant {tenant}"))
}
