//! Parameters of requests: missing ones, parameters in paths, and the parameters that each operation must accept.

use annex_grpc::pb;
use annex_grpc::pb::a2a_service_client::A2aServiceClient;
use annex_test_support::{TestConfig, TestServer};
use serde_json::{Value, json};
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::push::receiver;

const PUSH: &str = "[push]\nallow = [\"127.0.0.0/8\"]\n[server]\na2a_0_3 = true";
const RULES: &str = r#"
    [[agent.rule]]
    message_id = "ask"
    steps = [{ status = { state = "input-required", text = "What else?" } }]
    [[agent.rule]]
    steps = [
      { status = { state = "working", text = "One moment." } },
      { artifact = { id = "a", parts = [{ text = "one" }], append = true } },
      { artifact = { id = "a", parts = [{ text = "two" }], append = true, last_chunk = true } },
      { status = { state = "completed" } },
    ]
"#;

async fn server() -> TestServer {
    TestConfig::script(RULES).with(PUSH).start().await.expect("a server")
}

async fn waiting_task(server: &TestServer) -> String {
    let asked = server.say("x").field("messageId", "ask-1").send().await.expect("a reply");
    asked.task()["id"].as_str().expect("an id").to_owned()
}

async fn client(server: &TestServer) -> A2aServiceClient<Channel> {
    A2aServiceClient::new(
        Channel::from_shared(server.url().to_owned()).expect("a URL").connect().await.expect("a channel"),
    )
}

fn versioned<T>(message: T, version: &str) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("a2a-version", version.parse().expect("ASCII"));
    request
}

