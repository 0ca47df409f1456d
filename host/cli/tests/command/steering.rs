//! Calls of tools that wait for an extension, with several `annex serve` on one database.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use annex_components::STEERING_GRANTS;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::lost::{COMPLETED, LIMIT, start};
use crate::replicas::{LEASE_AND_LOOK, Replicas, said};
use crate::support::Server;

/// The events of the session that let a call go.
const RELEASES: &str = "SELECT count(*) FROM log_entry WHERE kind = 'event' AND json LIKE '%annex/released%'";

/// An agent whose tool touches a file and sleeps, with an extension that lets each call wait.
fn agent() -> String {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../server/tests/data/mcp_server.py");
    let component = annex_components::TEST_STEERING;
    format!(
        r#"
        [agent]
        kind = "template"
        name = "c"
        instruction = "I"
        on_lost_turn = "rerun"
        [agent.model.scripted]
        fallback = "nothing matched"
        [[agent.model.scripted.rules]]
        when = "^sleep (?<seconds>\\S+) (?<path>\\S+)$"
        call = [{{ tool = "sleep", arguments = '{{"seconds": {{seconds}}, "touch": "{{path}}"}}' }}]
        [[agent.model.scripted.rules]]
        when = ""
        after = "sleep"
        extract_result = {{ result = "(?s)(.+)" }}
        answer = "{{result}}"
        [[agent.mcp]]
        name = "test"
        command = "python3"
        args = [{program:?}]
        [[extension]]
        component = {component:?}
        activate = "always"
        parameters = {{ behaviour = {{ before-tool = "wait" }} }}
        [extension.grants]
        caller = {{ principal = true }}
        live-card = {{}}
        {STEERING_GRANTS}
        "#
    )
}

/// Begins a task that waits before a call which touches the file. Returns the id of the task.
async fn waiting(replicas: &Replicas, server: &Server, seconds: u32, touched: &Path) -> Result<String> {
    let text = format!("sleep {seconds} {}", touched.display());
    let sent = replicas.call(server, "SendMessage", said(&text, "m-1")).await?;
    let task = &sent["result"]["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{sent}");
    assert!(!touched.exists());
    Ok(task["id"].as_str().context("an id")?.to_owned())
}

/// A message that allows the call.
fn allowing(task: &str, id: &str) -> Value {
    let mut sent = said("yes", id);
    sent["message"]["taskId"] = json!(task);
    sent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_two_processes_are_told_to_make_is_made_once() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [one, other] = [start(&replicas, &agent(), "")?, start(&replicas, &agent(), "")?];
    let folder = tempfile::tempdir()?;
    let touched = folder.path().join("touched");
    let task = waiting(&replicas, &one, 0, &touched).await?;
    let (first, second) = tokio::join!(
        replicas.call(&one, "SendMessage", allowing(&task, "m-2")),
        replicas.call(&other, "SendMessage", allowing(&task, "m-3"))
    );
    let answers = [first?, second?];
    let done = replicas.until(&other, &task, COMPLETED, LIMIT).await?;
    assert_eq!(done["artifacts"][0]["parts"][0]["text"], r#"{"result":"awake"}"#, "{answers:?}");
    assert!(touched.exists());
    assert_eq!(replicas.number(RELEASES).await?, 1);
    drop((one, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_a_killed_process_has_begun_is_not_made_again() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [mut killed, other] = [start(&replicas, &agent(), "")?, start(&replicas, &agent(), "")?];
    let folder = tempfile::tempdir()?;
    let touched = folder.path().join("touched");
    let task = waiting(&replicas, &killed, 20, &touched).await?;
    replicas.begin_by(&killed, allowing(&task, "m-2")).await?;
    let began = Instant::now();
    while !touched.exists() {
        ensure!(began.elapsed() < LIMIT, "the call was not made");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    killed.process.kill()?;
    fs::remove_file(&touched)?;
    let done = replicas.until(&other, &task, COMPLETED, LEASE_AND_LOOK + LIMIT).await?;
    let answer = done["artifacts"][0]["parts"][0]["text"].as_str().unwrap_or_default();
    assert!(answer.contains("its outcome is unknown"), "{done}");
    assert!(!touched.exists());
    drop((killed, other));
    replicas.remove().await;
    Ok(())
}
