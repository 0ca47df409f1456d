//! HTTP: paths, size limits, and what is answered before everything is loaded.

use std::sync::Arc;

use annex_protocol::A2aError;
use annex_protocol::jsonrpc::RequestId;
use axum::body::Body;
use axum::extract::{Extension, Path, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Json, Router};
use bytes::Bytes;

use crate::caller::{Caller, Network};
use crate::front::{Front, NoCard, Phase};
use crate::grpc::{self, GrpcOperations};
use crate::handler::RequestHandler;
use crate::hosts;
use crate::jsonrpc;
use crate::request_body::{BodyError, RequestBody};
use crate::rest::{self, HttpRequest};

/// Where the JSON-RPC binding listens.
pub(crate) const JSONRPC_PATH: &str = "/a2a/jsonrpc";
/// Below which the HTTP+JSON binding listens.
pub(crate) const REST_PATH: &str = "/a2a/rest";
/// The well-known path of the card (A2A 1.0 section 8.2).
pub(crate) const CARD_PATH: &str = "/.well-known/agent-card.json";

/// All routes of the server.
pub(crate) fn router(front: Arc<Front>) -> Router {
    let limits = annex_grpc::Limits { max_message_bytes: front.max_body_bytes };
    let grpc = annex_grpc::routes(Arc::new(GrpcOperations(Arc::clone(&front))), limits)
        .layer(from_fn_with_state(Arc::clone(&front), grpc::admit));
    let hosts = front.hosts.clone();
    let router = Router::new()
        .route(JSONRPC_PATH, post(json_rpc))
        // Clients that keep a base URL and post to `/` end up here.
        .route(&format!("{JSONRPC_PATH}/"), post(json_rpc))
        .route(&format!("{REST_PATH}/{{*path}}"), any(http_json))
        .route(CARD_PATH, get(agent_card))
        .route(&format!("/{{tenant}}{CARD_PATH}"), get(card_of_tenant))
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .fallback(not_found)
        .with_state(front)
        .merge(grpc);
    match hosts {
        Some(hosts) => router.layer(from_fn_with_state(hosts, hosts::check)),
        None => router,
    }
}

async fn json_rpc(
    State(front): State<Arc<Front>>,
    Extension(network): Extension<Network>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    // The HTTP status of what never reaches the handler is no 200, for whatever stands in between.
    match admit(&front, network, &headers, body).await {
        Ok((handler, caller, body)) => jsonrpc::answer(handler, &caller, &headers, &uri, &body).await,
        Err((status, error)) => {
            challenged((status, jsonrpc::failure(&RequestId::Null, &error)).into_response(), &error)
        }
    }
}

async fn http_json(
    State(front): State<Arc<Front>>,
    Extension(network): Extension<Network>,
    method: Method,
    Path(path): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    match admit(&front, network, &headers, body).await {
        Ok((handler, caller, body)) => {
            let request = HttpRequest {
                caller: &caller,
                method: &method,
                path: &path,
                headers: &headers,
                uri: &uri,
                body: &body,
            };
            rest::answer(handler, request).await
        }
        Err((status, error)) => challenged(rest::refuse(&headers, status, &error), &error),
    }
}

/// The handler, if the phase allows requests; who calls; and the whole body. Nothing of a stranger's body is read.
async fn admit<'a>(
    front: &'a Front,
    network: Network,
    headers: &HeaderMap,
    body: Body,
) -> Result<(&'a RequestHandler, Caller, Bytes), (StatusCode, A2aError)> {
    let refused = |error: A2aError| {
        (StatusCode::from_u16(error.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), error)
    };
    let (handler, owner) = front.admit(headers).await.map_err(refused)?;
    let caller = Caller::new(owner, network, &front.shares);
    let mut reading = RequestBody::new(caller, body, front.body_patience);
    let body = reading.whole(front.max_body_bytes).await.map_err(BodyError::told)?;
    Ok((handler, reading.into_caller(), body))
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

async fn agent_card(State(front): State<Arc<Front>>, headers: HeaderMap, uri: Uri) -> Response {
    card(&front, None, headers, uri).await
}

async fn card_of_tenant(
    State(front): State<Arc<Front>>,
    Path(tenant): Path<String>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    card(&front, Some(&tenant), headers, uri).await
}

async fn card(front: &Front, tenant: Option<&str>, headers: HeaderMap, uri: Uri) -> Response {
    match front.card(tenant) {
        Ok(card) => card.respond(&headers),
        Err(NoCard::Starting) => (StatusCode::SERVICE_UNAVAILABLE, "starting\n").into_response(),
        Err(NoCard::NoTenant) => not_found(headers, uri).await,
    }
}

/// The process answers.
async fn live() -> &'static str {
    "live\n"
}

/// The server takes messages.
async fn ready(State(front): State<Arc<Front>>) -> Response {
    let is_ready = front.phase() == Phase::Ready;
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(front.readiness())).into_response()
}

async fn not_found(headers: HeaderMap, uri: Uri) -> Response {
    if annex_grpc::is_grpc(&headers) {
        return annex_grpc::unknown_service().await;
    }
    let text = format!("nothing at {}; the agent card is at {CARD_PATH}\n", uri.path());
    (StatusCode::NOT_FOUND, text).into_response()
}
