//! Several `annex serve` on one PostgreSQL database.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use reqwest::Client;
use serde_json::{Value, json};

use crate::cluster::Scratch;
use crate::durable::{call, message};
use crate::support::Server;

/// The message says for how long the turn takes.
const RULES: &str = r#"
[[agent.rule]]
text = "short"
steps = [{ status = { state = "working" } }, { wait_ms = 3000 }, { status = { state = "completed", text = "done" } }]
[[agent.rule]]
text = "long"
steps = [{ status = { state = "working" } }, { wait_ms = 120000 }]
"#;

/// A lease, the time to the next look of another process, and some for a machine that is busy.
const LEASE_AND_LOOK: Duration = Duration::from_secs(6 + 4);

/// A place for servers that share their tasks.
pub(crate) struct Replicas {
    scratch: Scratch,
    client: Client,
}

impl Replicas {
    /// `None`, after saying so, where there is no PostgreSQL.
    pub(crate) async fn create() -> Option<Self> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let scratch = Scratch::create().await?;
        Some(Self { scratch, client: Client::new() })
    }

    /// One more of them; `more` may begin with rules of its agent.
    pub(crate) fn start(&self, more: &str) -> Result<Server> {
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[card]\nname = \"a\"\ndescription = \"b\"\n[agent]\nkind = \"script\"\n\
             name = \"c\"\n{RULES}\n{more}\n[tasks]\npostgres_env = \"ANNEX_TEST_TASKS\""
        );
        Server::start_with(&config, &[("ANNEX_TEST_TASKS", self.scratch.url())])
    }

    pub(crate) async fn call(&self, server: &Server, method: &str, params: Value) -> Result<Value> {
        call(&self.client, &server.url, method, params).await
    }

    /// Begins a turn that goes on, and returns the id of its task.
    pub(crate) async fn begin(&self, server: &Server, text: &str) -> Result<String> {
        let mut sent = said(text, text);
        sent["configuration"] = json!({"returnImmediately": true});
        let sent = self.call(server, "SendMessage", sent).await?;
        Ok(sent["result"]["task"]["id"].as_str().with_context(|| sent.to_string())?.to_owned())
    }

    /// Asks until the task is in the state.
    pub(crate) async fn until(&self, server: &Server, id: &str, state: &str, limit: Duration) -> Result<Value> {
        let begin = Instant::now();
        loop {
            let task = self.call(server, "GetTask", json!({"id": id})).await?["result"].clone();
            if task["status"]["state"] == state {
                return Ok(task);
            }
            anyhow::ensure!(begin.elapsed() < limit, "not {state}: {task}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn remove(self) {
        self.scratch.remove().await;
    }
}

/// A message with this text.
pub(crate) fn said(text: &str, id: &str) -> Value {
    let mut sent = message("c", id);
    sent["message"]["parts"] = json!([{"text": text}]);
    sent
}

fn text(task: &Value) -> &str {
    task["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_starts_touches_nothing_that_another_one_works_on() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let first = replicas.start("")?;
    let task = replicas.begin(&first, "short").await?;
    let second = replicas.start("")?;
    let done = replicas.until(&second, &task, "TASK_STATE_COMPLETED", Duration::from_secs(30)).await?;
    assert_eq!(text(&done), "done");
    drop((first, second));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_task_of_a_killed_process_is_failed_by_another_one() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [mut killed, other] = [replicas.start("")?, replicas.start("")?];
    let task = replicas.begin(&killed, "long").await?;
    let others = replicas.begin(&other, "long of the other").await?;
    killed.process.kill()?;
    let failed = replicas.until(&other, &task, "TASK_STATE_FAILED", LEASE_AND_LOOK).await?;
    assert_eq!(text(&failed), "The server stopped while the task ran; send the message again.");
    replicas.until(&other, &others, "TASK_STATE_WORKING", Duration::ZERO).await?;
    drop((killed, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_starts_again_under_its_name_fails_what_it_worked_on_at_once() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let name = "[replica]\nname = \"one\"";
    let mut killed = replicas.start(name)?;
    let task = replicas.begin(&killed, "long").await?;
    killed.process.kill()?;
    killed.process.wait()?;
    let again = replicas.start(name)?;
    replicas.until(&again, &task, "TASK_STATE_FAILED", Duration::ZERO).await?;
    drop((killed, again));
    replicas.remove().await;
    Ok(())
}
