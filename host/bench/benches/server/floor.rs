//! The minimum work of any server: axum receives the request, serde_json parses it and encodes the specialist's answer.

use annex_test_support::{STATE_INJECTION, STATE_KEY};
use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use axum::routing::post;
use axum::serve::ListenerExt;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::answer::KNOWN;

pub(crate) async fn serve(
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let router = Router::new().route("/a2a/jsonrpc", post(answer));
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    Ok(axum::serve(listener, router).with_graceful_shutdown(shutdown).await?)
}

type Answer = ([(HeaderName, HeaderValue); 2], Vec<u8>);

async fn answer(body: Bytes) -> Result<Answer, StatusCode> {
    let body = task(&body).ok_or(StatusCode::BAD_REQUEST)?;
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (HeaderName::from_static("a2a-extensions"), HeaderValue::from_static(STATE_INJECTION)),
    ];
    Ok((headers, body))
}

/// The response to a request. It contains a completed task with the received state, as the specialist answers.
fn task(body: &[u8]) -> Option<Vec<u8>> {
    let mut request: Value = serde_json::from_slice(body).ok()?;
    let id = request.get_mut("id")?.take();
    let mut message = request.pointer_mut("/params/message")?.take();
    let mut state = message.get("metadata")?.get(STATE_KEY)?.clone();
    state.as_object_mut()?.insert("last_answer".to_owned(), KNOWN.into());
    let now = "2026-11-23T12:00:00.000Z";
    let task_id = "019ab12c-0000-7000-8000-000000000001";
    let context_id = "019ab12c-0000-7000-8000-000000000002";
    message.as_object_mut()?.insert("taskId".to_owned(), task_id.into());
    message.as_object_mut()?.insert("contextId".to_owned(), context_id.into());
    let artifact = json!({
        "artifactId": "result",
        "name": "result",
        "parts": [{"text": KNOWN}],
        "metadata": {STATE_KEY: state},
        "extensions": [STATE_INJECTION],
    });
    let task = json!({
        "id": task_id,
        "contextId": context_id,
        "status": {"state": "TASK_STATE_COMPLETED", "timestamp": now},
        "artifacts": [artifact],
        "history": [message],
    });
    serde_json::to_vec(&json!({"jsonrpc": "2.0", "id": id, "result": {"task": task}})).ok()
}
