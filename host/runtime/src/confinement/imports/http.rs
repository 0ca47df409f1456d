//! `wasi:http/outgoing-handler`: sends requests that the grant allows.

use std::sync::Arc;

use annex_telemetry::traces::{Span, SpanKind};
use http::header::{TE, TRAILER};
use http::{HeaderName, Request, Response};
use wasmtime_wasi_http::{
    DEFAULT_FORBIDDEN_HEADERS, Error, ForbiddenHeaderFilter, RequestOptions, WasiBody, WasiHttpHooks,
};

use crate::confinement::profile::Profile;
use crate::contract::LogLevel;
use crate::observation::log::Log;
use crate::overrides::ServiceOverrides;

/// True for header fields that guests may neither write nor read, such as `connection`, `host` and
/// `proxy-authorization`.
fn is_forbidden(name: &HeaderName) -> bool {
    DEFAULT_FORBIDDEN_HEADERS.contains(name) || [TE, TRAILER].contains(name) || name.as_str().starts_with("proxy-")
}

/// Method and URL of the request, without the query.
fn asked(request: &Request<WasiBody>) -> String {
    let method = request.method();
    let uri = request.uri();
    let scheme = uri.scheme_str().unwrap_or_default();
    let authority = uri.authority().map(http::uri::Authority::as_str).unwrap_or_default();
    format!("{method} {scheme}://{authority}{}", uri.path())
}

/// Begins the span of a request, without the path and the query of its URL.
fn begin_span(request: &Request<WasiBody>) -> Span {
    let mut span = annex_telemetry::span(SpanKind::Client, "wasi:http");
    if span.is_recording() {
        span.extend_name(request.method().as_str());
        span.set_text("http.request.method", request.method().as_str());
        span.set_text("server.address", request.uri().host().unwrap_or_default());
    }
    span
}

/// Tells the operator why a request was denied, in the extension's own log and within the limits of that log.
fn log_denial(log: &Log, asked: &str, error: &Error) {
    let reason = match error {
        Error::HttpRequestDenied => "no rule of its grant allows it",
        Error::DestinationIpProhibited => "the address is private, and its grant's allow_private does not name it",
        _ => return,
    };
    log.write(LogLevel::Warn, "http", &format!("{asked} was not sent: {reason}"));
}

/// Connects wasmtime's `wasi:http` with the sender.
pub(super) struct Hooks {
    profile: Arc<Profile>,
    log: Log,
    /// The turn's replacements of host services.
    overrides: ServiceOverrides,
}

impl Hooks {
    pub(super) fn new(profile: Arc<Profile>, log: Log, overrides: ServiceOverrides) -> Self {
        Self { profile, log, overrides }
    }
}

type SendResult = Result<(Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>), Error>;

impl WasiHttpHooks for Hooks {
    fn forbidden_header_filter(&mut self) -> ForbiddenHeaderFilter {
        Arc::new(is_forbidden)
    }

    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _processed: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = SendResult> + Send> {
        let profile = Arc::clone(&self.profile);
        let log = self.log.clone();
        let overrides = self.overrides.clone();
        // Begun here, in the span of the hook: the request may be sent in another tokio task.
        let mut span = begin_span(&request);
        Box::new(async move {
            // Without the grant, `wasi:http` is not linked.
            let sender = profile.services.http.as_ref().ok_or(Error::HttpRequestDenied)?;
            let asked = asked(&request);
            let sent = sender.send((request, &span), options, profile.limits.output, &overrides).await;
            match &sent {
                Ok(response) => span.set("http.response.status_code", i64::from(response.status().as_u16())),
                Err(_) => span.fail("request"),
            }
            let response = sent.inspect_err(|error| log_denial(&log, &asked, error))?;
            // The sender has read the whole request body already, so no later error is possible.
            let nothing_left: Box<dyn Future<Output = Result<(), Error>> + Send> = Box::new(async { Ok(()) });
            Ok((response, nothing_left))
        })
    }
}
