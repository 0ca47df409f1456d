//! Several `annex serve` share one PostgreSQL database, and one of them is slow, is stopped, or has to cancel a task.
//! By the time it continues, its work belongs to another process, so it must not write anything.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection};

use crate::lost;
use crate::proxy::{Proxy, Way};
use crate::replicas::{LEASE_AND_LOOK, Replicas, execute, last_state, said};
use crate::stopped::{STOPS, is_waited_for};
use crate::support::Server;
use crate::table;

/// A rule for an agent that sends a status five times a second, for a minute.
fn talkative() -> String {
    let step = "{ wait_ms = 200 }, { status = { state = \"working\", text = \"still\" } }, ";
    format!("[[agent.rule]]\ntext = \"talk\"\nsteps = [{}]", step.repeat(300))
}

/// The SQL that gives the turn of a task to the replica `other`.
const TAKE: &str =
    "WITH taken AS (UPDATE task SET replica = 'other', epoch = 0 WHERE id = $1 RETURNING conversation_id)
    UPDATE conversation SET turns = '<other/0>' FROM taken WHERE id = conversation_id";

const TAKEN: &str = "SELECT attempts + (SELECT count(*) FROM log_entry
    WHERE task_id = $1 AND kind = 'event' AND json LIKE '%BROKEN_OFF%') FROM task WHERE id = $1";

/// A connection of the test to the servers' database.
struct DatabaseObserver(PgConnection);

impl DatabaseObserver {
    async fn of(replicas: &Replicas) -> Result<Self> {
        Ok(Self(PgConnection::connect(replicas.url()).await?))
    }

    async fn execute(&mut self, sql: &'static str, task: &str) -> Result<()> {
        execute(&mut self.0, sql, &[task]).await
    }

    /// Adds a lease that never ends for a replica that has no process.
    async fn begin_lease(&mut self, replica: &str) -> Result<()> {
        sqlx::raw_sql(AssertSqlSafe(table::endless(replica))).execute(&mut self.0).await?;
        Ok(())
    }

    async fn number(&mut self, sql: &'static str, task: &str) -> Result<i64> {
        Ok(sqlx::query_scalar(sql).bind(task).fetch_one(&mut self.0).await?)
    }

    /// The number of events of the task that its readers see.
    async fn events(&mut self, task: &str) -> Result<i64> {
        self.number("SELECT count(*) FROM log_entry WHERE task_id = $1 AND kind IN ('message', 'update')", task).await
    }

    /// The number of times that another process has taken the turn of the task, to run it or to end it as failed.
    async fn taken(&mut self, task: &str) -> Result<i64> {
        self.number(TAKEN, task).await
    }

    async fn said(&mut self) -> Result<i64> {
        let sql = "SELECT count(*) FROM log_entry WHERE kind IN ('message', 'event')";
        Ok(sqlx::query_scalar(sql).fetch_one(&mut self.0).await?)
    }

    /// Stops the process while it appends to the task. The append waits in the database for the row lock of the task,
    /// which this connection holds.
    async fn stop_inside_append(&mut self, server: &Server, task: &str) -> Result<()> {
        let mut transaction = self.0.begin().await?;
        sqlx::query("SELECT id FROM task WHERE id = $1 FOR UPDATE").bind(task).execute(&mut *transaction).await?;
        is_waited_for(&mut transaction).await?;
        server.signal(Signal::STOP)?;
        // The append goes on in the database, and its process hears of that when it does itself.
        Ok(transaction.commit().await?)
    }

