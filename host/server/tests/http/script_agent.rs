//! The agent that plays a script, over HTTP: for those who test clients.

use annex_test_support::{TestConfig, TestServer};

/// The rules of the script.
const RULES: &str = r#"
    [[agent.rule]]
    message_id = "chunks"
    steps = [
      { status = { state = "working" } },
      { artifact = { id = "a", parts = [{ text = "one " }] } },
      { artifact = { id = "a", parts = [{ text = "two" }], append = true, last_chunk = true } },
      { status = { state = "completed", text = "Done." } },
    ]
    [[agent.rule]]
    message_id = "ask"
    steps = [{ status = { state = "input-required", text = "What else?" } }]
    [[agent.rule]]
    message_id = "answer"
    steps = [{ message = { parts = [{ data = '{"count":42}' }] } }]
    [[agent.rule]]
    message_id = "wait"
    steps = [{ status = { state = "working" } }, { wait_ms = 3_600_000 }]
"#;

#[tokio::test]
async fn the_id_of_a_message_decides_what_a_scripted_agent_does() {
    let server = TestConfig::script(RULES).start().await.expect("a server");
    let asked = server.say("x").field("messageId", "ask-1").send().await.expect("a reply");
    assert_eq!(asked.task()["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    assert_eq!(asked.task()["status"]["message"]["parts"][0]["text"], "What else?");
    // The task goes on by the rule of the message that continues it.
    let id = asked.task()["id"].as_str().expect("an id").to_owned();
    let done = server.say("y").field("taskId", &id).field("messageId", "chunks-1").send().await.expect("a reply");
    assert_eq!(done.task()["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(done.task()["artifacts"][0]["parts"], serde_json::json!([{"text": "one "}, {"text": "two"}]));
    let answer = server.say("z").field("messageId", "answer-1").send().await.expect("a reply");
    assert_eq!(answer.body["result"]["message"]["parts"][0]["data"]["count"], 42);
    let other = server.say("z").send().await.expect("a reply");
    assert_eq!(other.task()["status"]["state"], "TASK_STATE_FAILED", "{}", other.text);
}

#[tokio::test]
async fn the_pieces_of_a_script_are_streamed_and_its_waits_can_be_cancelled() {
    let server = TestConfig::script(RULES).start().await.expect("a server");
    let stream = server.say("x").field("messageId", "chunks-1").streaming().open().await.expect("a stream");
    let events = stream.rest().await.expect("events");
    let pieces: Vec<_> = events.iter().filter_map(|event| event["result"].get("artifactUpdate")).collect();
    assert_eq!(pieces.len(), 2, "{events:?}");
    assert_eq!((&pieces[1]["append"], &pieces[1]["lastChunk"]), (&true.into(), &true.into()));
    let mut waiting = server.say("x").field("messageId", "wait-1").streaming().open().await.expect("a stream");
    let task = waiting.next().await.expect("an event").expect("a task")["result"]["task"]["id"].clone();
    let canceled = server.call("CancelTask", format!(r#"{{"id":{}}}"#, task)).send().await;
    assert_eq!(canceled.expect("a reply").body["result"]["status"]["state"], "TASK_STATE_CANCELED");
}

#[tokio::test]
async fn the_configs_for_conformance_kits_start_and_do_what_the_kits_are_told() {
    let current = TestServer::start(include_str!("../../../../examples/conformance-agent/annex.toml"));
    let current = current.await.expect("the conformance agent");
    let file = current.say("x").field("messageId", "tck-artifact-file-url-1").send().await.expect("a reply");
    assert_eq!(file.task()["artifacts"][0]["parts"][0]["url"], "https://example.com/output.txt");
    let list = current.call("ListTasks", "{}").send().await.expect("a list");
    assert_eq!(list.body["result"]["totalSize"], 1);
    let required = TestServer::start(include_str!("../../../../examples/conformance-agent/annex.required.toml"));
    let required = required.await.expect("the agent with a required extension");
    assert_eq!(required.say("x").send().await.expect("a reply").code(), -32_008);
    let activated = required.say("x").extensions("urn:a2a:tck:required-extension").send().await.expect("a reply");
    assert_eq!(activated.task()["status"]["state"], "TASK_STATE_COMPLETED");
    let older = TestServer::start(include_str!("../../../../examples/conformance-agent/annex.0_3.toml"));
    let older = older.await.expect("the agent for 0.3");
    let card: serde_json::Value =
        older.get("/.well-known/agent-card.json").await.expect("a card").json().await.unwrap();
    assert_eq!(card["protocolVersion"], "0.3.0");
}
