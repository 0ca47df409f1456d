//! HTTP: paths, size limits, and what is answered before everything is loaded.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::Context;

use annex_protocol::A2aError;
use annex_protocol::jsonrpc::RequestId;
use annex_telemetry::in_request;
use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Incoming};

use crate::access_log;
use crate::app::App;
use crate::bindings::grpc::{self, GrpcOperations};
use crate::bindings::jsonrpc;
use crate::bindings::rest::{self, HttpRequest};
use crate::bindings::service_headers::retry_after;
use crate::bindings::v0_3;
use crate::connections::caller::Caller;
use crate::connections::network::Network;
use crate::connections::request_body::{BodyError, RequestBody};
use crate::connections::site::Site;
use crate::operations::Operations;
use crate::paths::{CARD_PATH, JSONRPC_PATH, OLD_CARD_PATH, REST_PATH};
use crate::process::cross_origin::is_preflight;
use crate::process::hosts::Hosts;
use crate::process::readiness_gate::{NoCard, ReadinessGate};

/// Characters of a name that a client sent and is told again.
const MAX_SHOWN_ENCODING: usize = 64;

/// All that the server answers.
pub(crate) struct Routes {
    gate: Arc<ReadinessGate>,
    /// All paths but that of JSON-RPC.
    others: RwLock<Others>,
}

/// The router of all paths but that of JSON-RPC. The largest message of gRPC is a part of it.
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
    async fn answer(&self, request: Request<Incoming>, network: Network) -> Response {
        let exchange = self.gate.access_log.begin(network.address());
        // Polled where it lies: the future is large, and would be copied into one that has the request with it.
        let mut routed = pin!(self.paged(request, network));
        let poll = |context: &mut Context<'_>| in_request(exchange.request(), || routed.as_mut().poll(context));
        let answer = poll_fn(poll).await;
        exchange.answered(answer)
    }

    fn refuse_malformed(&self, network: Network) {
        self.gate.access_log.refuse_malformed(network.address());
    }
}

impl Routes {
    /// Answers one request, with the fields for browsers where pages of other origins may call.
    async fn paged(self: &Arc<Self>, request: Request<Incoming>, network: Network) -> Response {
        let pages = self.gate.cross_origin.pages();
        let is_allowed = pages.as_ref().is_some_and(|pages| pages.allow(&request));
        if is_preflight(&request) {
            access_log::asks_for(access_log::PREFLIGHT);
            if !is_allowed {
                access_log::refused(access_log::FOREIGN_HOST);
            }
        }
        let Some(pages) = pages else { return self.reply(request, network, false).await };
        // On the heap, so that the future of a server that no page calls is not larger for it.
        Box::pin(pages.answer(request, |request| {
            let routes = Arc::clone(self);
            async move { Ok(routes.reply(request, network, is_allowed).await) }
        }))
        .await
    }

    /// Answers one request. A page of another origin that may call is let through.
    async fn reply(&self, request: Request<Incoming>, network: Network, is_allowed_page: bool) -> Response {
        // Before any path is looked at, so that none is forgotten.
        let refusal = |hosts: &Arc<Hosts>| hosts.refusal(&request, is_allowed_page);
        if let Some(refusal) = self.gate.hosts.as_ref().and_then(refusal) {
            access_log::refused(access_log::FOREIGN_HOST);
            return refusal;
        }
        // Nearly all requests are these. Past the router each of them saves a dozen allocations and as many virtual
        // calls.
        if request.uri().path() == JSONRPC_PATH && request.method() == Method::POST {
            let (head, body) = request.into_parts();
            return json_rpc_call(&self.gate, network, None, (&head.headers, &head.uri), body).await;
        }
        self.others().answer(request, network).await
    }
}

fn router(gate: Arc<ReadinessGate>, max_message_bytes: usize) -> Router {
    let limits = annex_grpc::Limits { max_message_bytes };
    let grpc = annex_grpc::routes(Arc::new(GrpcOperations(Arc::clone(&gate))), limits)
        .layer(from_fn_with_state(Arc::clone(&gate), grpc::admit));
    Router::new()
        // Other methods than POST arrive here and are refused.
        .route(JSONRPC_PATH, post(json_rpc))
        // Clients that keep the card's URL as a base and post to `/` below it end up here.
        .route(&format!("{JSONRPC_PATH}/"), post(json_rpc))
        // Clients that are given the agent's base URL and read no card post there. Its other methods are no endpoint.
        .route("/", post(json_rpc).fallback(not_found))
        .route("/{tenant}", post(json_rpc_of_tenant).fallback(not_found))
        .route("/{tenant}/", post(json_rpc_of_tenant).fallback(not_found))
        // What the card of a tenant names for 0.3.
        .route(&format!("/{{tenant}}{JSONRPC_PATH}"), post(json_rpc_of_tenant))
        // All methods arrive, because the binding itself knows which ones a path takes.
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
    Extension(network): Extension<Network>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    json_rpc_call(&gate, network, None, (&headers, &uri), body).await
}

