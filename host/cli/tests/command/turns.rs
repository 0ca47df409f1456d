//! Messages of one conversation to several `annex serve` processes on one PostgreSQL database.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::future::join_all;
use rustix::process::Signal;
use serde_json::Value;

use crate::replicas::{LEASE_AND_LOOK, Replicas, said};
use crate::support::Server;

/// A rule for messages that begin with `brief`. Their turns are short, for tests with many messages.
const BRIEF: &str =
    "[[agent.rule]]\ntext = \"brief\"\nsteps = [{ wait_ms = 100 }, { status = { state = \"completed\" } }]";

pub(crate) const QUEUED: &str =
    "SELECT coalesce(sum(length(turns) - length(replace(turns, '<', ''))), 0)::BIGINT FROM conversation";
/// The SQL that counts the turns that are queued or have ended.
const JOINED: &str =
    "SELECT (SELECT coalesce(sum(length(turns) - length(replace(turns, '<', ''))), 0) FROM conversation)::BIGINT
    + (SELECT count(*) FROM task WHERE finished_at IS NOT NULL)";
const COMPLETED: &str = "TASK_STATE_COMPLETED";

fn state(sent: &Value) -> &str {
    sent["result"]["task"]["status"]["state"].as_str().unwrap_or_default()
}

/// Waits until `turns` turns run or wait in the queue that the processes share.
async fn until_queued(replicas: &Replicas, turns: i64) -> Result<()> {
    let begin = Instant::now();
    while replicas.number(QUEUED).await? != turns {
        ensure!(begin.elapsed() < Duration::from_secs(20), "not {turns} turns");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// Sends `messages` messages, two to each server before the next server gets any. Each message is sent once the turn of
/// the previous one has entered the queue. Returns the answers.
async fn alternate(replicas: &Replicas, servers: &[Server], messages: usize) -> Result<Vec<Value>> {
    let mut sent = Vec::new();
    for (number, server) in (0..messages).zip(servers.iter().flat_map(|server| [server, server]).cycle()) {
        let client = replicas.client.clone();
        let url = server.url.clone();
        let message = said(&format!("brief {number}"), &format!("m-{number}"));
        sent.push(tokio::spawn(async move { crate::durable::call(&client, &url, "SendMessage", message).await }));
        let came = i64::try_from(number)? + 1;
        let begin = Instant::now();
        while replicas.number(JOINED).await? < came {
            ensure!(begin.elapsed() < Duration::from_secs(20), "message {number} does not come");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    join_all(sent).await.into_iter().map(|sent| sent?).collect()
}

async fn check_order(processes: usize) -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let servers: Vec<Server> = (0..processes).map(|_| replicas.start(BRIEF)).collect::<Result<_>>()?;
    let sent = alternate(&replicas, &servers, 20).await?;
    for sent in &sent {
        assert_eq!(state(sent), COMPLETED, "{sent}");
    }
    let expected: Vec<String> = (0..20).flat_map(|number| [format!("brief {number}"), "-".to_owned()]).collect();
    assert_eq!(replicas.conversation().await?, expected);
    until_queued(&replicas, 0).await?;
    drop(servers);
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_one_conversation_to_two_processes_are_answered_in_their_order() -> Result<()> {
    check_order(2).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_one_conversation_to_three_processes_are_answered_in_their_order() -> Result<()> {
    check_order(3).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_messages_at_once_to_two_processes_are_answered_one_after_the_other() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [one, other] = [replicas.start("")?, replicas.start("")?];
    let begin = Instant::now();
    let (first, second) = tokio::join!(
        replicas.call(&one, "SendMessage", said("silent", "m-1")),
        replicas.call(&other, "SendMessage", said("silent", "m-2"))
    );
    let (first, second) = (first?, second?);
    assert_eq!((state(&first), state(&second)), (COMPLETED, COMPLETED), "{first} {second}");
    assert!(begin.elapsed() >= Duration::from_secs(6), "they ran at the same time");
    assert_eq!(replicas.conversation().await?, ["silent", "-", "silent", "-"]);
    drop((one, other));
    replicas.remove().await;
    Ok(())
}

/// Stops the process during a turn, waits for `until`, and lets the process continue long enough to end the turn.
async fn stop(server: &Server, until: impl Future<Output = Result<()>>) -> Result<()> {
    server.signal(Signal::STOP)?;
    let waited = until.await;
    server.signal(Signal::CONT)?;
    waited?;
    // Its turn was over while it was stopped, so by now it has tried to store the end.
    tokio::time::sleep(Duration::from_secs(1)).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_stopped_for_longer_than_its_lease_adds_nothing_to_the_conversation() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [stopped, other] = [replicas.start("")?, replicas.start("")?];
    let task = replicas.begin(&stopped, "short").await?;
    let failed = async { replicas.until(&other, &task, "TASK_STATE_FAILED", LEASE_AND_LOOK).await.map(drop) };
    stop(&stopped, failed).await?;
    assert_eq!(replicas.conversation().await?, ["short", "BROKEN_OFF"]);
    let again = replicas.call(&stopped, "SendMessage", said("hello", "m-2")).await?;
    assert_eq!(state(&again), COMPLETED, "{again}");
    assert_eq!(replicas.conversation().await?, ["short", "BROKEN_OFF", "hello", "-"]);
    drop((stopped, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_behind_the_turn_of_a_stopped_process_is_answered_and_that_one_adds_nothing() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [stopped, other] = [replicas.start("")?, replicas.start("")?];
    replicas.begin(&stopped, "short").await?;
    let answered = async {
        let begin = Instant::now();
        let sent = replicas.call(&other, "SendMessage", said("silent", "m-2")).await?;
        assert_eq!(state(&sent), COMPLETED, "{sent}");
        // Its own turn takes three seconds.
        assert!(begin.elapsed() < LEASE_AND_LOOK + Duration::from_secs(3), "{:?}", begin.elapsed());
        println!("answered after {:?}", begin.elapsed());
        Ok(())
    };
    stop(&stopped, answered).await?;
    assert_eq!(replicas.conversation().await?, ["short", "BROKEN_OFF", "silent", "-"]);
    until_queued(&replicas, 0).await?;
    drop((stopped, other));
    replicas.remove().await;
    Ok(())
}
