//! The methods of extensions, on every binding.

use annex_grpc::pb::extension::extension_service_client::ExtensionServiceClient;
use annex_grpc::pb::extension::{CallRequest, CallResponse};
use annex_test_support::{TestConfig, TestServer};
use serde_json::{Value, json};
use tonic::transport::Channel;

use crate::{agent, test_extension};

const URI: &str = "https://annex.example/test/v1";

async fn server(more: &str) -> TestServer {
    let methods = "parameters = { methods = [\"test/echo\", \"test/stream\"] }";
    agent("Be short.", &format!("{}\n{more}", test_extension(methods))).await
}

/// `POST` of the parameters to the method's route; the status, the echo and the body.
async fn post(server: &TestServer, path: &str, params: &Value, asked: &str) -> (u16, String, String) {
    let request = server.client().post(format!("{}/a2a/rest/{path}", server.url())).json(params);
    let request = request.header("a2a-version", "1.0").header("a2a-extensions", asked);
    let response = request.send().await.expect("an answer");
    let echo = response.headers().get("a2a-extensions").map(|value| value.to_str().expect("text").to_owned());
    (response.status().as_u16(), echo.unwrap_or_default(), response.text().await.expect("a body"))
}

async fn client(server: &TestServer) -> ExtensionServiceClient<Channel> {
    let channel = Channel::from_shared(server.url().to_owned()).expect("a URL").connect().await.expect("a channel");
    ExtensionServiceClient::new(channel)
}

fn call(method: &str, params: &str, asked: &str) -> tonic::Request<CallRequest> {
    let mut request = tonic::Request::new(CallRequest { method: method.to_owned(), params_json: params.to_owned() });
    request.metadata_mut().insert("a2a-version", "1.0".parse().expect("a value"));
    if !asked.is_empty() {
        request.metadata_mut().insert("a2a-extensions", asked.parse().expect("a value"));
    }
    request
}