    /// Waits until the task has this many events.
    async fn until(&mut self, task: &str, events: i64) -> Result<()> {
        let begin = Instant::now();
        while self.events(task).await? < events {
            ensure!(begin.elapsed() < Duration::from_secs(20), "not {events} events");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

/// Begins a turn, runs the SQL `taking` on its task, and waits for two seconds. Returns the number of task events and
/// of conversation events that were added in this time.
async fn added_after(replicas: &Replicas, server: &Server, id: &str, taking: &'static str) -> Result<(i64, i64)> {
    let mut stored = DatabaseObserver::of(replicas).await?;
    let mut sent = said("talk", id);
    sent["message"]["contextId"] = json!(id);
    sent["configuration"] = json!({"returnImmediately": true});
    let sent = replicas.call(server, "SendMessage", sent).await?;
    let task = sent["result"]["task"]["id"].as_str().with_context(|| sent.to_string())?.to_owned();
    stored.until(&task, 4).await?;
    stored.execute(taking, &task).await?;
    let before = (stored.events(&task).await?, stored.said().await?);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let after = (stored.events(&task).await?, stored.said().await?);
    Ok((after.0 - before.0, after.1 - before.1))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_whose_task_another_process_has_taken_writes_nothing_more() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let server = replicas.start(&talkative())?;
    let mut stored = DatabaseObserver::of(&replicas).await?;
    stored.begin_lease("other").await?;
    assert_eq!(added_after(&replicas, &server, "m-1", TAKE).await?, (0, 0));
    // It is the fence that stops it: with its own one the turn writes on.
    let untouched = "UPDATE task SET epoch = epoch WHERE id = $1";
    let (events, _) = added_after(&replicas, &server, "m-2", untouched).await?;
    assert!(events > 3, "{events} events");
    drop(server);
    replicas.remove().await;
    Ok(())
}

/// Stops a process for `time` while it appends to a task. Returns the time after which another process had ended the
/// task.
async fn stopped_for(replicas: &Replicas, other: &Server, time: Duration) -> Result<Duration> {
    let stopped = replicas.start(&talkative())?;
    let mut stored = DatabaseObserver::of(replicas).await?;
    let mut sent = said("talk", "m");
    sent["message"]["contextId"] = json!(format!("c-{}", time.as_millis()));
    sent["configuration"] = json!({"returnImmediately": true});
    let sent = replicas.call(&stopped, "SendMessage", sent).await?;
    let task = sent["result"]["task"]["id"].as_str().with_context(|| sent.to_string())?.to_owned();
    stored.until(&task, 4).await?;
    stored.stop_inside_append(&stopped, &task).await?;
    let begin = Instant::now();
    let failed = replicas.until(other, &task, "TASK_STATE_FAILED", time + Duration::from_secs(4)).await;
    let ended = begin.elapsed();
    tokio::time::sleep(time.saturating_sub(ended)).await;
    let events = stored.events(&task).await?;
    stopped.signal(Signal::CONT)?;
    let failed = failed?;
    // It would have said something several times.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(stored.events(&task).await?, events, "stopped for {time:?}");
    assert_eq!(replicas.call(other, "GetTask", json!({"id": task})).await?["result"], failed);
    let again = replicas.call(&stopped, "SendMessage", said("hello", &format!("m-{}", time.as_millis()))).await?;
    assert_eq!(again["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{again}");
    Ok(ended)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_stopped_inside_of_an_append_writes_nothing_to_what_others_have_ended() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let other = replicas.start("")?;
    let leases = |tenths: u64| stopped_for(&replicas, &other, Duration::from_millis(500 * tenths));
    let (one, two, three) = tokio::join!(leases(12), leases(20), leases(30));
    for ended in [one?, two?, three?] {
        println!("ended {ended:?} after the stop");
        // A lease and a second, and some for a machine that is busy.
        assert!(ended < Duration::from_secs(6 + 3), "{ended:?}");
    }
    drop(other);
    replicas.remove().await;
    Ok(())
}

/// Starts a server with `on_lost_turn = "rerun"`: another process runs a lost turn again.
fn again(url: &str, talk: &str) -> Result<Server> {
    let agent = format!("[agent]\nkind = \"script\"\nname = \"c\"\non_lost_turn = \"rerun\"\n{talk}");
    lost::start_at(url, &agent, "")
}

/// Checks that a stopped process cannot write to a task that another process has taken. The other process has added no
/// event yet, so a late event would have the right number, and only the fence can refuse it.
async fn held_back_for(time: Duration) -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let proxy = Proxy::start(replicas.url()).await?;
    let stopped = again(proxy.url(), &talkative())?;
    let other = again(replicas.url(), "[[agent.rule]]\nsteps = [{ wait_ms = 60000 }]")?;
    let mut stored = DatabaseObserver::of(&replicas).await?;
    let task = replicas.begin(&stopped, "talk").await?;
    stored.until(&task, 4).await?;
    proxy.set(Way::Closed);
    // It says something five times a second, and sends that.
    tokio::time::sleep(Duration::from_millis(600)).await;
    stopped.signal(Signal::STOP)?;
    let begin = Instant::now();
    while stored.taken(&task).await? == 0 {
        ensure!(begin.elapsed() < LEASE_AND_LOOK, "nobody has taken it");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(time.saturating_sub(begin.elapsed())).await;
    let events = stored.events(&task).await?;
    proxy.set(Way::Open);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(stored.events(&task).await?, events, "stopped for {time:?}");
    stopped.signal(Signal::CONT)?;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(stored.events(&task).await?, events, "stopped for {time:?}");
    drop((stopped, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_stopped_process_had_sent_is_not_written_to_a_task_that_another_one_has_taken_and_left_as_it_was()
-> Result<()> {
    let [one, two, three] = STOPS.map(held_back_for);
    tokio::try_join!(one, two, three).map(drop)
}

async fn cancel(replicas: &Replicas, server: &Server, task: &str) -> Result<(Value, Duration)> {
    let begin = Instant::now();
    let canceled = replicas.call(server, "CancelTask", json!({"id": task})).await?;
    Ok((canceled, begin.elapsed()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_is_cancelled_by_the_process_that_runs_it_whichever_one_is_asked() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [one, other] = [replicas.start(&talkative())?, replicas.start("")?];
    let mut stored = DatabaseObserver::of(&replicas).await?;
    for round in 0..3 {
        let task = replicas.begin(&one, &format!("long {round}")).await?;
        let (events, canceled) = tokio::join!(
            replicas.stream(&one, "SubscribeToTask", json!({"id": task})),
            cancel(&replicas, &other, &task)
        );
        let (canceled, took) = canceled?;
        assert_eq!(canceled["result"]["status"]["state"], "TASK_STATE_CANCELED", "{canceled}");
        println!("cancelled after {took:?}");
        // One that had not heard of it would have lost its task after two seconds.
        assert_eq!(stored.taken(&task).await?, 0, "round {round}: {took:?}");
        let last = events?.pop().context("an event")?;
        assert_eq!(last["result"]["statusUpdate"]["status"]["state"], "TASK_STATE_CANCELED", "{last}");
    }
    drop((one, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_task_of_a_process_that_does_not_answer_is_taken_to_be_cancelled() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [stopped, other] = [replicas.start(&talkative())?, replicas.start("")?];
    let mut stored = DatabaseObserver::of(&replicas).await?;
    let task = replicas.begin(&stopped, "talk").await?;
    stored.until(&task, 3).await?;
    stopped.signal(Signal::STOP)?;
    let canceled = cancel(&replicas, &other, &task).await;
    let events = stored.events(&task).await?;
    stopped.signal(Signal::CONT)?;
    let (canceled, took) = canceled?;
    assert_eq!(canceled["result"]["status"]["state"], "TASK_STATE_CANCELED", "{canceled}");
    assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(5), "{took:?}");
    assert_eq!(stored.taken(&task).await?, 1);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(stored.events(&task).await?, events);
    drop((stopped, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_turn_whose_task_another_process_has_cancelled_ends_where_it_runs() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [stopped, other] = [replicas.start("")?, replicas.start("")?];
    let task = replicas.begin(&stopped, "long").await?;
    let followed = replicas.stream(&stopped, "SubscribeToTask", json!({"id": task}));
    let canceled = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        // For less than its lease.
        stopped.signal(Signal::STOP)?;
        let canceled = cancel(&replicas, &other, &task).await;
        stopped.signal(Signal::CONT)?;
        canceled
    };
    let (followed, canceled) =
        tokio::time::timeout(Duration::from_secs(20), async { tokio::join!(followed, canceled) })
            .await
            .context("the turn goes on, and its reader hears nothing")?;
    let (canceled, _) = canceled?;
    assert_eq!(canceled["result"]["status"]["state"], "TASK_STATE_CANCELED", "{canceled}");
    let followed = followed?;
    assert_eq!(last_state(&followed), "TASK_STATE_CANCELED", "{followed:?}");
    drop((stopped, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_answers_for_a_waiting_task_at_two_processes_are_one_turn() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [one, other] = [replicas.start("")?, replicas.start("")?];
    let mut stored = DatabaseObserver::of(&replicas).await?;
    for round in 0..10 {
        let mut asked = said("ask", "m-1");
        asked["message"]["contextId"] = json!(format!("c-{round}"));
        let waits = replicas.call(&one, "SendMessage", asked).await?;
        let task = waits["result"]["task"]["id"].as_str().with_context(|| waits.to_string())?;
        let answer = |id: &str| {
            let mut sent = said("go on", id);
            sent["message"]["contextId"] = json!(format!("c-{round}"));
            sent["message"]["taskId"] = json!(task);
            sent
        };
        let (first, second) = tokio::join!(
            replicas.call(&one, "SendMessage", answer("m-2")),
            replicas.call(&other, "SendMessage", answer("m-3"))
        );
        let answers = [first?, second?];
        let done =
            answers.iter().filter(|answer| answer["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED");
        assert_eq!(done.count(), 1, "{answers:?}");
        let messages = "SELECT count(*) FROM log_entry WHERE task_id = $1 AND kind = 'message'";
        assert_eq!(stored.number(messages, task).await?, 2, "one answer has come to the agent");
    }
    drop((one, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_waits_goes_on_in_another_process_when_its_own_is_stopped() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [mut stopped, other] = [replicas.start("")?, replicas.start("")?];
    let waits = replicas.call(&stopped, "SendMessage", said("ask", "m-1")).await?;
    stopped.signal(Signal::TERM)?;
    assert_eq!(stopped.process.wait()?.code(), Some(0));
    let mut answer = said("go on", "m-2");
    answer["message"]["taskId"] = waits["result"]["task"]["id"].clone();
    let done = replicas.call(&other, "SendMessage", answer).await?;
    assert_eq!(done["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{done}");
    drop((stopped, other));
    replicas.remove().await;
    Ok(())
}

/// Runs a turn whose end cannot be stored, because the table of events is missing at that time. Returns the turn's
/// task.
async fn unstored(replicas: &Replicas, server: &Server, stored: &mut DatabaseObserver, id: &str) -> Result<String> {
    let mut sent = said("short", id);
    sent["message"]["contextId"] = json!(id);
    let task = replicas.begin_by(server, sent).await?;
    stored.until(&task, 2).await?;
    execute(&mut stored.0, "ALTER TABLE log_entry RENAME TO lost", &[]).await?;
    let events = replicas.stream(server, "SubscribeToTask", json!({"id": task})).await;
    execute(&mut stored.0, "ALTER TABLE lost RENAME TO log_entry", &[]).await?;
    let last = events?.pop().context("an event")?;
    ensure!(last["error"].is_object(), "its end was stored: {last}");
    Ok(task)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_could_not_store_its_end_does_not_fail_what_its_client_has_gone_on_with_elsewhere() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let server = replicas.start("")?;
    let mut stored = DatabaseObserver::of(&replicas).await?;
    stored.begin_lease("other").await?;
    let gone_on = unstored(&replicas, &server, &mut stored, "m-1").await?;
    stored.execute(TAKE, &gone_on).await?;
    let task = replicas.call(&server, "GetTask", json!({"id": gone_on})).await?;
    assert_eq!(task["result"]["status"]["state"], "TASK_STATE_WORKING", "{task}");
    // One that nobody has gone on with is failed soon.
    let left = unstored(&replicas, &server, &mut stored, "m-2").await?;
    replicas.until(&server, &left, "TASK_STATE_FAILED", Duration::from_secs(5)).await?;
    drop(server);
    replicas.remove().await;
    Ok(())
}
