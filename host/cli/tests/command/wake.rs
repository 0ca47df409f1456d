//! How soon a process notices changes that another process stored in their shared PostgreSQL database.

use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, chown};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use sqlx::Connection;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgListener};
use tempfile::TempDir;

use crate::proxy::{Proxy, Way};
use crate::push::is_without_gap;
use crate::replicas::{Replicas, said};
use crate::support::Server;

/// The interval after which a process looks for changes without a notification.
const LOOK: Duration = Duration::from_secs(1);

/// A time much shorter than [`LOOK`], but long enough for a busy machine.
const SOON: Duration = Duration::from_millis(300);

/// An event of a stream.
pub(crate) struct StreamEvent {
    at: Instant,
    /// The number of the event.
    id: u64,
    event: Value,
}

/// A rule of the agent for the text "ticks": `count` events with a pause before each.
pub(crate) fn ticks(count: usize, pause_ms: u64) -> String {
    let ticks = format!("{{ wait_ms = {pause_ms} }}, {{ status = {{ state = \"working\" }} }}, ").repeat(count);
    format!("[[agent.rule]]\ntext = \"ticks\"\nsteps = [{ticks}{{ status = {{ state = \"completed\" }} }}]")
}

/// Subscribes to the task, after the event `last` if there is one. Reads until the stream ends or has `most` events.
pub(crate) async fn follow(
    replicas: &Replicas,
    server: &Server,
    (task, last): (&str, Option<u64>),
    most: usize,
) -> Result<Vec<StreamEvent>> {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task}});
    let mut request = replicas.client().post(format!("{}/a2a/jsonrpc", server.url)).header("A2A-Version", "1.0");
    if let Some(last) = last {
        request = request.header("Last-Event-ID", last.to_string());
    }
    read(request.header("content-type", "application/json").body(body.to_string()), most).await
}

async fn read(request: RequestBuilder, most: usize) -> Result<Vec<StreamEvent>> {
    let mut reply = request.send().await?;
    let mut text = String::new();
    let mut seen = Vec::new();
    while let Some(chunk) = reply.chunk().await? {
        text.push_str(std::str::from_utf8(&chunk)?);
        while let Some((event, rest)) = text.split_once("\n\n") {
            let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            if let Some(data) = field("data") {
                let id = field("id").with_context(|| format!("no number: {event}"))?.parse()?;
                seen.push(StreamEvent { at: Instant::now(), id, event: serde_json::from_str(data)? });
            }
            text = rest.to_owned();
            if seen.len() == most {
                return Ok(seen);
            }
        }
    }
    anyhow::ensure!(!seen.is_empty(), "no events: {text}");
    Ok(seen)
}

pub(crate) fn ids(seen: &[StreamEvent]) -> Vec<u64> {
    seen.iter().map(|seen| seen.id).collect()
}

fn last_state(seen: &[StreamEvent]) -> &Value {
    &seen[seen.len() - 1].event["result"]["statusUpdate"]["status"]["state"]
}

