//! Approvals: a call of a tool, or the result of a task, waits until the right callers have decided.

use annex_test_support::{Reply, TestServer};
use serde_json::{Value, json};

use crate::auth::{ADA, BOB, api_keys};
use crate::tools;

const URI: &str = "https://annex.example/approval/v1";
const AGENTSTACK: &str = "https://a2a-extensions.agentstack.beeai.dev/interactions/approval/v1";
const DECIDE: &str = "approval.decide";
/// SHA-256 of `{"arguments":{"a":1,"b":2},"name":"sum"}`.
const DIGEST: &str = "1e98fd14941c511e3ef0a6b25b83645010202684e7799e2c91386e864de1a553";

/// A model that calls the tool twice in one answer.
const BOTH: &str = r#"
[[agent.model.scripted.rules]]
when = "^both$"
call = [{ tool = "sum", arguments = '{"a": 1, "b": 2}' }, { tool = "sum", arguments = '{"a": 3, "b": 4}' }]
"#;

/// An agent with tools, whose calls wait for an approval.
async fn serve(auth: &str, parameters: &str) -> TestServer {
    let extension = format!(
        r#"
        [[extension]]
        component = "approval"
        activate = "always"
        [extension.grants]
        agent-steps = {{ steer = true }}
        answer = true
        caller = {{ principal = true }}
        clock = true
        keyvalue = {{}}
        task-resumption = true
        [extension.parameters]
        {parameters}
        "#
    );
    tools::config("", &format!("{auth}\n{extension}")).start().await.expect("the server starts")
}

async fn guarded(parameters: &str) -> TestServer {
    serve(&api_keys(), parameters).await
}

async fn ask(server: &TestServer) -> Reply {
    server.say("sum 1 2").context("c").header("x-api-key", ADA).send().await.expect("a reply")
}

fn state(reply: &Reply) -> &str {
    reply.task()["status"]["state"].as_str().unwrap_or_default()
}

/// The metadata with which a task waits.
fn shown(reply: &Reply) -> Value {
    assert_eq!(state(reply), "TASK_STATE_INPUT_REQUIRED", "{}", reply.text);
    reply.task()["status"]["message"]["metadata"][URI].clone()
}

fn id(reply: &Reply) -> &str {
    reply.task()["id"].as_str().expect("an id")
}

/// The owner decides by a message to the task.
async fn say(server: &TestServer, asked: &Reply, decision: &str) -> Reply {
    let shown = shown(asked);
    let entry = json!({"call": shown["call"], "digest": shown["digest"], "decision": decision}).to_string();
    let message = server.say("decided").field("taskId", id(asked)).metadata(URI, &entry);
    message.header("x-api-key", ADA).send().await.expect("a reply")
}

/// The parameters that approve what a task waits for.
fn approval(asked: &Reply) -> Value {
    let shown = shown(asked);
    json!({"task": id(asked), "call": shown["call"], "digest": shown["digest"], "decision": "approve"})
}

async fn decide(server: &TestServer, key: &str, params: &Value) -> Reply {
    let call = server.call(DECIDE, params.to_string()).extensions(URI);
    call.header("x-api-key", key).send().await.expect("a reply")
}

/// Sends a message over A2A 0.3, as clients of agentstack do.
async fn send_as_agentstack(server: &TestServer, message: &Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}});
    let request = server.client().post(format!("{}/a2a/jsonrpc", server.url())).json(&body);
    let answer: Value = request.send().await.expect("an answer").json().await.expect("JSON");
    answer["result"].clone()
}

async fn ask_as_agentstack(server: &TestServer, text: &str) -> Value {
    let parts = json!([{"kind": "text", "text": text}]);
    let message = json!({"kind": "message", "messageId": "m-1", "role": "user", "parts": parts,
                         "metadata": {AGENTSTACK: {}}});
    send_as_agentstack(server, &message).await
}

