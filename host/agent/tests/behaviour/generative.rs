//! Language models over HTTP, played by a local server.

use std::error::Error;
use std::sync::{Arc, Mutex};

use annex_agent::{
    Adapter, GenerativeConfig, GenerativeError, GenerativeModel, Model, ModelError, ModelEvent, ModelParameters,
    Prompt, StepKind, Steps, TokenCount, Tokens, ToolCall, ToolDeclaration, ToolResult, Turn,
};
use annex_protocol::Json;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::post;
use futures::TryStreamExt;
use serde_json::{Value, json};

use crate::support::serve;

/// A provider: its answer, and the requests that it received.
#[derive(Clone)]
struct Provider {
    status: StatusCode,
    body: &'static str,
    requests: Arc<Mutex<Vec<(HeaderMap, Value)>>>,
    paths: Arc<Mutex<Vec<String>>>,
}

async fn complete(State(provider): State<Provider>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    provider.paths.lock().unwrap().push(uri.to_string());
    provider.requests.lock().unwrap().push((headers, serde_json::from_slice(&body).unwrap()));
    (provider.status, [(header::CONTENT_TYPE, "text/event-stream")], provider.body).into_response()
}

impl Provider {
    /// A provider with this answer, and the base URL of its API.
    async fn start(status: StatusCode, body: &'static str) -> (Self, String) {
        let provider = Self { status, body, requests: Arc::default(), paths: Arc::default() };
        let router = Router::new().fallback(complete).with_state(provider.clone());
        (provider, serve(router).await)
    }
}

fn config(endpoint: String) -> GenerativeConfig {
    GenerativeConfig {
        model: "some-model".to_owned(),
        adapter: Adapter::OpenAi,
        endpoint: Some(endpoint),
        // Set for every test by cargo.
        api_key_env: Some("CARGO_PKG_NAME".to_owned()),
        screen: None,
    }
}

fn prompt() -> Prompt {
    let user = |text: &str| Turn::User(text.to_owned());
    let agent = Turn::Agent { text: "two".to_owned(), calls: Vec::new() };
    Prompt { instruction: "Be brief.".to_owned(), turns: vec![user("one"), agent, user("three")], ..Prompt::default() }
}

async fn ask(config: GenerativeConfig) -> Result<Vec<ModelEvent>, ModelError> {
    ask_with(config, prompt()).await
}

async fn ask_with(config: GenerativeConfig, prompt: Prompt) -> Result<Vec<ModelEvent>, ModelError> {
    GenerativeModel::new(config).unwrap().stream(prompt).await?.try_collect().await
}

fn texts(events: Vec<ModelEvent>) -> Vec<String> {
    let text = |event| match event {
        ModelEvent::Text(text) => Some(text),
        ModelEvent::Tokens(_) | ModelEvent::Thought(_) | ModelEvent::Call(_) => None,
    };
    events.into_iter().filter_map(text).collect()
}

const ANSWER: &str = r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: [DONE]

"#;

#[tokio::test]
async fn the_answer_is_streamed_and_the_whole_prompt_is_sent() {
    let (provider, url) = Provider::start(StatusCode::OK, ANSWER).await;
    assert_eq!(texts(ask(config(url)).await.unwrap()), ["Hel", "lo"]);
    let requests = provider.requests.lock().unwrap();
    let (headers, body) = &requests[0];
    assert_eq!(headers["authorization"], "Bearer annex-agent");
    assert_eq!(body["model"], "some-model");
    assert_eq!(body["stream"], true);
    let roles: Vec<_> = body["messages"].as_array().unwrap().iter().map(|message| &message["role"]).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user"]);
    assert_eq!(body["messages"][0]["content"], "Be brief.");
    assert_eq!(body["messages"][3]["content"], "three");
}

const COUNTED: &str = r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}]}

data: {"choices":[],"usage":{"prompt_tokens":12,"completion_tokens":3,"total_tokens":15}}

