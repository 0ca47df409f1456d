//! Receipts of turns with extensions, over each binding.

use annex_auth::Jwks;
use annex_auth::receipt::{Receipt, Verdict, check, verify};
use annex_grpc::pb;
use annex_grpc::pb::a2a_service_client::A2aServiceClient;
use annex_runtime::Digest;
use annex_server::verify_audit;
use annex_test_support::{COMMAND_KEY, STATE_INJECTION, TEST_EXTENSION, TestServer, component};
use prost_types::value::Kind;
use serde_json::{Value, json};
use tonic::transport::Channel;

use crate::installation::{ADMIN, Installation, serve};
use crate::{agent, state_injection, test_extension};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../auth/tests/auth/fixtures");
const KEY: &str = "annex/receipt/1";

/// An agent with state injection and the extension that misbehaves on command. `more` is the text of further keys of the latter.
async fn signing_agent(more: &str) -> TestServer {
    let extensions = [state_injection("session-state = { read = true }"), test_extension(more)].concat();
    agent("Say something.", &format!("{extensions}\n{}", signing())).await
}

fn signing() -> String {
    format!("[card.signing]\nkid = \"p256\"\nkey_file = \"{FIXTURES}/p256.pem\"\n[receipts]\n")
}

fn keys() -> Jwks {
    Jwks::from_pem(&std::fs::read_to_string(format!("{FIXTURES}/p256.pub.pem")).expect("a fixture")).expect("a key")
}

/// The task after a message that activates both extensions and tells the second what to do.
async fn told(server: &TestServer, command: &str) -> Value {
    let request = server.say("prompt").extensions(&format!("{STATE_INJECTION}, {TEST_EXTENSION}"));
    let reply = request.metadata(COMMAND_KEY, command).send().await.expect("a reply");
    assert_eq!(reply.code(), 0, "{}", reply.text);
    reply.task().clone()
}

fn checked(tasks: &[&Value]) -> Verdict {
    let inputs: Vec<String> = tasks.iter().map(ToString::to_string).collect();
    check(&inputs, &keys()).expect("something to check")
}

fn receipt_of(task: &Value) -> Receipt {
    verify(task["metadata"][KEY].as_str().expect("a receipt"), &keys()).expect("a valid receipt")
}

/// The outcome of the extension that misbehaves on command.
fn outcome(task: &Value) -> String {
    let receipt = receipt_of(task);
    let found = receipt.extensions.iter().find(|extension| extension.uri == TEST_EXTENSION);
    found.expect("the extension").outcome.clone()
}

