//! Several `annex serve` on one PostgreSQL database.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use reqwest::Client;
use rustix::process::Signal;
use serde_json::{Value, json};
use sqlx::Connection;
use sqlx::postgres::PgConnection;

use crate::cluster::Scratch;
use crate::durable::{call, message};
use crate::support::Server;

/// The agent's rules. The text of a message selects how its turn goes.
const RULES: &str = r#"
[[agent.rule]]
steps = [{ status = { state = "completed", text = "done" } }]
[[agent.rule]]
text = "ask"
steps = [{ status = { state = "input-required", text = "Which one?" } }]
[[agent.rule]]
text = "silent"
steps = [{ wait_ms = 3000 }, { status = { state = "completed", text = "done" } }]
[[agent.rule]]
text = "very silent"
steps = [{ wait_ms = 14000 }, { status = { state = "completed", text = "done" } }]
[[agent.rule]]
text = "short"
steps = [{ status = { state = "working" } }, { wait_ms = 3000 }, { status = { state = "completed", text = "done" } }]
[[agent.rule]]
text = "long"
steps = [{ status = { state = "working" } }, { wait_ms = 120000 }]
"#;

/// The longest time until another process continues the work of an ended one: the end of its lease, the next look, and
/// seven seconds for a busy machine.
pub(crate) const LEASE_AND_LOOK: Duration = Duration::from_secs(6 + 7);

/// A database for servers that share their tasks.
pub(crate) struct Replicas {
    /// The database to be removed at the end; `None` if the caller owns the database.
    scratch: Option<Scratch>,
    url: String,
    pub(crate) client: Client,
}

impl Replicas {
    /// Creates the database. `None`, after a note on standard error, without PostgreSQL.
    pub(crate) async fn create() -> Option<Self> {
        let scratch = Scratch::create().await?;
        let url = scratch.url().to_owned();
        Some(Self { scratch: Some(scratch), ..Self::at(url) })
    }

