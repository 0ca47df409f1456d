//! Turns of an `annex serve` that is killed: another process recovers or fails each turn.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sqlx::Connection;
use sqlx::postgres::PgConnection;
use tempfile::TempDir;

use crate::replicas::{LEASE_AND_LOOK, Replicas, said};
use crate::support::Server;

pub(crate) const COMPLETED: &str = "TASK_STATE_COMPLETED";
pub(crate) const FAILED: &str = "TASK_STATE_FAILED";
/// The timeout for every wait in these tests.
pub(crate) const LIMIT: Duration = Duration::from_secs(40);

/// An agent whose turns take three seconds. The message `brief` gets a short turn.
pub(crate) const RERUN: &str = "[agent]\nkind = \"script\"\nname = \"c\"\non_lost_turn = \"rerun\"\n
[[agent.rule]]
steps = [{ status = { state = \"working\" } }, { wait_ms = 3000 }, { status = { state = \"completed\", text = \"done\" } }]
[[agent.rule]]
text = \"silent\"
steps = [{ wait_ms = 3000 }, { status = { state = \"completed\", text = \"done\" } }]
[[agent.rule]]
text = \"brief\"
steps = [{ wait_ms = 100 }, { status = { state = \"completed\", text = \"done\" } }]";

/// Starts one server of a set of replicas. `agent` is the config of its agent, and
/// `of_server` contains further lines of `[server]`.
pub(crate) fn start(replicas: &Replicas, agent: &str, of_server: &str) -> Result<Server> {
    start_at(replicas.url(), agent, of_server)
}

/// Starts a server like [`start`], but with the database at `url`.
pub(crate) fn start_at(url: &str, agent: &str, of_server: &str) -> Result<Server> {
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n{of_server}\n[card]\nname = \"a\"\ndescription = \"b\"\n\
         [tasks]\npostgres_env = \"ANNEX_TEST_TASKS\"\n{agent}"
    );
    Server::start_with(&config, &[("ANNEX_TEST_TASKS", url)])
}

pub(crate) async fn number(replicas: &Replicas, sql: &'static str, task: &str) -> Result<i64> {
    let mut database = PgConnection::connect(replicas.url()).await?;
    let number = sqlx::query_scalar(sql).bind(task).fetch_one(&mut database).await?;
    database.close().await?;
    Ok(number)
}

pub(crate) const ATTEMPT: &str = "SELECT attempts FROM task WHERE id = $1";
pub(crate) const EVENTS: &str = "SELECT count(*) FROM log_entry WHERE task_id = $1 AND kind IN ('message', 'update')";

pub(crate) async fn until_number(replicas: &Replicas, sql: &'static str, task: &str, expected: i64) -> Result<()> {
    let begin = Instant::now();
    while number(replicas, sql, task).await? < expected {
        ensure!(begin.elapsed() < LIMIT, "not {expected}: {sql}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

fn text(task: &Value) -> &str {
    task["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_turn_of_a_killed_process_is_run_again_by_another_one_where_the_config_says_so() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [mut killed, other] = [start(&replicas, RERUN, "")?, start(&replicas, RERUN, "")?];
    let task = replicas.begin(&killed, "talk").await?;
    until_number(&replicas, EVENTS, &task, 2).await?;
    let followed = replicas.stream(&other, "SubscribeToTask", json!({"id": task}));
    killed.process.kill()?;
    let begin = Instant::now();
    let (followed, done) =
        tokio::join!(followed, replicas.until(&other, &task, COMPLETED, LEASE_AND_LOOK + Duration::from_secs(3)));
    println!("run again and completed {:?} after the kill", begin.elapsed());
    assert_eq!(text(&done?), "done");
    let followed = followed?;
    let last = followed.last().context("an event")?;
    assert_eq!(last["result"]["statusUpdate"]["status"]["state"], COMPLETED, "{last}");
    // The message was said once, and answered once.
    assert_eq!(replicas.conversation().await?, ["talk", "-"]);
    let again = replicas.call(&other, "SendMessage", said("brief", "m-2")).await?;
    assert_eq!(again["result"]["task"]["status"]["state"], COMPLETED, "{again}");
    assert_eq!(replicas.conversation().await?, ["talk", "-", "brief", "-"]);
    drop((killed, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_whose_agent_is_configured_otherwise_by_now_fails() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [mut killed, other] = [start(&replicas, RERUN, "")?, start(&replicas, &RERUN.replace("rerun", "fail"), "")?];
    let task = replicas.begin(&killed, "talk").await?;
    killed.process.kill()?;
    replicas.until(&other, &task, FAILED, LEASE_AND_LOOK).await?;
    drop((killed, other));
    replicas.remove().await;
    Ok(())
}

/// An agent whose model calls a tool that takes longer than the test. The agent's answer is the result of the call.
fn with_tool(calls: &TempDir, seconds: u64) -> String {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../server/tests/data/mcp_server.py");
    let touched = calls.path().join("called");
    format!(
        r#"
        [agent]
        kind = "template"
        name = "c"
        on_lost_turn = "rerun"
        instruction = "i"
        [agent.model.scripted]
        fallback = "nothing matched"
        [[agent.model.scripted.rules]]
        when = "^call$"
        call = [{{ tool = "sleep", arguments = '''{{"seconds": {seconds}, "touch": "{touched}"}}''' }}]
        [[agent.model.scripted.rules]]
        when = ""
        after = "sleep"
        extract_result = {{ result = "(?s)(.+)" }}
        answer = "told: {{result}}"
        [[agent.mcp]]
        name = "test"
        command = "python3"
        args = [{program:?}]
        "#,
        touched = touched.display(),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_that_was_called_is_not_called_again_when_its_turn_is_run_again() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let calls = tempfile::tempdir()?;
    let agent = with_tool(&calls, 30);
    let mut killed = start(&replicas, &agent, "")?;
    let task = replicas.begin(&killed, "call").await?;
    let called = calls.path().join("called");
    let begin = Instant::now();
    while !called.exists() {
        ensure!(begin.elapsed() < LIMIT, "the tool is not called");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    std::fs::remove_file(&called)?;
    let other = start(&replicas, &agent, "")?;
    killed.process.kill()?;
    let done = replicas.until(&other, &task, COMPLETED, LEASE_AND_LOOK).await?;
    let answer = done["artifacts"][0]["parts"][0]["text"].as_str().unwrap_or_default();
    assert_eq!(answer, r#"told: {"error":"the call was broken off, and its outcome is unknown"}"#, "{done}");
    assert!(!called.exists(), "the tool was called again");
    drop((killed, other));
    replicas.remove().await;
    Ok(())
}

/// An agent that another server uses as its upstream. It sends a status, and works for eight more seconds.
fn upstream() -> Result<Server> {
    let config = "[server]\nlisten = \"127.0.0.1:0\"\n[card]\nname = \"u\"\ndescription = \"b\"\n\
                  [tasks]\nlist_all_anonymous = true\n[agent]\nkind = \"script\"\nname = \"u\"\n
[[agent.rule]]
steps = [{ status = { state = \"working\", text = \"begun\" } }, { wait_ms = 8000 }, { artifact = { id = \"a\", parts = [{ text = \"result\" }] } }, { status = { state = \"completed\", text = \"done\" } }]
[[agent.rule]]
text = \"silent\"
steps = [{ wait_ms = 8000 }, { status = { state = \"completed\", text = \"done\" } }]";
    Server::start(config)
}

fn in_front(upstream: &Server) -> String {
    format!("[agent]\nkind = \"upstream\"\nname = \"c\"\ncard = {:?}", upstream.url)
}

async fn tasks_at(replicas: &Replicas, upstream: &Server) -> Result<usize> {
    let listed = replicas.call(upstream, "ListTasks", json!({})).await?;
    Ok(listed["result"]["tasks"].as_array().with_context(|| listed.to_string())?.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_process_had_sent_to_an_upstream_is_followed_by_another_one_and_sent_once() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let upstream = upstream()?;
    let agent = in_front(&upstream);
    let [mut killed, other] = [start(&replicas, &agent, "")?, start(&replicas, &agent, "")?];
    let task = replicas.begin(&killed, "talk").await?;
    until_number(&replicas, EVENTS, &task, 2).await?;
    killed.process.kill()?;
    let done = replicas.until(&other, &task, COMPLETED, LIMIT).await?;
    assert_eq!(text(&done), "done");
    assert_eq!(done["artifacts"].as_array().map(Vec::len), Some(1), "{done}");
    assert_eq!(done["artifacts"][0]["parts"][0]["text"], "result", "{done}");
    assert_eq!(tasks_at(&replicas, &upstream).await?, 1);
    drop((killed, other, upstream));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_of_which_nobody_knows_whether_the_upstream_has_it_fails_and_says_so() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let upstream = upstream()?;
    let agent = in_front(&upstream);
    let [mut killed, other] = [start(&replicas, &agent, "")?, start(&replicas, &agent, "")?];
    let task = replicas.begin(&killed, "talk").await?;
    until_number(&replicas, EVENTS, &task, 2).await?;
    // As if the process had been killed before it could note the upstream's task.
    let mut database = PgConnection::connect(replicas.url()).await?;
    let forgotten = sqlx::query("UPDATE task SET upstream = NULL WHERE upstream IS NOT NULL")
        .execute(&mut database)
        .await?
        .rows_affected();
    ensure!(forgotten > 0, "nothing was noted");
    database.close().await?;
    killed.process.kill()?;
    let failed = replicas.until(&other, &task, FAILED, LIMIT).await?;
    assert!(text(&failed).contains("unknown whether the agent behind it received the message"), "{failed}");
    assert_eq!(tasks_at(&replicas, &upstream).await?, 1);
    drop((killed, other, upstream));
    replicas.remove().await;
    Ok(())
}