/// Sends a JSON body and returns the answer.
async fn post(
    server: &TestServer,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<reqwest::Body>,
) -> (u16, Value) {
    let mut request = server.client().post(format!("{}{path}", server.url())).body(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = request.send().await.expect("an answer");
    let status = answer.status().as_u16();
    (status, answer.json().await.expect("JSON"))
}

fn field(status: &Status) -> (Code, String) {
    let details = status.get_details_bad_request().expect("details");
    (status.code(), details.field_violations[0].field.clone())
}

#[tokio::test]
async fn a_required_parameter_that_is_missing_is_named_by_each_operation_on_each_binding() {
    let server = server().await;
    let config = |task: &str| json!({"taskId": task});
    for (method, params, missing) in [
        ("GetTask", json!({}), "id"),
        ("CancelTask", json!({}), "id"),
        ("SubscribeToTask", json!({"id": ""}), "id"),
        ("CreateTaskPushNotificationConfig", json!({"url": "http://127.0.0.1/"}), "taskId"),
        ("CreateTaskPushNotificationConfig", config("t"), "url"),
        ("GetTaskPushNotificationConfig", json!({"id": "c"}), "taskId"),
        ("GetTaskPushNotificationConfig", config("t"), "id"),
        ("ListTaskPushNotificationConfigs", json!({}), "taskId"),
        ("DeleteTaskPushNotificationConfig", json!({"id": "c"}), "taskId"),
        ("DeleteTaskPushNotificationConfig", config("t"), "id"),
        ("SendMessage", json!({}), "message"),
        ("SendStreamingMessage", json!({}), "message"),
    ] {
        let reply = server.call(method, params.to_string()).send().await.expect("a reply");
        assert_eq!((reply.code(), reply.violations()), (-32_602, vec![missing.to_owned()]), "{method}: {}", reply.text);
    }
    let rest = |path: &str| format!("{}/a2a/rest{path}", server.url());
    for (path, missing) in [
        ("/tasks/", "id"),
        ("/tasks/t/pushNotificationConfigs/", "id"),
        ("/tasks//pushNotificationConfigs/c", "taskId"),
    ] {
        let answer = server.client().get(rest(path)).header("a2a-version", "1.0").send().await.expect("an answer");
        assert_eq!(answer.status(), 400, "{path}");
        let answer: Value = answer.json().await.expect("JSON");
        assert_eq!(answer["error"]["details"][1]["fieldViolations"][0]["field"], missing, "{path}: {answer}");
    }
    let mut client = client(&server).await;
    let refused = client.get_task(versioned(pb::GetTaskRequest::default(), "1.0")).await.expect_err("refused");
    assert_eq!(field(&refused), (Code::InvalidArgument, "id".to_owned()));
    let get = pb::GetTaskPushNotificationConfigRequest { task_id: "t".to_owned(), ..Default::default() };
    let refused = client.get_task_push_notification_config(versioned(get, "1.0")).await.expect_err("refused");
    assert_eq!(field(&refused), (Code::InvalidArgument, "id".to_owned()));
    for (method, params, missing) in [
        ("tasks/get", json!({}), "id"),
        ("tasks/cancel", json!({}), "id"),
        ("tasks/pushNotificationConfig/get", json!({}), "id"),
        ("tasks/pushNotificationConfig/delete", json!({"id": "t"}), "pushNotificationConfigId"),
    ] {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let (_, answer) = post(&server, "/a2a/jsonrpc", &[("content-type", "application/json")], body).await;
        assert_eq!(answer["error"]["code"], -32_602, "{method}: {answer}");
        assert_eq!(answer["error"]["data"]["details"][1]["fieldViolations"][0]["field"], missing, "{answer}");
    }
}

#[tokio::test]
async fn the_patch_number_of_a_version_does_not_count_on_any_binding() {
    let server = server().await;
    for version in ["1.0.0", "1.0.1", "1.0.27"] {
        assert_eq!(server.say("x").version(Some(version)).send().await.expect("a reply").code(), 0, "{version}");
        let query = server.say("x").version(None).query(&format!("A2A-Version={version}"));
        assert_eq!(query.send().await.expect("a reply").code(), 0, "{version}");
        let url = format!("{}/a2a/rest/tasks/nobody", server.url());
        let read = server.client().get(url).header("a2a-version", version).send().await.expect("an answer");
        assert_eq!(read.status(), 404, "{version}");
        let get = pb::GetTaskRequest { id: "nobody".to_owned(), ..Default::default() };
        let refused = client(&server).await.get_task(versioned(get, version)).await.expect_err("refused");
        assert_eq!(refused.code(), Code::NotFound, "{version}");
    }
    for version in ["1.0.", "1.0.x", "1.0.1.1", "1.00", "1.01", "1.0-1"] {
        assert_eq!(server.say("x").version(Some(version)).send().await.expect("a reply").code(), -32_009, "{version}");
    }
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "nobody"}}).to_string();
    for (version, code) in [("0.3", -32_001), ("0.3.0", -32_001), ("0.3.9", -32_001), ("0.30", -32_603)] {
        let headers = [("content-type", "application/json"), ("a2a-version", version)];
        let (_, answer) = post(&server, "/a2a/jsonrpc", &headers, body.clone()).await;
        assert_eq!(answer["error"]["code"], code, "{version}: {answer}");
    }
}

#[tokio::test]
async fn the_length_of_the_history_counts_for_streams_too() {
    let server = server().await;
    for (length, messages) in [(None, Some(1)), (Some(5), Some(1)), (Some(0), None)] {
        let configuration = length.map_or_else(|| json!({}), |length| json!({"historyLength": length}));
        let message =
            json!({"messageId": uuid::Uuid::new_v4().to_string(), "role": "ROLE_USER", "parts": [{"text": "x"}]});
        let params = json!({"message": message, "configuration": configuration});
        let rpc = server.call("SendStreamingMessage", params.to_string()).open().await.expect("a stream");
        let first = &rpc.rest().await.expect("events")[0]["result"]["task"];
        assert_eq!(first["history"].as_array().map(Vec::len), messages, "{length:?}");
        let sent = pb::SendMessageRequest {
            message: Some(pb::Message {
                message_id: uuid::Uuid::new_v4().to_string(),
                role: pb::Role::User.into(),
                parts: vec![pb::Part { content: Some(pb::part::Content::Text("x".to_owned())), ..Default::default() }],
                ..Default::default()
            }),
            configuration: Some(pb::SendMessageConfiguration { history_length: length, ..Default::default() }),
            ..Default::default()
        };
        let mut stream =
            client(&server).await.send_streaming_message(versioned(sent, "1.0")).await.expect("a stream").into_inner();
        let Some(pb::stream_response::Payload::Task(task)) =
            stream.message().await.expect("an event").expect("one").payload
        else {
            panic!("not a task")
        };
        assert_eq!(task.history.len(), messages.unwrap_or_default(), "{length:?}");
    }
}