    /// Uses the existing database at `url`.
    pub(crate) fn at(url: String) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { scratch: None, url, client: Client::new() }
    }

    /// Starts a server on the database. `more` is the text of further rules of its agent, and may continue with more
    /// tables.
    pub(crate) fn start(&self, more: &str) -> Result<Server> {
        self.start_with(more, &[])
    }

    /// Like [`Replicas::start`], with additional environment variables.
    pub(crate) fn start_with(&self, more: &str, environment: &[(&str, &str)]) -> Result<Server> {
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[card]\nname = \"a\"\ndescription = \"b\"\n[agent]\nkind = \"script\"\n\
             name = \"c\"\n{RULES}\n{more}\n[tasks]\npostgres_env = \"ANNEX_TEST_TASKS\""
        );
        let own = [("ANNEX_TEST_TASKS", self.url()), ("ANNEX_TEST_NAME", "one")];
        Server::start_with(&config, &[&own[..], environment].concat())
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) async fn call(&self, server: &Server, method: &str, params: Value) -> Result<Value> {
        call(&self.client, &server.url, method, params).await
    }

    /// Sends the message until it is accepted. A process that was stopped and continues refuses messages until it has a
    /// lease again.
    pub(crate) async fn repeat(&self, server: &Server, sent: &Value) -> Result<Value> {
        let begin = Instant::now();
        loop {
            let answer = self.call(server, "SendMessage", sent.clone()).await?;
            if answer["error"]["code"] != -32_000 {
                return Ok(answer);
            }
            anyhow::ensure!(begin.elapsed() < Duration::from_secs(20), "{answer}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Calls a method that streams, and returns all events of the stream.
    pub(crate) async fn stream(&self, server: &Server, method: &str, params: Value) -> Result<Vec<Value>> {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let request = self.client.post(format!("{}/a2a/jsonrpc", server.url)).header("A2A-Version", "1.0");
        let reply = request.header("content-type", "application/json").body(body.to_string()).send().await?;
        let text = reply.text().await?;
        let events = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let events: Vec<Value> = events.map(serde_json::from_str).collect::<Result<_, _>>()?;
        anyhow::ensure!(!events.is_empty(), "no stream: {text}");
        Ok(events)
    }

    /// Begins a turn without waiting for its end, and returns the id of its task.
    pub(crate) async fn begin(&self, server: &Server, text: &str) -> Result<String> {
        self.begin_by(server, said(text, text)).await
    }

    /// Like [`Replicas::begin`], with the parameters of SendMessage.
    pub(crate) async fn begin_by(&self, server: &Server, mut sent: Value) -> Result<String> {
        sent["configuration"] = json!({"returnImmediately": true});
        let sent = self.call(server, "SendMessage", sent).await?;
        Ok(sent["result"]["task"]["id"].as_str().with_context(|| sent.to_string())?.to_owned())
    }

    /// Queries the task until it is in the state `state`, and returns it. Fails after `limit`.
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

    /// The URL of the database.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The events of the only conversation. A user's event is its text, an agent's event is `-`, and a failed turn is
    /// its error.
    pub(crate) async fn conversation(&self) -> Result<Vec<String>> {
        let mut connection = PgConnection::connect(&self.url).await?;
        let events: Vec<String> =
            sqlx::query_scalar("SELECT json FROM log_entry WHERE kind IN ('message', 'event') ORDER BY seq")
                .fetch_all(&mut connection)
                .await?;
        connection.close().await?;
        let shown = |event: String| {
            let event: Value = serde_json::from_str(&event)?;
            let texts = [&event["message"]["parts"][0]["text"], &event["parts"][0]["text"], &event["error"]["code"]];
            let text = texts.into_iter().find_map(Value::as_str).unwrap_or("-");
            anyhow::Ok(text.to_owned())
        };
        events.into_iter().map(shown).collect()
    }

    /// Runs a query whose result is one number.
    pub(crate) async fn number(&self, sql: &'static str) -> Result<i64> {
        let mut connection = PgConnection::connect(&self.url).await?;
        let number = sqlx::query_scalar(sql).fetch_one(&mut connection).await?;
        connection.close().await?;
        Ok(number)
    }

    pub(crate) async fn remove(self) {
        if let Some(scratch) = self.scratch {
            scratch.remove().await;
        }
    }
}

/// The parameters of SendMessage for a message with this text, in the context `c`.
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
    // In another conversation: the turns of one run one after the other.
    let mut sent = said("long", "of the other");
    sent["message"]["contextId"] = json!("d");
    let others = replicas.begin_by(&other, sent).await?;
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
    let mut killed = replicas.start("[replica]\nname = \"one\"")?;
    let task = replicas.begin(&killed, "long").await?;
    killed.process.kill()?;
    killed.process.wait()?;
    let again = replicas.start("[replica]\nname_env = \"ANNEX_TEST_NAME\"")?;
    replicas.until(&again, &task, "TASK_STATE_FAILED", Duration::ZERO).await?;
    drop((killed, again));
    replicas.remove().await;
    Ok(())
}

/// The state in the last event of a stream.
pub(crate) fn last_state(events: &[Value]) -> &str {
    let last = &events[events.len() - 1]["result"];
    let status = if last["task"].is_object() { &last["task"]["status"] } else { &last["statusUpdate"]["status"] };
    status["state"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_comes_to_two_processes_at_once_is_one_task_for_both() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [one, other] = [replicas.start("")?, replicas.start("")?];
    for round in 0..30 {
        let sent = message(&format!("c-{round}"), "m");
        let (first, second) =
            tokio::join!(replicas.call(&one, "SendMessage", sent.clone()), replicas.call(&other, "SendMessage", sent));
        let [first, second] = [first?, second?];
        assert_eq!(first["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{first}");
        assert_eq!(first["result"]["task"], second["result"]["task"], "round {round}");
    }
    drop((one, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_message_follows_its_turn_in_another_process() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [one, other] = [replicas.start("")?, replicas.start("")?];
    for text in ["short", "silent"] {
        let sent = said(text, text);
        let begun = replicas.call(&one, "SendMessage", sent.clone());
        let again = async {
            // The other process has the message by then.
            tokio::time::sleep(Duration::from_millis(500)).await;
            tokio::try_join!(
                replicas.call(&other, "SendMessage", sent.clone()),
                replicas.stream(&other, "SendStreamingMessage", sent.clone())
            )
        };
        let (first, again) = tokio::join!(begun, again);
        let (first, (second, streamed)) = (first?, again?);
        assert_eq!(first["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{first}");
        assert_eq!(second["result"]["task"], first["result"]["task"]);
        assert_eq!(streamed[0]["result"]["task"]["id"], first["result"]["task"]["id"]);
        assert_eq!(last_state(&streamed), "TASK_STATE_COMPLETED", "{streamed:?}");
    }
    drop((one, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_comes_again_to_another_process_while_its_agent_is_silent_follows_its_turn() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [one, other] = [replicas.start("")?, replicas.start("")?];
    let sent = said("very silent", "m");
    let again = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        replicas.call(&other, "SendMessage", sent.clone()).await
    };
    let (first, again) = tokio::join!(replicas.call(&one, "SendMessage", sent.clone()), again);
    let (first, again) = (first?, again?);
    assert_eq!(again["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{again}");
    assert_eq!(again["result"]["task"], first["result"]["task"]);
    drop((one, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscriber_follows_a_task_that_another_process_runs() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [mut one, other] = [replicas.start("")?, replicas.start("")?];
    let task = replicas.begin(&one, "short").await?;
    let events = replicas.stream(&other, "SubscribeToTask", json!({"id": task})).await?;
    assert_eq!(last_state(&events), "TASK_STATE_COMPLETED", "{events:?}");
    // Also when that process is killed.
    let task = replicas.begin(&one, "long").await?;
    let subscribed = replicas.stream(&other, "SubscribeToTask", json!({"id": task}));
    let kill = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        one.process.kill()
    };
    let (events, killed) = tokio::join!(subscribed, kill);
    killed?;
    assert_eq!(last_state(&events?), "TASK_STATE_FAILED");
    drop((one, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscriber_of_a_task_that_waits_sees_what_another_process_makes_of_it() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [one, other] = [replicas.start("")?, replicas.start("")?];
    let waits = replicas.call(&one, "SendMessage", said("ask", "m-1")).await?;
    let task = &waits["result"]["task"]["id"];
    let go_on = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let mut sent = said("short", "m-2");
        sent["message"]["taskId"] = task.clone();
        replicas.call(&other, "SendMessage", sent).await
    };
    let (events, gone_on) = tokio::join!(replicas.stream(&one, "SubscribeToTask", json!({"id": task})), go_on);
    let (events, gone_on) = (events?, gone_on?);
    assert_eq!(gone_on["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{gone_on}");
    let states: Vec<&str> = (1..=events.len()).map(|end| last_state(&events[..end])).collect();
    assert_eq!(states, ["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_WORKING", "TASK_STATE_COMPLETED"]);
    drop((one, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_waits_goes_on_in_one_process() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [one, other] = [replicas.start("")?, replicas.start("")?];
    let waits = replicas.call(&one, "SendMessage", said("ask", "m-1")).await?;
    let answer = |id: &str| {
        let mut sent = said("silent", id);
        sent["message"]["taskId"] = waits["result"]["task"]["id"].clone();
        sent
    };
    let late = async {
        // The turn of the other process has not said anything by then.
        tokio::time::sleep(Duration::from_secs(1)).await;
        replicas.call(&other, "SendMessage", answer("m-3")).await
    };
    let (first, late) = tokio::join!(replicas.call(&one, "SendMessage", answer("m-2")), late);
    let (first, late) = (first?, late?);
    assert_eq!(first["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{first}");
    assert_eq!(late["error"]["code"], -32_004, "{late}");
    let history = first["result"]["task"]["history"].as_array().context("a history")?;
    assert!(!history.iter().any(|message| message["messageId"] == "m-3"), "{history:?}");
    drop((one, other));
    replicas.remove().await;
    Ok(())
}

/// The HTTP status and the body of `/readyz`.
pub(crate) async fn ready(replicas: &Replicas, server: &Server) -> Result<(u16, Value)> {
    let reply = replicas.client.get(format!("{}/readyz", server.url)).send().await?;
    Ok((reply.status().as_u16(), serde_json::from_str(&reply.text().await?)?))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_whose_store_does_not_answer_is_not_ready_until_it_does() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let server = replicas.start("")?;
    let (status, body) = ready(&replicas, &server).await?;
    assert_eq!((status, &body["stores_answer"]), (200, &Value::Null), "{body}");

    let mut locks = PgConnection::connect(replicas.url()).await?;
    sqlx::query("BEGIN").execute(&mut locks).await?;
    sqlx::query("LOCK TABLE task IN ACCESS EXCLUSIVE MODE").execute(&mut locks).await?;
    // An answer counts for a second.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let begin = Instant::now();
    let (one, other) = tokio::join!(ready(&replicas, &server), ready(&replicas, &server));
    for (status, body) in [one?, other?] {
        assert_eq!((status, &body["phase"], &body["stores_answer"]), (503, &json!("ready"), &json!(false)), "{body}");
    }
    assert!(begin.elapsed() < Duration::from_secs(4), "both wait for one probe: {:?}", begin.elapsed());

    sqlx::query("ROLLBACK").execute(&mut locks).await?;
    let begin = Instant::now();
    while ready(&replicas, &server).await?.0 != 200 {
        anyhow::ensure!(begin.elapsed() < Duration::from_secs(20), "not ready again");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    locks.close().await?;
    drop(server);
    replicas.remove().await;
    Ok(())
}

/// Executes a statement in the database of a running server. PostgreSQL breaks off one of two transactions that wait for
/// each other, and that may be this one.
pub(crate) async fn execute(connection: &mut PgConnection, sql: &'static str, values: &[&str]) -> Result<()> {
    const DEADLOCK: &str = "40P01";
    for _ in 0..5 {
        let query = values.iter().fold(sqlx::query(sql), |query, value| query.bind(*value));
        match query.execute(&mut *connection).await {
            Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some(DEADLOCK) => {}
            executed => return executed.map(drop).with_context(|| sql),
        }
    }
    anyhow::bail!("each attempt ended in a deadlock: {sql}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_whose_database_is_lost_in_the_turn_ends_with_an_error() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let server = replicas.start("")?;
    let lose = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut connection = PgConnection::connect(replicas.url()).await?;
        // Nothing can be appended any more.
        execute(&mut connection, "ALTER TABLE log_entry RENAME TO lost", &[]).await?;
        connection.close().await?;
        anyhow::Ok(())
    };
    let sent = said("short", "m");
    let (events, lost) = tokio::join!(replicas.stream(&server, "SendStreamingMessage", sent), lose);
    lost?;
    let events = events?;
    assert_eq!(last_state(&events[..events.len() - 1]), "TASK_STATE_WORKING", "{events:?}");
    assert_eq!(events[events.len() - 1]["error"]["code"], -32_603, "{events:?}");
    drop(server);
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_stopped_for_longer_than_its_lease_finds_its_task_failed_and_goes_on() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [stopped, other] = [replicas.start("")?, replicas.start("")?];
    let task = replicas.begin(&stopped, "short").await?;
    let follows = async {
        let events = replicas.stream(&stopped, "SubscribeToTask", json!({"id": task})).await?;
        assert_eq!(last_state(&events), "TASK_STATE_FAILED", "{events:?}");
        anyhow::Ok(())
    };
    let stop = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        stopped.signal(Signal::STOP)?;
        let failed = replicas.until(&other, &task, "TASK_STATE_FAILED", LEASE_AND_LOOK).await;
        stopped.signal(Signal::CONT)?;
        failed
    };
    let (followed, failed) = tokio::join!(follows, stop);
    let failed = failed?;
    followed?;
    // Its turn has ended by now, had it ended by itself.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(replicas.call(&other, "GetTask", json!({"id": task})).await?["result"], failed);
    let again = replicas.call(&stopped, "SendMessage", said("hello", "m")).await?;
    assert_eq!(again["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{again}");
    drop((stopped, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_for_a_task_that_waits_is_one_turn_also_while_it_waits_for_its_turn() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [one, other] = [replicas.start("")?, replicas.start("")?];
    let waits = replicas.call(&one, "SendMessage", said("ask", "m-1")).await?;
    // Another turn of the conversation keeps the message waiting.
    replicas.begin(&one, "short").await?;
    let mut sent = said("go on", "m-2");
    sent["message"]["taskId"] = waits["result"]["task"]["id"].clone();
    let again = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        replicas.call(&other, "SendMessage", sent.clone()).await
    };
    let (first, again) = tokio::join!(replicas.call(&one, "SendMessage", sent.clone()), again);
    let (first, again) = (first?, again?);
    assert_eq!(first["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{first}");
    assert_eq!(again["result"]["task"], first["result"]["task"]);
    drop((one, other));
    replicas.remove().await;
    Ok(())
}
