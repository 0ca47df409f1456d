//! One line of the log for each request when it is over, and the numbers of all requests for `/metrics`.
//!
//! What the line says is collected while the request is served ([`annex_telemetry`]), by whoever learns it. A request is over
//! when its answer has left, at the end of a stream, or when its client leaves.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use annex_protocol::service::format_extensions;
use annex_protocol::{A2aError, ExtensionUri};
use annex_telemetry::{ACCESS_TARGET, Outcome, OutcomeCounts, Request, Spent, millis, with};
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use hyper::body::Body as HttpBody;

use crate::config::{AccessShare, AtomicShare};

mod body;
mod numbers;

use body::WatchedBody;
pub(crate) use numbers::RequestNumbers;

/// The bindings, as cards name them.
pub(crate) const JSONRPC: &str = "JSONRPC";
pub(crate) const HTTP_JSON: &str = "HTTP+JSON";
pub(crate) const GRPC: &str = "GRPC";

/// The public card, which is no operation of A2A.
pub(crate) const AGENT_CARD: &str = "AgentCard";
/// The question of a browser whether a page of another origin may call.
pub(crate) const PREFLIGHT: &str = "Preflight";
/// `/livez` and `/readyz`, and health and reflection of gRPC.
pub(crate) const HEALTH: &str = "Health";
/// A method that an extension adds.
const EXTENSION_METHOD: &str = "ExtensionMethod";
/// A request that asks for nothing which is here, or that was refused before that was read.
const UNKNOWN: &str = "Unknown";

/// The reasons that refuse a request before any operation is asked.
pub(crate) const MALFORMED: &str = "malformed";
pub(crate) const FOREIGN_HOST: &str = "foreign_host";
pub(crate) const UNKNOWN_PATH: &str = "unknown_path";
pub(crate) const UNKNOWN_TENANT: &str = "unknown_tenant";
pub(crate) const CONTENT_TYPE: &str = "content_type";

/// Bytes of a text in a line that a stranger chose, such as the id of a task.
const MAX_TEXT: usize = 256;

/// The access log of a server.
pub(crate) struct AccessLog {
    share: AtomicShare,
    pub(crate) numbers: RequestNumbers,
}

impl AccessLog {
    pub(crate) fn new(share: AccessShare) -> Arc<Self> {
        Arc::new(Self { share: share.into(), numbers: RequestNumbers::default() })
    }

    /// From now on another share of the requests has a line.
    pub(crate) fn set(&self, share: AccessShare) {
        self.share.set(share);
    }

    /// A request of this peer begins.
    pub(crate) fn begin(self: &Arc<Self>, peer: IpAddr) -> Exchange {
        let is_logged = tracing::enabled!(target: ACCESS_TARGET, tracing::Level::INFO) && self.share.get().takes_one();
        let request = Request::begin(is_logged);
        Exchange { log: Arc::clone(self), request, peer, status: None, sent: 0 }
    }

    /// What this peer has sent is no request.
    pub(crate) fn refuse_malformed(self: &Arc<Self>, peer: IpAddr) {
        let exchange = self.begin(peer);
        exchange.request.refuse(MALFORMED);
    }
}

/// A request and its answer. Dropped before it is over, it counts as one whose client has left.
pub(crate) struct Exchange {
    log: Arc<AccessLog>,
    request: Arc<Request>,
    peer: IpAddr,
    /// `None` until there is an answer.
    status: Option<StatusCode>,
    /// Bytes of the answer's body.
    sent: u64,
}

impl Exchange {
    pub(crate) fn request(&self) -> &Arc<Request> {
        &self.request
    }

    /// The request has an answer. One whose length is known is as good as sent; all others are watched to their end.
    pub(crate) fn answered(mut self, answer: Response) -> Response {
        self.status = Some(answer.status());
        let body = answer.body();
        // Nobody reads a body that has ended, such as that of an error of gRPC.
        let known = body.size_hint().exact().or_else(|| body.is_end_stream().then_some(0));
        match known {
            Some(bytes) => {
                self.sent = bytes;
                self.end();
                answer
            }
            None => answer.map(|body| Body::new(WatchedBody::new(body, self))),
        }
    }

    /// The request is over.
    fn end(&self) {
        if self.request.end() {
            let (outcome, reason) = self.verdict();
            self.conclude(outcome, reason);
        }
    }

    /// How the request ended, and why, unless that is well.
    fn verdict(&self) -> (Outcome, Option<&'static str>) {
        if let Some(&(outcome, reason)) = self.request.verdict.get() {
            return (outcome, Some(reason));
        }
        if self.request.error_id.get().is_some() {
            // The client has an answer, such as a task that failed.
            return (Outcome::Failed, Some("fault"));
        }
        match self.status {
            None => (Outcome::Gone, None),
            Some(StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED) => (Outcome::Refused, Some(UNKNOWN_PATH)),
            Some(status) if status.is_client_error() => (Outcome::Refused, Some("invalid_request")),
            Some(status) if status.is_server_error() => (Outcome::Failed, Some("fault")),
            Some(_) => (Outcome::Ok, None),
        }
    }

    fn conclude(&self, outcome: Outcome, reason: Option<&'static str>) {
        let request = &*self.request;
        let (all, spent) = request.spent();
        let of_extension = || request.method.get().map(|_| EXTENSION_METHOD);
        let operation = request.operation.get().copied().or_else(of_extension).unwrap_or(UNKNOWN);
        self.log.numbers.add(operation, (outcome, reason), all);
        if let Some(counts) = request.counts.get() {
            counts.add(outcome);
        }
        // Whoever asks whether the process lives does so every few seconds, and is no user.
        if request.is_logged() && operation != HEALTH {
            self.write_line(operation, (outcome, reason), all, spent);
        }
    }

