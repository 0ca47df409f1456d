//! HTTP routing: paths, size limits, and the answers while the app is not loaded yet.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::Context;

use annex_protocol::A2aError;
use annex_protocol::jsonrpc::RequestId;
use annex_telemetry::in_request;
use annex_telemetry::traces::parent_in;
use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Incoming};
use tokio::time::Instant;
use tower::ServiceExt as _;

use crate::access_log;
use crate::app::App;
use crate::bindings::grpc::{self, GrpcOperations};
use crate::bindings::jsonrpc;
use crate::bindings::rest::{self, HttpRequest};
use crate::bindings::service_headers::retry_after;
use crate::bindings::v0_3;
use crate::connections::caller::Caller;
use crate::connections::network::Network;
use crate::connections::peer::Peer;
use crate::connections::request_body::{BodyError, RequestBody};
use crate::connections::site::Site;
use crate::operations::Operations;
use crate::paths::{CARD_PATH, JSONRPC_PATH, OLD_CARD_PATH, REST_PATH};
use crate::process::cross_origin::is_preflight;
use crate::process::hosts::Hosts;
use crate::process::readiness_gate::{NoCard, ReadinessGate};

/// The maximum number of characters of a client's `Content-Encoding` that an error text repeats.
const MAX_SHOWN_ENCODING: usize = 64;

/// The service of the A2A listener.
pub(crate) struct Routes {
    gate: Arc<ReadinessGate>,
    /// The router for all paths except JSON-RPC.
    others: RwLock<Others>,
}

/// The router for all paths except JSON-RPC, and the size limit on messages with which its gRPC service was created.
struct Others {
    router: Router,
    max_body_bytes: usize,
}

impl Routes {
    pub(crate) fn new(gate: Arc<ReadinessGate>) -> Arc<Self> {
        Arc::new(Self { others: RwLock::new(Others::new(&gate)), gate })
    }

    fn others(&self) -> Router {
        let max_body_bytes = self.gate.limits.max_body_bytes();
        let current = self.others.read().unwrap_or_else(PoisonError::into_inner);
        if current.max_body_bytes == max_body_bytes {
            return current.router.clone();
        }
        drop(current);
        let others = Others::new(&self.gate);
        let router = others.router.clone();
        *self.others.write().unwrap_or_else(PoisonError::into_inner) = others;
        router
    }
}

impl Others {
    fn new(gate: &Arc<ReadinessGate>) -> Self {
        let max_body_bytes = gate.limits.max_body_bytes();
        Self { router: router(Arc::clone(gate), max_body_bytes), max_body_bytes }
    }
}

impl Site for Arc<Routes> {
    async fn answer(&self, request: Request<Incoming>, peer: Peer) -> Response {
        let exchange = self.gate.access_log.begin(peer.network.address());
        if let Some(trace) = exchange.request().trace() {
            trace.continues(|| parent_in(request.headers()));
        }
        // The future is large, so it is polled in place. Moving it into a future together with the request would copy
        // it.
        let mut routed = pin!(self.paged(request, peer));
        let poll = |context: &mut Context<'_>| in_request(exchange.request(), || routed.as_mut().poll(context));
        let answer = poll_fn(poll).await;
        exchange.answered(answer)
    }

    fn refuse_malformed(&self, network: Network) {
        self.gate.access_log.refuse_malformed(network.address());
    }
}

impl Routes {
    /// Answers a request that an operator sends from a page of the console. `peer` is the operator's end of the
    /// connection. The page needs neither CORS nor the check of host names, because the request comes from this process.
    pub(crate) async fn answer_operator(self: Arc<Self>, mut request: Request<Body>, peer: Peer) -> Response {
        let exchange = self.gate.access_log.begin(peer.network.address());
        request.extensions_mut().insert(peer.network);
        request.extensions_mut().insert(peer);
        let mut routed = pin!(self.others().oneshot(request));
        let poll = |context: &mut Context<'_>| in_request(exchange.request(), || routed.as_mut().poll(context));
        let Ok(answer) = poll_fn(poll).await;
        exchange.answered(answer)
    }

