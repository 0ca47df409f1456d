//! The line that the log has for each request, and the lines that name whose turn went wrong.

use std::time::Duration;

use annex_grpc::pb;
use annex_grpc::pb::a2a_service_client::A2aServiceClient;
use annex_test_support::{COMMAND_KEY, TEST_EXTENSION, TestConfig, TestServer, until};
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::transport::Channel;

use crate::auth::{ADA, api_keys};
use crate::hostile::log;
use crate::installation::{CARD, Installation, admin};
use crate::{agent, test_extension};

mod edges;

/// The line of one request.
struct Line(String);

impl Line {
    /// The value of a field, without the quotes of a text. Empty for a missing field.
    fn get(&self, name: &str) -> &str {
        let start = format!(" {name}=");
        let Some((_, rest)) = self.0.split_once(&start) else { return "" };
        match rest.strip_prefix('"') {
            Some(quoted) => quoted.split('"').next().unwrap_or_default(),
            None => rest.split(' ').next().unwrap_or_default(),
        }
    }

    fn number(&self, name: &str) -> f64 {
        self.get(name).parse().unwrap_or_else(|_| unreachable!("{name} in {}", self.0))
    }

    /// Operation, outcome and reason.
    fn ended(&self) -> (&str, &str, &str) {
        (self.get("operation"), self.get("outcome"), self.get("reason"))
    }
}

fn requests(lines: Vec<String>) -> Vec<Line> {
    lines.into_iter().filter(|line| line.starts_with("INFO request ")).map(Line).collect()
}

/// The line of the one request that was made since the last time.
fn line() -> Line {
    let mut lines = requests(log::of_thread());
    assert_eq!(lines.len(), 1, "{:?}", lines.iter().map(|line| &line.0).collect::<Vec<_>>());
    lines.remove(0)
}

/// The next log line of a request. It is written at the end of the answer, so this function polls.
async fn next_line() -> Line {
    let mut lines = Vec::new();
    until("a line", async || {
        lines.extend(requests(log::of_thread()));
        !lines.is_empty()
    })
    .await;
    assert_eq!(lines.len(), 1, "{:?}", lines.iter().map(|line| &line.0).collect::<Vec<_>>());
    lines.remove(0)
}

async fn post(server: &TestServer, path: &str, version: &str, body: &Value) -> (u16, String) {
    let mut request = server.client().post(format!("{}{path}", server.url())).json(body);
    if !version.is_empty() {
        request = request.header("a2a-version", version);
    }
    let reply = request.send().await.expect("an answer");
    (reply.status().as_u16(), reply.text().await.expect("a body"))
}

fn message(text: &str) -> Value {
    json!({"message": {"messageId": uuid::Uuid::new_v4().to_string(), "role": "ROLE_USER", "parts": [{"text": text}]}})
}

fn older(text: &str) -> Value {
    json!({"message": {"kind": "message", "messageId": uuid::Uuid::new_v4().to_string(), "role": "user",
                       "parts": [{"kind": "text", "text": text}]}})
}