#[tokio::test]
async fn an_id_with_a_slash_is_reached_over_http_json_of_both_versions() {
    let server = server().await;
    let (url, _received) = receiver().await;
    let task = waiting_task(&server).await;
    for id in ["a/b", "../x", "100%", "é:cancel"] {
        let made =
            server.call("CreateTaskPushNotificationConfig", json!({"taskId": task, "id": id, "url": url}).to_string());
        assert_eq!(made.send().await.expect("a reply").code(), 0, "{id}");
        let encoded: String = id.bytes().map(|byte| format!("%{byte:02X}")).collect();
        for (version, base) in [("1.0", "/a2a/rest"), ("0.3", "/a2a/rest/v1")] {
            let url = format!("{}{base}/tasks/{task}/pushNotificationConfigs/{encoded}", server.url());
            let read = server.client().get(&url).header("a2a-version", version).send().await.expect("an answer");
            assert_eq!(read.status(), 200, "{id} {version}: {}", read.text().await.expect("a body"));
        }
        let url = format!("{}/a2a/rest/tasks/{task}/pushNotificationConfigs/{encoded}", server.url());
        let deleted = server.client().delete(&url).header("a2a-version", "1.0").send().await.expect("an answer");
        assert_eq!(deleted.status(), 200, "{id}");
        let gone = server.client().get(&url).header("a2a-version", "1.0").send().await.expect("an answer");
        assert_eq!(gone.status(), 404, "{id}");
        let gone: Value = gone.json().await.expect("JSON");
        let message = gone["error"]["message"].as_str().expect("a message");
        assert!(message.contains("has no push notification config"), "{message}");
        assert_eq!(gone["error"]["details"][0]["metadata"]["pushNotificationConfigId"], id);
    }
}

#[tokio::test]
async fn a_refusal_of_a_push_config_names_the_field_as_its_client_knows_it() {
    let server = server().await;
    let task = waiting_task(&server).await;
    let good = "http://127.0.0.1:1/";
    let bad_scheme = json!({"scheme": "a b", "credentials": "x"});
    for (url, token, authentication, field) in [
        ("ftp://a.example/", "t", json!({"scheme": "Bearer"}), "url"),
        (good, "a\r\nX: 1", json!({"scheme": "Bearer"}), "token"),
        (good, "t", bad_scheme.clone(), "authentication"),
    ] {
        let config = json!({"url": url, "token": token, "authentication": authentication});
        let mut create = config.clone();
        create["taskId"] = json!(task);
        let reply = server.call("CreateTaskPushNotificationConfig", create.to_string()).send().await.expect("a reply");
        assert_eq!(reply.violations(), [field], "{}", reply.text);
        let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]});
        let params = json!({"message": message, "configuration": {"taskPushNotificationConfig": config}});
        let reply = server.call("SendMessage", params.to_string()).send().await.expect("a reply");
        assert_eq!(reply.violations(), [format!("configuration.taskPushNotificationConfig.{field}")]);
        // 0.3 has other names around the same fields.
        let mut older = config.clone();
        older["authentication"] = json!({"schemes": [authentication["scheme"]]});
        let message =
            json!({"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "x"}]});
        for (method, params, field) in [
            (
                "tasks/pushNotificationConfig/set",
                json!({"taskId": task, "pushNotificationConfig": older}),
                format!("pushNotificationConfig.{field}"),
            ),
            (
                "message/send",
                json!({"message": message, "configuration": {"pushNotificationConfig": older}}),
                format!("configuration.pushNotificationConfig.{field}"),
            ),
        ] {
            let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
            let (_, answer) = post(&server, "/a2a/jsonrpc", &[("content-type", "application/json")], body).await;
            assert_eq!(answer["error"]["data"]["details"][1]["fieldViolations"][0]["field"], field, "{answer}");
        }
        let configs = format!("tasks/{task}/pushNotificationConfigs");
        let message = json!({"messageId": "m", "role": "ROLE_USER", "content": [{"text": "x"}]});
        let sent = json!({"message": message, "configuration": {"pushNotification": older}});
        for (path, body, prefix) in [
            (&*configs, json!({"config": {"pushNotificationConfig": older}}), "config.pushNotificationConfig"),
            (&*configs, json!({"pushNotificationConfig": older}), "pushNotificationConfig"),
            ("message:send", sent, "configuration.pushNotification"),
        ] {
            let headers = [("content-type", "application/json")];
            let (_, answer) = post(&server, &format!("/a2a/rest/v1/{path}"), &headers, body.to_string()).await;
            let named = &answer["error"]["details"][1]["fieldViolations"][0]["field"];
            assert_eq!(named, &json!(format!("{prefix}.{field}")), "{answer}");
        }
    }
}