    /// Answers one request. If pages of other origins may call, adds the CORS fields.
    async fn paged(self: &Arc<Self>, request: Request<Incoming>, peer: Peer) -> Response {
        let pages = self.gate.cross_origin.pages();
        let is_allowed = pages.as_ref().is_some_and(|pages| pages.allow(&request));
        if is_preflight(&request) {
            access_log::asks_for(access_log::PREFLIGHT);
            if !is_allowed {
                access_log::refused(access_log::FOREIGN_HOST);
            }
        }
        let Some(pages) = pages else { return self.reply(request, peer, false).await };
        // The future is boxed, so that servers without CORS do not pay for its size.
        Box::pin(pages.answer(request, |request| {
            let (routes, peer) = (Arc::clone(self), peer.clone());
            async move { Ok(routes.reply(request, peer, is_allowed).await) }
        }))
        .await
    }

    /// Answers one request. `is_allowed_page` is true if the request comes from a page of another origin that may call.
    async fn reply(&self, request: Request<Incoming>, peer: Peer, is_allowed_page: bool) -> Response {
        // The check precedes routing, so that it covers every path.
        let refusal = |hosts: &Arc<Hosts>| hosts.refusal(&request, is_allowed_page);
        if let Some(refusal) = self.gate.hosts.as_ref().and_then(refusal) {
            access_log::refused(access_log::FOREIGN_HOST);
            return refusal;
        }
        // Nearly all requests are JSON-RPC. Bypassing the router saves each of them a dozen allocations and as many
        // virtual calls.
        if request.uri().path() == JSONRPC_PATH && request.method() == Method::POST {
            let (head, body) = request.into_parts();
            return json_rpc_call(&self.gate, &peer, None, (&head.headers, &head.uri), body).await;
        }
        self.others().answer(request, peer).await
    }
}

fn router(gate: Arc<ReadinessGate>, max_message_bytes: usize) -> Router {
    let limits = annex_grpc::Limits { max_message_bytes };
    let operations = Arc::new(GrpcOperations(Arc::clone(&gate)));
    let grpc = match gate.speaks_v0_3 {
        true => annex_grpc::routes_of_both_versions(operations, limits),
        false => annex_grpc::routes(operations, limits),
    };
    let grpc = grpc.layer(from_fn_with_state(Arc::clone(&gate), grpc::admit));
    Router::new()
        // Methods other than POST arrive here and are refused.
        .route(JSONRPC_PATH, post(json_rpc))
        // Some clients use the card's URL as a base and post to `/` below it.
        .route(&format!("{JSONRPC_PATH}/"), post(json_rpc))
        // Clients that know only the agent's base URL and read no card post here. Other methods get 404.
        .route("/", post(json_rpc).fallback(not_found))
        .route("/{tenant}", post(json_rpc_of_tenant).fallback(not_found))
        .route("/{tenant}/", post(json_rpc_of_tenant).fallback(not_found))
        // The card of a tenant gives this path to clients of 0.3.
        .route(&format!("/{{tenant}}{JSONRPC_PATH}"), post(json_rpc_of_tenant))
        // All methods arrive here, because the binding itself checks which ones a path accepts.
        .route(&format!("{REST_PATH}/{{*path}}"), any(http_json))
        .route(CARD_PATH, get(agent_card))
        .route(OLD_CARD_PATH, get(agent_card))
        .route(&format!("/{{tenant}}{CARD_PATH}"), get(card_of_tenant))
        .route(&format!("/{{tenant}}{OLD_CARD_PATH}"), get(card_of_tenant))
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .fallback(not_found)
        .with_state(gate)
        .merge(grpc)
}

async fn json_rpc(
    State(gate): State<Arc<ReadinessGate>>,
    Extension(peer): Extension<Peer>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    json_rpc_call(&gate, &peer, None, (&headers, &uri), body).await
}

