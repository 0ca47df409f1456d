//! Traces: the spans that a collector gets, and the context of a trace from callers and to other servers.

use std::time::{Duration, Instant};

use annex_grpc::pb;
use annex_grpc::pb::a2a_service_client::A2aServiceClient;
use annex_test_support::collector::{Collector, attribute_of, silent};
use annex_test_support::{COMMAND_KEY, TEST_EXTENSION, TestConfig, TestServer, until};
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as SpanStatus;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tonic::transport::Channel;

use crate::hostile::log;
use crate::installation::Installation;
use crate::metrics::scrape;
use crate::push::receiver;
use crate::{test_extension, tools};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn traced(config: TestConfig, url: &str) -> TestConfig {
    config.set("traces.endpoint", url)
}

/// A server whose agent answers without a model of others, with the test extension.
async fn serve(url: &str, more: &str) -> TestServer {
    let config = traced(TestConfig::template("Say something.").with(&test_extension("")), url).with(more);
    config.start().await.expect("a server")
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no {name} in {names:?}"))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attribute(span: &Span, key: &str) -> String {
    attribute_of(&span.attributes, key).unwrap_or_default()
}

fn is_below(span: &Span, parent: &Span) {
    assert_eq!(span.parent_span_id, parent.span_id, "{} below {}", span.name, parent.name);
    assert_eq!(span.trace_id, parent.trace_id);
    assert!(span.start_time_unix_nano >= parent.start_time_unix_nano, "{} in {}", span.name, parent.name);
}

#[tokio::test]
async fn a_turn_with_an_extension_and_a_tool_is_one_trace_over_both_protocols() {
    for protocol in ["grpc", "http"] {
        let (url, collector) = Collector::start().await;
        let folder = tempfile::tempdir().expect("a folder");
        let config = tools::config("", &test_extension("")).set("tasks.data_dir", folder.path());
        let config = traced(config, &url).set("traces.protocol", protocol).set("traces.service_name", "my-agent");
        let server = config.start().await.expect("a server");
        let request = server.say("sum 2 0.5").context("c").extensions(TEST_EXTENSION);
        let reply = request.metadata(COMMAND_KEY, "\"ok\"").send().await.expect("a reply");
        assert!(reply.answer().starts_with(r#"{"total":2.5}"#), "{}", reply.text);
        let spans = collector.trace_of("SendMessage").await;
        let root = named(&spans, "SendMessage");
        assert_eq!((root.kind, root.parent_span_id.len()), (SpanKind::Server as i32, 0));
        assert_eq!(attribute(root, "rpc.system"), "jsonrpc");
        assert_eq!(attribute(root, "rpc.method"), "SendMessage");
        assert_eq!(attribute(root, "http.response.status_code"), "200");
        assert_eq!(attribute(root, "a2a.task.id"), reply.task()["id"].as_str().expect("an id"));
        is_below(named(&spans, "activation"), root);
        let turn = named(&spans, "turn");
        is_below(turn, root);
        assert_eq!(attribute(turn, "annex.turn.outcome"), "completed");
        let agent = named(&spans, "invoke_agent test_agent");
        assert_eq!(
            (agent.kind, attribute(agent, "gen_ai.operation.name")),
            (SpanKind::Internal as i32, "invoke_agent".to_owned())
        );
        is_below(agent, turn);
        let tool = named(&spans, "execute_tool sum");
        is_below(tool, agent);
        assert_eq!(attribute(tool, "gen_ai.tool.name"), "sum");
        let model = spans.iter().find(|span| span.name.starts_with("chat ")).expect("a call of the model");
        is_below(model, agent);
        assert_eq!((model.kind, attribute(model, "gen_ai.operation.name").as_str()), (SpanKind::Client as i32, "chat"));
        let hook = named(&spans, "hook state");
        is_below(hook, root);
        assert_eq!(attribute(hook, "annex.extension.uri"), TEST_EXTENSION);
        assert_eq!(attribute(hook, "annex.extension.digest").len(), "sha256:".len() + 64);
        assert_eq!(attribute(hook, "annex.verdict"), "ok");
        assert!(attribute(hook, "annex.cpu_us").parse::<u64>().is_ok());
        is_below(named(&spans, "hook response"), turn);
        assert!(spans.iter().any(|span| span.name == "store write" && span.parent_span_id == root.span_id));
        assert!(collector.services().iter().all(|service| service == "my-agent"));
        let shown = format!("{spans:?}");
        for content in ["2 0.5", "total", "State:"] {
            assert!(!shown.contains(content), "{content} in {shown}");
        }
    }
}

#[tokio::test]
async fn a_refused_request_has_its_reason_and_is_no_error_of_the_server() {
    let (url, collector) = Collector::start().await;
    let server = serve(&url, "").await;
    server.call("GetTask", json!({"id": "none"}).to_string()).send().await.expect("a reply");
    let spans = collector.trace_of("GetTask").await;
    let root = named(&spans, "GetTask");
    assert_eq!(attribute(root, "error.type"), "not_found");
    assert!(root.status.as_ref().is_none_or(|status| status.code == SpanStatus::Unset as i32), "{root:?}");
}

#[tokio::test]
async fn each_binding_continues_the_trace_of_its_caller() {
    let (url, collector) = Collector::start().await;
    let server = serve(&url, "").await;
    let message = json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}});
    let request = server.client().post(format!("{}/a2a/rest/message:send", server.url())).json(&message);
    let request = request.header("A2A-Version", "1.0").header("traceparent", PARENT).header("tracestate", "a=1");
    let answer = request.send().await.expect("an answer");
    assert_eq!(answer.status(), 200, "{}", answer.text().await.expect("a body"));
    let channel = Channel::from_shared(server.url().to_owned()).expect("a URL").connect().await.expect("a channel");
    let message = pb::Message {
        message_id: "n".to_owned(),
        role: pb::Role::User as i32,
        parts: vec![pb::Part { content: Some(pb::part::Content::Text("hi".to_owned())), ..pb::Part::default() }],
        ..pb::Message::default()
    };
    let mut request = tonic::Request::new(pb::SendMessageRequest { message: Some(message), ..Default::default() });
    for (name, value) in [("a2a-version", "1.0"), ("traceparent", PARENT), ("tracestate", "a=1")] {
        request.metadata_mut().insert(name, value.parse().expect("ASCII"));
    }
    A2aServiceClient::new(channel).send_message(request).await.expect("an answer");
    let request = server.say("hi").header("traceparent", PARENT).header("tracestate", "a=1");
    request.send().await.expect("a reply");
    let requests = || collector.spans().into_iter().filter(|span| span.name == "SendMessage").collect::<Vec<_>>();
    until("each request has a span", async || requests().len() == 3).await;
    for root in requests() {
        assert_eq!(hexadecimal(&root.trace_id), TRACE);
        assert_eq!(hexadecimal(&root.parent_span_id), "b7ad6b7169203331");
        assert_eq!(root.trace_state, "a=1");
    }
    let mut systems: Vec<String> = requests().iter().map(|span| attribute(span, "rpc.system")).collect();
    systems.sort();
    assert_eq!(systems, ["grpc", "http", "jsonrpc"]);
}

