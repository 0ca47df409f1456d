//! Calls of tools that wait for an approval, with two `annex serve` on one PostgreSQL database.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::replicas::{LEASE_AND_LOOK, Replicas};
use crate::support::Server;

const URI: &str = "https://annex.example/approval/v1";

/// An agent whose model calls a tool.
fn config() -> String {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../server/tests/data/mcp_server.py");
    let component = annex_components::APPROVAL;
    format!(
        r#"
        [server]
        listen = "127.0.0.1:0"
        [card]
        name = "a"
        description = "b"
        [agent]
        kind = "template"
        name = "c"
        instruction = "i"
        [agent.model.scripted]
        fallback = "nothing matched"
        [[agent.model.scripted.rules]]
        when = "^sum$"
        call = [{{ tool = "sum", arguments = '{{"a": 1, "b": 2}}' }}]
        [[agent.model.scripted.rules]]
        when = ""
        after = "sum"
        extract_result = {{ result = "(?s)(.+)" }}
        answer = "{{result}}"
        [[agent.mcp]]
        name = "test"
        command = "python3"
        args = [{program:?}]
        [tasks]
        postgres_env = "ANNEX_TEST_TASKS"
        [[extension]]
        component = {component:?}
        activate = "always"
        [extension.grants]
        agent-steps = {{ steer = true }}
        answer = true
        caller = {{ principal = true }}
        clock = true
        keyvalue = {{}}
        task-resumption = true
        "#
    )
}

/// Begins a task that waits. Returns its id, and the parameters that approve the call.
async fn waiting(replicas: &Replicas, server: &Server) -> Result<(String, Value)> {
    let message = json!({"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "sum"}]});
    let answer = replicas.call(server, "SendMessage", json!({"message": message})).await?;
    let task = &answer["result"]["task"];
    ensure!(task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED", "it does not wait: {answer}");
    let shown = &task["status"]["message"]["metadata"][URI];
    let approval = json!({"task": task["id"], "call": shown["call"], "digest": shown["digest"], "decision": "approve"});
    Ok((task["id"].as_str().unwrap_or_default().to_owned(), approval))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_waits_is_approved_through_another_process_and_made_once() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let environment = [("ANNEX_TEST_TASKS", replicas.url())];
    let [one, other] = [Server::start_with(&config(), &environment)?, Server::start_with(&config(), &environment)?];
    let (task, approval) = waiting(&replicas, &one).await?;
    let (first, second) = tokio::join!(
        replicas.call(&one, "approval.decide", approval.clone()),
        replicas.call(&other, "approval.decide", approval.clone())
    );
    let answers = [first?, second?];
    let counted = answers.iter().filter(|answer| answer["result"]["approved"] == 1).count();
    assert_eq!(counted, 1, "{answers:?}");
    replicas.until(&other, &task, "TASK_STATE_COMPLETED", LEASE_AND_LOOK).await?;
    let done = replicas.call(&other, "GetTask", json!({"id": task})).await?;
    assert_eq!(done["result"]["artifacts"][0]["parts"][0]["text"], r#"{"total":3}"#, "{done}");
    for server in [&one, &other] {
        let again = replicas.call(server, "approval.decide", approval.clone()).await?;
        assert_eq!(again["error"]["code"], -32_602, "{again}");
    }
    drop((one, other));
    replicas.remove().await;
    Ok(())
}
