//! Models with endless answers, on each API. The tests count the bytes that the model could send.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use annex_agent::{Adapter, GenerativeConfig, GenerativeModel, Model, ModelError, ModelEvent, Prompt, Turn};
use annex_protocol::Json;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use futures::{TryStreamExt, stream};

use crate::support::serve;

const ADAPTERS: [Adapter; 4] = [Adapter::OpenAi, Adapter::Anthropic, Adapter::Gemini, Adapter::Ollama];
/// The most bytes that socket buffers may hold on one machine.
const IN_BETWEEN: usize = 16 << 20;

/// A model that sends `first`, and then `rest(number)` for each further piece, without end.
struct Endless {
    sent: Arc<AtomicUsize>,
    url: String,
}

impl Endless {
    async fn start(status: StatusCode, first: &'static str, rest: fn(usize) -> String) -> Self {
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&sent);
        let router = Router::new().fallback(move || async move {
            let pieces = (0..).map(move |number| {
                let piece = if number == 0 { first.to_owned() } else { rest(number) };
                counted.fetch_add(piece.len(), Ordering::Relaxed);
                Ok::<_, std::io::Error>(Bytes::from(piece))
            });
            let body = Body::from_stream(stream::iter(pieces));
            (status, [(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
        });
        Self { sent, url: serve(router).await }
    }

    async fn ask(&self, adapter: Adapter) -> Result<Vec<ModelEvent>, ModelError> {
        let config = GenerativeConfig {
            model: "m".to_owned(),
            adapter,
            endpoint: Some(self.url.clone()),
            api_key_env: None,
            screen: None,
        };
        let prompt = Prompt { turns: vec![Turn::User("hello".to_owned())], ..Prompt::default() };
        GenerativeModel::new(config).unwrap().stream(prompt).await?.try_collect().await
    }

    /// The error of the answer, after a check that its text is short and that the model sent at most `most_sent` bytes.
    async fn reason(&self, adapter: Adapter, most_sent: usize) -> String {
        let error = self.ask(adapter).await.unwrap_err();
        let reason = error.source().unwrap().to_string();
        assert!(format!("{error:?}{reason}").len() < 8 << 10, "{} bytes", reason.len());
        let sent = self.sent.load(Ordering::Relaxed);
        assert!(sent < most_sent + IN_BETWEEN, "{adapter:?}: {sent} bytes were sent: {reason}");
        reason
    }
}

#[tokio::test]
async fn an_error_without_end_is_told_by_its_beginning() {
    let model =
        Endless::start(StatusCode::INTERNAL_SERVER_ERROR, "out of \u{1b}order ", |_| "x".repeat(64 << 10)).await;
    for adapter in ADAPTERS {
        let reason = model.reason(adapter, IN_BETWEEN * ADAPTERS.len()).await;
        assert!(reason.starts_with("it answered 500 Internal Server Error: out of \\u{1b}order xxx"), "{reason}");
    }
}

#[tokio::test]
async fn an_event_or_a_line_without_end_fails_the_answer() {
    for adapter in ADAPTERS {
        let model = Endless::start(StatusCode::OK, "data: {\"a\":\"", |_| "x".repeat(1_000)).await;
        let reason = model.reason(adapter, 1 << 20).await;
        assert!(reason.contains("is longer than 1048576 bytes"), "{reason}");
    }
}

#[tokio::test]
async fn thoughts_without_end_fail_the_answer() {
    let thought =
        |_| format!("data: {{\"choices\":[{{\"delta\":{{\"reasoning\":\"{}\"}}}}]}}\n\n", "x".repeat(1_000_000));
    let model = Endless::start(StatusCode::OK, ": \n\n", thought).await;
    assert_eq!(model.reason(Adapter::OpenAi, 64 << 20).await, "the answer is longer than 67108864 bytes");
}

#[tokio::test]
async fn calls_without_number_fail_the_answer() {
    let calls: [fn(usize) -> String; 4] = [
        |number| {
            format!(
                "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"index\":{number},\"function\":{{\"name\":\"f\"}}}}]}}}}]}}\n\n"
            )
        },
        |number| {
            format!(
                "data: {{\"type\":\"content_block_start\",\"index\":{number},\"content_block\":{{\"type\":\"tool_use\",\"name\":\"f\"}}}}\n\n"
            )
        },
        |_| "data: {\"candidates\":[{\"content\":{\"parts\":[{\"functionCall\":{\"name\":\"f\"}}]}}]}\n\n".to_owned(),
        |_| "{\"message\":{\"tool_calls\":[{\"function\":{\"name\":\"f\"}}]}}\n".to_owned(),
    ];
    for (adapter, call) in ADAPTERS.into_iter().zip(calls) {
        let model = Endless::start(StatusCode::OK, "\n", call).await;
        let reason = model.reason(adapter, 1 << 20).await;
        assert_eq!(reason, "its answer has more than 64 calls of tools", "{adapter:?}");
    }
}

#[tokio::test]
async fn arguments_without_end_fail_the_answer() {
    let arguments = |_| {
        let piece = "x".repeat(1_000);
        format!(
            "data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"index\":0,\"function\":{{\"arguments\":\"{piece}\"}}}}]}}}}]}}\n\n"
        )
    };
    let model = Endless::start(StatusCode::OK, "\n", arguments).await;
    let reason = model.reason(Adapter::OpenAi, 2 << 20).await;
    assert_eq!(reason, "the calls of tools in its answer are longer than 1048576 bytes");
    let arguments = |_| {
        let piece = "x".repeat(1_000);
        format!("data: {{\"type\":\"content_block_delta\",\"index\":1,\"delta\":{{\"partial_json\":\"{piece}\"}}}}\n\n")
    };
    let model = Endless::start(StatusCode::OK, "\n", arguments).await;
    let reason = model.reason(Adapter::Anthropic, 2 << 20).await;
    assert_eq!(reason, "the calls of tools in its answer are longer than 1048576 bytes");
}

#[tokio::test]
async fn values_of_an_event_that_not_every_reader_takes_are_replaced() {
    let end = |adapter| match adapter {
        Adapter::OpenAi => "data: [DONE]\n\n",
        Adapter::Anthropic => "data: {\"type\":\"message_stop\"}\n\n",
        Adapter::Gemini => "data: {\"candidates\":[{\"finishReason\":\"STOP\"}]}\n\n",
        Adapter::Ollama => "{\"done\":true}\n",
    };
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    for (adapter, value) in ADAPTERS.into_iter().flat_map(|adapter| [(adapter, "1e999"), (adapter, deep.as_str())]) {
        let event = match adapter {
            Adapter::OpenAi => r#""choices":[{"delta":{"content":"a\ud800b"}}]"#,
            Adapter::Anthropic => r#""type":"content_block_delta","index":0,"delta":{"text":"a\ud800b"}"#,
            Adapter::Gemini => r#""candidates":[{"content":{"parts":[{"text":"a\ud800b"}]}}]"#,
            Adapter::Ollama => r#""message":{"content":"a\ud800b"}"#,
        };
        let event = format!("{{\"unknown\":{value},{event}}}");
        let event = if adapter == Adapter::Ollama { format!("{event}\n") } else { format!("data: {event}\n\n") };
        let answer = format!("{event}{}", end(adapter));
        let router = Router::new().fallback(move || async move { answer });
        let model = Endless { sent: Arc::default(), url: serve(router).await };
        let events = model.ask(adapter).await.unwrap();
        assert!(
            matches!(events.as_slice(), [ModelEvent::Text(text)] if text == "a\u{fffd}b"),
            "{adapter:?}: {events:?}"
        );
    }
}

#[tokio::test]
async fn arguments_that_not_every_reader_takes_are_replaced() {
    let call = r#"{"index":0,"function":{"name":"f","arguments":"{\"a\":[\"\\ud800\",1e999]}"}}"#;
    let answer = format!("data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{call}]}}}}]}}\n\ndata: [DONE]\n\n");
    let router = Router::new().fallback(move || async move { answer });
    let model = Endless { sent: Arc::default(), url: serve(router).await };
    let events = model.ask(Adapter::OpenAi).await.unwrap();
    let [ModelEvent::Call(call)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(call.arguments.get(), r#"{"a":["\ufffd","1e999"]}"#);
}

#[tokio::test]
async fn arguments_that_nest_too_deep_are_cut_once() {
    let deep = format!(r#"{{\"a\":{}1{}}}"#, "[".repeat(60), "]".repeat(60));
    let call = format!(r#"{{"index":0,"function":{{"name":"f","arguments":"{deep}"}}}}"#);
    let answer = format!("data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{call}]}}}}]}}\n\ndata: [DONE]\n\n");
    let router = Router::new().fallback(move || async move { answer });
    let model = Endless { sent: Arc::default(), url: serve(router).await };
    let events = model.ask(Adapter::OpenAi).await.unwrap();
    let [ModelEvent::Call(call)] = events.as_slice() else { panic!("{events:?}") };
    // The arguments as they are stored, in an object.
    let kept = Json::from_peer(&BTreeMap::from([("args", &call.arguments)])).unwrap();
    assert!(kept.get().contains("[\"[[") && !kept.get().contains('\\'), "{kept:?}");
}

#[tokio::test]
async fn a_call_with_a_giant_number_is_one_call() {
    let first = "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":4294967295,\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}}]}\n\ndata: [DONE]\n\n";
    let model = Endless::start(StatusCode::OK, first, |_| ": \n\n".to_owned()).await;
    let events = model.ask(Adapter::OpenAi).await.unwrap();
    assert!(matches!(events.as_slice(), [ModelEvent::Call(call)] if call.name == "f"), "{events:?}");
}

#[tokio::test]
async fn an_error_in_the_middle_of_an_answer_is_told_cut() {
    const LONG: usize = 100_000;
    let of_stream = |_| format!("data: {{\"error\":{{\"message\":\"overloaded {}\"}}}}\n\n", "x".repeat(LONG));
    let of_lines = |_| format!("{{\"error\":\"overloaded {}\"}}\n", "x".repeat(LONG));
    for adapter in ADAPTERS {
        let model = match adapter {
            Adapter::Ollama => Endless::start(StatusCode::OK, "\n", of_lines).await,
            Adapter::OpenAi | Adapter::Anthropic | Adapter::Gemini => {
                Endless::start(StatusCode::OK, "\n", of_stream).await
            }
        };
        let reason = model.reason(adapter, 1 << 20).await;
        assert!(reason.contains("it reported an error: ") && reason.contains("overloaded xxx"), "{reason}");
    }
}
