//! The hook `reads`: what extensions show readers of tasks, on each binding.

use std::collections::BTreeMap;

use annex_components::STEERING_GRANTS;
use annex_grpc::pb;
use annex_grpc::pb::a2a_service_client::A2aServiceClient;
use annex_test_support::{Reply, Request, TestConfig, TestServer, component};
use serde_json::{Value, json};
use tonic::transport::Channel;

use crate::auth::{ADA, BOB, api_keys};
use crate::output::STEERING;

/// The key under which the extension adds.
const RESULT: &str = "steering/result";
/// The value that the command `add` adds.
const ADDED: &str = "added";
const LEAVE_OUT: &str = r#"reads = "leave-out""#;
const ADD: &str = r#"reads = "add""#;

/// An agent whose tasks wait for an answer (`ask`), take long (`wait`), or end.
const RULES: &str = r#"
    [[agent.rule]]
    text = "ask"
    steps = [{ status = { state = "input-required", text = "Go on?" } }]
    [[agent.rule]]
    text = "wait"
    steps = [{ status = { state = "working" } }, { wait_ms = 60000 }]
    [[agent.rule]]
    steps = [{ artifact = { id = "a", parts = [{ text = "done" }] } }, { status = { state = "completed" } }]
"#;

/// The ways to read a task: the three bindings, and those of 0.3.
const WAYS: [&str; 6] = ["JSON-RPC", "HTTP+JSON", "gRPC", "0.3 JSON-RPC", "0.3 HTTP+JSON", "0.3 gRPC"];

/// The extension with these parameters and further keys of its table.
pub(crate) fn showing(parameters: &str, more: &str) -> String {
    format!(
        r#"
        [[extension]]
        component = {:?}
        {more}
        [extension.grants]
        caller = {{ principal = true }}
        live-card = {{}}
        {STEERING_GRANTS}
        [extension.parameters]
        {parameters}
        "#,
        component("test-steering"),
    )
}

fn config(parameters: &str, more: &str) -> TestConfig {
    TestConfig::script(RULES).with(&showing(parameters, more))
}

async fn server(parameters: &str, more: &str) -> TestServer {
    config(parameters, more).start().await.expect("a server")
}

async fn send(request: Request) -> Reply {
    request.send().await.expect("a reply")
}

/// The id of a new task in the context `c`.
async fn task(server: &TestServer, text: &str) -> String {
    let reply = send(server.say(text).context("c")).await;
    reply.task()["id"].as_str().unwrap_or_else(|| panic!("no task: {}", reply.text)).to_owned()
}

/// The id of a new task in the context `c`. Its metadata has the command for reads of the task.
async fn commanding(server: &TestServer, command: &str) -> String {
    let command = json!({"begin": format!("set-command {command}")}).to_string();
    let said = server.say("hi").context("c").extensions(STEERING).metadata("steering/command", &command);
    let reply = send(said).await;
    assert!(reply.task()["metadata"]["steering/command"].is_string(), "{}", reply.text);
    reply.task()["id"].as_str().expect("an id").to_owned()
}

/// The answer to GetTask, and the extensions in its header. A missing task is an empty text.
async fn read(server: &TestServer, way: &str, id: &str, extensions: &str) -> (String, Option<String>) {
    let rpc = |method: &str| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"id": id}});
        server.client().post(format!("{}/a2a/jsonrpc", server.url())).json(&body)
    };
    let request = match way {
        "gRPC" => return read_grpc(server, id, extensions).await,
        "0.3 gRPC" => return read_older_grpc(server, id, extensions).await,
        "JSON-RPC" => rpc("GetTask"),
        "0.3 JSON-RPC" => rpc("tasks/get"),
        "HTTP+JSON" => server.client().get(format!("{}/a2a/rest/tasks/{id}", server.url())),
        _ => server.client().get(format!("{}/a2a/rest/v1/tasks/{id}", server.url())),
    };
    let (version, header) =
        if way.starts_with("0.3") { ("0.3", "x-a2a-extensions") } else { ("1.0", "a2a-extensions") };
    let request = request.header("a2a-version", version).header(header, extensions);
    let response = request.send().await.expect("an answer");
    let active = response.headers().get(header).map(|value| value.to_str().expect("ASCII").to_owned());
    let text = response.text().await.expect("text");
    (if text.contains("was not found") { String::new() } else { text }, active)
}

