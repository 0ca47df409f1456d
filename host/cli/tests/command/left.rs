//! Messages that a process accepted but did not answer, because it ended or lost its database. If the client sends the
//! message again, the process that receives this message works on the task.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::durable::call;
use crate::proxy::{Proxy, Way};
use crate::replicas::{LEASE_AND_LOOK, Replicas, said};
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

const MESSAGES: &str = "SELECT count(*) FROM message";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_waits_is_run_by_another_process_when_its_own_is_killed() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [mut killed, other] = [replicas.start("")?, replicas.start("")?];
    replicas.begin(&other, "short").await?;
    let mut sent = said("hello", "m-2");
    sent["configuration"] = json!({"returnImmediately": true});
    let begin = Instant::now();
    let waits = replicas.call(&killed, "SendMessage", sent).await?;
    assert!(begin.elapsed() < Duration::from_secs(1), "it waited for {:?}", begin.elapsed());
    assert_eq!(state(&waits), "TASK_STATE_SUBMITTED", "{waits}");
    killed.process.kill()?;
    killed.process.wait()?;
    let task = waits["result"]["task"]["id"].as_str().unwrap_or_default();
    replicas.until(&other, task, "TASK_STATE_COMPLETED", LEASE_AND_LOOK + Duration::from_secs(3)).await?;
    assert_eq!(replicas.conversation().await?, ["short", "-", "hello", "-"]);
    drop(other);
    replicas.remove().await;
    Ok(())
}

/// Sends a message to a process that claims it in the database. The claim is stored, but the database's answer never
/// reaches the process.
async fn claimed_without_an_answer(replicas: &Replicas, proxy: &Proxy, url: &str, sent: &Value) -> Result<()> {
    // The same claim waits until it is known what becomes of this one.
    let claim = "INSERT INTO message (tenant, principal, context_id, message_id, digest, task_id, claimed_at, claim)
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