#[tokio::test]
async fn the_metadata_of_a_message_names_the_trace_if_the_header_does_not() {
    let (url, collector) = Collector::start().await;
    let server = serve(&url, "").await;
    let other = "00-11111111111111111111111111111111-2222222222222222-01";
    let of_message = format!("{PARENT:?}");
    let request = server.say("hi").metadata("traceparent", &of_message).metadata("tracestate", "\"a=1\"");
    request.send().await.expect("a reply");
    let spans = collector.trace_of("SendMessage").await;
    assert_eq!(hexadecimal(&named(&spans, "SendMessage").trace_id), TRACE);
    let request = server.say("hi").metadata("traceparent", &of_message).header("traceparent", other);
    request.streaming().open().await.expect("a stream").rest().await.expect("events");
    let spans = collector.trace_of("SendStreamingMessage").await;
    assert_eq!(hexadecimal(&named(&spans, "SendStreamingMessage").parent_span_id), "2".repeat(16));
}

#[tokio::test]
async fn a_trace_context_that_is_not_valid_begins_a_new_trace_and_refuses_nothing() {
    let (url, collector) = Collector::start().await;
    let server = serve(&url, "").await;
    let zero = format!("00-{}-b7ad6b7169203331-01", "0".repeat(32));
    let long = format!("{PARENT}-{}", "x".repeat(8_000));
    for hostile in [zero.as_str(), &long, "\"><script>", "00-zz", "-", ""] {
        let request = server.say("hi").header("traceparent", hostile).header("tracestate", "=,=,=");
        let reply = request.metadata("traceparent", r#"{"not": "a text"}"#).send().await.expect("a reply");
        assert_eq!(reply.code(), 0, "{hostile}: {}", reply.text);
    }
    let is_all = async || collector.spans().iter().filter(|span| span.name == "SendMessage").count() == 6;
    until("each request has a span", is_all).await;
    for span in collector.spans().iter().filter(|span| span.name == "SendMessage") {
        assert!(span.parent_span_id.is_empty() && span.trace_state.is_empty(), "{span:?}");
        assert!(hexadecimal(&span.trace_id) != TRACE && span.trace_id.iter().any(|byte| *byte != 0));
    }
}

#[tokio::test]
async fn without_a_share_no_trace_is_sent_unless_its_caller_samples_and_is_followed() {
    for (more, expected) in [
        ("[traces]\nsample = \"off\"", 1),
        ("[traces]\nsample = 0\nfollow_parent = false", 0),
        ("[traces]\nsample = \"all\"\nfollow_parent = false", 3),
        ("[traces]\nsample = 1", 2),
    ] {
        let (url, collector) = Collector::start().await;
        let mut server = serve(&url, more).await;
        let unsampled = PARENT.replace("-01", "-00");
        for parent in [None, Some(PARENT), Some(&*unsampled)] {
            let request = server.say("hi");
            let request = parent.iter().fold(request, |request, parent| request.header("traceparent", parent));
            request.send().await.expect("a reply");
        }
        server.begin_shutdown();
        server.ended().await.expect("a clean end");
        let sent = collector.spans().iter().filter(|span| span.name == "SendMessage").count();
        assert_eq!(sent, expected, "{more}");
    }
}

#[tokio::test]
async fn the_last_spans_are_sent_before_the_server_ends() {
    let (url, collector) = Collector::start().await;
    let mut server = serve(&url, "").await;
    server.say("hi").send().await.expect("a reply");
    server.begin_shutdown();
    server.ended().await.expect("a clean end");
    named(&collector.spans(), "SendMessage");
}

#[tokio::test]
async fn the_header_fields_of_the_config_are_sent_to_the_collector() {
    for protocol in ["grpc", "http"] {
        let (url, collector) = Collector::start().await;
        let folder = tempfile::tempdir().expect("a folder");
        let secret = folder.path().join("key");
        write_secret(&secret, "s3cret");
        let headers = format!("[traces]\nprotocol = {protocol:?}\nheaders = {{ x-key = {{ file = {secret:?} }} }}");
        let server = serve(&url, &headers).await;
        server.say("hi").send().await.expect("a reply");
        collector.trace_of("SendMessage").await;
        assert_eq!(collector.keys().first().map(String::as_str), Some("s3cret"), "{protocol}");
    }
}

/// Writes a file that only its owner can read, as files with secrets must be.
fn write_secret(path: &std::path::Path, secret: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, secret).expect("a file");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("permissions");
}

