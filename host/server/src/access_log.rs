//! The access log, with a line per finished request, and the request metrics for `/metrics`.
//!
//! While the server handles a request, it notes the details of the request in [`annex_telemetry`]. A request is
//! finished when its answer has been sent, when its stream ends, or when its client disconnects.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use annex_protocol::service::format_extensions;
use annex_protocol::{A2aError, ExtensionUri};
use annex_telemetry::traces::{RequestTrace, Tracer};
use annex_telemetry::{ACCESS_TARGET, Outcome, OutcomeCounts, Request, StageTimes, millis, with};
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use hyper::body::Body as HttpBody;

use crate::config::{AtomicShare, RequestShare};
use crate::requests::{End, RecentRequests, RequestRecord};

mod body;
mod numbers;

use body::WatchedBody;
pub(crate) use numbers::{Exemplar, RequestNumbers};

/// The name of the JSON-RPC binding. All names of bindings are spelled as on the Agent Card.
pub(crate) const JSONRPC: &str = "JSONRPC";
pub(crate) const HTTP_JSON: &str = "HTTP+JSON";
pub(crate) const GRPC: &str = "GRPC";

/// The log's name for a request for the public Agent Card. A2A has no name for this operation, nor for the operations
/// of the next four constants.
pub(crate) const AGENT_CARD: &str = "AgentCard";
/// The log's name for a preflight request of a browser (CORS).
pub(crate) const PREFLIGHT: &str = "Preflight";
/// The log's name for requests for `/livez` and `/readyz`, and for calls of the health and reflection services of gRPC.
pub(crate) const HEALTH: &str = "Health";
/// The log's name for a call of an extension's method.
const EXTENSION_METHOD: &str = "ExtensionMethod";
/// The log's name for a request for an unknown operation, and for a request that was refused before its operation was
/// read. The operation of a JSON-RPC request is in the body, which the server reads only after it has authenticated the
/// caller.
const UNKNOWN: &str = "Unknown";

/// The reason for refusing a connection that does not send HTTP. This reason and the next four are for requests that
/// are refused before an operation is called.
pub(crate) const MALFORMED: &str = "malformed";
pub(crate) const FOREIGN_HOST: &str = "foreign_host";
pub(crate) const UNKNOWN_PATH: &str = "unknown_path";
pub(crate) const UNKNOWN_TENANT: &str = "unknown_tenant";
pub(crate) const CONTENT_TYPE: &str = "content_type";

/// The maximum size, in bytes, of a client's text, such as a task id, in a log line. Longer texts are cut.
const MAX_TEXT: usize = 256;

/// The access log and the request metrics of a server.
pub(crate) struct AccessLog {
    share: AtomicShare,
    pub(crate) numbers: RequestNumbers,
    /// Begins the traces of requests. Empty if the server has no traces, and until the app is loaded.
    tracer: OnceLock<Tracer>,
    /// The last requests, for the admin API.
    pub(crate) recent: Arc<RecentRequests>,
}

impl AccessLog {
    /// `recent` is the number of requests that the admin API can show.
    pub(crate) fn new(share: RequestShare, recent: usize) -> Arc<Self> {
        let (numbers, tracer) = (RequestNumbers::default(), OnceLock::new());
        Arc::new(Self { share: share.into(), numbers, tracer, recent: RecentRequests::new(recent) })
    }

    /// Changes the share of requests that get a line.
    pub(crate) fn set(&self, share: RequestShare) {
        self.share.set(share);
    }

    /// Lets requests have traces from now on.
    pub(crate) fn trace_with(&self, tracer: Tracer) {
        let _ = self.tracer.set(tracer);
    }

    /// Starts the measurement and the log entry of a request from `peer`.
    pub(crate) fn begin(self: &Arc<Self>, peer: IpAddr) -> Exchange {
        let is_logged = tracing::enabled!(target: ACCESS_TARGET, tracing::Level::INFO) && self.share.get().takes_one();
        let trace = self.tracer.get().cloned().map(RequestTrace::served);
        let request = if self.recent.is_on() {
            Request::begin_with_timeline(is_logged, trace)
        } else {
            Request::begin_traced(is_logged, trace)
        };
        Exchange { log: Arc::clone(self), request, peer, status: None, sent: 0 }
    }

    /// Logs and counts a connection on which `peer` did not send HTTP.
    pub(crate) fn refuse_malformed(self: &Arc<Self>, peer: IpAddr) {
        let exchange = self.begin(peer);
        exchange.request.refuse(MALFORMED);
    }
}

/// A request and its answer. If this value is dropped before the answer ends, the request counts as broken off by the
/// client.
pub(crate) struct Exchange {
    log: Arc<AccessLog>,
    request: Arc<Request>,
    peer: IpAddr,
    /// The status of the answer. `None` until there is an answer.
    status: Option<StatusCode>,
    /// The bytes of the answer's body that were sent so far.
    sent: u64,
}

impl Exchange {
    pub(crate) fn request(&self) -> &Arc<Request> {
        &self.request
    }