#[tokio::test]
async fn a_method_answers_the_same_on_each_binding_and_numbers_survive() {
    let server = server("").await;
    let params = r#"{"b":1.0,"a":9007199254740993}"#;
    let expected = format!(r#"{{"operation":"test/echo","params":{params}}}"#);

    let reply = server.call("test/echo", params).extensions(URI).send().await.expect("a reply");
    assert!(reply.text.contains(&format!(r#""result":{expected}"#)), "{}", reply.text);
    assert_eq!(reply.extensions.as_deref(), Some(URI));

    let url = format!("{}/a2a/rest/extensions/test/test/echo", server.url());
    let request = server.client().post(url).header("content-type", "application/json").body(params);
    let request = request.header("a2a-version", "1.0").header("a2a-extensions", URI);
    let response = request.send().await.expect("an answer");
    assert_eq!((response.status().as_u16(), &response.headers()["a2a-extensions"]), (200, &URI.parse().expect("text")));
    assert_eq!(response.text().await.expect("a body"), expected);

    let answer = client(&server).await.call(call("test/echo", params, URI)).await.expect("an answer");
    assert_eq!(answer.metadata().get("a2a-extensions").expect("an echo"), URI);
    assert_eq!(answer.into_inner().result_json, expected);
}

#[tokio::test]
async fn results_are_streamed_on_each_binding() {
    let server = server("").await;
    let events = server.call("test/stream", "{}").extensions(URI).open().await.expect("a stream");
    let results: Vec<Value> =
        events.rest().await.expect("events").iter().map(|event| event["result"].clone()).collect();
    assert_eq!(results, [json!(0), json!(1), json!(2)]);

    let (status, _, body) = post(&server, "extensions/test/test/stream", &json!({}), URI).await;
    let data: Vec<&str> = body.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!((status, data), (200, vec!["0", "1", "2"]));

    let mut client = client(&server).await;
    let mut stream = client.call_streaming(call("test/stream", "", URI)).await.expect("a stream").into_inner();
    let mut results = Vec::new();
    while let Some(CallResponse { result_json }) = stream.message().await.expect("a result") {
        results.push(result_json);
    }
    assert_eq!(results, ["0", "1", "2"]);
    let error = client.call(call("test/stream", "{}", URI)).await.expect_err("it streams");
    assert!(error.message().contains("CallStreaming"), "{error}");
}

#[tokio::test]
async fn who_has_not_activated_the_extension_is_refused_on_each_binding() {
    let server = server("").await;
    let reply = server.call("test/echo", "{}").send().await.expect("a reply");
    assert_eq!(reply.code(), -32_008);
    assert!(reply.text.contains(URI), "{}", reply.text);
    let (status, echo, body) = post(&server, "extensions/test/test/echo", &json!({}), "urn:other").await;
    assert_eq!((status, echo.as_str()), (400, ""));
    assert!(body.contains("EXTENSION_SUPPORT_REQUIRED"), "{body}");
    let error = client(&server).await.call(call("test/echo", "{}", "")).await.expect_err("it is not active");
    assert_eq!(error.code(), tonic::Code::FailedPrecondition);
}

#[tokio::test]
async fn what_does_not_exist_is_no_method_on_each_binding() {
    let server = server("").await;
    let reply = server.call("test/other", "{}").extensions(URI).send().await.expect("a reply");
    assert_eq!(reply.code(), -32_601);
    for path in ["extensions/test/test/other", "extensions/other/test/echo", "extensions/test"] {
        let (status, _, body) = post(&server, path, &json!({}), URI).await;
        assert_eq!(status, 404, "{path}: {body}");
    }
    let error = client(&server).await.call(call("test/other", "{}", URI)).await.expect_err("no such method");
    assert_eq!(error.code(), tonic::Code::NotFound);
}

#[tokio::test]
async fn parameters_that_fit_no_schema_are_refused_and_so_is_what_is_no_object() {
    let server = server("").await;
    let reply = server.call("test/echo", r#"{"command":1}"#).extensions(URI).send().await.expect("a reply");
    assert_eq!((reply.code(), reply.violations()), (-32_602, vec!["/command".to_owned()]));
    let (status, _, body) = post(&server, "extensions/test/test/echo", &json!([1]), URI).await;
    assert!(status == 400 && body.contains("not a JSON object"), "{body}");
    let error = client(&server).await.call(call("test/echo", "{", URI)).await.expect_err("no JSON");
    assert_eq!(error.code(), tonic::Code::InvalidArgument);
}

#[tokio::test]
async fn an_extensions_own_codes_pass_and_forged_ones_are_its_fault() {
    let server = server("").await;
    let told = |command: &str| format!(r#"{{"command":"{command}"}}"#);
    let reply = server.call("test/echo", told("reject")).extensions(URI).send().await.expect("a reply");
    assert_eq!(reply.code(), -32_950);
    let reply = server.call("test/echo", told("forged-code")).extensions(URI).send().await.expect("a reply");
    assert_eq!(reply.code(), -32_603);
    assert!(!reply.text.contains("-32001"), "{}", reply.text);
    // Its neighbours are served as before.
    assert_eq!(server.say("Hello").send().await.expect("a reply").code(), 0);
}

#[tokio::test]
async fn a_client_of_0_3_calls_the_same_methods() {
    let server = server("").await;
    let url = format!("{}/a2a/jsonrpc", server.url());
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "test/echo", "params": {"a": 1}});
    let request = server.client().post(url).json(&body).header("x-a2a-extensions", URI);
    let response = request.send().await.expect("an answer");
    assert_eq!(response.headers()["x-a2a-extensions"], URI);
    let answer: Value = response.json().await.expect("JSON");
    assert_eq!(answer["result"]["params"], json!({"a": 1}));

    let url = format!("{}/a2a/rest/v1/extensions/test/test/echo", server.url());
    let request = server.client().post(url).json(&json!({"a": 1})).header("x-a2a-extensions", URI);
    let answer: Value = request.send().await.expect("an answer").json().await.expect("JSON");
    assert_eq!(answer["params"], json!({"a": 1}));

    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "no/such", "params": {}});
    let request = server.client().post(format!("{}/a2a/jsonrpc", server.url())).json(&body);
    let answer: Value = request.send().await.expect("an answer").json().await.expect("JSON");
    assert_eq!(answer["error"]["code"], -32_601);
}

#[tokio::test]
async fn a_caller_that_is_not_authenticated_calls_no_method() {
    let server = server(&crate::auth::api_keys()).await;
    let (status, _, _) = post(&server, "extensions/test/test/echo", &json!({}), URI).await;
    assert_eq!(status, 401);
    let error = client(&server).await.call(call("test/echo", "{}", URI)).await.expect_err("nobody");
    assert_eq!(error.code(), tonic::Code::Unauthenticated);
}

#[tokio::test]
async fn a_card_that_declares_a_clash_is_never_served() {
    let methods = "parameters = { uri = \"urn:other\", methods = [\"test/echo\"] }";
    let config = TestConfig::template("Be short.").with(&test_extension("parameters = { methods = [\"test/echo\"] }"));
    let error = config.with(&test_extension(methods)).start().await.err().expect("the start is refused");
    let text = format!("{error:#}");
    assert!(text.contains("test/echo") && text.contains("urn:other"), "{text}");
}

#[tokio::test]
async fn a_stream_of_a_method_ends_when_its_time_is_over() {
    let endless = r#"parameters = { methods = ["test/stream"], behaviour = { next = "endless" } }
        [extension.limits]
        turn_cpu_ms = 60000
        [server]
        max_turn_seconds = 1"#;
    let server = agent("Be short.", &test_extension(endless)).await;
    let events = server.call("test/stream", "{}").extensions(URI).open().await.expect("a stream");
    let events = events.rest().await.expect("events");
    let (last, results) = events.split_last().expect("at least one");
    assert!(results.len() > 3 && results.iter().all(|event| event["result"].is_number()), "{}", results.len());
    assert!(last["error"]["message"].as_str().is_some_and(|text| text.contains("longer than 1 seconds")), "{last}");
    assert_eq!(server.say("Hello").send().await.expect("a reply").code(), 0, "its place is free again");
}