async fn decide_as_agentstack(server: &TestServer, asked: &Value, decision: &str) -> Value {
    let message = json!({"kind": "message", "messageId": format!("m-{decision}"), "role": "user", "parts": [],
                         "taskId": asked["id"], "metadata": {AGENTSTACK: {"decision": decision}}});
    send_as_agentstack(server, &message).await
}

/// The task once it waits no longer and works no longer.
async fn ended(server: &TestServer, asked: &Reply) -> Value {
    let params = json!({"id": id(asked)}).to_string();
    // There are no events of a task that has ended already.
    if let Ok(events) = server.call("SubscribeToTask", params.clone()).header("x-api-key", ADA).open().await {
        events.rest().await.expect("events");
    }
    let read = server.call("GetTask", params).header("x-api-key", ADA).send().await.expect("a task");
    read.body["result"].clone()
}

#[tokio::test]
async fn a_call_is_made_once_its_owner_approves_by_a_message() {
    let server = guarded(r#"tools = ["sum"]"#).await;
    let asked = ask(&server).await;
    let shown = shown(&asked);
    assert_eq!((&shown["name"], &shown["input"]), (&json!("sum"), &json!({"a": 1, "b": 2})));
    assert_eq!(shown["digest"], DIGEST);
    let text = asked.task()["status"]["message"]["parts"][0]["text"].as_str().expect("a text");
    assert!(text.contains("sum") && text.contains(DIGEST), "{text}");
    let done = say(&server, &asked, "approve").await;
    assert_eq!(state(&done), "TASK_STATE_COMPLETED", "{}", done.text);
    assert_eq!(done.answer(), r#"{"total":3} with  "#);
    assert_eq!(decide(&server, ADA, &approval(&asked)).await.violations(), ["/call"]);
}

#[tokio::test]
async fn a_rejected_call_is_not_made_and_the_model_is_told() {
    let server = guarded(r#"tools = ["sum"]"#).await;
    let asked = ask(&server).await;
    let done = say(&server, &asked, "reject").await;
    assert_eq!(done.answer(), r#"{"error":"The call was not made: it was rejected."} with  "#, "{}", done.text);
}

#[tokio::test]
async fn an_approver_who_does_not_own_the_task_decides_by_the_method() {
    let server = guarded(r#"approvers = ["principal:bob"]"#).await;
    let asked = ask(&server).await;
    let refused = say(&server, &asked, "approve").await;
    assert_eq!(refused.code(), -32_602, "{}", refused.text);
    assert!(refused.text.contains("who may not decide about this task"), "{}", refused.text);
    let approval = approval(&asked);
    assert!(decide(&server, ADA, &approval).await.text.contains("who may not decide about this task"));
    let zeros = "0".repeat(64);
    for (member, value) in [("digest", zeros.as_str()), ("task", "another"), ("call", "another")] {
        let mut wrong = approval.clone();
        wrong[member] = json!(value);
        let refused = decide(&server, BOB, &wrong).await;
        assert_eq!(refused.violations(), [format!("/{member}")], "{}", refused.text);
    }
    let decided = decide(&server, BOB, &approval).await;
    assert_eq!(decided.body["result"]["resumed"], true, "{}", decided.text);
    let task = ended(&server, &asked).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], r#"{"total":3} with  "#, "{task}");
    let again = decide(&server, BOB, &approval).await;
    assert!(again.text.contains("was approved and released before"), "{}", again.text);
}

#[tokio::test]
async fn one_of_two_decisions_of_an_approver_at_once_counts() {
    let server = guarded("approvers = [\"principal:ada\", \"principal:bob\"]\nquorum = 2").await;
    let asked = ask(&server).await;
    let approval = approval(&asked);
    let (first, second) = tokio::join!(decide(&server, ADA, &approval), decide(&server, ADA, &approval));
    let counted: Vec<_> = [&first, &second].into_iter().filter(|reply| reply.code() == 0).collect();
    assert_eq!(counted.len(), 1, "{} {}", first.text, second.text);
    let result = &counted[0].body["result"];
    assert_eq!((&result["approved"], &result["resumed"]), (&json!(1), &json!(false)));
    let waits = server.say("now?").field("taskId", id(&asked)).header("x-api-key", ADA).send().await.expect("a reply");
    assert_eq!(shown(&waits)["approved"], 1);
    assert_eq!(decide(&server, BOB, &approval).await.body["result"]["resumed"], true);
    assert_eq!(ended(&server, &asked).await["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn a_result_is_accepted_before_the_task_completes() {
    let server = guarded("acceptance = true\ntools = []").await;
    for (decision, expected) in [("approve", "TASK_STATE_COMPLETED"), ("reject", "TASK_STATE_REJECTED")] {
        let asked = ask(&server).await;
        assert_eq!(shown(&asked)["action"], "acceptance");
        assert_eq!(asked.answer(), r#"{"total":3} with  "#, "{}", asked.text);
        let done = say(&server, &asked, decision).await;
        assert_eq!(state(&done), expected, "{}", done.text);
        assert_eq!(done.task()["artifacts"].as_array().map(Vec::len), Some(1), "the agent did not run again");
    }
}

#[tokio::test]
async fn a_client_of_agentstack_approves_by_a_message_without_parts() {
    let server = serve("", r#"wire = "agentstack""#).await;
    let asked = ask_as_agentstack(&server, "sum 1 2").await;
    assert_eq!(asked["status"]["state"], "input-required", "{asked}");
    let expected = json!({"action": "tool-call", "title": null, "description": null, "name": "sum",
                          "input": {"a": 1, "b": 2}, "server": null});
    assert_eq!(asked["status"]["message"]["metadata"][AGENTSTACK], expected);
    let done = decide_as_agentstack(&server, &asked, "approve").await;
    assert_eq!(done["status"]["state"], "completed", "{done}");
}

#[tokio::test]
async fn of_two_calls_in_one_answer_each_is_approved_on_its_own() {
    let server = serve(&format!("{}\n{BOTH}", api_keys()), r#"tools = ["sum"]"#).await;
    let first = server.say("both").context("c").header("x-api-key", ADA).send().await.expect("a reply");
    assert_eq!(shown(&first)["input"], json!({"a": 1, "b": 2}));
    let second = say(&server, &first, "approve").await;
    assert_eq!(shown(&second)["input"], json!({"a": 3, "b": 4}));
    assert_eq!(decide(&server, ADA, &approval(&first)).await.violations(), ["/call"]);
    let done = say(&server, &second, "approve").await;
    assert_eq!(state(&done), "TASK_STATE_COMPLETED", "{}", done.text);
    // The scripted model tells of the first result.
    assert_eq!(done.answer(), r#"{"total":3} with  "#, "{}", done.text);
}

#[tokio::test]
async fn a_client_of_agentstack_decides_about_the_call_that_is_shown() {
    let server = serve(BOTH, r#"wire = "agentstack""#).await;
    let input = |task: &Value| task["status"]["message"]["metadata"][AGENTSTACK]["input"].clone();
    let first = ask_as_agentstack(&server, "both").await;
    assert_eq!(input(&first), json!({"a": 1, "b": 2}), "{first}");
    let second = decide_as_agentstack(&server, &first, "approve").await;
    assert_eq!(second["status"]["state"], "input-required", "{second}");
    assert_eq!(input(&second), json!({"a": 3, "b": 4}), "{second}");
    let done = decide_as_agentstack(&server, &second, "reject").await;
    assert_eq!(done["status"]["state"], "completed", "{done}");
    // The rejection is about the second call. The scripted model tells of the first result.
    assert_eq!(done["artifacts"][0]["parts"][0]["text"], r#"{"total":3} with  "#, "{done}");
}