    fn write_line(
        &self,
        operation: &'static str,
        (outcome, reason): (Outcome, Option<&'static str>),
        all: Duration,
        spent: Spent,
    ) {
        let request = &*self.request;
        let is_well = outcome == Outcome::Ok;
        // Fields that are `None` are left out.
        tracing::info!(
            target: ACCESS_TARGET,
            tenant = request.tenant.get().map(|tenant| cut(tenant)),
            caller = request.caller.get().map(|caller| cut(caller)),
            address = %self.peer,
            binding = request.binding.get().copied(),
            version = request.version.get().copied(),
            operation,
            method = request.method.get().map(|method| cut(method)),
            context = request.context.get().map(|context| cut(context)),
            task = request.task.get().map(|task| cut(task)),
            extensions = request.extensions.get().map(|uris| &**uris),
            outcome = outcome.name(),
            reason,
            extension = request.blamed.get().filter(|_| !is_well).map(|uris| &**uris),
            quota = request.quota.get().copied(),
            error_id = request.error_id.get().map(|id| &**id),
            status = self.status.map(|status| status.as_u16()),
            bytes_in = request.received(),
            bytes_out = self.sent,
            ms = millis(all),
            hooks_ms = millis(spent.hooks),
            agent_ms = millis(spent.agent),
            store_ms = millis(spent.store),
            "request"
        );
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.request.end() {
            let (outcome, reason) = match self.verdict() {
                (Outcome::Ok, _) => (Outcome::Gone, None),
                other => other,
            };
            self.conclude(outcome, reason);
        }
    }
}

fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or_default()
}

/// Whoever learned it first stays.
fn note<T>(place: &OnceLock<T>, value: T) {
    let _ = place.set(value);
}

/// Notes the binding by which the request came.
pub(crate) fn came_by(binding: &'static str) {
    with(|request| note(&request.binding, binding));
}

/// Notes the version of A2A that the request speaks.
pub(crate) fn speaks(version: &'static str) {
    with(|request| note(&request.version, version));
}

/// Notes the operation that the request asks for.
pub(crate) fn asks_for(operation: &'static str) {
    with(|request| note(&request.operation, operation));
}

/// Notes that the request is refused, for a reason of this module's or in a word that [`numbers`] knows.
pub(crate) fn refused(reason: &'static str) {
    with(|request| request.refuse(reason));
}

/// Notes the tenant that the request names. It may be any text.
pub(crate) fn names_tenant(tenant: &str) {
    with(|request| note(&request.tenant, cut(tenant).into()));
}

/// Notes where the requests of its tenant are counted.
pub(crate) fn counts_in(counts: &Arc<OutcomeCounts>) {
    with(|request| note(&request.counts, Arc::clone(counts)));
}

/// Notes who sent the request.
pub(crate) fn is_of(principal: &str) {
    with(|request| {
        if request.is_logged() && !principal.is_empty() {
            note(&request.caller, principal.into());
        }
    });
}

/// Notes the error that the client is told.
pub(crate) fn note_error(error: &A2aError) {
    with(|request| {
        let blame = |uris: &[ExtensionUri]| {
            if request.is_logged() {
                request.blame(format_extensions(uris));
            }
        };
        match error {
            A2aError::QuotaExceeded { quota, .. } => note(&request.quota, *quota),
            A2aError::ExtensionSupportRequired { missing, .. } => blame(missing),
            A2aError::Extension { uri, .. } => blame(std::slice::from_ref(uri)),
            A2aError::Internal { error_id } => note(&request.error_id, error_id.as_str().into()),
            _ => {}
        }
        note(&request.verdict, verdict_on(error, request.blamed.get().is_some()));
    });
}

/// The outcome and its reason. `is_of_extension` says that an extension has found the fault in the request.
fn verdict_on(error: &A2aError, is_of_extension: bool) -> (Outcome, &'static str) {
    let reason = match error {
        A2aError::Internal { .. } => return (Outcome::Failed, "fault"),
        A2aError::InvalidAgentResponse { .. } => return (Outcome::Failed, "agent_response"),
        A2aError::Unauthenticated { .. } => "credentials",
        A2aError::QuotaExceeded { .. } => "quota",
        A2aError::ExtensionSupportRequired { .. } => "required_extension",
        A2aError::Extension { .. } => "extension_error",
        A2aError::InvalidParams { .. } if is_of_extension => "violation",
        A2aError::InvalidParams { .. } => "invalid_params",
        A2aError::Parse { .. } | A2aError::InvalidRequest { .. } => "invalid_request",
        A2aError::ContentTypeNotSupported { .. } | A2aError::BodyTypeNotSupported { .. } => CONTENT_TYPE,
        A2aError::VersionNotSupported { .. } | A2aError::PathOfOtherVersion { .. } => "version",
        A2aError::MethodNotFound { .. } => "unknown_method",
        A2aError::TaskNotFound { .. } | A2aError::PushConfigNotFound { .. } => "not_found",
        A2aError::Unavailable { .. } => "tenant_unavailable",
        A2aError::Overloaded { .. } => "overloaded",
        A2aError::TaskNotCancelable { .. }
        | A2aError::PushNotificationNotSupported
        | A2aError::UnsupportedOperation { .. }
        | A2aError::ExtendedAgentCardNotConfigured => "unsupported",
    };
    (Outcome::Refused, reason)
}

/// The same error, once it is noted.
pub(crate) async fn noted<T>(answer: impl Future<Output = Result<T, A2aError>>) -> Result<T, A2aError> {
    answer.await.inspect_err(note_error)
}