data: [DONE]

"#;

#[tokio::test]
async fn tokens_are_asked_for_and_counted_where_the_provider_tells_them() {
    let (provider, url) = Provider::start(StatusCode::OK, COUNTED).await;
    let tokens = Tokens { input: Some(12), output: Some(3) };
    let expected = [ModelEvent::Text("Hi".to_owned()), ModelEvent::Tokens(tokens)];
    assert_eq!(ask(config(url)).await.unwrap(), expected);
    assert_eq!(provider.requests.lock().unwrap()[0].1["stream_options"]["include_usage"], true);
}

const CALLING: &str = r#"data: {"choices":[{"index":0,"delta":{"role":"assistant","reasoning_content":"hm"},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"sum","arguments":"{\"x\":"}}]},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"9007199254740993}"}}]},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"now","arguments":""}}]},"finish_reason":"tool_calls"}]}

data: [DONE]

"#;

#[tokio::test]
async fn a_model_that_counts_more_than_any_call_can_use_counts_the_bound() {
    const OPENAI: &str = r#"data: {"choices":[],"usage":{"prompt_tokens":18446744073709551615,"completion_tokens":7}}

data: [DONE]

"#;
    const GEMINI: &str = r#"data: {"candidates":[],"usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":18446744073709551615,"thoughtsTokenCount":4}}

"#;
    let most: u64 = 1 << 32;
    let (.., events) = speak(Adapter::OpenAi, "some-model", OPENAI).await;
    assert_eq!(events, [counted(most, 0)]);
    let (.., events) = speak(Adapter::Gemini, "some-model", GEMINI).await;
    assert_eq!(events, [counted(5, most - 5)]);
}

#[test]
fn a_count_of_tokens_does_not_wrap() {
    let count = TokenCount::default();
    count.add(u64::MAX - 1);
    count.add(7);
    assert_eq!(count.take(), u64::MAX);
}

#[test]
fn a_call_that_is_broken_off_before_its_model_has_counted_costs_by_its_bytes() {
    let count = TokenCount::default();
    let steps = Steps::unread().counting_in(Some(count.clone()));
    let call = || {
        let step = steps.begin(StepKind::Model, "some-model");
        step.pass(300);
        step.pass(100);
        step
    };
    drop(call());
    assert_eq!(count.take(), 100);
    call().finish();
    assert_eq!(count.take(), 0, "it has ended, and its model does not count");
    let counted = call();
    counted.count(Tokens { input: Some(7), output: Some(2) });
    counted.finish();
    drop(counted);
    assert_eq!(count.take(), 9);
}

