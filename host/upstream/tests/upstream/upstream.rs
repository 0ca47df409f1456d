//! An upstream whose answers a test scripts, over JSON-RPC.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// An answer to a JSON-RPC request.
#[derive(Clone)]
pub(crate) enum Answer {
    /// The `result` of a response.
    Result(Value),
    /// The results of a stream.
    Stream(Vec<Value>),
    /// A response with this media type and body.
    Body(&'static str, String),
    /// The `error` of a response.
    Error(Value),
    /// A response with this HTTP status and body, which is not JSON-RPC.
    Status(u16, String),
    /// A response with this HTTP status, and with this value of `Retry-After`.
    Later(u16, &'static str),
}

/// A request that the upstream has received.
#[derive(Clone)]
pub(crate) struct RecordedRequest {
    pub(crate) headers: HeaderMap,
    pub(crate) method: String,
    pub(crate) params: Value,
}

/// A server on a free port, which runs until the test ends.
pub(crate) struct Upstream {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<RecordedRequest>>>,
    /// The responses for the card, in order. The last one repeats.
    cards: Arc<Mutex<Vec<(StatusCode, Value)>>>,
}

impl Upstream {
    /// Starts an upstream. `answer` gets the number of the request, from 0, its method and its parameters.
    pub(crate) async fn start(
        streaming: bool,
        answer: impl Fn(usize, &str, &Value) -> Answer + Clone + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let cards = Arc::new(Mutex::new(vec![(StatusCode::OK, card(&url, streaming))]));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let served = Arc::clone(&cards);
        let seen = Arc::clone(&asked);
        let shown = move || std::future::ready(next_card(&mut served.lock().unwrap()));
        let answered = move |headers: HeaderMap, body: String| {
            let request: Value = serde_json::from_str(&body).unwrap();
            let method = request["method"].as_str().unwrap().to_owned();
            let params = request["params"].clone();
            let mut seen = seen.lock().unwrap();
            let answer = answer(seen.len(), &method, &params);
            seen.push(RecordedRequest { headers, method, params });
            std::future::ready(respond(&request["id"], answer))
        };
        let router = Router::new().route("/.well-known/agent-card.json", get(shown)).route("/rpc", post(answered));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, asked, cards }
    }

    /// Starts an upstream that answers each message with a completed task.
    pub(crate) async fn completing() -> Self {
        Self::start(false, |number, _, _| Answer::Result(json!({"task": task(number, "COMPLETED")}))).await
    }

    /// The requests so far, without requests for the card.
    pub(crate) fn asked(&self) -> Vec<RecordedRequest> {
        self.asked.lock().unwrap().clone()
    }

    /// The card as the upstream serves it.
    pub(crate) fn card(&self) -> Value {
        self.cards.lock().unwrap().last().unwrap().1.clone()
    }

    /// Sets the responses for the card from now on, in order. The last one repeats.
    pub(crate) fn show(&self, cards: impl IntoIterator<Item = (StatusCode, Value)>) {
        *self.cards.lock().unwrap() = cards.into_iter().collect();
    }
}

/// The JSON of a task in the context `theirs`.
pub(crate) fn task(number: usize, state: &str) -> Value {
    let state = format!("TASK_STATE_{state}");
    json!({"id": format!("task-{number}"), "contextId": "theirs", "status": {"state": state}})
}

fn card(url: &str, streaming: bool) -> Value {
    json!({"name": "By hand", "description": "Made by hand", "version": "1",
        "supportedInterfaces": [{"url": format!("{url}/rpc"), "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
        "capabilities": {"streaming": streaming},
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"], "skills": []})
}

fn next_card(cards: &mut Vec<(StatusCode, Value)>) -> Response {
    let (status, card) = if cards.len() > 1 { cards.remove(0) } else { cards[0].clone() };
    (status, [("content-type", "application/json")], card.to_string()).into_response()
}

fn respond(id: &Value, answer: Answer) -> Response {
    let whole = |field: &str, value: Value| json!({"jsonrpc": "2.0", "id": id, field: value}).to_string();
    let json = [("content-type", "application/json")];
    match answer {
        Answer::Result(result) => (json, whole("result", result)).into_response(),
        Answer::Error(error) => (json, whole("error", error)).into_response(),
        Answer::Stream(results) => {
            let events: String =
                results.into_iter().map(|result| format!("data: {}\n\n", whole("result", result))).collect();
            ([("content-type", "text/event-stream")], events).into_response()
        }
        Answer::Body(media_type, body) => ([("content-type", media_type)], body).into_response(),
        Answer::Later(status, seconds) => {
            (StatusCode::from_u16(status).unwrap(), [("retry-after", seconds)], "secret").into_response()
        }
        Answer::Status(status, body) => (StatusCode::from_u16(status).unwrap(), body).into_response(),
    }
}
