//! Readers of tasks that see the metadata of the extensions which they have activated (`reads = "active"`).

use std::fs;
use std::path::Path;

use annex_grpc::pb;
use annex_grpc::pb::a2a_service_client::A2aServiceClient;
use annex_server::Config;
use annex_test_support::{COMMAND_KEY, Request, TEST_EXTENSION, TestConfig, TestServer};
use serde_json::{Value, json};

use super::channel;
use crate::auth::{ADA, BOB, api_keys};
use crate::test_extension;

const ACTIVE: &str = "reads = \"active\"";
/// Each key and URI of the test extension contains one of these texts.
const MARKS: [&str; 2] = ["test/", TEST_EXTENSION];

/// An agent whose tasks wait for an answer (`ask`), or end.
const RULES: &str = r#"
    [[agent.rule]]
    text = "ask"
    steps = [{ artifact = { id = "a", parts = [{ text = "half" }] } }, { status = { state = "input-required", text = "Go on?" } }]
    [[agent.rule]]
    steps = [{ artifact = { id = "a", parts = [{ text = "done" }] } }, { status = { state = "completed", text = "Done." } }]
"#;

async fn server(keys: &str) -> TestServer {
    TestConfig::script(RULES).with(&test_extension(keys)).start().await.expect("the server starts")
}

/// The message with the extension, which annotates what the agent says.
fn said(server: &TestServer, text: &str) -> Request {
    server.say(text).context("c").extensions(TEST_EXTENSION).metadata(COMMAND_KEY, "\"ok\"")
}

async fn task(server: &TestServer, text: &str) -> String {
    let reply = said(server, text).send().await.expect("a reply");
    assert!(has_marks(reply.task()), "{}", reply.text);
    reply.task()["id"].as_str().expect("an id").to_owned()
}

fn has_marks(shown: &Value) -> bool {
    let text = shown.to_string();
    MARKS.iter().any(|mark| text.contains(mark))
}

/// The result of an operation on a task, for a reader that names `extensions`.
async fn read(server: &TestServer, method: &str, params: Value, extensions: &str) -> Value {
    let request = server.call(method, params.to_string()).extensions(extensions);
    let reply = request.send().await.expect("a reply");
    assert_eq!(reply.code(), 0, "{method}: {}", reply.text);
    reply.body["result"].clone()
}

async fn over_http(server: &TestServer, path: &str, headers: &[(&str, &str)]) -> Value {
    let request = server.client().get(format!("{}{path}", server.url()));
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    let response = request.send().await.expect("an answer");
    assert!(response.status().is_success(), "{path}: {}", response.status());
    response.json().await.expect("JSON")
}

/// GetTask and ListTasks over gRPC, as debug texts.
async fn over_grpc(server: &TestServer, id: &str, extensions: &str) -> [String; 2] {
    fn with<T>(message: T, extensions: &str) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        request.metadata_mut().insert("a2a-version", "1.0".parse().expect("ASCII"));
        request.metadata_mut().insert("a2a-extensions", extensions.parse().expect("ASCII"));
        request
    }
    let mut client = A2aServiceClient::new(channel(server).await);
    let get = pb::GetTaskRequest { id: id.to_owned(), ..pb::GetTaskRequest::default() };
    let list = pb::ListTasksRequest {
        context_id: "c".to_owned(),
        include_artifacts: Some(true),
        ..pb::ListTasksRequest::default()
    };
    let task = client.get_task(with(get, extensions)).await.expect("a task").into_inner();
    let page = client.list_tasks(with(list, extensions)).await.expect("a page").into_inner();
    [format!("{task:?}"), format!("{page:?}")]
}

#[tokio::test]
async fn a_reader_that_has_not_activated_an_extension_sees_none_of_its_metadata() {
    let server = server(ACTIVE).await;
    let id = task(&server, "hi").await;
    let list = json!({"contextId": "c", "includeArtifacts": true});
    for (extensions, is_shown) in [("", false), ("urn:other", false), (TEST_EXTENSION, true)] {
        for params in [json!({"id": id}), json!({"id": id, "historyLength": 5})] {
            let shown = read(&server, "GetTask", params, extensions).await;
            assert_eq!(has_marks(&shown), is_shown, "{shown}");
            assert_eq!(shown["artifacts"][0]["parts"], json!([{"text": "done"}]), "{shown}");
            assert_eq!(shown["history"][0]["parts"], json!([{"text": "hi"}]), "{shown}");
        }
        let shown = read(&server, "ListTasks", list.clone(), extensions).await;
        assert_eq!((has_marks(&shown), &shown["totalSize"]), (is_shown, &json!(1)), "{shown}");
        for path in [format!("/a2a/rest/tasks/{id}"), "/a2a/rest/tasks?contextId=c&includeArtifacts=true".to_owned()] {
            let headers = [("a2a-version", "1.0"), ("a2a-extensions", extensions)];
            assert_eq!(has_marks(&over_http(&server, &path, &headers).await), is_shown, "{path}");
        }
        let older = [("a2a-version", "0.3"), ("x-a2a-extensions", extensions)];
        let shown = over_http(&server, &format!("/a2a/rest/v1/tasks/{id}"), &older).await;
        assert_eq!(has_marks(&shown), is_shown, "{shown}");
        for shown in over_grpc(&server, &id, extensions).await {
            assert_eq!(MARKS.iter().any(|mark| shown.contains(mark)), is_shown, "{shown}");
        }
    }
}

