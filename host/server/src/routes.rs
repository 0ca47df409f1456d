//! HTTP: paths, size limits, and what is answered before everything is loaded.

use std::sync::Arc;

use annex_protocol::A2aError;
use annex_protocol::jsonrpc::RequestId;
use axum::Router;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;

use crate::front::{Front, Phase};
use crate::jsonrpc;

/// Where the JSON-RPC binding listens.
pub(crate) const JSONRPC_PATH: &str = "/a2a/jsonrpc";
/// The well-known path of the card (A2A 1.0 section 8.2).
pub(crate) const CARD_PATH: &str = "/.well-known/agent-card.json";

/// All routes of the server.
pub(crate) fn router(front: Arc<Front>) -> Router {
    let max_body_bytes = front.max_body_bytes;
    Router::new()
        .route(JSONRPC_PATH, post(json_rpc))
        .route(CARD_PATH, get(agent_card))
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .fallback(not_found)
        .layer(DefaultBodyLimit::max(max_body_bytes))
        .with_state(front)
}

async fn json_rpc(
    State(front): State<Arc<Front>>,
    uri: Uri,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return unreadable(&rejection, front.max_body_bytes),
    };
    match front.handler() {
        Ok(handler) => jsonrpc::answer(handler, &headers, &uri, &body).await,
        Err(phase) => unavailable(phase),
    }
}

/// A body that is too large or broke off. The HTTP status says so too, for whatever stands in between.
fn unreadable(rejection: &BytesRejection, limit: usize) -> Response {
    let reason = match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => format!("the body is larger than {limit} bytes, the most that is read here"),
        _ => "the body broke off".to_owned(),
    };
    (rejection.status(), jsonrpc::failure(&RequestId::Null, &A2aError::InvalidRequest { reason })).into_response()
}

fn unavailable(phase: Phase) -> Response {
    let error = A2aError::Overloaded { reason: format!("the server is {phase}; try again") };
    (StatusCode::SERVICE_UNAVAILABLE, jsonrpc::failure(&RequestId::Null, &error)).into_response()
}

async fn agent_card(State(front): State<Arc<Front>>, headers: HeaderMap) -> Response {
    match front.card() {
        Some(card) => card.respond(&headers),
        None => (StatusCode::SERVICE_UNAVAILABLE, "starting\n").into_response(),
    }
}

/// The process answers.
async fn live() -> &'static str {
    "live\n"
}

/// The server takes messages.
async fn ready(State(front): State<Arc<Front>>) -> Response {
    let phase = front.phase();
    let status = if phase == Phase::Ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, format!("{phase}\n")).into_response()
}

async fn not_found(uri: Uri) -> Response {
    let text = format!("nothing at {}; the agent card is at {CARD_PATH}\n", uri.path());
    (StatusCode::NOT_FOUND, text).into_response()
}