/// Answers a JSON-RPC request on the path of a tenant.
async fn json_rpc_of_tenant(
    State(gate): State<Arc<ReadinessGate>>,
    Extension(peer): Extension<Peer>,
    Path(tenant): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    // A server without tenants answers 404 here, before it reads the body.
    if gate.app().is_ok_and(|app| !app.tenants().has_others()) {
        return not_found(headers, uri).await;
    }
    json_rpc_call(&gate, &peer, Some(&tenant), (&headers, &uri), body).await
}

/// Answers a JSON-RPC request. `tenant` is the tenant in the path. `None` if the path names none.
async fn json_rpc_call(
    gate: &ReadinessGate,
    peer: &Peer,
    tenant: Option<&str>,
    (headers, uri): (&HeaderMap, &Uri),
    body: impl HttpBody<Data = Bytes> + Unpin,
) -> Response {
    access_log::came_by(access_log::JSONRPC);
    // A request that never reaches the handler is not answered with 200, so that proxies see the failure (such as 413
    // or 503).
    match admit(gate, peer, headers, body).await {
        Ok((app, caller, body)) => {
            let operations = Operations::new(app.tenants(), headers).at_path(tenant);
            json_rpc_answer(gate, &operations, &caller, (headers, uri), &body).await
        }
        Err((status, error)) => {
            access_log::note_error(&error);
            challenged((status, jsonrpc::failure(&RequestId::Null, &error)).into_response(), &error)
        }
    }
}

async fn http_json(
    State(gate): State<Arc<ReadinessGate>>,
    Extension(peer): Extension<Peer>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    access_log::came_by(access_log::HTTP_JSON);
    // The path of the URI is still encoded, unlike axum's own. An id may contain an encoded slash.
    let below = uri.path().strip_prefix(REST_PATH).unwrap_or_default();
    let path = below.strip_prefix('/').unwrap_or(below);
    // No tenant can be named `v1`, so a path of 1.0 is never mistaken for one of 0.3.
    let older = path.strip_prefix(v0_3::http_json::PREFIX).filter(|_| gate.speaks_v0_3);
    match admit(&gate, &peer, &headers, body).await {
        Ok((app, caller, body)) => {
            let request =
                HttpRequest { caller: &caller, method: &method, path, headers: &headers, uri: &uri, body: &body };
            match older {
                Some(path) => v0_3::http_json::answer(app, path, &request).await,
                None => rest::answer(app.tenants(), request).await,
            }
        }
        Err((status, error)) => {
            // The path names the operation, so the log has it although the operation is not called.
            match older {
                Some(path) => v0_3::http_json::note_operation(&method, path),
                None => rest::note_operation(&method, path),
            }
            challenged(rest::refuse(&headers, status, &error), &error)
        }
    }
}

/// Answers a JSON-RPC request of 1.0 or 0.3. Both versions share one path, and no method has the same name in both.
async fn json_rpc_answer(
    gate: &ReadinessGate,
    operations: &Operations<'_>,
    caller: &Caller,
    (headers, uri): (&HeaderMap, &Uri),
    body: &[u8],
) -> Response {
    let request = match jsonrpc::read(headers, body) {
        Ok(request) => request,
        Err(rejection) => return jsonrpc::failure(&rejection.id, &rejection.error),
    };
    // 0.3 is tried first and ignores requests of 1.0. A request without a version counts as 0.3, and 1.0 would refuse
    // it.
    if gate.speaks_v0_3
        && let Some(answer) = v0_3::json_rpc::answer(operations, caller, (headers, uri), &request).await
    {
        return answer;
    }
    jsonrpc::answer(operations, caller, headers, uri, &request).await
}

/// Authenticates the caller, then reads the whole body. Returns the app, the caller and the body.
///
/// # Errors
/// When the caller is refused or the body cannot be read. The error has the HTTP status and the A2A error for the
/// client.
async fn admit<'a>(
    gate: &'a ReadinessGate,
    peer: &Peer,
    headers: &HeaderMap,
    body: impl HttpBody<Data = Bytes> + Unpin,
) -> Result<(&'a App, Caller, Bytes), (StatusCode, A2aError)> {
    let refused = |error: A2aError| {
        (StatusCode::from_u16(error.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), error)
    };
    check_content_encoding(headers)?;
    let (app, identity) = gate.admit(headers, peer).await.map_err(refused)?;
    let caller = Caller::new(identity, peer.network, &gate.limits.shares);
    let mut reading = RequestBody::new(caller, body, gate.limits.body_timeout());
    let body = reading.whole(gate.limits.max_body_bytes()).await.map_err(BodyError::told)?;
    Ok((app, reading.into_caller(), body))
}

