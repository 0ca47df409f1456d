//! Messages that a process has left, by its end or because its database failed: they are worked on when they come again.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::durable::call;
use crate::replicas::{Replicas, said};

fn state(sent: &Value) -> &str {
    sent["result"]["task"]["status"]["state"].as_str().unwrap_or_default()
}

/// Sends a message to a process that is killed once its conversation has the message, before there is a task.
async fn stored_and_left(replicas: &Replicas, sent: &Value) -> Result<()> {
    let mut killed = replicas.start("")?;
    let url = killed.url.clone();
    let begun = call(replicas.client(), &url, "SendMessage", sent.clone());
    let kill = async {
        let begin = Instant::now();
        while replicas.number("SELECT count(*) FROM session_event").await? == 0 {
            ensure!(begin.elapsed() < Duration::from_secs(20), "it is not stored");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        anyhow::Ok(killed.process.kill()?)
    };
    let (begun, kill) = tokio::join!(begun, kill);
    kill?;
    ensure!(begun.is_err(), "it was answered: {begun:?}");
    ensure!(replicas.number("SELECT count(*) FROM task").await? == 0, "there is a task");
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