async fn read_grpc(server: &TestServer, id: &str, extensions: &str) -> (String, Option<String>) {
    let channel = Channel::from_shared(server.url().to_owned()).expect("a URL").connect().await.expect("a channel");
    let get = pb::GetTaskRequest { id: id.to_owned(), ..pb::GetTaskRequest::default() };
    let mut request = tonic::Request::new(get);
    request.metadata_mut().insert("a2a-version", "1.0".parse().expect("ASCII"));
    request.metadata_mut().insert("a2a-extensions", extensions.parse().expect("ASCII"));
    match A2aServiceClient::new(channel).get_task(request).await {
        Ok(response) => {
            let active = response.metadata().get("a2a-extensions");
            let active = active.map(|value| value.to_str().expect("ASCII").to_owned());
            (format!("{:?}", response.into_inner()), active)
        }
        Err(status) => {
            assert_eq!(status.code(), tonic::Code::NotFound, "{status}");
            (String::new(), None)
        }
    }
}

async fn read_older_grpc(server: &TestServer, id: &str, extensions: &str) -> (String, Option<String>) {
    use annex_grpc::pb::v0_3 as older;

    let channel = Channel::from_shared(server.url().to_owned()).expect("a URL").connect().await.expect("a channel");
    let get = older::GetTaskRequest { name: format!("tasks/{id}"), history_length: 0 };
    let mut request = tonic::Request::new(get);
    request.metadata_mut().insert("x-a2a-extensions", extensions.parse().expect("ASCII"));
    match older::a2a_service_client::A2aServiceClient::new(channel).get_task(request).await {
        Ok(response) => {
            let active = response.metadata().get("x-a2a-extensions");
            let active = active.map(|value| value.to_str().expect("ASCII").to_owned());
            (format!("{:?}", response.into_inner()), active)
        }
        Err(status) => {
            assert_eq!(status.code(), tonic::Code::NotFound, "{status}");
            (String::new(), None)
        }
    }
}

fn get(server: &TestServer, id: &str, extensions: &str) -> Request {
    server.call("GetTask", json!({"id": id}).to_string()).extensions(extensions)
}

