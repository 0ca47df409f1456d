//! The caller of the admin API, as the log names it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::Request;
use axum::http::{Method, StatusCode};

/// The caller of a request: the name of its token and the client's address. A handler gets this value from the
/// extensions of the HTTP request. A clone refers to the same request.
#[derive(Clone, Debug)]
pub(super) struct AdminCaller {
    name: Arc<str>,
    address: IpAddr,
    request_line: Arc<RequestLine>,
}

/// The method and the path of a request, and whether its refusal is logged.
#[derive(Debug)]
struct RequestLine {
    method: Method,
    path: String,
    /// True once the refusal is in the log.
    is_told: AtomicBool,
}

impl AdminCaller {
    pub(super) fn new(name: Arc<str>, address: IpAddr, request: &Request) -> Self {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        Self { name, address, request_line: Arc::new(RequestLine { method, path, is_told: AtomicBool::new(false) }) }
    }

    /// Logs a change that this caller made. `what` is a whole sentence about the change, such as `tenant acme was
    /// removed`.
    pub(super) fn has_changed(&self, what: &str) {
        tracing::info!(by = &*self.name, from = %self.address, "{what}");
    }

    /// Logs that a change was refused or failed. Only the first call for a request writes a line, and only if the
    /// request asked for a change.
    pub(super) fn was_refused(&self, status: StatusCode, reason: Option<&str>) {
        let RequestLine { method, path, is_told } = &*self.request_line;
        if !is_change(method) || is_told.swap(true, Ordering::Relaxed) {
            return;
        }
        let (from, method, status) = (self.address, method.as_str(), status.as_u16());
        tracing::info!(by = &*self.name, %from, method, path, status, reason, "a change over the admin API was refused");
    }

    #[cfg(test)]
    pub(super) fn is_told(&self) -> bool {
        self.request_line.is_told.load(Ordering::Relaxed)
    }
}

/// True for every method but `GET` and `HEAD`.
pub(super) fn is_change(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
}

/// The suffix that names a tenant in a log line. Empty for the agent of the config itself.
pub(super) fn of_tenant(tenant: Option<&str>) -> String {
    tenant.map_or_else(String::new, |tenant| format!(" of tenant {tenant}"))
}
