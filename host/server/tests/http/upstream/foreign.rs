//! Upstreams that are made by hand.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Serves on a free port until the test ends; where.
pub(crate) async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

/// A card of 1.0 with one JSON-RPC interface.
pub(super) fn card(url: &str, streaming: bool, extensions: &Value) -> Value {
    json!({"name": "Foreign", "description": "Made by hand", "version": "7",
        "supportedInterfaces": [{"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {"streaming": streaming, "extensions": extensions},
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/html"],
        "skills": [{"id": "s", "name": "Skill", "description": "", "tags": ["t"]}]})
}

/// The `version` of [`card_of`] for a card of 0.3 that prefers HTTP+JSON.
pub(super) const HTTP_JSON_OF_0_3: &str = "0.3 over HTTP+JSON";

/// Serves a card for the server at `url` that declares less than the server's own card. Returns the URL of the card.
pub(crate) async fn card_of(url: &str, streaming: bool, version: &str) -> String {
    let rpc = format!("{url}/a2a/jsonrpc");
    let mut card = card(&rpc, streaming, &json!([]));
    if version.starts_with("0.3") {
        let fields = card.as_object_mut().expect("an object");
        fields.remove("supportedInterfaces");
        if version == HTTP_JSON_OF_0_3 {
            fields.insert("url".to_owned(), format!("{url}/a2a/rest").into());
            fields.insert("preferredTransport".to_owned(), "HTTP+JSON".into());
            fields.insert("additionalInterfaces".to_owned(), json!([{"transport": "JSONRPC", "url": rpc}]));
        } else {
            fields.insert("url".to_owned(), rpc.into());
        }
        fields.insert("protocolVersion".to_owned(), "0.3.0".into());
        let key = json!({"k": {"type": "apiKey", "in": "header", "name": "x"}});
        fields.insert("securitySchemes".to_owned(), key);
    }
    let card = card.to_string();
    let served = get(move || async { ([("content-type", "application/json")], card) });
    format!("{}/card.json", serve(Router::new().route("/card.json", served)).await)
}

/// An agent that answers each request by `answer`, which is given the JSON-RPC request.
pub(super) async fn agent<F, R>(streaming: bool, answer: F) -> String
where
    F: Fn(Value) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response> + Send,
{
    agent_with(streaming, json!([]), answer).await
}

/// The same with extensions on its card.
pub(super) async fn agent_with<F, R>(streaming: bool, extensions: Value, answer: F) -> String
where
    F: Fn(Value) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Response> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let card = card(&format!("{url}/rpc"), streaming, &extensions).to_string();
    let served = get(move || async { ([("content-type", "application/json")], card) });
    let answered = post(move |body: String| {
        let request = serde_json::from_str(&body).expect("JSON");
        let answer = answer.clone();
        async move { answer(request).await }
    });
    let router = Router::new().route("/.well-known/agent-card.json", served).route("/rpc", answered);
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

/// An agent that remembers the header fields of the messages it gets, and answers them with a message.
pub(super) async fn recorder() -> (String, Arc<Mutex<Vec<HeaderMap>>>) {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let card = card(&format!("{url}/rpc"), false, &json!([])).to_string();
    let kept = Arc::clone(&requests);
    let answered = post(move |request: Request| async move {
        kept.lock().expect("a lock").push(request.headers().clone());
        result(&message("c"))
    });
    let router = Router::new()
        .route("/.well-known/agent-card.json", get(move || async { ([("content-type", "application/json")], card) }))
        .route("/rpc", answered);
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, requests)
}

/// A SendMessage answer of one message.
pub(super) fn message(context: &str) -> Value {
    json!({"message": {"messageId": "a", "role": "ROLE_AGENT", "contextId": context, "parts": [{"text": "Hi."}]}})
}

/// A task of the upstream in a state.
pub(super) fn task(context: &str, state: &str) -> Value {
    json!({"id": "its-task", "contextId": context, "status": {"state": state}})
}

pub(crate) fn result(result: &Value) -> Response {
    json_answer(&json!({"jsonrpc": "2.0", "id": 1, "result": result}))
}

pub(super) fn json_answer(body: &Value) -> Response {
    ([("content-type", "application/json")], body.to_string()).into_response()
}

pub(super) fn error(code: i64, text: &str) -> Response {
    json_answer(&json!({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": text}}))
}

/// An event stream of these results, followed by `rest`.
pub(super) fn stream(results: &[Value], rest: &str) -> Response {
    let events =
        results.iter().map(|result| format!("data: {}\n\n", json!({"jsonrpc": "2.0", "id": 1, "result": result})));
    let text = events.collect::<String>() + rest;
    ([("content-type", "text/event-stream")], Body::from(text)).into_response()
}