#[tokio::test]
async fn a_collector_that_hangs_or_is_not_there_delays_no_request_and_its_spans_are_counted() {
    let refused = "http://127.0.0.1:1".to_owned();
    for (url, protocol) in
        [(silent().await, "grpc"), (silent().await, "http"), (refused.clone(), "grpc"), (refused, "http")]
    {
        let installation = Installation::new();
        installation.config(&format!(
            "[admin]\ntoken_file = \"token\"\n[traces]\nendpoint = {url:?}\nprotocol = {protocol:?}\n\
             timeout_seconds = 1\nmax_queued = 10\n"
        ));
        let mut server = installation.serve().await;
        let began = Instant::now();
        for _ in 0..10 {
            assert_eq!(server.say("hi").send().await.expect("a reply").code(), 0);
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{url} {protocol}");
        let is_lost = async || scrape(&server).await.value("annex_trace_spans_total", &[("outcome", "lost")]) >= 10.0;
        until("lost spans are counted", is_lost).await;
        assert_eq!(scrape(&server).await.value("annex_trace_spans_total", &[("outcome", "sent")]), 0.0);
        let began = Instant::now();
        server.begin_shutdown();
        server.ended().await.expect("a clean end");
        assert!(began.elapsed() < Duration::from_secs(20), "{url} {protocol}");
    }
}

#[tokio::test]
async fn metrics_are_sent_to_the_collector_and_durations_of_requests_name_a_trace() {
    for protocol in ["grpc", "http"] {
        let (url, collector) = Collector::start().await;
        let more = format!("[traces]\nprotocol = {protocol:?}\nmetrics_seconds = 1");
        let mut server = serve(&url, &more).await;
        server.client().get(format!("{}/livez", server.url())).send().await.expect("an answer");
        server.say("hi").header("traceparent", PARENT).send().await.expect("a reply");
        let durations = |operation: &str| match collector.metric("annex_request_duration_seconds")?.data? {
            Data::Histogram(histogram) => histogram
                .data_points
                .into_iter()
                .find(|point| attribute_of(&point.attributes, "operation").as_deref() == Some(operation)),
            _ => None,
        };
        until("the durations of requests are sent", async || durations("SendMessage").is_some()).await;
        let point = durations("SendMessage").expect("a request");
        // A probe has no span that an exemplar could name.
        assert!(durations("Health").expect("a probe").exemplars.is_empty());
        assert_eq!((point.count, point.bucket_counts.iter().sum::<u64>()), (1, 1));
        assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
        let exemplar = point.exemplars.first().expect("an exemplar");
        assert_eq!(hexadecimal(&exemplar.trace_id), TRACE);
        let root = collector.trace_of("SendMessage").await;
        assert_eq!(exemplar.span_id, named(&root, "SendMessage").span_id);
        let turns = collector.metric("annex_turns_total").expect("a counter").data;
        assert!(matches!(turns, Some(Data::Sum(sum)) if sum.is_monotonic), "{protocol}");
        server.begin_shutdown();
        server.ended().await.expect("a clean end");
    }
}

/// A model that tells the header fields of its requests.
async fn model() -> (String, mpsc::UnboundedReceiver<HeaderMap>) {
    async fn answer(State(sender): State<mpsc::UnboundedSender<HeaderMap>>, headers: HeaderMap) -> impl IntoResponse {
        sender.send(headers).expect("the test listens");
        let piece = json!({"choices": [{"delta": {"content": "hello"}, "finish_reason": "stop"}]});
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}});
        ([("content-type", "text/event-stream")], format!("data: {piece}\n\ndata: {usage}\n\ndata: [DONE]\n\n"))
    }
    let (sender, received) = mpsc::unbounded_channel();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/v1", listener.local_addr().expect("an address"));
    let router = Router::new().route("/v1/chat/completions", post(answer)).with_state(sender);
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, received)
}

