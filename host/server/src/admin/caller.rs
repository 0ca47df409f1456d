//! The caller of the admin API, as the log and the audit file name it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::Request;
use axum::http::{Method, StatusCode};

use super::action::Action;
use super::error::AdminError;
use super::roles::Holder;
use crate::audit::Audit;
use crate::audit::record::{Effect, Outcome, Record, Subject, bounded};

/// The caller of a request: the name of its token and the client's address. A handler gets this value from the
/// extensions of the HTTP request. A clone refers to the same request.
#[derive(Clone, Debug)]
pub(crate) struct AdminCaller {
    holder: Holder,
    address: IpAddr,
    request_line: Arc<RequestLine>,
    action: Action,
    subject: Arc<Subject>,
    /// `None` if the config has no audit file.
    audit: Option<Arc<Audit>>,
}

/// The method and the path of a request, and whether its refusal is logged.
#[derive(Debug)]
struct RequestLine {
    method: Method,
    path: String,
    /// True once the refusal is in the log.
    is_logged: AtomicBool,
}

impl AdminCaller {
    pub(crate) fn new(holder: Holder, address: IpAddr, request: &Request, audit: Option<Arc<Audit>>) -> Self {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let action = Action::of(&method, &path).unwrap_or(Action::Other);
        let request_line = Arc::new(RequestLine { method, path, is_logged: AtomicBool::new(false) });
        Self { holder, address, request_line, action, subject: Arc::default(), audit }
    }

    /// This caller, about to make a change.
    pub(crate) fn about(self, action: Action, subject: Subject) -> Self {
        Self { action, subject: Arc::new(subject), ..self }
    }

    /// Checks that the roles of the token allow the change. Logs and records a refusal.
    pub(super) async fn check(&self) -> Result<(), AdminError> {
        let tenant = self.subject.tenant.as_deref().filter(|_| !self.action.is_of_server());
        let Err(missing) = self.holder.check(self.action.permission(), tenant) else { return Ok(()) };
        let error = AdminError::from(missing);
        self.has_failed(error.status(), Some(&error.reason()), None).await;
        Err(error)
    }

    /// Checks that the roles of the token allow an installation for a tenant. Logs and records a refusal.
    pub(crate) async fn check_install(&self, tenant: Option<String>) -> Result<(), AdminError> {
        let subject = Subject { tenant, ..Subject::default() };
        self.clone().about(Action::InstallExtension, subject).check().await
    }

    /// Writes to the audit file that the change begins. Returns the number of the line, if there is an audit file.
    ///
    /// # Errors
    /// The refusal of the change if the line cannot be written.
    pub(super) async fn begins(&self) -> Result<Option<u64>, AdminError> {
        let Some(audit) = &self.audit else { return Ok(None) };
        audit.record(self.record(Outcome::Begun, None)).await.map(Some).map_err(|error| {
            let reason = annex_text::with_causes(&error);
            let message = format!("nothing was changed, because the change cannot be recorded: {reason}");
            AdminError::new(StatusCode::SERVICE_UNAVAILABLE, "audit_unavailable", message)
        })
    }

    /// Logs a change that this caller made, and records it. `begun` is the number of the line by which it began.
    pub(super) async fn has_changed(&self, effect: Effect, begun: Option<u64>) {
        let what = effect.text.as_str();
        tracing::info!(by = &*self.holder.name, from = %self.address, "{what}");
        if let Some(audit) = &self.audit
            && let Err(error) = audit.record(self.record(Outcome::Done, begun).with_effect(effect)).await
        {
            let error = annex_text::with_causes(&error);
            tracing::error!(error, begun, "a change was made, and the audit file only says that it began");
        }
    }

    /// Logs that a change was refused or failed, and records it. Only the first call for a request writes a line, and
    /// only if the request asked for a change.
    pub(crate) async fn has_failed(&self, status: StatusCode, reason: Option<&str>, begun: Option<u64>) {
        let Some(record) = self.refusal(status, reason, begun) else { return };
        if let Some(audit) = &self.audit
            && let Err(error) = audit.record(record).await
        {
            tracing::error!(error = annex_text::with_causes(&error), "a refused change is not in the audit file");
        }
    }

    /// Logs a refusal that is not in the log yet, and returns the record of it.
    fn refusal(&self, status: StatusCode, reason: Option<&str>, begun: Option<u64>) -> Option<Record> {
        let RequestLine { method, path, is_logged } = &*self.request_line;
        if !is_change(method) || is_logged.swap(true, Ordering::Relaxed) {
            return None;
        }
        let (by, from, method, status) = (&*self.holder.name, self.address, method.as_str(), status.as_u16());
        tracing::info!(by, %from, method, path, status, reason, "a change over the admin API was refused");
        let record = Record { status: Some(status), ..self.record(Outcome::Refused, begun) };
        Some(record.with_reason(reason.unwrap_or_default()))
    }

    fn record(&self, outcome: Outcome, begun: Option<u64>) -> Record {
        let RequestLine { method, path, .. } = &*self.request_line;
        Record {
            by: Some(self.holder.name.as_ref().to_owned()),
            from: Some(self.address.to_string()),
            request: Some(bounded(&format!("{method} {path}"))),
            begun,
            ..Record::new(self.action.name(), outcome)
        }
        .about(&self.subject)
    }

    #[cfg(test)]
    pub(super) fn is_logged(&self) -> bool {
        self.request_line.is_logged.load(Ordering::Relaxed)
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
