//! MCP servers with unusual but acceptable answers: media types in any case, and JSON that some readers refuse.

use std::path::Path;
use std::sync::Arc;

use annex_agent::{McpConfig, McpServers, Tool};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::hostile_tools::{told_by_program, told_of_call};
use crate::support::serve;

/// A server over HTTP that answers in one media type. The JSON of its tools and of each result is written by hand.
#[derive(Clone)]
struct Server {
    media_type: &'static str,
    tools: String,
    result: String,
}

impl Server {
    fn new(media_type: &'static str) -> Self {
        let tools = r#"{"tools": [{"name": "sum", "inputSchema": {"type": "object"}}]}"#;
        let result = r#"{"content": [{"type": "text", "text": "from afar"}]}"#;
        Self { media_type, tools: tools.to_owned(), result: result.to_owned() }
    }

    fn with_result(result: &str) -> Self {
        Self { result: result.to_owned(), ..Self::new("application/json") }
    }

    async fn answer(State(server): State<Self>, body: Bytes) -> Response {
        // GET and DELETE have no body.
        let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
        let result = match asked["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": asked["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "far", "version": "1"},
            })
            .to_string(),
            Some("tools/list") => server.tools,
            Some("tools/call") => server.result,
            Some(_) => return StatusCode::ACCEPTED.into_response(),
            None => return StatusCode::METHOD_NOT_ALLOWED.into_response(),
        };
        let message = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, asked["id"]);
        let is_stream = server.media_type.to_ascii_lowercase().starts_with("text/");
        let body = if is_stream { format!("data: {message}\n\n") } else { message };
        ([(header::CONTENT_TYPE, server.media_type)], body).into_response()
    }

    async fn start(&self) -> Result<(McpServers, Vec<Arc<dyn Tool>>), String> {
        let url = serve(Router::new().fallback(Self::answer).with_state(self.clone())).await;
        let config = format!("name = \"far\"\nurl = {url:?}\ntimeout_seconds = 20\nstate = [\"session\"]");
        let config: McpConfig = toml::from_str(&config).unwrap();
        let started = McpServers::start(&[config], Path::new("")).await;
        started.map_err(|error| annex_text::with_causes(&error))
    }

    /// The result of a call that the model gets, and the state of the session afterwards.
    async fn call(&self) -> (String, String) {
        let (told, bench) = told_of_call(self.start().await.unwrap()).await;
        (told, bench.state().await)
    }
}

fn nested(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

#[tokio::test]
async fn a_media_type_is_read_in_any_letters_and_with_any_parameters() {
    for media_type in [
        "application/json",
        "Application/JSON; Charset=UTF-8",
        "text/event-stream; charset=utf-8",
        "Text/Event-Stream",
        "TEXT/EVENT-STREAM;x=y",
    ] {
        let (told, _) = Server::new(media_type).call().await;
        assert!(told.contains("from afar"), "{media_type}: {told}");
    }
    for media_type in ["application/jsonx", "text/event-streamx", "text/plain", ""] {
        let error = Server::new(media_type).start().await.err().unwrap();
        assert!(error.contains("Unexpected content type"), "{media_type}: {error}");
    }
}

#[tokio::test]
async fn values_of_a_result_that_not_every_reader_takes_are_replaced() {
    let cases = [
        (r#""\ud800""#.to_owned(), "\"\u{fffd}\""),
        ("1e999".to_owned(), "\"1e999\""),
        (nested(128), "[[[[\"[[[["),
        (nested(5_000), "[[[[\"[[[["),
    ];
    for (value, expected) in cases {
        let result = format!(r#"{{"content":[],"structuredContent":{{"odd":{value},"good":"result"}}}}"#);
        let over_http = Server::with_result(&result).call().await.0;
        let in_stream = Server { result: result.clone(), ..Server::new("text/event-stream") }.call().await.0;
        let print = format!("print('{{\"jsonrpc\":\"2.0\",\"id\":' + str(id) + r',\"result\":{result}}}', flush=True)");
        let of_program = told_by_program(&format!("{print}; continue")).await;
        for told in [over_http, in_stream, of_program] {
            assert!(told.contains(expected) && told.contains("\"result\""), "{}: {told}", value.len());
        }
    }
}

#[tokio::test]
async fn a_value_is_cut_once_where_it_nests_too_deep() {
    let result = format!(r#"{{"content":[],"structuredContent":{{"odd":{}}}}}"#, nested(45));
    let (told, _) = Server::with_result(&result).call().await;
    assert!(told.contains("[\"[[") && !told.contains('\\'), "{told}");
}

#[tokio::test]
async fn a_line_of_a_program_that_is_no_json_is_passed_over() {
    let lines = r#"print('{"jsonrpc": "2.0"', '[[[[', r'\ud800 1e999', '', sep='\n', flush=True)"#;
    let told = told_by_program(lines).await;
    assert!(told.contains("from near"), "{told}");
}

#[tokio::test]
async fn a_tool_whose_schema_nests_too_deep_keeps_nothing_from_starting() {
    let schema = (0..200).fold("{}".to_owned(), |inner, _| format!(r#"{{"properties":{{"a":{inner}}}}}"#));
    let tool = |name: &str, schema: &str| format!(r#"{{"name":"{name}","inputSchema":{schema}}}"#);
    let tools = format!(r#"{{"tools":[{},{}]}}"#, tool("deep", &schema), tool("sum", "{}"));
    let server = Server { tools, ..Server::new("application/json") };
    let (servers, tools) = server.start().await.unwrap();
    assert!(tools.iter().any(|tool| tool.declaration().name == "sum"));
    servers.close().await;
    assert!(server.call().await.0.contains("from afar"));
}

#[tokio::test]
async fn a_state_that_no_session_takes_is_not_written_and_the_result_is_kept() {
    let written = |delta: &str| {
        let result = format!(
            r#"{{"content":[{{"type":"text","text":"from afar"}}],"_meta":{{"annex/stateDelta":{{"good":1{delta}}}}}}}"#
        );
        async move { Server::with_result(&result).call().await }
    };
    let many: String = (0..1_001).map(|number| format!(r#","key-{number}":1"#)).collect();
    for (delta, state) in [
        (String::new(), r#"{"good":1}"#),
        (r#","a\u0000b":2"#.to_owned(), "{}"),
        (r#","a\nb":2"#.to_owned(), "{}"),
        (format!(r#","{}":2"#, "k".repeat(700)), "{}"),
        (format!(r#","long":"{}""#, "x".repeat(300 << 10)), "{}"),
        (many, "{}"),
    ] {
        let (told, now) = written(&delta).await;
        let beginning: String = delta.chars().take(20).collect();
        assert!(told.contains("from afar"), "{beginning}: {told}");
        assert_eq!(now, state, "{beginning}");
    }
}
