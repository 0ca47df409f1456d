//! Agents with wrong answers, and requests that must not be sent.

use annex_client::{Agent, Binding, ClientConfig, ClientError, ExtensionMethod, ServiceParameters};
use annex_protocol::{CancelTaskRequest, GetTaskRequest, JsonObject, ListTasksRequest, Message, SendMessageRequest};
use futures::TryStreamExt;
use http::HeaderValue;
use http::header::AUTHORIZATION;

use crate::support::{Foreign, agent, by, card, chain, client, no_parameters, ok, text};

const JSON: &str = "application/json";
const EVENT_STREAM: &str = "text/event-stream";

/// An agent whose server answers the first request after the card with `answer`.
async fn answering(binding: Binding, answer: &str) -> (Agent, Foreign) {
    let server = Foreign::start(&[&card(""), answer]).await;
    (agent(&server.url, binding).await, server)
}

async fn error(binding: Binding, answer: &str) -> ClientError {
    let (agent, _server) = answering(binding, answer).await;
    agent.send_message(no_parameters(), text("hello")).await.expect_err("no answer")
}

#[tokio::test]
async fn an_answer_that_is_not_a2a_is_told_from_an_error_of_the_agent() {
    let failing = |status: &str, body: &str| format!("HTTP/1.1 {status}\r\nconnection: close\r\n\r\n{body}");
    let rpc = Binding::JsonRpc;
    for (binding, answer, expected) in [
        (rpc, failing("502 Bad Gateway", "<h1>no upstream</h1>"), "502 Bad Gateway: <h1>no upstream</h1>"),
        (rpc, failing("503 Busy", r#"{"error":{"code":-32000,"message":"starting"}}"#), "error -32000: starting"),
        (rpc, ok("text/html", "<p>hello"), "something else than A2A: <p>hello"),
        (rpc, ok(JSON, r#"{"jsonrpc":"2.0","id":1}"#), "neither `result` nor `error`"),
        (rpc, ok(JSON, r#"{"id":1,"result":{"id":"t-1"}}"#), "one of `task`, `message`"),
        (rpc, ok(JSON, r#"{"id":1,"result":{"statusUpdate":{}}}"#), "neither a task nor a message"),
        (Binding::HttpJson, failing("404 Not Found", "nothing"), "404 Not Found: nothing"),
        (
            Binding::HttpJson,
            failing(
                "404 Not Found",
                r#"{"error":{"code":404,"status":"NOT_FOUND","message":"gone","details":[{"reason":"TASK_NOT_FOUND"}]}}"#,
            ),
            "error -32001: gone",
        ),
        (Binding::HttpJson, ok(JSON, ""), "something else than A2A: null"),
    ] {
        let error = error(binding, &answer).await;
        assert!(chain(&error).contains(expected), "{expected}: {}", chain(&error));
    }
}

#[tokio::test]
async fn an_answer_or_event_beyond_the_limit_is_not_read_to_its_end() {
    let large = "x".repeat(100_000);
    let config = |binding| ClientConfig { max_bytes: 50_000, ..by(binding) };
    for binding in [Binding::JsonRpc, Binding::HttpJson] {
        let server =
            Foreign::start(&[&card(""), &ok(JSON, &large), &ok(EVENT_STREAM, &format!("data: {large}"))]).await;
        let agent = client(config(binding)).agent(&server.url).await.expect("an agent");
        let error = agent.send_message(no_parameters(), text("x")).await.expect_err("too large");
        assert!(matches!(error, ClientError::TooLarge { max_bytes: 50_000, .. }), "{error}");
        let mut answer = agent.send_streaming_message(no_parameters(), text("x")).await.expect("a stream");
        let error = answer.value.try_next().await.expect_err("too large");
        assert!(matches!(error, ClientError::TooLarge { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_broken_stream_gives_what_came_before_and_then_its_error() {
    let task = r#"{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}"#;
    for (binding, wrapped) in
        [(Binding::JsonRpc, format!(r#"{{"result":{task}}}"#)), (Binding::HttpJson, task.to_owned())]
    {
        for (broken, expected) in [
            ("data: not json\n\n", "something else than A2A: not json"),
            (r#"data: {"error":{"code":-32603,"status":"INTERNAL","message":"broken"}}"#, "broken"),
        ] {
            let stream = format!(": hello\n\ndata: {wrapped}\n\n{broken}\n\n");
            let (agent, _server) = answering(binding, &ok(EVENT_STREAM, &stream)).await;
            let mut answer = agent.send_streaming_message(no_parameters(), text("x")).await.expect("a stream");
            assert!(answer.value.try_next().await.expect("an event").is_some());
            let error = answer.value.try_next().await.expect_err("broken");
            assert!(chain(&error).contains(expected), "{}", chain(&error));
            assert!(matches!(answer.value.try_next().await, Ok(None)), "the stream is over");
        }
    }
}

#[tokio::test]
async fn a_stream_of_another_media_type_is_one_answer_or_none() {
    let result = r#"{"id":1,"result":{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"hi"}]}}}"#;
    let (agent, _server) = answering(Binding::JsonRpc, &ok(JSON, result)).await;
    let answer = agent.send_streaming_message(no_parameters(), text("x")).await.expect("an answer");
    assert_eq!(answer.value.try_collect::<Vec<_>>().await.expect("events").len(), 1);
    let (agent, _server) = answering(Binding::JsonRpc, &ok("text/plain", &format!("data: {result}\n\n"))).await;
    let Err(error) = agent.send_streaming_message(no_parameters(), text("x")).await else { panic!("no stream") };
    assert!(matches!(error, ClientError::Protocol { .. }), "{error}");
}

#[tokio::test]
async fn a_redirect_to_another_place_is_not_followed() {
    let elsewhere = Foreign::start(&[&card("")]).await;
    let redirect =
        format!("HTTP/1.1 307 Temporary Redirect\r\nconnection: close\r\nlocation: {}/x\r\n\r\n", elsewhere.url);
    let server = Foreign::start(&[&redirect]).await;
    let error = client(ClientConfig::default()).card(&server.url).await.expect_err("no card");
    assert!(matches!(error, ClientError::NoCard { .. }), "{error}");
    let error = crate::foreign::error(Binding::JsonRpc, &redirect).await;
    assert!(matches!(error, ClientError::Status { .. }), "{error}");
    assert_eq!(elsewhere.requests().len(), 0);
}

#[tokio::test]
async fn a_redirect_within_one_place_is_followed() {
    let redirect = "HTTP/1.1 307 Temporary Redirect\r\nconnection: close\r\nlocation: /elsewhere.json\r\n\r\n";
    let server = Foreign::start(&[redirect, &card("")]).await;
    client(ClientConfig::default()).card(&server.url).await.expect("a card");
    assert!(server.requests()[1].starts_with("get /elsewhere.json"));
}

#[tokio::test]
async fn header_fields_go_nowhere_but_where_the_card_came_from() {
    let elsewhere = Foreign::start(&[]).await;
    let server = Foreign::start(&[&card("").replace("{url}/rpc", &elsewhere.url)]).await;
    let agent = agent(&server.url, Binding::JsonRpc).await;
    let mut parameters = ServiceParameters::default();
    parameters.set_field(AUTHORIZATION, HeaderValue::from_static("Bearer secret")).expect("a field");
    let error = agent.send_message(parameters, text("x")).await.expect_err("refused");
    assert!(matches!(error, ClientError::OtherOrigin { .. }), "{error}");
    assert_eq!(elsewhere.requests().len(), 0);
}

#[tokio::test]
async fn a_request_that_cannot_be_right_is_not_sent() {
    let server = Foreign::start(&[&card("")]).await;
    let agent = agent(&server.url, Binding::HttpJson).await;
    let empty = SendMessageRequest { message: Message::default(), ..SendMessageRequest::default() };
    let refused = [
        agent.send_message(no_parameters(), empty).await.map(drop),
        agent.get_task(no_parameters(), GetTaskRequest::default()).await.map(drop),
        agent.cancel_task(no_parameters(), CancelTaskRequest::default()).await.map(drop),
        agent
            .list_tasks(no_parameters(), ListTasksRequest { page_size: Some(0), ..Default::default() })
            .await
            .map(drop),
    ];
    for refused in refused {
        let error = refused.expect_err("refused");
        assert!(matches!(error, ClientError::InvalidRequest(_)), "{error}");
    }
    assert_eq!(server.requests().len(), 1, "only the card was asked for");
}

#[tokio::test]
async fn the_tenant_of_the_interface_travels_in_the_path_or_in_the_request() {
    let answer = r#"{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"hi"}]}}"#;
    let (agent, server) = answering(Binding::HttpJson, &ok(JSON, answer)).await;
    let request = SendMessageRequest { tenant: Some("other".to_owned()), ..text("x") };
    agent.send_message(no_parameters(), request.clone()).await.expect("an answer");
    let sent = server.requests().remove(1);
    assert!(sent.starts_with("post /rest/acme/message:send ") && !sent.contains("other"), "{sent}");
    let (agent, server) = answering(Binding::JsonRpc, &ok(JSON, &format!(r#"{{"result":{answer}}}"#))).await;
    agent.send_message(no_parameters(), request).await.expect("an answer");
    assert!(!server.requests()[1].contains("tenant"), "that interface has none");
}

#[tokio::test]
async fn a_method_of_an_extension_is_called_by_name_or_by_path() {
    let method = ExtensionMethod { extension: "task-history".to_owned(), name: "tasks/search".to_owned() };
    let params = JsonObject::parse(r#"{"text":"x","limit":1.0}"#).expect("an object");
    let found = r#"{"found":[9007199254740993],"error":null}"#;
    for (binding, answer, path) in [
        (Binding::JsonRpc, format!(r#"{{"id":1,"result":{found}}}"#), "post /rpc "),
        (Binding::HttpJson, found.to_owned(), "post /rest/acme/extensions/task-history/tasks/search "),
    ] {
        let (agent, server) = answering(binding, &ok(JSON, &answer)).await;
        let answer = agent.call_method(no_parameters(), method.clone(), &params).await.expect("an answer");
        assert_eq!(answer.value.get(), found, "numbers keep their text");
        let sent = server.requests().remove(1);
        assert!(sent.starts_with(path) && sent.contains(r#"{"text":"x","limit":1.0}"#), "{sent}");
    }
}

#[tokio::test]
async fn nobody_at_home_and_no_answer_in_time_are_two_errors() {
    let nobody = client(ClientConfig::default()).card("http://127.0.0.1:1").await.expect_err("nobody");
    assert!(matches!(nobody, ClientError::Unreachable { .. }), "{nobody}");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let silent = format!("http://{}", listener.local_addr().expect("an address"));
    let impatient = ClientConfig { card_timeout: std::time::Duration::from_millis(50), ..ClientConfig::default() };
    let error = client(impatient).card(&silent).await.expect_err("no answer");
    assert!(matches!(error, ClientError::TimedOut { .. }), "{error}");
}

#[tokio::test]
async fn a_server_that_does_not_speak_grpc_is_said_to() {
    let grpc = |card: String| card.replace(r#""HTTP+JSON""#, r#""GRPC""#);
    // Not even HTTP/2.
    let server = Foreign::start(&[&grpc(card("")), "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nhello"]).await;
    let config = ClientConfig { silence: std::time::Duration::from_secs(5), ..by(Binding::Grpc) };
    let agent = client(config).agent(&server.url).await.expect("an agent");
    for _ in 0..2 {
        let error = agent.send_message(no_parameters(), text("x")).await.expect_err("no answer");
        assert!(matches!(error, ClientError::Broken { .. } | ClientError::Unreachable { .. }), "{}", chain(&error));
    }
    // HTTP/2, and nothing of A2A at that path.
    let real = crate::support::test_server("").await;
    let address = real.url().trim_start_matches("http://");
    let elsewhere = grpc(card("")).replace("{url}/rest", &format!("http://{address}/nowhere"));
    let server = Foreign::start(&[&elsewhere]).await;
    let agent = crate::support::agent(&server.url, Binding::Grpc).await;
    let error = agent.send_message(no_parameters(), text("x")).await.expect_err("no answer");
    assert_eq!(error.agent().and_then(|error| error.reason.as_deref()), Some("UNIMPLEMENTED"), "{}", chain(&error));
}

#[tokio::test]
async fn json_of_an_agent_that_not_everybody_can_read_is_replaced() {
    let deep = format!("{}{}", "[".repeat(1_000), "]".repeat(1_000));
    let message = r#"{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"a\ud800b"}],
        "metadata":{"k":[1e999,"\udfff",1.0],"\udc00":1,"a":0,"\ud801":{"b":1,"b":2},"a":3,"deep":DEEP}}}"#
        .replace('\n', "")
        .replace("DEEP", &deep);
    let result = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{message}}}"#);
    for (binding, answer) in [
        (Binding::JsonRpc, ok(JSON, &result)),
        (Binding::HttpJson, ok(JSON, &message)),
        (Binding::JsonRpc, ok(EVENT_STREAM, &format!("data: {result}\n\n"))),
        (Binding::HttpJson, ok(EVENT_STREAM, &format!("data: {message}\n\n"))),
    ] {
        let (agent, _server) = answering(binding, &answer).await;
        let streamed = agent.send_streaming_message(no_parameters(), text("x")).await.expect("a stream");
        let events: Vec<_> = streamed.value.try_collect().await.expect("events");
        let annex_protocol::StreamResponse::Message(message) = &events[0] else { panic!("{events:?}") };
        assert_eq!(message.text(), "a\u{fffd}b");
        assert_eq!(message.metadata.get("k").expect("a list").get(), r#"["1e999","\ufffd",1.0]"#);
        assert_eq!(message.metadata.keys().collect::<Vec<_>>(), ["k", "\u{fffd}", "a", "deep"]);
        assert_eq!(message.metadata.get("a").expect("a number").get(), "3");
        assert_eq!(message.metadata.get("\u{fffd}").expect("an object").get(), r#"{"b":2}"#);
        let kept = message.metadata.get("deep").expect("a list").get();
        assert!(kept.starts_with("[[[[") && kept.contains(r#"["[[["#), "{kept}");
        assert_eq!(kept.matches(['[', ']']).count(), deep.len(), "nothing is lost");
    }
}