/// The config of an agent with a model at `url`.
fn with_model(url: &str) -> TestConfig {
    let config = TestConfig::without_agent().set("agent.kind", "template").set("agent.name", "test_agent");
    let config = config.set("agent.instruction", "Be kind.").set("agent.model.generative.model", "some-model");
    config.set("agent.model.generative.endpoint", url)
}

#[tokio::test]
async fn a_model_and_a_receiver_of_notifications_get_the_context_of_their_span() {
    let (url, collector) = Collector::start().await;
    let (model_url, mut asked) = model().await;
    let (hook, mut received) = receiver().await;
    let config = traced(with_model(&model_url), &url).with("[push]\nallow = [\"127.0.0.0/8\"]");
    let server = config.start().await.expect("a server");
    let params = json!({
        "message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]},
        "configuration": {"taskPushNotificationConfig": {"url": hook}},
    });
    let request = server.call("SendMessage", params.to_string()).header("traceparent", PARENT);
    let reply = request.header("tracestate", "a=1").send().await.expect("a reply");
    assert_eq!(reply.answer(), "hello", "{}", reply.text);
    let fields = asked.recv().await.expect("a request");
    let spans = collector.trace_of("SendMessage").await;
    let chat = named(&spans, "chat some-model");
    let span = hexadecimal(&chat.span_id);
    assert_eq!(fields["traceparent"], format!("00-{TRACE}-{span}-01"));
    assert_eq!(fields["tracestate"], "a=1");
    assert_eq!(attribute(chat, "gen_ai.provider.name"), "openai");
    assert_eq!(attribute(chat, "gen_ai.request.model"), "some-model");
    assert_eq!(attribute(chat, "gen_ai.usage.input_tokens"), "7");
    assert_eq!(attribute(chat, "gen_ai.usage.output_tokens"), "3");
    let (fields, _) = received.recv().await.expect("a notification");
    let spans = collector.trace_of("push").await;
    assert_eq!(hexadecimal(&named(&spans, "push").trace_id), TRACE);
    let sent = fields["traceparent"].to_str().expect("ASCII").to_owned();
    assert!(sent.starts_with(&format!("00-{TRACE}-")), "{sent}");
}

type ToolCall = (HeaderMap, Value);