    /// Notes the answer. If the length of the answer's body is known, the request ends with this call. Otherwise it
    /// ends with the body.
    pub(crate) fn answered(mut self, answer: Response) -> Response {
        self.status = Some(answer.status());
        let body = answer.body();
        // hyper does not poll a body that has ended, such as that of a gRPC error, so it cannot be watched.
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

    /// Ends the request: writes its line and counts its metrics. Only the first call has an effect.
    fn end(&self) {
        if self.request.end() {
            let (outcome, reason) = self.verdict();
            self.conclude(outcome, reason);
        }
    }

    /// The outcome of the request, and the reason for this outcome. The reason is `None` if the request succeeded or
    /// the client disconnected.
    fn verdict(&self) -> (Outcome, Option<&'static str>) {
        if let Some(&(outcome, reason)) = self.request.verdict.get() {
            return (outcome, Some(reason));
        }
        if self.request.error_id.get().is_some() {
            // The client did get an answer, such as a failed task.
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
        // Probes ask every few seconds and are not users, so they get no span and no line.
        if operation == HEALTH {
            return;
        }
        if let Some(span) = request.sampled_span() {
            self.log.numbers.keep_exemplar(operation, outcome, span, all);
        }
        if request.trace().is_some() {
            self.end_span(operation, outcome, reason);
        }
        if request.is_logged() {
            self.write_line(operation, (outcome, reason), all, spent);
        }
        if self.log.recent.is_on() {
            let (address, status) = (self.peer, self.status.map(|status| status.as_u16()));
            let (bytes_out, took, stages) = (self.sent, all, spent);
            let end = End { operation, outcome, reason, address, status, bytes_out, took, stages };
            self.log.recent.add(RequestRecord::new(request, &end));
        }
    }

    /// Ends the span of the request. The names of its attributes are those of OpenTelemetry for RPC.
    fn end_span(&self, operation: &'static str, outcome: Outcome, reason: Option<&'static str>) {
        let request = &*self.request;
        let mut span = request.span(operation);
        if !span.is_recording() {
            return;
        }
        let system = match request.binding.get().copied() {
            Some(GRPC) => "grpc",
            Some(HTTP_JSON) | None => "http",
            Some(_) => "jsonrpc",
        };
        span.set("rpc.system", system);
        span.set("rpc.service", "a2a");
        span.set("rpc.method", operation);
        span.set("annex.outcome", outcome.name());
        if let Some(status) = self.status {
            span.set("http.response.status_code", i64::from(status.as_u16()));
        }
        let texts = [
            ("a2a.version", request.version.get().copied()),
            ("a2a.context.id", request.context.get().map(|context| &**context)),
            ("a2a.task.id", request.task.get().map(|task| &**task)),
            ("annex.tenant", request.tenant.get().map(|tenant| &**tenant)),
            ("annex.method", request.method.get().map(|method| &**method)),
            ("annex.error_id", request.error_id.get().map(|id| &**id)),
        ];
        for (key, text) in texts {
            if let Some(text) = text {
                span.set_text(key, text);
            }
        }
        let kind = reason.unwrap_or(outcome.name());
        match outcome {
            Outcome::Ok => {}
            Outcome::Failed => span.fail(kind),
            // No fault of the server, so the status stays unset.
            Outcome::Refused | Outcome::Gone => span.set("error.type", kind),
        }
    }

    fn write_line(
        &self,
        operation: &'static str,
        (outcome, reason): (Outcome, Option<&'static str>),
        all: Duration,
        spent: StageTimes,
    ) {
        let request = &*self.request;
        let is_well = outcome == Outcome::Ok;
        // tracing omits fields that are `None`.
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
            trace_id = request.trace_id(),
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

/// Sets a detail of a request, unless the detail is already set.
fn note<T>(place: &OnceLock<T>, value: T) {
    let _ = place.set(value);
}

/// Notes the binding of the request.
pub(crate) fn came_by(binding: &'static str) {
    with(|request| note(&request.binding, binding));
}

/// Notes the version of A2A that the request uses.
pub(crate) fn speaks(version: &'static str) {
    with(|request| note(&request.version, version));
}

/// Notes the operation of the request.
pub(crate) fn asks_for(operation: &'static str) {
    with(|request| note(&request.operation, operation));
}

/// Notes that the request is refused. The reason is a constant of this module or one of the words in [`numbers`].
pub(crate) fn refused(reason: &'static str) {
    with(|request| request.refuse(reason));
}

/// Notes the name of the tenant in the request. This name may be any text.
pub(crate) fn names_tenant(tenant: &str) {
    with(|request| note(&request.tenant, cut(tenant).into()));
}

/// Notes the counters of the request's tenant. When the request ends, its outcome is counted in them.
pub(crate) fn counts_in(counts: &Arc<OutcomeCounts>) {
    with(|request| note(&request.counts, Arc::clone(counts)));
}

/// Notes the principal of the caller.
pub(crate) fn is_of(principal: &str) {
    with(|request| {
        if request.is_measured() && !principal.is_empty() {
            note(&request.caller, principal.into());
        }
    });
}

/// Notes the error that the client receives.
pub(crate) fn note_error(error: &A2aError) {
    with(|request| {
        let blame = |uris: &[ExtensionUri]| {
            if request.is_measured() {
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

/// The outcome and the reason that the log has for an error. `is_of_extension` is true if an extension found the fault
/// in the request.
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

/// Runs `answer`, and notes the error if it returns one.
pub(crate) async fn noted<T>(answer: impl Future<Output = Result<T, A2aError>>) -> Result<T, A2aError> {
    answer.await.inspect_err(note_error)
}