/// JSON-RPC below the path of a tenant.
async fn json_rpc_of_tenant(
    State(gate): State<Arc<ReadinessGate>>,
    Extension(network): Extension<Network>,
    Path(tenant): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    // A server without tenants has nothing there, and reads no body to say so.
    if gate.app().is_ok_and(|app| !app.tenants().has_others()) {
        return not_found(headers, uri).await;
    }
    json_rpc_call(&gate, network, Some(&tenant), (&headers, &uri), body).await
}

/// `tenant` is that of the path.
async fn json_rpc_call(
    gate: &ReadinessGate,
    network: Network,
    tenant: Option<&str>,
    (headers, uri): (&HeaderMap, &Uri),
    body: impl HttpBody<Data = Bytes> + Unpin,
) -> Response {
    access_log::came_by(access_log::JSONRPC);
    // A request that never reaches the handler is not answered with 200, so that proxies on the way can tell (413,
    // 503).
    match admit(gate, network, headers, body).await {
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
    Extension(network): Extension<Network>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    access_log::came_by(access_log::HTTP_JSON);
    match admit(&gate, network, &headers, body).await {
        Ok((app, caller, body)) => {
            // As it was sent: an id may have a slash in it, which is encoded there. axum has decoded the path that it gives.
            let below = uri.path().strip_prefix(REST_PATH).unwrap_or_default();
            let path = below.strip_prefix('/').unwrap_or(below);
            let request =
                HttpRequest { caller: &caller, method: &method, path, headers: &headers, uri: &uri, body: &body };
            // No tenant is named `v1`, so no path of 1.0 is taken for one of 0.3.
            match path.strip_prefix(v0_3::http_json::PREFIX).filter(|_| gate.speaks_v0_3) {
                Some(path) => v0_3::http_json::answer(app, path, &request).await,
                None => rest::answer(app.tenants(), request).await,
            }
        }
        Err((status, error)) => challenged(rest::refuse(&headers, status, &error), &error),
    }
}

/// Requests of both versions come by the same path: no method has the same name in both.
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
    // 0.3 comes first and leaves alone what is 1.0's: a request that names no version is one of 0.3, and 1.0 refuses
    // it.
    if gate.speaks_v0_3
        && let Some(answer) = v0_3::json_rpc::answer(operations, caller, (headers, uri), &request).await
    {
        return answer;
    }
    jsonrpc::answer(operations, caller, headers, uri, &request).await
}

/// The app, if the phase allows requests; who calls; and the whole body. Nothing of a stranger's body is read.
async fn admit<'a>(
    gate: &'a ReadinessGate,
    network: Network,
    headers: &HeaderMap,
    body: impl HttpBody<Data = Bytes> + Unpin,
) -> Result<(&'a App, Caller, Bytes), (StatusCode, A2aError)> {
    let refused = |error: A2aError| {
        (StatusCode::from_u16(error.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), error)
    };
    check_content_encoding(headers)?;
    let (app, identity) = gate.admit(headers).await.map_err(refused)?;
    let caller = Caller::new(identity, network, &gate.limits.shares);
    let mut reading = RequestBody::new(caller, body, gate.limits.body_timeout());
    let body = reading.whole(gate.limits.max_body_bytes()).await.map_err(BodyError::told)?;
    Ok((app, reading.into_caller(), body))
}

/// Bodies are read as they are: a compressed one could be a thousand times as long as what was counted.
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

/// Tells a client that has to say who it is how to do so (RFC 9110 section 11.6.1).
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
        Ok(card) => card.respond(&headers),
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

/// The process answers.
async fn live() -> &'static str {
    access_log::asks_for(access_log::HEALTH);
    "live\n"
}

/// The server takes messages, and the stores answer.
async fn ready(State(gate): State<Arc<ReadinessGate>>) -> Response {
    access_log::asks_for(access_log::HEALTH);
    let (is_ready, readiness) = gate.readiness().await;
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(readiness)).into_response()
}

async fn not_found(headers: HeaderMap, uri: Uri) -> Response {
    access_log::refused(access_log::UNKNOWN_PATH);
    if annex_grpc::is_grpc(&headers) {
        // gRPC has a status of its own for this, UNIMPLEMENTED, and sends it with HTTP 200.
        return annex_grpc::unknown_service().await;
    }
    let text = format!("nothing at {}; the agent card is at {CARD_PATH}\n", uri.path());
    (StatusCode::NOT_FOUND, text).into_response()
}