#[tokio::test]
async fn a_receipt_names_the_extensions_of_its_turn_their_code_and_their_part() {
    let server = signing_agent("on_failure = \"skip\"").await;
    let task = told(&server, r#""ok""#).await;
    let receipt = receipt_of(&task);
    let named: Vec<(&str, &str)> =
        receipt.extensions.iter().map(|extension| (extension.uri.as_str(), extension.outcome.as_str())).collect();
    assert_eq!(named, [(STATE_INJECTION, "active"), (TEST_EXTENSION, "active")]);
    let code = std::fs::read(component("test-extension")).expect("a component");
    assert_eq!(receipt.extensions[1].digest, Digest::of(&code).to_string());
    assert_eq!((receipt.issuer.name.as_str(), receipt.issuer.tenant), ("Test agent", None));
    let verdict = checked(&[&task]);
    assert_eq!((verdict.differences, verdict.notes), (Vec::new(), Vec::new()));

    for (command, expected, state) in [
        (r#"{"validate":"trap"}"#, "failed", "TASK_STATE_COMPLETED"),
        (r#"{"respond":"trap"}"#, "failed", "TASK_STATE_COMPLETED"),
        (r#"{"begin":"veto"}"#, "refused", "TASK_STATE_REJECTED"),
        (r#"{"change":"veto"}"#, "refused", "TASK_STATE_FAILED"),
        (r#"{"begin":"interrupt"}"#, "interrupted", "TASK_STATE_INPUT_REQUIRED"),
    ] {
        let task = told(&server, command).await;
        assert_eq!((outcome(&task).as_str(), task["status"]["state"].as_str()), (expected, Some(state)), "{command}");
        assert_eq!(checked(&[&task]).differences, Vec::<String>::new(), "{command}");
    }
}

#[tokio::test]
async fn an_extension_that_stays_out_is_skipped_in_the_receipt() {
    let server = signing_agent("parameters = { behaviour = { activate = \"inactive\" } }").await;
    assert_eq!(outcome(&told(&server, r#""ok""#).await), "skipped");
}

type Change = fn(&mut Value);

#[tokio::test]
async fn a_change_of_a_task_with_extensions_is_noticed() {
    let server = signing_agent("").await;
    let task = told(&server, r#""ok""#).await;
    let changes: [(&str, Change); 3] = [
        ("the artifact", |task| task["artifacts"][0]["metadata"]["test/response"] = "other".into()),
        ("the message", |task| task["history"][0]["parts"][0]["text"] = "other".into()),
        ("not a receipt", |task| {
            let receipt = task["metadata"][KEY].as_str().expect("a receipt").replace('.', "");
            task["metadata"][KEY] = receipt.into();
        }),
    ];
    for (expected, change) in changes {
        let mut changed = task.clone();
        change(&mut changed);
        let differences = checked(&[&changed]).differences;
        assert!(differences.iter().any(|text| text.contains(expected)), "{expected}: {differences:?}");
    }
}

#[tokio::test]
async fn a_message_that_an_extension_refuses_has_no_receipt() {
    let server = signing_agent("").await;
    let first = server.say("prompt").context("c").send().await.expect("a reply").task().clone();
    let refused = server.say("prompt").context("c").extensions(TEST_EXTENSION);
    let refused = refused.metadata(COMMAND_KEY, r#"{"validate":"violation"}"#).send().await.expect("a reply");
    assert_ne!(refused.code(), 0, "{}", refused.text);
    let second = server.say("prompt").context("c").send().await.expect("a reply").task().clone();
    let verdict = checked(&[&first, &second]);
    assert_eq!((verdict.receipts.len(), verdict.differences), (2, Vec::new()));
}

#[tokio::test]
async fn the_last_status_of_a_stream_has_the_receipt() {
    let server = signing_agent("").await;
    let stream = server.say("prompt").streaming().extensions(TEST_EXTENSION).open().await.expect("a stream");
    let events = stream.rest().await.expect("events");
    let last = &events.last().expect("events")["result"]["statusUpdate"];
    assert_eq!(receipt_of(last).task_id, last["taskId"].as_str().expect("an id"));
}

#[tokio::test]
async fn every_binding_and_both_versions_carry_the_receipt() {
    let server = signing_agent("").await;
    let task = told(&server, r#""ok""#).await;
    let (id, expected) = (task["id"].as_str().expect("an id"), receipt_of(&task));
    let get = |path: String, version: &'static str| {
        let request = server.client().get(format!("{}{path}", server.url())).header("a2a-version", version);
        async move { request.send().await.expect("an answer").json::<Value>().await.expect("JSON") }
    };
    let rest = get(format!("/a2a/rest/tasks/{id}"), "1.0").await;
    assert_eq!(receipt_of(&rest), expected);
    assert_eq!(checked(&[&rest]).differences, Vec::<String>::new());

    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": id}});
    let request = server.client().post(format!("{}/a2a/jsonrpc", server.url())).json(&body);
    let older: Value = request.send().await.expect("an answer").json().await.expect("JSON");
    assert_eq!(receipt_of(&older["result"]), expected);
    let verdict = checked(&[&older]);
    assert_eq!((verdict.receipts.len(), verdict.differences, verdict.notes.len()), (1, Vec::new(), 1));

    let channel = Channel::from_shared(server.url().to_owned()).expect("a URL").connect().await.expect("a channel");
    let mut request = tonic::Request::new(pb::GetTaskRequest { id: id.to_owned(), ..pb::GetTaskRequest::default() });
    request.metadata_mut().insert("a2a-version", "1.0".parse().expect("a value"));
    let carried = A2aServiceClient::new(channel).get_task(request).await.expect("a task").into_inner();
    let metadata = carried.metadata.expect("metadata");
    let Some(Kind::StringValue(jws)) = metadata.fields[KEY].kind.clone() else { panic!("no text: {metadata:?}") };
    assert_eq!(verify(&jws, &keys()).expect("a valid receipt"), expected);
}

/// The lines of an audit file that have receipts.
fn recorded(files: &Installation) -> Vec<Value> {
    let text = std::fs::read_to_string(files.path("audit.jsonl")).expect("an audit file");
    verify_audit(text.as_bytes()).expect("a chain");
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines.filter(|line| line["action"] == "sign_receipt").collect()
}

#[tokio::test]
async fn each_receipt_is_also_a_line_of_the_audit_file() {
    let (files, mut server) = serve(&format!("{ADMIN}audit_file = \"audit.jsonl\"\n{}", signing())).await;
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let reply = server.say("prompt").context("c").send().await.expect("a reply");
        tasks.push(reply.task().clone());
    }
    // The server writes the last receipts before it ends.
    server.begin_shutdown();
    server.ended().await.expect("an end without an error");
    let lines = recorded(&files);
    assert_eq!(lines.len(), 2, "{lines:?}");
    for ((line, task), number) in lines.iter().zip(&tasks).zip(1..) {
        assert_eq!(line["receipt"]["jws"], task["metadata"][format!("annex/receipt/{number}")], "{line}");
        assert_eq!((&line["receipt"]["number"], &line["context"]), (&json!(number), &json!("c")), "{line}");
        assert_eq!((&line["task"], &line["outcome"]), (&task["id"], &json!("done")), "{line}");
    }
    let copies: Vec<&Value> = lines.iter().map(|line| &line["receipt"]["jws"]).collect();
    let verdict = check(&[json!(copies).to_string()], &keys()).expect("receipts");
    assert_eq!((verdict.receipts.len(), verdict.differences), (2, Vec::new()));
}

#[tokio::test]
async fn a_turn_goes_on_while_the_audit_file_cannot_be_written() {
    let (files, mut server) = serve(&format!("{ADMIN}audit_file = \"audit.jsonl\"\n{}", signing())).await;
    let file = files.path("audit.jsonl");
    std::fs::remove_file(&file).expect("a file");
    std::fs::create_dir(&file).expect("a folder in its place");
    let reply = server.say("prompt").send().await.expect("a reply");
    assert_eq!(receipt_of(reply.task()).number, 1);
    server.begin_shutdown();
    server.ended().await.expect("an end without an error");
}

#[tokio::test]
async fn without_the_table_tasks_have_no_receipts() {
    let signing = signing().replace("[receipts]\n", "[receipts]\nenabled = false\n");
    for signing in ["", &signing] {
        let server = agent("Say something.", signing).await;
        let reply = server.say("prompt").send().await.expect("a reply");
        assert!(reply.task()["metadata"].is_null(), "{}", reply.text);
    }
}