#[tokio::test]
async fn whoever_cancels_or_continues_a_task_sees_what_its_request_activates() {
    let server = server(ACTIVE).await;
    for (extensions, is_shown) in [("", false), (TEST_EXTENSION, true)] {
        let waiting = task(&server, "ask").await;
        let continued = server.say("hi").field("taskId", &waiting).extensions(extensions).send().await;
        let continued = continued.expect("a reply");
        assert_eq!(has_marks(continued.task()), is_shown, "{}", continued.text);
        assert_eq!(continued.task()["history"].as_array().map(Vec::len), Some(3), "{}", continued.text);
        let waiting = task(&server, "ask").await;
        let canceled = read(&server, "CancelTask", json!({"id": waiting}), extensions).await;
        assert_eq!(has_marks(&canceled), is_shown, "{canceled}");
    }
}

/// The answer to one message, which is sent more than once.
async fn repeated(server: &TestServer, method: &str, extensions: &str) -> Value {
    let message = json!({
        "messageId": "m", "contextId": "c", "role": "ROLE_USER", "parts": [{"text": "hi"}], "metadata": {COMMAND_KEY: "ok"}
    });
    let request = server.call(method, json!({"message": message}).to_string()).extensions(extensions);
    if method == "SendMessage" {
        return request.send().await.expect("a reply").body;
    }
    request.open().await.expect("a stream").rest().await.expect("events").into()
}

#[tokio::test]
async fn a_repeated_message_is_answered_with_what_the_repetition_activates() {
    let server = server(ACTIVE).await;
    let first = repeated(&server, "SendMessage", TEST_EXTENSION).await;
    assert!(has_marks(&first), "{first}");
    for method in ["SendMessage", "SendStreamingMessage"] {
        for (extensions, is_shown) in [("", false), (TEST_EXTENSION, true)] {
            let again = repeated(&server, method, extensions).await;
            assert_eq!(has_marks(&again), is_shown, "{method}: {again}");
            assert!(again.to_string().contains("TASK_STATE_COMPLETED"), "{again}");
        }
    }
}

#[tokio::test]
async fn a_subscriber_with_and_one_without_read_one_task_differently() {
    let server = server(ACTIVE).await;
    let id = task(&server, "ask").await;
    let subscribe =
        |extensions: &str| server.call("SubscribeToTask", json!({"id": id}).to_string()).extensions(extensions);
    let with = subscribe(TEST_EXTENSION).open().await.expect("a stream");
    let without = subscribe("").open().await.expect("a stream");
    let continued = said(&server, "hi").field("taskId", &id).send().await.expect("a reply");
    assert_eq!(continued.task()["status"]["state"], "TASK_STATE_COMPLETED", "{}", continued.text);
    let with = with.rest().await.expect("events");
    let without = without.rest().await.expect("events");
    assert!(with.len() > 2 && with.len() == without.len(), "{with:?} {without:?}");
    for (with, without) in with.iter().zip(&without) {
        assert!(has_marks(with) && !has_marks(without), "{with} {without}");
        let kind = |event: &Value| event["result"].as_object().and_then(|result| result.keys().next().cloned());
        assert_eq!(kind(with), kind(without));
    }
    for (extensions, is_shown) in [(TEST_EXTENSION, true), ("", false)] {
        let resumed = subscribe(extensions).header("last-event-id", "1").open().await.expect("a stream");
        let resumed = resumed.rest().await.expect("events");
        assert!(!resumed.is_empty() && resumed.iter().any(has_marks) == is_shown, "{resumed:?}");
    }
}