/// An MCP server over HTTP that tells the header fields and the body of each call of its tool.
async fn tool() -> (String, mpsc::UnboundedReceiver<ToolCall>) {
    async fn answer(
        State(sender): State<mpsc::UnboundedSender<ToolCall>>,
        headers: HeaderMap,
        body: Bytes,
    ) -> Response {
        // GET and DELETE have no body.
        let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
        let result = match asked["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": asked["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "far", "version": "1"},
            }),
            Some("tools/list") => json!({"tools": [{"name": "sum", "inputSchema": {"type": "object"}}]}),
            Some("tools/call") => {
                sender.send((headers, asked.clone())).expect("the test listens");
                json!({"content": [{"type": "text", "text": "5"}]})
            }
            Some(_) => return StatusCode::ACCEPTED.into_response(),
            None => return StatusCode::METHOD_NOT_ALLOWED.into_response(),
        };
        Json(json!({"jsonrpc": "2.0", "id": asked["id"], "result": result})).into_response()
    }
    let (sender, received) = mpsc::unbounded_channel();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/mcp", listener.local_addr().expect("an address"));
    let router = Router::new().fallback(answer).with_state(sender);
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, received)
}

#[tokio::test]
async fn a_tool_over_http_gets_the_context_in_its_header_and_in_the_metadata_of_the_call() {
    let (url, collector) = Collector::start().await;
    let (tool_url, mut called) = tool().await;
    let rules = r#"
        [[agent.model.scripted.rules]]
        when = "^add$"
        call = [{ tool = "sum", arguments = '{"a": 1}' }]

        [[agent.model.scripted.rules]]
        when = ""
        after = "sum"
        answer = "added"
    "#;
    let config = TestConfig::template("Say something.").with(rules);
    let config = config.with(&format!("[[agent.mcp]]\nname = \"far\"\nurl = {tool_url:?}"));
    let server = traced(config, &url).start().await.expect("a server");
    let reply = server.say("add").header("traceparent", PARENT).send().await.expect("a reply");
    assert_eq!(reply.answer(), "added", "{}", reply.text);
    let (fields, call) = called.recv().await.expect("a call");
    let spans = collector.trace_of("SendMessage").await;
    let span = hexadecimal(&named(&spans, "execute_tool sum").span_id);
    assert_eq!(fields["traceparent"], format!("00-{TRACE}-{span}-01"));
    assert_eq!(call["params"]["_meta"]["traceparent"], format!("00-{TRACE}-{span}-01"));
}

#[tokio::test]
async fn the_line_of_a_request_has_the_id_of_its_trace_also_if_the_trace_is_not_sampled() {
    log::listen();
    let (url, _collector) = Collector::start().await;
    let server = serve(&url, "[traces]\nsample = \"off\"\nfollow_parent = false").await;
    log::of_thread();
    server.say("hi").header("traceparent", PARENT).send().await.expect("a reply");
    let lines = log::of_thread();
    let line = lines.iter().find(|line| line.starts_with("INFO request ")).expect("a line");
    assert!(line.contains("trace_id=") && line.contains(TRACE), "{line}");
}

#[tokio::test]
async fn an_upstream_agent_gets_the_context_and_its_spans_are_in_the_same_trace() {
    let (url, collector) = Collector::start().await;
    let behind = serve(&url, "[traces]\nservice_name = \"behind\"").await;
    let card = format!("{}/.well-known/agent-card.json", behind.url());
    let front = traced(TestConfig::upstream(&card), &url).set("traces.service_name", "front");
    let front = front.start().await.expect("a server");
    front.say("hi").send().await.expect("a reply");
    let is_request = |span: &&Span| span.kind == SpanKind::Server as i32 && span.name.starts_with("Send");
    let all = async || collector.spans().iter().filter(is_request).count() == 2;
    until("both servers have sent their request", all).await;
    let spans = collector.trace_of("SendMessage").await;
    let is_call = |span: &&Span| span.kind == SpanKind::Client as i32 && span.name.starts_with("invoke_agent ");
    let upstream = spans.iter().find(is_call).expect("a call of the upstream");
    let served =
        spans.iter().find(|span| span.parent_span_id == upstream.span_id).expect("the request to the upstream");
    assert_eq!(served.kind, SpanKind::Server as i32);
}

#[tokio::test]
async fn without_a_collector_no_request_to_another_server_has_a_context() {
    let (model_url, mut asked) = model().await;
    let server = with_model(&model_url).start().await.expect("a server");
    let reply = server.say("hi").header("traceparent", PARENT).send().await.expect("a reply");
    assert_eq!(reply.answer(), "hello");
    let fields = asked.recv().await.expect("a request");
    assert!(!fields.contains_key("traceparent") && !fields.contains_key("tracestate"), "{fields:?}");
}