fn called(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

async fn over_grpc(server: &TestServer, version: &'static str) -> Result<pb::SendMessageResponse, tonic::Status> {
    let channel = Channel::from_shared(server.url().to_owned()).expect("a URL").connect().await.expect("a channel");
    let part = pb::Part { content: Some(pb::part::Content::Text("prompt".to_owned())), ..pb::Part::default() };
    let message = pb::Message {
        message_id: uuid::Uuid::new_v4().to_string(),
        role: pb::Role::User.into(),
        parts: vec![part],
        ..pb::Message::default()
    };
    let request = pb::SendMessageRequest { message: Some(message), ..pb::SendMessageRequest::default() };
    let mut request = tonic::Request::new(request);
    request.metadata_mut().insert("a2a-version", version.parse().expect("ASCII"));
    let sent = A2aServiceClient::new(channel).send_message(request).await;
    sent.map(tonic::Response::into_inner)
}

/// Sends a message to the service of A2A 0.3.
async fn older_over_grpc(server: &TestServer) {
    use annex_grpc::pb::v0_3;

    let channel = Channel::from_shared(server.url().to_owned()).expect("a URL").connect().await.expect("a channel");
    let part = v0_3::Part { part: Some(v0_3::part::Part::Text("prompt".to_owned())), metadata: None };
    let role = v0_3::Role::User.into();
    let message = v0_3::Message { message_id: "older".to_owned(), role, content: vec![part], ..Default::default() };
    let configuration = v0_3::SendMessageConfiguration { blocking: true, ..Default::default() };
    let request =
        v0_3::SendMessageRequest { request: Some(message), configuration: Some(configuration), metadata: None };
    let mut client = v0_3::a2a_service_client::A2aServiceClient::new(channel);
    client.send_message(request).await.expect("an answer");
}

#[tokio::test]
async fn a_request_has_one_line_whichever_binding_and_version_it_comes_by() {
    log::listen();
    let server = agent("Say something.", "").await;
    log::of_thread();
    let bodies = [
        ("/a2a/jsonrpc", "1.0", called("SendMessage", &message("prompt")), "JSONRPC", "1.0"),
        ("/a2a/jsonrpc", "", called("message/send", &older("prompt")), "JSONRPC", "0.3"),
        ("/a2a/rest/message:send", "1.0", message("prompt"), "HTTP+JSON", "1.0"),
        (
            "/a2a/rest/v1/message:send",
            "",
            json!({"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "prompt"}]}}),
            "HTTP+JSON",
            "0.3",
        ),
    ];
    for (path, sent, body, binding, version) in bodies {
        let (status, answer) = post(&server, path, sent, &body).await;
        let line = line();
        assert_eq!(line.ended(), ("SendMessage", "ok", ""), "{}\n{answer}", line.0);
        assert_eq!((line.get("binding"), line.get("version")), (binding, version), "{}", line.0);
        assert_eq!((status, line.get("status"), line.get("address")), (200, "200", "127.0.0.1"), "{}", line.0);
        for id in [line.get("context"), line.get("task")] {
            assert!(!id.is_empty() && answer.contains(id), "{}\n{answer}", line.0);
        }
        assert_eq!(line.get("bytes_out"), answer.len().to_string(), "{}", line.0);
        assert_eq!(line.get("bytes_in"), body.to_string().len().to_string(), "{}", line.0);
    }
    older_over_grpc(&server).await;
    let line = next_line().await;
    assert_eq!(line.ended(), ("SendMessage", "ok", ""), "{}", line.0);
    assert_eq!((line.get("binding"), line.get("version")), ("GRPC", "0.3"), "{}", line.0);
    over_grpc(&server, "1.0").await.expect("an answer");
    // The line of an answer of gRPC comes with its trailers.
    let line = next_line().await;
    assert_eq!(line.ended(), ("SendMessage", "ok", ""), "{}", line.0);
    assert_eq!((line.get("binding"), line.get("version")), ("GRPC", "1.0"), "{}", line.0);
    assert!(!line.get("task").is_empty() && line.number("bytes_out") > 0.0, "{}", line.0);
}

#[tokio::test]
async fn what_is_no_message_has_a_line_with_its_operation_and_who_asks_for_health_has_none() {
    log::listen();
    let server = agent("Say something.", "").await;
    let task = server.say("prompt").context("c-1").send().await.expect("a reply").task()["id"].clone();
    log::of_thread();
    server.call("GetTask", json!({ "id": task }).to_string()).send().await.expect("a reply");
    let line_of_task = line();
    assert_eq!(line_of_task.ended(), ("GetTask", "ok", ""), "{}", line_of_task.0);
    assert_eq!(line_of_task.get("task"), task.as_str().unwrap_or_default(), "{}", line_of_task.0);
    server.get("/.well-known/agent-card.json").await.expect("a card");
    assert_eq!(line().ended(), ("AgentCard", "ok", ""));
    for path in ["/livez", "/readyz"] {
        server.get(path).await.expect("a reply");
    }
    assert_eq!(requests(log::of_thread()).len(), 0);
}

#[tokio::test]
async fn a_refusal_says_why_and_whose_it_is() {
    log::listen();
    let server = agent("Say something.", &test_extension("required = true")).await;
    log::of_thread();
    let command = async |command: &str| {
        let sent = server.say("prompt").context("c-1").extensions(TEST_EXTENSION);
        sent.metadata(COMMAND_KEY, &format!("{command:?}")).send().await.expect("a reply").text
    };
    server.say("prompt").send().await.expect("a reply");
    let missing = line();
    assert_eq!(missing.ended(), ("SendMessage", "refused", "required_extension"), "{}", missing.0);
    assert_eq!(missing.get("extension"), TEST_EXTENSION, "{}", missing.0);
    for (told, reason) in [("violation", "violation"), ("reject", "extension_error")] {
        command(told).await;
        let line = line();
        assert_eq!(line.ended(), ("SendMessage", "refused", reason), "{}", line.0);
        let named = (line.get("extension"), line.get("extensions"), line.get("context"));
        assert_eq!(named, (TEST_EXTENSION, TEST_EXTENSION, "c-1"), "{}", line.0);
    }
    let answer = command("panic").await;
    let fault = line();
    assert_eq!(fault.ended(), ("SendMessage", "failed", "fault"), "{}", fault.0);
    assert_eq!(fault.get("extension"), TEST_EXTENSION, "{}", fault.0);
    let error_id = fault.get("error_id");
    assert!(!error_id.is_empty() && answer.contains(error_id), "{}\n{answer}", fault.0);
}

#[tokio::test]
async fn a_request_that_reaches_no_operation_has_a_line_with_the_reason() {
    log::listen();
    let server = agent("Say something.", "[server]\nmax_body_bytes = 10_000").await;
    log::of_thread();
    let large = called("SendMessage", &message(&"a".repeat(20_000)));
    let gzip = server.client().post(format!("{}/a2a/jsonrpc", server.url())).header("content-encoding", "gzip");
    for (status, path, body, expected) in [
        (413, "/a2a/jsonrpc", &large, ("Unknown", "refused", "too_large")),
        (404, "/nowhere", &Value::Null, ("Unknown", "refused", "unknown_path")),
        (405, "/a2a/rest/tasks", &Value::Null, ("Unknown", "refused", "unknown_path")),
        (200, "/a2a/jsonrpc", &called("Nothing", &json!({})), ("Unknown", "refused", "unknown_method")),
        (200, "/a2a/jsonrpc", &json!([]), ("Unknown", "refused", "invalid_request")),
        (200, "/a2a/jsonrpc", &called("GetTask", &json!({"id": "x"})), ("GetTask", "refused", "not_found")),
        (200, "/a2a/jsonrpc", &called("GetTask", &json!({})), ("GetTask", "refused", "invalid_params")),
    ] {
        let (told, answer) = post(&server, path, "1.0", body).await;
        let line = line();
        assert_eq!((told, line.ended()), (status, expected), "{}\n{answer}", line.0);
        assert_eq!((line.get("status"), line.get("address")), (status.to_string().as_str(), "127.0.0.1"), "{}", line.0);
    }
    gzip.body("{}").send().await.expect("an answer");
    assert_eq!(line().ended(), ("Unknown", "refused", "content_type"));
    over_grpc(&server, "0.9").await.expect_err("a refusal");
    let version = line();
    assert_eq!(version.ended(), ("SendMessage", "refused", "version"), "{}", version.0);
    assert_eq!((version.get("binding"), version.get("version")), ("GRPC", ""), "{}", version.0);
}

#[tokio::test]
async fn the_caller_is_in_the_line_and_one_without_credentials_is_not() {
    log::listen();
    let server = agent("Say something.", &api_keys()).await;
    log::of_thread();
    let say = || server.say("prompt");
    say().header("x-api-key", ADA).send().await.expect("a reply");
    let line_of_ada = line();
    assert_eq!((line_of_ada.ended().1, line_of_ada.get("caller")), ("ok", "ada"), "{}", line_of_ada.0);
    say().header("x-api-key", "no-key-0123456789abcdef").send().await.expect("a reply");
    let stranger = line();
    assert_eq!(stranger.ended(), ("Unknown", "refused", "credentials"), "{}", stranger.0);
    assert_eq!((stranger.get("status"), stranger.get("caller")), ("401", ""), "{}", stranger.0);
    assert!(!stranger.0.contains("no-key"), "{}", stranger.0);
}

/// A server with the tenant acme, which has this quota and these extensions.
async fn with_tenant(quota: &str, extensions: &str) -> (TempDir, TestServer) {
    let folder = tempfile::tempdir().expect("a folder");
    let tenant = format!("[[tenant]]\nname = \"acme\"\nconfig = \"acme.toml\"\n[tenant.quota]\n{quota}");
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).expect("a file");
    write("annex.toml", TestConfig::template("Say something.").with(&tenant).toml());
    write("acme.toml", TestConfig::template("Say something.").with(extensions).toml());
    let server = TestServer::from_file(&folder.path().join("annex.toml"), None).await.expect("a server");
    (folder, server)
}

fn to(tenant: &str) -> Value {
    let mut params = message("prompt");
    params["tenant"] = json!(tenant);
    params["message"]["contextId"] = json!("c-1");
    called("SendMessage", &params)
}

#[tokio::test]
async fn the_tenant_is_in_the_line_and_so_is_the_quota_that_is_used_up() {
    log::listen();
    let (_folder, server) = with_tenant("requests_per_second = 1", "").await;
    log::of_thread();
    let mut refused = None;
    for _ in 0..20 {
        post(&server, "/a2a/jsonrpc", "1.0", &to("acme")).await;
        let line = line();
        assert_eq!(line.get("tenant"), "acme", "{}", line.0);
        if line.get("outcome") == "refused" {
            refused = Some(line);
            break;
        }
    }
    let refused = refused.expect("a refusal");
    assert_eq!(refused.ended(), ("SendMessage", "refused", "quota"), "{}", refused.0);
    assert_eq!((refused.get("quota"), refused.get("status")), ("requests_per_second", "429"), "{}", refused.0);
    post(&server, "/a2a/jsonrpc", "1.0", &to("nobody")).await;
    let unknown = line();
    assert_eq!(unknown.ended(), ("SendMessage", "refused", "unknown_tenant"), "{}", unknown.0);
    assert_eq!(unknown.get("tenant"), "nobody", "{}", unknown.0);
    // What strangers choose is cut.
    post(&server, "/a2a/jsonrpc", "1.0", &to(&"x".repeat(5_000))).await;
    let long = line();
    assert_eq!(long.get("tenant"), "x".repeat(256), "{}", long.0);
}

#[tokio::test]
async fn a_stream_has_its_line_when_it_ends_or_when_its_client_leaves() {
    log::listen();
    let server = agent("Say something.", "").await;
    log::of_thread();
    let events = server.say("prompt").streaming().open().await.expect("a stream").rest().await.expect("events");
    assert!(!events.is_empty());
    let ended = line();
    assert_eq!(ended.ended(), ("SendStreamingMessage", "ok", ""), "{}", ended.0);
    assert!(ended.number("bytes_out") > 100.0 && !ended.get("task").is_empty(), "{}", ended.0);
    let mut left = server.say("slow").streaming().open().await.expect("a stream");
    left.next().await.expect("an event");
    assert_eq!(requests(log::of_thread()).len(), 0, "it goes on");
    drop(left);
    let line = next_line().await;
    assert_eq!(line.ended(), ("SendStreamingMessage", "gone", ""), "{}", line.0);
    assert!(line.number("bytes_out") > 0.0, "{}", line.0);
}

#[tokio::test]
async fn lines_are_left_out_where_they_are_off_and_some_of_them_where_a_share_is_wanted() {
    log::listen();
    for (access, expected) in [("\"off\"", 0..=0), ("\"all\"", 200..=200), ("0.5", 40..=160)] {
        let server = agent("Say something.", &format!("[log]\naccess = {access}")).await;
        log::of_thread();
        for _ in 0..200 {
            server.get("/.well-known/agent-card.json").await.expect("a card");
        }
        let lines = requests(log::of_thread()).len();
        assert!(expected.contains(&lines), "{access}: {lines}");
    }
}

#[tokio::test]
async fn the_times_of_a_line_are_those_of_its_stages_and_no_more_than_all() {
    log::listen();
    let folder = tempfile::tempdir().expect("a folder");
    let stores = format!("[tasks]\ndata_dir = {0:?}\n[sessions]\ndata_dir = {0:?}", folder.path());
    let limits = "[extension.limits]\ncpu_ms = 30\nwall_ms = 5000";
    let server = agent("Say something.", &format!("{stores}\n{}", test_extension(limits))).await;
    log::of_thread();
    let times = |line: &Line| ["hooks_ms", "agent_ms", "store_ms", "ms"].map(|name| line.number(name));
    // The model waits for three times 300 ms between its pieces.
    server.say("slow").send().await.expect("a reply");
    let line_of_agent = line();
    let [hooks, agent, store, all] = times(&line_of_agent);
    assert!(agent > 500.0 && hooks == 0.0 && store > 0.0, "{}", line_of_agent.0);
    assert!(hooks + agent + store <= all, "{}", line_of_agent.0);
    // The extension loops until it is stopped.
    let sent = server.say("prompt").extensions(TEST_EXTENSION).metadata(COMMAND_KEY, "\"loop\"");
    sent.send().await.expect("a reply");
    let line_of_hook = line();
    let [hooks, agent, store, all] = times(&line_of_hook);
    assert!(hooks > 10.0 && agent == 0.0, "{}", line_of_hook.0);
    assert!(hooks + agent + store <= all, "{}", line_of_hook.0);
}

#[tokio::test]
async fn lines_of_faults_and_of_a_quarantine_name_tenant_conversation_and_task() {
    log::listen();
    let (_folder, server) = with_tenant("turns = 100", &test_extension("")).await;
    log::of_thread();
    for _ in 0..5 {
        let mut body = to("acme");
        body["params"]["message"]["metadata"] = json!({COMMAND_KEY: "trap"});
        let request = server.client().post(format!("{}/a2a/jsonrpc", server.url())).json(&body);
        let request = request.header("a2a-version", "1.0").header("a2a-extensions", TEST_EXTENSION);
        request.send().await.expect("an answer");
    }
    let lines = log::of_thread();
    let about = |what: &str| lines.iter().filter(|line| line.contains(what)).cloned().collect::<Vec<_>>();
    let (faults, quarantines) = (about("ERROR "), about("quarantined after failures in a row"));
    assert_eq!((faults.len(), quarantines.len()), (5, 1), "{lines:?}");
    for line in faults.iter().chain(&quarantines) {
        let line = Line(line.clone());
        assert_eq!((line.get("tenant"), line.get("context")), ("acme", "c-1"), "{}", line.0);
        assert!(!line.get("task").is_empty(), "{}", line.0);
    }
    // A line of the request that it was stands behind each.
    let tasks: Vec<String> = faults.into_iter().map(|line| Line(line).get("task").to_owned()).collect();
    let of_requests: Vec<String> = requests(lines).iter().map(|line| line.get("task").to_owned()).collect();
    assert_eq!(tasks, of_requests);
}

#[tokio::test]
async fn a_request_that_comes_while_the_server_drains_has_a_line() {
    log::listen();
    let mut server = agent("Say something.", "[server]\ndrain_seconds = 5").await;
    // A turn that runs keeps the server there while it drains.
    let running = server.say("slow").streaming().open().await.expect("a stream");
    log::of_thread();
    server.begin_shutdown();
    until("a refusal", async || {
        server.say("prompt").send().await.expect("a reply");
        // In real time, which the server takes to begin.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let lines = requests(log::of_thread());
        lines.iter().any(|line| line.ended() == ("Unknown", "refused", "draining"))
    })
    .await;
    drop(running);
}

#[tokio::test]
async fn the_share_of_requests_that_have_a_line_changes_when_the_config_is_read_again() {
    log::listen();
    let installation = Installation::new();
    let with = |access: &str| {
        let admin = "[admin]\ntoken_file = \"token\"\n[runtime]\nwatch = false";
        installation.config(&format!("{admin}\n[log]\naccess = \"{access}\""));
    };
    with("off");
    let server = installation.serve().await;
    log::of_thread();
    for (access, expected) in [("off", 0), ("all", 1), ("off", 0)] {
        with(access);
        let (status, reloaded) = admin(&server, "POST", "reload", Value::Null).await;
        assert_eq!(status, 200, "{reloaded}");
        log::of_thread();
        server.get(CARD).await.expect("a card");
        assert_eq!(requests(log::of_thread()).len(), expected, "{access}");
    }
}