#[tokio::test]
async fn a_compressed_body_is_refused_with_the_reason() {
    let server = server().await;
    for path in ["/a2a/jsonrpc", "/a2a/rest/message:send", "/a2a/rest/v1/message:send"] {
        let headers = [("content-type", "application/json"), ("a2a-version", "1.0"), ("content-encoding", "gzip")];
        let (status, answer) = post(&server, path, &headers, vec![0x1f, 0x8b]).await;
        let message = answer["error"]["message"].as_str().expect("a message");
        assert_eq!(status, 415, "{path}");
        assert!(message.contains("content-encoding gzip is not supported"), "{message}");
    }
    let identity = server.say("x").header("content-encoding", "identity").send().await.expect("a reply");
    assert_eq!(identity.code(), 0);
}

#[tokio::test]
async fn a_body_that_is_null_is_that_of_an_operation_without_one() {
    let server = server().await;
    for version in ["1.0", "0.3"] {
        let task = waiting_task(&server).await;
        let base = if version == "1.0" { "/a2a/rest" } else { "/a2a/rest/v1" };
        let headers = [("content-type", "application/json"), ("a2a-version", version)];
        let (status, answer) = post(&server, &format!("{base}/tasks/{task}:cancel"), &headers, " null\n").await;
        assert_eq!((status, &answer["id"]), (200, &json!(task)), "{answer}");
    }
}

#[tokio::test]
async fn a_message_that_is_too_large_for_grpc_is_refused_with_details() {
    let server = TestConfig::script(RULES).set("server.max_body_bytes", 1_000).start().await.expect("a server");
    let get = pb::GetTaskRequest { id: "x".repeat(2_000), ..Default::default() };
    let refused = client(&server).await.get_task(versioned(get, "1.0")).await.expect_err("refused");
    assert_eq!(refused.code(), Code::OutOfRange, "{refused}");
    assert_eq!(refused.get_details_error_info().expect("details").reason, "INVALID_REQUEST");
}

#[tokio::test]
async fn the_first_piece_of_an_artifact_is_no_further_piece() {
    let server = server().await;
    let stream = server.say("x").streaming().open().await.expect("a stream");
    let events = stream.rest().await.expect("events");
    let pieces: Vec<_> = events.iter().filter_map(|event| event["result"].get("artifactUpdate")).collect();
    assert_eq!(pieces.iter().map(|piece| piece["append"] == true).collect::<Vec<_>>(), [false, true], "{events:?}");
}