#[tokio::test]
async fn calls_and_thoughts_are_told_from_the_answer() {
    let (_, url) = Provider::start(StatusCode::OK, CALLING).await;
    let call = |id: &str, name: &str, arguments: &str| {
        let arguments = Json::parse(arguments.to_owned()).unwrap();
        ModelEvent::Call(ToolCall { id: id.to_owned(), name: name.to_owned(), arguments, signatures: Vec::new() })
    };
    let expected =
        [ModelEvent::Thought("hm".to_owned()), call("a", "sum", r#"{"x":9007199254740993}"#), call("b", "now", "{}")];
    let events = ask(config(url)).await.unwrap();
    let events: Vec<_> = events.into_iter().filter(|event| !matches!(event, ModelEvent::Tokens(_))).collect();
    assert_eq!(events, expected);
}

#[tokio::test]
async fn the_model_is_told_of_tools_and_of_what_they_answered() {
    let (_, _, body, _) = speak(Adapter::OpenAi, "some-model", ANSWER).await;
    let function = &body["tools"][0]["function"];
    assert_eq!((&function["name"], &function["description"]), (&"sum".into(), &"Adds.".into()));
    assert_eq!(function["parameters"]["properties"]["x"]["type"], "integer");
    let called = &body["messages"][2];
    let answered = &body["messages"][3];
    assert_eq!(called["tool_calls"][0]["function"]["arguments"], r#"{"x":1}"#, "{body}");
    assert_eq!(called["content"], "Wait.");
    assert_eq!((&answered["role"], &answered["tool_call_id"]), (&"tool".into(), &"a".into()));
    assert_eq!(answered["content"], r#"{"result":"2"}"#);
}

#[tokio::test]
async fn no_key_is_looked_for_when_the_endpoint_is_ones_own() {
    let (provider, url) = Provider::start(StatusCode::OK, ANSWER).await;
    let config = GenerativeConfig { api_key_env: None, ..config(url + "/") };
    assert_eq!(texts(ask(config).await.unwrap()), ["Hel", "lo"]);
    assert_eq!(provider.requests.lock().unwrap()[0].0.get("authorization"), None);
}

#[tokio::test]
async fn a_refusal_of_the_provider_is_an_error_without_the_key() {
    let (_, url) = Provider::start(StatusCode::TOO_MANY_REQUESTS, r#"{"error":{"message":"slow down"}}"#).await;
    let error = ask(config(url)).await.unwrap_err();
    assert_eq!(error.to_string(), "model some-model gave no answer");
    let cause = format!("{:?} {}", error, error.source().unwrap());
    assert!(cause.contains("429"), "{cause}");
    assert!(!cause.contains("annex-agent"), "{cause}");
}

#[tokio::test]
async fn a_redirect_does_not_lead_the_key_to_another_host() {
    let (elsewhere, url) = Provider::start(StatusCode::OK, ANSWER).await;
    let redirect = move || async move { Redirect::temporary(&format!("{url}/chat/completions")) };
    let redirecting = serve(Router::new().route("/v1/chat/completions", post(redirect))).await;
    ask(config(redirecting)).await.unwrap_err();
    assert!(elsewhere.requests.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_provider_that_is_not_there_is_an_error() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    assert!(ask(config(url)).await.is_err());
}

#[test]
fn a_missing_key_is_found_at_the_start_and_its_variable_is_named() {
    let missing = GenerativeConfig { api_key_env: Some("ANNEX_NO_SUCH_KEY".to_owned()), ..config(String::new()) };
    let error = GenerativeModel::new(missing).unwrap_err();
    assert!(matches!(&error, GenerativeError::KeyMissing { variable, .. } if variable == "ANNEX_NO_SUCH_KEY"));
    assert_eq!(
        error.to_string(),
        "the environment variable ANNEX_NO_SUCH_KEY is not set; set it before the start: it holds the API key of model some-model"
    );
}

#[test]
fn the_key_is_not_printed() {
    let model = GenerativeModel::new(config("http://127.0.0.1:1".to_owned())).unwrap();
    assert_eq!(format!("{model:?}"), r#"GenerativeModel { model: "some-model", .. }"#);
}

#[test]
fn the_configuration_refuses_what_it_does_not_know() {
    let config: GenerativeConfig = serde_json::from_str(r#"{"model": "m", "adapter": "ollama"}"#).unwrap();
    assert_eq!(config.adapter, Adapter::Ollama);
    assert_eq!(serde_json::from_str::<GenerativeConfig>(r#"{"model": "m"}"#).unwrap().adapter, Adapter::OpenAi);
    for wrong in [r#"{"model": "m", "adapter": "other"}"#, r#"{"model": "m", "key": "k"}"#, "{}"] {
        assert!(serde_json::from_str::<GenerativeConfig>(wrong).is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn parameters_reach_each_kind_of_provider() {
    let parameters = ModelParameters {
        temperature: Some(0.5),
        top_p: Some(0.25),
        max_tokens: Some(7),
        stop: Some(vec![".".to_owned()]),
        seed: Some(3),
    };
    for (adapter, model, place, expected) in [
        (
            Adapter::OpenAi,
            "m",
            "",
            json!({"temperature": 0.5, "top_p": 0.25, "max_tokens": 7, "stop": ["."], "seed": 3}),
        ),
        (Adapter::OpenAi, "gpt-5-mini", "", json!({"max_completion_tokens": 7})),
        (
            Adapter::Anthropic,
            "m",
            "",
            json!({"temperature": 0.5, "top_p": 0.25, "max_tokens": 7, "stop_sequences": ["."]}),
        ),
        (
            Adapter::Gemini,
            "m",
            "/generationConfig",
            json!({"temperature": 0.5, "topP": 0.25, "maxOutputTokens": 7, "stopSequences": ["."], "seed": 3}),
        ),
        (
            Adapter::Ollama,
            "m",
            "/options",
            json!({"temperature": 0.5, "top_p": 0.25, "num_predict": 7, "stop": ["."], "seed": 3}),
        ),
    ] {
        let body = async |prompt: Prompt| {
            let (provider, url) = Provider::start(StatusCode::OK, "").await;
            let config = GenerativeConfig { adapter, model: model.to_owned(), ..config(url) };
            // The provider breaks off.
            let _ = ask_with(config, prompt).await;
            provider.requests.lock().unwrap().remove(0).1
        };
        let sent = body(Prompt { parameters: parameters.clone(), ..prompt() }).await;
        let sent = sent.pointer(place).unwrap();
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(sent.get(name), Some(value), "{adapter:?} {model}: {sent}");
        }
        assert!(adapter != Adapter::Anthropic || sent.get("seed").is_none(), "{sent}");
        // Without parameters the provider chooses.
        let unset = body(prompt()).await;
        assert!(unset.get("temperature").is_none() && (place.is_empty() || unset.pointer(place).is_none()), "{unset}");
    }
    // A limit above the model's maximum would be refused.
    let (provider, url) = Provider::start(StatusCode::OK, "").await;
    let config = GenerativeConfig { adapter: Adapter::Anthropic, model: "claude-3-haiku".to_owned(), ..config(url) };
    let parameters = ModelParameters { max_tokens: Some(1_000_000), ..ModelParameters::default() };
    let _ = ask_with(config, Prompt { parameters, ..prompt() }).await;
    assert_eq!(provider.requests.lock().unwrap()[0].1["max_tokens"], 4_096);
}

/// A conversation with a call of a tool and its result.
fn with_tools() -> Prompt {
    let json = |text: &str| Json::parse(text.to_owned()).unwrap();
    let schema = json(r#"{"type":"object","properties":{"x":{"type":"integer"}}}"#);
    let tool = ToolDeclaration { name: "sum".to_owned(), description: "Adds.".to_owned(), parameters: schema };
    let call = ToolCall {
        id: "a".to_owned(),
        name: "sum".to_owned(),
        arguments: json(r#"{"x":1}"#),
        signatures: vec!["s".to_owned()],
    };
    let result = ToolResult { id: "a".to_owned(), name: "sum".to_owned(), response: json(r#"{"result":"2"}"#) };
    let turns = vec![
        Turn::User("add".to_owned()),
        Turn::Agent { text: "Wait.".to_owned(), calls: vec![call] },
        Turn::Tools(vec![result]),
    ];
    Prompt { instruction: "Be brief.".to_owned(), turns, tools: [tool].into(), ..Prompt::default() }
}

fn call(id: &str, arguments: &str, signatures: &[&str]) -> ModelEvent {
    let signatures = signatures.iter().map(|text| (*text).to_owned()).collect();
    let arguments = Json::parse(arguments.to_owned()).unwrap();
    ModelEvent::Call(ToolCall { id: id.to_owned(), name: "sum".to_owned(), arguments, signatures })
}

fn counted(input: u64, output: u64) -> ModelEvent {
    ModelEvent::Tokens(Tokens { input: Some(input), output: Some(output) })
}

/// Calls a provider that speaks `adapter` and answers with `answer`. Returns the path, the header fields, the body and
/// the events.
async fn speak(adapter: Adapter, model: &str, answer: &'static str) -> (String, HeaderMap, Value, Vec<ModelEvent>) {
    let (provider, url) = Provider::start(StatusCode::OK, answer).await;
    let events = ask_with(GenerativeConfig { adapter, model: model.to_owned(), ..config(url) }, with_tools()).await;
    let path = provider.paths.lock().unwrap().remove(0);
    let (headers, body) = provider.requests.lock().unwrap().remove(0);
    (path, headers, body, events.unwrap())
}

const ANTHROPIC: &str = r#"event: message_start
data: {"type":"message_start","message":{"usage":{"input_tokens":10,"cache_read_input_tokens":5,"output_tokens":1}}}

data: {"type":"ping"}

data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}

data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Hi"}}

data: {"type":"content_block_stop","index":1}

data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"b","name":"sum","input":{}}}

data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"x\":"}}

data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"9007199254740993}"}}

data: {"type":"content_block_stop","index":2}

data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":7}}

data: {"type":"message_stop"}

"#;

#[tokio::test]
async fn anthropics_messages_are_spoken() {
    let (path, headers, body, events) = speak(Adapter::Anthropic, "claude-sonnet-5", ANTHROPIC).await;
    assert_eq!(path, "/v1/messages");
    assert_eq!(
        (&headers["x-api-key"], &headers["anthropic-version"]),
        (&"annex-agent".parse().unwrap(), &"2023-06-01".parse().unwrap())
    );
    let expected = json!({
        "model": "claude-sonnet-5", "stream": true, "max_tokens": 64_000, "system": "Be brief.",
        "tools": [{"name": "sum", "description": "Adds.", "input_schema": {"type": "object", "properties": {"x": {"type": "integer"}}}}],
        "messages": [
            {"role": "user", "content": "add"},
            {"role": "assistant", "content": [
                {"type": "text", "text": "Wait."},
                {"type": "tool_use", "id": "a", "name": "sum", "input": {"x": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "{\"result\":\"2\"}"}]}],
    });
    assert_eq!(body, expected);
    let thought = ModelEvent::Thought("hm".to_owned());
    let said = ModelEvent::Text("Hi".to_owned());
    assert_eq!(events, [thought, said, call("b", r#"{"x":9007199254740993}"#, &[]), counted(15, 7)]);
}

const GEMINI: &str = r#"data: {"candidates":[{"content":{"role":"model","parts":[{"thought":true,"text":"hm"},{"text":"Hi"}]}}],"usageMetadata":{"promptTokenCount":12}}

data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"sum","args":{"x":2}},"thoughtSignature":"t"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":12,"candidatesTokenCount":3,"thoughtsTokenCount":4}}

"#;

#[tokio::test]
async fn gemini_is_spoken() {
    let (path, headers, body, events) = speak(Adapter::Gemini, "gemini-3-pro", GEMINI).await;
    assert_eq!(path, "/v1/models/gemini-3-pro:streamGenerateContent?alt=sse");
    assert_eq!(headers["x-goog-api-key"], "annex-agent");
    let expected = json!({
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [{"functionDeclarations": [{
            "name": "sum", "description": "Adds.",
            "parametersJsonSchema": {"type": "object", "properties": {"x": {"type": "integer"}}}}]}],
        "contents": [
            {"role": "user", "parts": [{"text": "add"}]},
            {"role": "model", "parts": [
                {"text": "Wait."},
                {"functionCall": {"id": "a", "name": "sum", "args": {"x": 1}}, "thoughtSignature": "s"}]},
            {"role": "user", "parts": [{"functionResponse": {
                "id": "a", "name": "sum", "response": {"name": "sum", "content": "{\"result\":\"2\"}"}}}]}],
    });
    assert_eq!(body, expected);
    let thought = ModelEvent::Thought("hm".to_owned());
    let said = ModelEvent::Text("Hi".to_owned());
    assert_eq!(events, [thought, said, call("", r#"{"x":2}"#, &["t"]), counted(12, 7)]);
}

const OLLAMA: &str = r#"{"message":{"role":"assistant","thinking":"hm","content":""},"done":false}
{"message":{"role":"assistant","content":"Hi"},"done":false}
{"message":{"role":"assistant","content":"","tool_calls":[{"function":{"name":"sum","arguments":{"x":2}}}]},"done":false}
{"message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","prompt_eval_count":12,"eval_count":3}"#;

#[tokio::test]
async fn ollamas_own_interface_is_spoken() {
    let (path, _, body, events) = speak(Adapter::Ollama, "qwen3:8b", OLLAMA).await;
    assert_eq!(path, "/v1/api/chat");
    let expected = json!({
        "model": "qwen3:8b", "stream": true,
        "tools": [{"type": "function", "function": {
            "name": "sum", "description": "Adds.",
            "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}}],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "add"},
            {"role": "assistant", "content": "Wait.", "tool_calls": [{"function": {"name": "sum", "arguments": {"x": 1}}}]},
            {"role": "tool", "tool_name": "sum", "content": "{\"result\":\"2\"}"}],
    });
    assert_eq!(body, expected);
    let thought = ModelEvent::Thought("hm".to_owned());
    let said = ModelEvent::Text("Hi".to_owned());
    assert_eq!(events, [thought, said, call("", r#"{"x":2}"#, &[]), counted(12, 3)]);
}

#[tokio::test]
async fn the_query_of_an_endpoint_stays() {
    let (provider, url) = Provider::start(StatusCode::OK, ANSWER).await;
    ask(config(url + "/?api-version=1")).await.unwrap();
    assert_eq!(*provider.paths.lock().unwrap(), ["/v1/chat/completions?api-version=1"]);
}

#[tokio::test]
async fn an_answer_that_is_no_stream_of_the_interface_is_an_error() {
    for answer in ["", "{\"choices\":[{\"message\":{\"content\":\"hi\"}}]}"] {
        let (_, url) = Provider::start(StatusCode::OK, answer).await;
        let error = ask(config(url)).await.unwrap_err();
        assert!(error.source().unwrap().to_string().contains("has no event"), "{answer}");
    }
}

/// Resolves every name to this machine.
struct Loopback;

#[async_trait::async_trait]
impl annex_egress::Resolver for Loopback {
    async fn resolve(&self, _: &str) -> std::io::Result<Vec<std::net::IpAddr>> {
        Ok(vec![std::net::Ipv4Addr::LOCALHOST.into()])
    }
}

#[tokio::test]
async fn behind_a_screen_a_model_at_a_private_address_is_not_asked_by_name_or_written_out() {
    let screen = |allow: &[&str]| {
        let allow = allow.iter().map(|text| text.parse().unwrap()).collect();
        annex_egress::Screen::with_resolver(annex_egress::ScreenConfig { allow, https_only: false }, Arc::new(Loopback))
    };
    let (provider, url) = Provider::start(StatusCode::OK, ANSWER).await;
    let by_name = url.replace("127.0.0.1", "models.example");
    let behind = |url: &str, allow: &[&str]| GenerativeConfig { screen: Some(screen(allow)), ..config(url.to_owned()) };
    let refused = GenerativeModel::new(behind(&url, &[])).unwrap_err();
    assert!(matches!(refused, GenerativeError::Endpoint { .. }), "{refused}");
    ask(behind(&by_name, &[])).await.unwrap_err();
    assert!(provider.requests.lock().unwrap().is_empty());
    for allowed in [behind(&url, &["127.0.0.1"]), behind(&by_name, &["models.example"])] {
        assert_eq!(texts(ask(allowed).await.unwrap()), ["Hel", "lo"]);
    }
}
