//! Processes that are stopped for longer than their lease and continue after others have taken over their work. They
//! are stopped during a takeover, in the queue of a conversation, or while they send a push notification. Their late
//! actions must change nothing.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use sqlx::Connection;
use sqlx::postgres::PgConnection;

use crate::proxy::{Proxy, Way};
use crate::push::{self, Receiver};
use crate::replicas::{LEASE_AND_LOOK, Replicas, said};
use crate::support::Server;
use crate::turns::QUEUED;

/// The times for which the tests stop a process. A lease lasts five seconds, so the times are 1.2 to 3 leases.
pub(crate) const STOPS: [Duration; 3] = [Duration::from_secs(6), Duration::from_secs(10), Duration::from_secs(15)];

const COMPLETED: &str = "TASK_STATE_COMPLETED";

fn state(sent: &Value) -> &str {
    sent["result"]["task"]["status"]["state"].as_str().unwrap_or_default()
}

/// Waits until the query `sql` returns `number`.
async fn until(replicas: &Replicas, sql: &'static str, number: i64) -> Result<()> {
    let begin = Instant::now();
    while replicas.number(sql).await? != number {
        ensure!(begin.elapsed() < Duration::from_secs(20), "not {number}: {sql}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Waits until another connection waits for a lock of this connection.
pub(crate) async fn is_waited_for(connection: &mut PgConnection) -> Result<()> {
    // Not by `pg_stat_activity`, which shows the same backends to the end of a transaction.
    let waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY (pg_blocking_pids(pid))";
    let begin = Instant::now();
    while sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut *connection).await? == 0 {
        ensure!(begin.elapsed() < Duration::from_secs(20), "nobody waits for it");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// A database lock that blocks the processes at one statement until the lock is given back.
pub(crate) struct Lock(PgConnection);

impl Lock {
    pub(crate) async fn take(replicas: &Replicas, sql: &'static str) -> Result<Self> {
        let mut connection = PgConnection::connect(replicas.url()).await?;
        sqlx::query("BEGIN").execute(&mut connection).await?;
        sqlx::query(sql).execute(&mut connection).await?;
        Ok(Self(connection))
    }

    /// Waits until a process waits for the lock.
    pub(crate) async fn is_waited_for(&mut self) -> Result<()> {
        is_waited_for(&mut self.0).await
    }

    pub(crate) async fn give_back(mut self) -> Result<()> {
        sqlx::query("ROLLBACK").execute(&mut self.0).await?;
        Ok(self.0.close().await?)
    }
}

/// A process that has taken the task of a killed process but has not received the database's answer, which the proxy
/// holds back. Returns the process and the id of the task.
async fn taken_unheard(replicas: &Replicas, proxy: &Proxy) -> Result<(Server, String)> {
    let taker = replicas.start_with("", &[("ANNEX_TEST_TASKS", proxy.url())])?;
    let mut killed = replicas.start("")?;
    // A row that is locked would be passed over, and a table that is locked keep the statement from being prepared.
    let wait = "CREATE FUNCTION wait() RETURNS trigger AS $$ BEGIN
            PERFORM pg_advisory_xact_lock_shared(1);
            RETURN NEW;
        END $$ LANGUAGE plpgsql;
        CREATE TRIGGER wait BEFORE UPDATE ON task FOR EACH ROW WHEN (NEW.attempts > OLD.attempts) EXECUTE FUNCTION wait()";
    let mut connection = PgConnection::connect(replicas.url()).await?;
    sqlx::raw_sql(wait).execute(&mut connection).await?;
    connection.close().await?;
    // Both before the process is killed: on a busy machine its lease may end at once.
    let mut lock = Lock::take(replicas, "SELECT pg_advisory_xact_lock(1)").await?;
    let task = replicas.begin(&killed, "long").await?;
    killed.process.kill()?;
    killed.process.wait()?;
    lock.is_waited_for().await?;
    proxy.set(Way::AnswersHeld);
    lock.give_back().await?;
    until(replicas, "SELECT attempts FROM task", 1).await?;
    Ok((taker, task))
}

/// Checks a takeover that is interrupted. A process takes the task of a killed process and is stopped. Another process
/// then takes the task from the stopped one.
async fn check_takeover(time: Duration) -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let proxy = Proxy::start(replicas.url()).await?;
    let (stopped, task) = taken_unheard(&replicas, &proxy).await?;
    stopped.signal(Signal::STOP)?;
    proxy.set(Way::Open);
    let begin = Instant::now();
    let other = replicas.start("")?;
    let failed = replicas.until(&other, &task, "TASK_STATE_FAILED", LEASE_AND_LOOK).await?;
    tokio::time::sleep(time.saturating_sub(begin.elapsed())).await;
    let written = "SELECT number FROM task";
    let before = replicas.number(written).await?;
    stopped.signal(Signal::CONT)?;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(replicas.number(written).await?, before, "stopped for {time:?}");
    let found = replicas.call(&other, "GetTask", json!({"id": task})).await?;
    assert_eq!(found["result"], failed);
    drop((stopped, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_stopped_inside_of_a_takeover_writes_nothing_to_what_others_have_taken_from_it() -> Result<()>
{
    let [one, two, three] = STOPS.map(check_takeover);
    tokio::try_join!(one, two, three).map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_a_process_has_taken_without_hearing_of_it_is_ended_by_it() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let proxy = Proxy::start(replicas.url()).await?;
    let (taker, task) = taken_unheard(&replicas, &proxy).await?;
    // The answer goes with its connection, and the lease holds.
    proxy.reset();
    proxy.set(Way::Open);
    replicas.until(&taker, &task, "TASK_STATE_FAILED", Duration::from_secs(5)).await?;
    assert_eq!(replicas.conversation().await?, ["long", "BROKEN_OFF"], "it was ended once");
    drop(taker);
    replicas.remove().await;
    Ok(())
}

/// Checks a queued turn. The turn has joined the queue of its conversation when its process is stopped, and other turns
/// continue.
async fn check_queue(time: Duration) -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let proxy = Proxy::start(replicas.url()).await?;
    let stopped = replicas.start_with("", &[("ANNEX_TEST_TASKS", proxy.url())])?;
    let other = replicas.start("")?;
    let begun = replicas.call(&other, "SendMessage", said("hello", "m-1")).await?;
    assert_eq!(state(&begun), COMPLETED, "{begun}");
    let sent = said("joins", "m-2");
    let mut lock = Lock::take(&replicas, "SELECT id FROM conversation FOR UPDATE").await?;
    let late = replicas.call(&stopped, "SendMessage", sent.clone());
    let others = async {
        lock.is_waited_for().await?;
        proxy.set(Way::AnswersHeld);
        lock.give_back().await?;
        until(&replicas, QUEUED, 1).await?;
        stopped.signal(Signal::STOP)?;
        proxy.set(Way::Open);
        let begin = Instant::now();
        let answered = replicas.call(&other, "SendMessage", said("next", "m-3")).await?;
        ensure!(state(&answered) == COMPLETED, "{answered}");
        tokio::time::sleep(time.saturating_sub(begin.elapsed())).await;
        stopped.signal(Signal::CONT)
    };
    let (late, others) = tokio::join!(late, others);
    others.with_context(|| format!("stopped for {time:?}, and the late message: {late:?}"))?;
    let late = late?;
    assert_eq!(late["error"]["code"], -32_000, "stopped for {time:?}: {late}");
    assert_eq!(replicas.conversation().await?, ["hello", "-", "next", "-"], "stopped for {time:?}");
    // It comes again, and is answered in its place.
    let again = replicas.repeat(&stopped, &sent).await?;
    assert_eq!(state(&again), COMPLETED, "{again}");
    assert_eq!(replicas.conversation().await?, ["hello", "-", "next", "-", "joins", "-"]);
    drop((stopped, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_stopped_inside_of_the_queue_adds_nothing_to_what_others_went_on_with() -> Result<()> {
    let [one, two, three] = STOPS.map(check_queue);
    tokio::try_join!(one, two, three).map(drop)
}

/// Checks push notifications. A process sends an event and is stopped before the receiver answers; another process
/// continues to send.
async fn check_push(time: Duration) -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [stopped, other] = [push::start(&replicas)?, push::start(&replicas)?];
    let receiver = Receiver::start().await?;
    let task = replicas.begin(&other, "ticks").await?;
    push::register(&replicas, &stopped, &task, &receiver).await?;
    receiver.has(5).await?;
    stopped.signal(Signal::STOP)?;
    let begin = Instant::now();
    receiver.has_state(COMPLETED).await?;
    tokio::time::sleep(time.saturating_sub(begin.elapsed())).await;
    let sent = receiver.numbers(&task)?;
    let cursors = "SELECT count(*) FROM push_cursor";
    ensure!(replicas.number(cursors).await? == 0, "all is sent");
    stopped.signal(Signal::CONT)?;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    // An event that was on its way when the process was stopped may come once more, and nothing behind it.
    let late = receiver.numbers(&task)?.split_off(sent.len());
    assert!(late.len() <= 1, "stopped for {time:?}: {late:?} behind {sent:?}");
    let mut numbers = sent;
    let twice = numbers.windows(2).filter(|pair| pair[0] == pair[1]).count();
    numbers.dedup();
    assert!(push::is_without_gap(&numbers) && twice <= 1, "{numbers:?}, {twice} came again");
    assert_eq!(replicas.number(cursors).await?, 0);
    drop((stopped, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_stopped_inside_of_a_push_notification_sends_nothing_that_others_have_sent_on() -> Result<()>
{
    let [one, two, three] = STOPS.map(check_push);
    tokio::try_join!(one, two, three).map(drop)
}