#[tokio::test]
async fn readers_see_all_metadata_where_the_config_does_not_limit_them() {
    for keys in ["", "reads = \"all\""] {
        let server = server(keys).await;
        let other = r#"{"z":1.0,"a":[ 1 ]}"#;
        let sent = said(&server, "hi").metadata("other", other).send().await.expect("a reply");
        let params = json!({"id": sent.task()["id"]}).to_string();
        let without = server.call("GetTask", params.clone()).send().await.expect("a reply");
        let with = server.call("GetTask", params).extensions(TEST_EXTENSION).send().await.expect("a reply");
        assert_eq!(without.text, with.text);
        assert_eq!(&without.body["result"], sent.task());
        assert!(without.text.contains(&format!("\"other\":{other}")), "{}", without.text);
    }
}

#[tokio::test]
async fn a_reload_of_the_config_decides_what_readers_of_earlier_tasks_see() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("annex.toml");
    let write = |keys: &str| {
        let config = TestConfig::script(RULES).with("[runtime]\nwatch = false").with(&test_extension(keys));
        fs::write(&file, config.toml()).expect("a config");
    };
    write("");
    let server = TestServer::from_file(&file, None).await.expect("the server starts");
    let id = task(&server, "hi").await;
    for (keys, is_shown) in [(ACTIVE, false), ("", true), (ACTIVE, false)] {
        write(keys);
        assert!(server.installer().reload().await.expect("a reload").changed);
        for (extensions, is_shown) in [("", is_shown), (TEST_EXTENSION, true)] {
            let shown = read(&server, "GetTask", json!({"id": id}), extensions).await;
            assert_eq!(has_marks(&shown), is_shown, "{keys}, {extensions}: {shown}");
        }
    }
}

#[tokio::test]
async fn readers_of_an_extension_that_an_active_one_depends_on_need_not_name_it() {
    let depends = format!(
        "activate = \"always\"\n[extension.parameters]\nuri = \"urn:always\"\nowns_keys = false\n\
         behaviour = {{ respond = \"none\" }}\ndepends_on = [{TEST_EXTENSION:?}]"
    );
    let server = server(&format!("{ACTIVE}\n{}", test_extension(&depends))).await;
    let id = task(&server, "hi").await;
    assert!(has_marks(&read(&server, "GetTask", json!({"id": id}), "").await));
}

#[tokio::test]
async fn for_a_reader_that_an_extension_is_not_for_its_metadata_does_not_exist() {
    let keys = format!("{ACTIVE}\nactivate = \"always\"\nallow = [\"principal:ada\"]");
    let config = TestConfig::script(RULES).with(&api_keys()).with(&test_extension(&keys));
    let server = config.start().await.expect("the server starts");
    for (key, is_shown) in [(ADA, true), (BOB, false)] {
        let sent = said(&server, "hi").header("x-api-key", key).send().await.expect("a reply");
        assert_eq!(has_marks(sent.task()), is_shown, "{}", sent.text);
        for extensions in ["", TEST_EXTENSION] {
            let request = server.call("GetTask", json!({"id": sent.task()["id"]}).to_string()).extensions(extensions);
            let shown = request.header("x-api-key", key).send().await.expect("a reply");
            assert_eq!((shown.code(), has_marks(&shown.body["result"])), (0, is_shown), "{}", shown.text);
        }
    }
}

#[tokio::test]
async fn a_key_that_two_extensions_own_is_for_the_readers_of_each() {
    const SECOND: &str = "urn:second";
    let second = test_extension(&format!("{ACTIVE}\n[extension.parameters]\nuri = {SECOND:?}"));
    let server = server(&format!("{ACTIVE}\n{second}")).await;
    let sent = said(&server, "hi").extensions(SECOND).send().await.expect("a reply");
    let params = json!({"id": sent.task()["id"]});
    assert_eq!(sent.task()["artifacts"][0]["extensions"].as_array().map(Vec::len), Some(2), "{}", sent.text);
    for uri in [TEST_EXTENSION, SECOND] {
        let shown = read(&server, "GetTask", params.clone(), uri).await;
        let artifact = &shown["artifacts"][0];
        assert!(artifact["metadata"]["test/response"].is_string(), "{shown}");
        assert_eq!(artifact["extensions"], json!([uri]));
    }
    assert!(!has_marks(&read(&server, "GetTask", params, "").await));
}

#[test]
fn a_misspelt_reads_is_refused_with_what_is_accepted() {
    let config = TestConfig::template("i").extension("x.wasm", "reads = \"activ\"");
    let error = Config::parse(Path::new("test.toml"), &config.toml()).expect_err("refused").to_string();
    for word in ["\"activ\"", "did you mean `active`", "`all`"] {
        assert!(error.contains(word), "{error}");
    }
}