/// The delays with which the other streams delivered the events of `first`, in ascending order.
fn lags(first: &[StreamEvent], others: &[StreamEvent]) -> Vec<Duration> {
    let at = |id| first.iter().find(|seen| seen.id == id).map(|seen| seen.at);
    let mut lags: Vec<Duration> =
        others.iter().filter_map(|seen| Some(seen.at.saturating_duration_since(at(seen.id)?))).collect();
    lags.sort();
    lags
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_reaches_a_subscriber_of_another_process_at_once() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let ticks = ticks(60, 50);
    let [one, other] = [replicas.start(&ticks)?, replicas.start(&ticks)?];
    let task = replicas.begin(&one, "ticks").await?;
    let of_task = (task.as_str(), None);
    let (here, there) =
        tokio::try_join!(follow(&replicas, &one, of_task, usize::MAX), follow(&replicas, &other, of_task, usize::MAX))?;
    assert_eq!(last_state(&there), "TASK_STATE_COMPLETED");
    let lags = lags(&here, &there);
    assert!(lags.len() >= 40, "{} events", lags.len());
    let [median, nine_of_ten] = [lags[lags.len() / 2], lags[lags.len() * 9 / 10]];
    let _ = writeln!(std::io::stderr(), "lag of an event on another process: median {median:?}, 90 % {nine_of_ten:?}");
    assert!(median < SOON, "{lags:?}");
    drop((one, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_comes_back_goes_on_behind_its_last_event_in_any_process() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let ticks = ticks(30, 50);
    let [one, other] = [replicas.start(&ticks)?, replicas.start(&ticks)?];
    let task = replicas.begin(&one, "ticks").await?;
    let first = follow(&replicas, &one, (&task, None), 5).await?;
    let last = first[4].id;
    assert_eq!(
        ids(&first[1..]),
        (first[0].id + 1..=last).collect::<Vec<_>>(),
        "the task is numbered as its last event"
    );
    // Some more events pass meanwhile.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let rest = follow(&replicas, &other, (&task, Some(last)), usize::MAX).await?;
    let end = rest[rest.len() - 1].id;
    assert_eq!(rest[0].id, last + 1, "none is missing");
    assert!(is_without_gap(&ids(&rest)), "none is missing, and none comes twice");
    assert_eq!(last_state(&rest), "TASK_STATE_COMPLETED");
    // The task is finished by now: what is left of it can still be read, and then there is nothing to subscribe to.
    let before = rest[rest.len() - 2].id;
    let again = follow(&replicas, &other, (&task, Some(before - 1)), usize::MAX).await?;
    assert_eq!(ids(&again), [before, end]);
    assert!(follow(&replicas, &other, (&task, Some(end)), usize::MAX).await.is_err());
    let rest = replicas.client().get(format!("{}/a2a/rest/tasks/{task}:subscribe?A2A-Version=1.0", one.url));
    assert_eq!(ids(&read(rest.header("Last-Event-ID", end - 1), usize::MAX).await?), [end]);
    drop((one, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_message_hears_of_the_end_of_its_turn_in_another_process_at_once() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [one, other] = [replicas.start("")?, replicas.start("")?];
    // The first turn has a task all the time; the second one gets it with its end.
    for text in ["short", "silent"] {
        let sent = said(text, text);
        let timed = async |server: &Server, wait| {
            tokio::time::sleep(Duration::from_millis(wait)).await;
            let answer = replicas.call(server, "SendMessage", sent.clone()).await?;
            anyhow::Ok((answer, Instant::now()))
        };
        let ((first, at), (repeated, later)) = tokio::try_join!(timed(&one, 0), timed(&other, 500))?;
        assert_eq!(first["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{first}");
        assert_eq!(repeated["result"]["task"], first["result"]["task"]);
        let lag = later.saturating_duration_since(at);
        assert!(lag < SOON, "{text}: {lag:?}");
    }
    drop((one, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_is_lost_while_it_listens_loses_no_event_and_is_made_again() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let ticks = ticks(60, 50);
    let [one, other] = [replicas.start(&ticks)?, replicas.start(&ticks)?];
    let mut own = PgConnection::connect(replicas.url()).await?;
    let task = replicas.begin(&one, "ticks").await?;
    let of_task = (task.as_str(), None);
    let lose = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let lost = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
            WHERE datname = current_database() AND application_name = 'annex' AND query LIKE 'LISTEN%'";
        anyhow::Ok(sqlx::query_scalar::<_, i64>(lost).fetch_one(&mut own).await?)
    };
    let (here, there, lost) = tokio::try_join!(
        follow(&replicas, &one, of_task, usize::MAX),
        follow(&replicas, &other, of_task, usize::MAX),
        lose
    )?;
    assert_eq!(lost, 2);
    assert!(is_without_gap(&ids(&there)), "{:?}", ids(&there));
    assert_eq!(last_state(&there), "TASK_STATE_COMPLETED");
    // Those of the end are heard of again.
    let lags = lags(&here[here.len() - 10..], &there);
    assert!(lags[lags.len() / 2] < SOON, "{lags:?}");
    own.close().await?;
    drop((one, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notifications_that_are_lost_cost_a_second_at_most_and_no_event() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let proxy = Proxy::start(replicas.url()).await?;
    let ticks = ticks(20, 400);
    let one = replicas.start(&ticks)?;
    let other = replicas.start_with(&ticks, &[("ANNEX_TEST_TASKS", proxy.url())])?;
    // Only now: at its start a process checks that it hears itself.
    proxy.set(Way::HintsLost);
    let task = replicas.begin(&one, "ticks").await?;
    let of_task = (task.as_str(), None);
    let (here, there) =
        tokio::try_join!(follow(&replicas, &one, of_task, usize::MAX), follow(&replicas, &other, of_task, usize::MAX))?;
    assert!(is_without_gap(&ids(&there)), "{:?}", ids(&there));
    assert_eq!(last_state(&there), "TASK_STATE_COMPLETED");
    let lags = lags(&here, &there);
    let longest = lags[lags.len() - 1];
    let _ = writeln!(std::io::stderr(), "lag of an event whose notification is lost: at most {longest:?}");
    assert!(longest > SOON, "no notification was lost");
    // One look, and as much again for a machine that is busy.
    assert!(longest < 2 * LOOK, "{lags:?}");
    // A message whose turn another process has, and one that waits for that turn.
    for (text, id) in [("silent", "m-1"), ("hello", "m-2")] {
        let [first, repeated] = [&one, &other].map(|server| replicas.call(server, "SendMessage", said(text, id)));
        let (first, repeated) = tokio::try_join!(first, repeated)?;
        assert_eq!(first["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{first}");
        assert_eq!(repeated["result"]["task"], first["result"]["task"]);
    }
    drop((one, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_tells_nobody_of_its_tasks_while_it_is_alone() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let mut listener = PgListener::connect(replicas.url()).await?;
    listener.listen("annex_wake").await?;
    let one = replicas.start("")?;
    let greeting = listener.recv().await?;
    assert_eq!(greeting.payload().lines().count(), 1, "{}", greeting.payload());
    for turn in 0..5 {
        let sent = replicas.call(&one, "SendMessage", said("", &format!("m-{turn}"))).await?;
        assert_eq!(sent["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{sent}");
    }
    let other = replicas.start("")?;
    assert_eq!(listener.recv().await?.payload().lines().count(), 1, "the greeting of the other one comes next");
    let sent = replicas.call(&one, "SendMessage", said("", "m")).await?;
    let task = sent["result"]["task"]["id"].as_str().context("a task")?;
    let told = listener.recv().await?;
    // The queue of the conversation may be told of in the same notification.
    let is_of_turn = |line: &str| line.ends_with(task) || line.contains(" queue ");
    assert!(told.payload().lines().skip(1).all(is_of_turn), "{}", told.payload());
    drop((listener, one, other));
    replicas.remove().await;
    Ok(())
}

/// A connection pooler in front of a PostgreSQL server. Its clients share connections, each for one transaction.
struct Pooler {
    process: Child,
    url: String,
    _folder: TempDir,
}

impl Pooler {
    /// Starts the pooler. `None`, after a note on standard error, if the program is not installed.
    fn start(database: &PgConnectOptions) -> Result<Option<Self>> {
        let folder = tempfile::Builder::new().prefix("annex-pooler-").tempdir_in("/tmp")?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let user = database.get_username();
        let host = database.get_socket().map_or_else(|| database.get_host().to_owned(), |it| it.display().to_string());
        let name = database.get_database().context("a database")?;
        let config = folder.path().join("pgbouncer.ini");
        let text = format!(
            "[databases]\n{name} = host={host} port={} user={user}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nauth_type = any\npool_mode = transaction\nunix_socket_dir =\n\
             ignore_startup_parameters = extra_float_digits\n",
            database.get_port()
        );
        std::fs::write(&config, text)?;
        // It does not run as root. Whoever has the folder of the socket may connect there.
        let mut command = if rustix::process::getuid().is_root() {
            let user = std::fs::metadata(&host).map_or(65_534, |folder| folder.uid());
            chown(folder.path(), Some(user), None)?;
            let mut command = Command::new("setpriv");
            command.args(["--reuid", &user.to_string(), "--clear-groups", "--", "pgbouncer"]);
            command
        } else {
            Command::new("pgbouncer")
        };
        let is_there = Command::new("pgbouncer").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if is_there.is_err() {
            let _ = writeln!(std::io::stderr(), "SKIPPED a test of a pooler: there is no pgbouncer");
            return Ok(None);
        }
        let process = command.arg(&config).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let pooler = Self { process, url: format!("postgres://{user}@127.0.0.1:{port}/{name}"), _folder: folder };
        let begin = Instant::now();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            anyhow::ensure!(begin.elapsed() < Duration::from_secs(10), "the pooler does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Some(pooler))
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listening_connection_through_a_pooler_is_refused_at_the_start() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let Some(pooler) = Pooler::start(&replicas.url().parse()?)? else { return Ok(()) };
    let listen = "[postgres]\nlisten_env = \"ANNEX_TEST_LISTEN\"";
    let refusal = replicas.start_with(listen, &[("ANNEX_TEST_LISTEN", &pooler.url)]).err().context("it started")?;
    let refusal = refusal.to_string();
    for part in ["postgres.listen_env", "hears nothing", "PgBouncer"] {
        assert!(refusal.contains(part), "{refusal}");
    }
    // A direct URL beside it is what helps.
    let direct = replicas.start_with(listen, &[("ANNEX_TEST_LISTEN", replicas.url())])?;
    drop((direct, pooler));
    replicas.remove().await;
    Ok(())
}