/// Refuses compressed bodies. A decompressed body could be a thousand times longer than the bytes that the limits
/// count.
fn check_content_encoding(headers: &HeaderMap) -> Result<(), (StatusCode, A2aError)> {
    let encoding = headers.get(header::CONTENT_ENCODING).map(|value| String::from_utf8_lossy(value.as_bytes()));
    match encoding.as_deref().map(str::trim) {
        None | Some("") => Ok(()),
        Some(encoding) if encoding.eq_ignore_ascii_case("identity") => Ok(()),
        Some(encoding) => {
            let encoding: String = encoding.chars().take(MAX_SHOWN_ENCODING).collect();
            access_log::refused(access_log::CONTENT_TYPE);
            let reason = format!("the content-encoding {encoding} is not supported; send the body without one");
            Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, A2aError::InvalidRequest { reason }))
        }
    }
}

/// Adds `WWW-Authenticate` to the response for a client that must authenticate (RFC 9110 section 11.6.1).
fn challenged(mut response: Response, error: &A2aError) -> Response {
    if let A2aError::Unauthenticated { challenge, .. } = error
        && let Ok(challenge) = HeaderValue::from_str(challenge)
    {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    response
}

async fn agent_card(State(gate): State<Arc<ReadinessGate>>, headers: HeaderMap, uri: Uri) -> Response {
    card(&gate, None, headers, uri).await
}

async fn card_of_tenant(
    State(gate): State<Arc<ReadinessGate>>,
    Path(tenant): Path<String>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    card(&gate, Some(&tenant), headers, uri).await
}

async fn card(gate: &ReadinessGate, tenant: Option<&str>, headers: HeaderMap, uri: Uri) -> Response {
    access_log::asks_for(access_log::AGENT_CARD);
    if let Some(tenant) = tenant {
        access_log::names_tenant(tenant);
    }
    match gate.card(tenant).await {
        Ok(published) => published.card.respond(&headers, published.max_age(Instant::now())),
        Err(NoCard::Starting) => {
            access_log::refused("starting");
            (StatusCode::SERVICE_UNAVAILABLE, "starting\n").into_response()
        }
        Err(NoCard::NotServed) => {
            access_log::refused("tenant_unavailable");
            (StatusCode::SERVICE_UNAVAILABLE, "not served now: suspended, being loaded, or broken\n").into_response()
        }
        Err(NoCard::NoTenant) => {
            access_log::refused(access_log::UNKNOWN_TENANT);
            not_found(headers, uri).await
        }
        Err(NoCard::TooOften(error)) => {
            access_log::note_error(&error);
            let text = format!("{error}\n");
            retry_after((StatusCode::TOO_MANY_REQUESTS, text).into_response(), &error)
        }
    }
}

/// Answers `/livez`, which shows that the process runs.
async fn live() -> &'static str {
    access_log::asks_for(access_log::HEALTH);
    "live\n"
}

/// Answers `/readyz`: 200 if the server accepts messages and the stores answer, 503 otherwise.
async fn ready(State(gate): State<Arc<ReadinessGate>>) -> Response {
    access_log::asks_for(access_log::HEALTH);
    let (is_ready, readiness) = gate.readiness().await;
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(readiness)).into_response()
}

async fn not_found(headers: HeaderMap, uri: Uri) -> Response {
    access_log::refused(access_log::UNKNOWN_PATH);
    if annex_grpc::is_grpc(&headers) {
        // gRPC reports this as UNIMPLEMENTED, with HTTP status 200.
        return annex_grpc::unknown_service().await;
    }
    let text = format!("nothing at {}; the agent card is at {CARD_PATH}\n", uri.path());
    (StatusCode::NOT_FOUND, text).into_response()
}