fn list(server: &TestServer, extensions: &str) -> Request {
    server.call("ListTasks", r#"{"contextId":"c"}"#).extensions(extensions)
}

fn subscribe(server: &TestServer, id: &str, extensions: &str) -> Request {
    server.call("SubscribeToTask", json!({"id": id}).to_string()).extensions(extensions)
}

#[tokio::test]
async fn a_read_has_what_an_active_extension_adds_and_the_store_has_not() {
    let server = server(ADD, "").await;
    let id = task(&server, "hi").await;
    for way in WAYS {
        let (shown, active) = read(&server, way, &id, STEERING).await;
        assert!(shown.contains(RESULT) && shown.contains(ADDED), "{way}: {shown}");
        assert_eq!(active.as_deref(), Some(STEERING), "{way}");
        for other in ["", "urn:other"] {
            let (shown, active) = read(&server, way, &id, other).await;
            assert!(shown.contains("done") && !shown.contains(RESULT), "{way}: {shown}");
            assert_eq!(active, None, "{way}");
        }
    }
    let page = send(list(&server, STEERING)).await;
    assert_eq!(page.body["result"]["tasks"][0]["metadata"], json!({RESULT: ADDED}), "{}", page.text);
    assert_eq!((&page.body["result"]["totalSize"], page.extensions.as_deref()), (&json!(1), Some(STEERING)));
    assert_eq!(send(list(&server, "")).await.extensions, None);
}

#[tokio::test]
async fn the_task_of_a_subscription_has_what_is_added_and_its_events_have_not() {
    let server = server(ADD, "").await;
    let id = task(&server, "ask").await;
    let mut stream = subscribe(&server, &id, STEERING).open().await.expect("a stream");
    assert_eq!(stream.extensions.as_deref(), Some(STEERING));
    let first = stream.next().await.expect("an event").expect("the task");
    assert_eq!(first["result"]["task"]["metadata"], json!({RESULT: ADDED}), "{first}");
    let canceled = send(server.call("CancelTask", json!({"id": id}).to_string()).extensions(STEERING)).await;
    assert_eq!(canceled.body["result"]["metadata"], Value::Null, "{}", canceled.text);
    let events = stream.rest().await.expect("events");
    assert!(!events.is_empty() && !events.iter().any(|event| event.to_string().contains(RESULT)), "{events:?}");
}

#[tokio::test]
async fn a_task_that_is_left_out_is_not_found() {
    let server = server(LEAVE_OUT, "").await;
    let finished = task(&server, "hi").await;
    let waiting = task(&server, "ask").await;
    for way in WAYS {
        for id in [&finished, &waiting] {
            assert_eq!(read(&server, way, id, STEERING).await, (String::new(), None), "{way}");
            assert!(read(&server, way, id, "").await.0.contains(id.as_str()), "{way}");
        }
    }
    for id in [&finished, &waiting] {
        let refused = send(subscribe(&server, id, STEERING)).await;
        assert_eq!(refused.code(), -32_001, "{}", refused.text);
        // The events of the task are left out with it.
        let refused = send(subscribe(&server, id, STEERING).header("last-event-id", "1")).await;
        assert_eq!(refused.code(), -32_001, "{}", refused.text);
    }
    assert!(subscribe(&server, &waiting, "").open().await.is_ok());
}

#[tokio::test]
async fn a_page_is_shorter_by_the_tasks_that_are_left_out() {
    let server = server("", "").await;
    let mut ids = Vec::new();
    for command in ["add", "leave-out", "ok"] {
        ids.push(commanding(&server, command).await);
    }
    let page = send(list(&server, STEERING)).await;
    let tasks = page.body["result"]["tasks"].as_array().expect("tasks");
    let shown = tasks.iter().map(|task| (task["id"].as_str().expect("an id"), &task["metadata"][RESULT]));
    let (word, nothing) = (Value::from(ADDED), Value::Null);
    let expected = BTreeMap::from([(ids[0].as_str(), &word), (ids[2].as_str(), &nothing)]);
    assert_eq!(shown.collect::<BTreeMap<_, _>>(), expected, "{}", page.text);
    assert_eq!((&page.body["result"]["totalSize"], page.extensions.as_deref()), (&json!(3), Some(STEERING)));
    let all = send(list(&server, "")).await;
    assert_eq!(all.body["result"]["tasks"].as_array().map(Vec::len), Some(3), "{}", all.text);
    assert_eq!(send(get(&server, &ids[1], STEERING)).await.code(), -32_001);
}

#[tokio::test]
async fn a_fault_in_reads_leaves_out_the_extension_and_never_the_task() {
    for more in ["on_failure = \"reject\"", "on_failure = \"skip\"", "required = true"] {
        let server = server("", more).await;
        for command in ["trap", "loop", "too-few", "too-many", "foreign-key", "bad-json", "big-result 5000", "error"] {
            // The turn succeeds, so that the extension is not quarantined.
            let id = commanding(&server, command).await;
            let id = id.as_str();
            for shown in [send(get(&server, id, STEERING)).await, send(list(&server, STEERING)).await] {
                assert_eq!((shown.code(), shown.extensions), (0, None), "{more}, {command}: {}", shown.text);
                assert!(shown.text.contains(id) && !shown.text.contains(RESULT), "{more}, {command}: {}", shown.text);
            }
        }
    }
}

#[tokio::test]
async fn an_extension_that_is_always_active_shows_tasks_to_the_callers_that_it_is_for() {
    let more = "activate = \"always\"\nallow = [\"principal:ada\"]";
    let server = config(ADD, more).with(&api_keys()).start().await.expect("a server");
    for (key, is_shown) in [(ADA, true), (BOB, false)] {
        let sent = send(server.say("hi").header("x-api-key", key)).await;
        let id = sent.task()["id"].as_str().expect("an id");
        for extensions in ["", STEERING] {
            let shown = send(get(&server, id, extensions).header("x-api-key", key)).await;
            assert_eq!(
                (shown.text.contains(RESULT), shown.extensions.is_some()),
                (is_shown, is_shown),
                "{}",
                shown.text
            );
        }
    }
}

#[tokio::test]
async fn a_required_extension_is_not_required_of_readers() {
    let server = server(ADD, "required = true").await;
    let sent = send(server.say("hi").extensions(STEERING)).await;
    let id = sent.task()["id"].as_str().expect("an id");
    let shown = send(get(&server, id, "")).await;
    assert_eq!((shown.code(), shown.text.contains(RESULT)), (0, false), "{}", shown.text);
}

#[tokio::test]
async fn tasks_are_read_without_extensions_while_no_turn_can_begin() {
    let config = config(ADD, "").set("server.max_running_turns", 1);
    let server = config.start().await.expect("a server");
    let id = task(&server, "hi").await;
    assert!(send(get(&server, &id, STEERING)).await.text.contains(RESULT));
    let mut running = server.say("wait").streaming().open().await.expect("a stream");
    // The turn runs once its agent works; the task comes before that.
    for event in ["the task", "the state WORKING"] {
        running.next().await.expect("an event").expect(event);
    }
    let shown = send(get(&server, &id, STEERING)).await;
    assert_eq!((shown.code(), shown.extensions.as_deref()), (0, None), "{}", shown.text);
    assert!(shown.text.contains(&id) && !shown.text.contains(RESULT), "{}", shown.text);
}
