//! Messages whose process ended or lost its database before it answered. The next process that gets the message again
//! works on it.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::durable::call;
use crate::proxy::{Proxy, Way};
use crate::replicas::{Replicas, said};
use crate::stopped::Lock;

fn state(sent: &Value) -> &str {
    sent["result"]["task"]["status"]["state"].as_str().unwrap_or_default()
}

/// Waits until the query `counted` returns `count`.
async fn until(replicas: &Replicas, counted: &'static str, count: i64) -> Result<()> {
    let begin = Instant::now();
    while replicas.number(counted).await? != count {
        ensure!(begin.elapsed() < Duration::from_secs(20), "not {count}: {counted}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

const EVENTS: &str = "SELECT count(*) FROM session_event";
const TASKS: &str = "SELECT count(*) FROM task";
const MESSAGES: &str = "SELECT count(*) FROM message_seen";

/// Sends a message to a process that is killed once its conversation has the message, before there is a task.
async fn stored_and_left(replicas: &Replicas, sent: &Value) -> Result<()> {
    let mut killed = replicas.start("")?;
    let url = killed.url.clone();
    let begun = call(replicas.client(), &url, "SendMessage", sent.clone());
    let kill = async {
        until(replicas, EVENTS, 1).await?;
        anyhow::Ok(killed.process.kill()?)
    };
    let (begun, kill) = tokio::join!(begun, kill);
    kill?;
    ensure!(begun.is_err(), "it was answered: {begun:?}");
    ensure!(replicas.number(TASKS).await? == 0, "there is a task");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_a_killed_process_had_stored_is_in_its_conversation_once() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let other = replicas.start("")?;
    let sent = said("silent", "m");
    stored_and_left(&replicas, &sent).await?;
    let again = replicas.call(&other, "SendMessage", sent).await?;
    assert_eq!(state(&again), "TASK_STATE_COMPLETED", "{again}");
    assert_eq!(replicas.conversation().await?, ["silent", "-"]);
    drop(other);
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_stopped_before_there_was_a_task_makes_none_of_what_others_may_have_by_then() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let stopped = replicas.start("")?;
    let sent = said("silent", "m");
    let refused = replicas.call(&stopped, "SendMessage", sent.clone());
    let stop = async {
        until(&replicas, EVENTS, 1).await?;
        stopped.signal(Signal::STOP)?;
        // Longer than a lease.
        tokio::time::sleep(Duration::from_secs(7)).await;
        stopped.signal(Signal::CONT)
    };
    let (refused, stop) = tokio::join!(refused, stop);
    stop?;
    let refused = refused?;
    assert_eq!(refused["error"]["code"], -32_000, "{refused}");
    assert_eq!(replicas.number(TASKS).await?, 0, "there is a task of a turn that was refused");
    let again = replicas.repeat(&stopped, &sent).await?;
    assert_eq!(state(&again), "TASK_STATE_COMPLETED", "{again}");
    assert_eq!(replicas.conversation().await?, ["silent", "-"]);
    drop(stopped);
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_its_own_process_has_left_is_worked_on_when_it_comes_again() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let server = replicas.start("")?;
    let sent = said("hello", "m");
    let first = replicas.call(&server, "SendMessage", sent.clone()).await?;
    assert_eq!(state(&first), "TASK_STATE_COMPLETED", "{first}");
    // As after a failure between the claim and the task.
    assert_eq!(replicas.number("WITH gone AS (DELETE FROM task RETURNING id) SELECT count(*) FROM gone").await?, 1);
    let again = replicas.call(&server, "SendMessage", sent.clone()).await?;
    assert_eq!(state(&again), "TASK_STATE_COMPLETED", "{again}");
    assert_eq!(again["result"]["task"]["id"], first["result"]["task"]["id"]);
    let third = replicas.call(&server, "SendMessage", sent).await?;
    assert_eq!(third["result"]["task"], again["result"]["task"], "it is worked on once");
    drop(server);
    replicas.remove().await;
    Ok(())
}

/// Sends a message. Its claim is stored, but the process never gets the database's answer.
async fn claimed_without_an_answer(replicas: &Replicas, proxy: &Proxy, url: &str, sent: &Value) -> Result<()> {
    // The same claim waits until it is known what becomes of this one.
    let claim = "INSERT INTO message_seen (tenant, principal, context_id, message_id, digest, task_id, seen_at, times)
        VALUES ('', '', 'c', 'm', '', 't', 0, 1)";
    let mut lock = Lock::take(replicas, claim).await?;
    let failed = call(replicas.client(), url, "SendMessage", sent.clone());
    let reset = async {
        lock.is_waited_for().await?;
        proxy.set(Way::AnswersHeld);
        lock.give_back().await?;
        until(replicas, MESSAGES, 1).await?;
        proxy.reset();
        proxy.set(Way::Open);
        anyhow::Ok(())
    };
    let (failed, ()) = tokio::try_join!(failed, reset)?;
    ensure!(failed["error"]["code"] == json!(-32_603), "{failed}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_claim_was_stored_and_its_answer_lost_is_worked_on_when_it_comes_again() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let proxy = Proxy::start(replicas.url()).await?;
    let through = replicas.start_with("", &[("ANNEX_TEST_TASKS", proxy.url())])?;
    let other = replicas.start("")?;
    let sent = said("hello", "m");
    claimed_without_an_answer(&replicas, &proxy, &through.url, &sent).await?;
    // The process lives and has its lease, so that the other one takes nothing over from it.
    let begin = Instant::now();
    let again = replicas.call(&other, "SendMessage", sent).await?;
    assert_eq!(state(&again), "TASK_STATE_COMPLETED", "{again}");
    println!("worked on by another process after {:?}", begin.elapsed());
    drop((through, other));
    replicas.remove().await;
    Ok(())
}
