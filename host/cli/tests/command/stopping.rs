//! An `annex serve` that receives SIGTERM, and another process that takes over its work.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::durable::{call, message};
use crate::lost::{ATTEMPT, COMPLETED, EVENTS, FAILED, LIMIT, RERUN, number, start, until_number};
use crate::replicas::{Replicas, said};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_told_to_stop_leaves_what_still_runs_to_another_one_at_once() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let drains = "drain_seconds = 1";
    let [mut stopped, other] = [start(&replicas, RERUN, drains)?, start(&replicas, RERUN, drains)?];
    let task = replicas.begin(&stopped, "talk").await?;
    until_number(&replicas, EVENTS, &task, 2).await?;
    stopped.signal(Signal::TERM)?;
    let begin = Instant::now();
    until_number(&replicas, ATTEMPT, &task, 1).await?;
    let taken = begin.elapsed();
    println!("taken {taken:?} after SIGTERM");
    // A second to drain, and a look: nobody waits for a lease.
    assert!(taken < Duration::from_secs(4), "{taken:?}");
    replicas.until(&other, &task, COMPLETED, LIMIT).await?;
    assert_eq!(stopped.process.wait()?.code(), Some(0));
    assert_eq!(replicas.conversation().await?, ["talk", "-"]);
    drop((stopped, other));
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_another_process_a_turn_that_still_runs_fails_as_before() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let mut stopped = start(&replicas, RERUN, "drain_seconds = 1")?;
    let task = replicas.begin(&stopped, "talk").await?;
    stopped.signal(Signal::TERM)?;
    assert_eq!(stopped.process.wait()?.code(), Some(0));
    let failed = "SELECT count(*) FROM task WHERE id = $1 AND state = 'TASK_STATE_FAILED'";
    assert_eq!(number(&replicas, failed, &task).await?, 1);
    drop(stopped);
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_waits_for_its_turn_goes_to_another_process_as_soon_as_its_own_is_told_to_stop() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [mut stopped, other] = [start(&replicas, RERUN, "")?, start(&replicas, RERUN, "")?];
    replicas.begin(&stopped, "talk").await?;
    let waits = replicas.call(&stopped, "SendMessage", said("brief", "m-2"));
    let stop = async {
        let taken = "SELECT count(*) FROM message WHERE context_id = $1";
        until_number(&replicas, taken, "c", 2).await?;
        stopped.signal(Signal::TERM)?;
        let begin = Instant::now();
        let processes = "SELECT count(DISTINCT replica) FROM task WHERE context_id = $1 AND replica <> ''";
        until_number(&replicas, processes, "c", 2).await?;
        anyhow::Ok(begin.elapsed())
    };
    let (left, taken) = tokio::join!(waits, stop);
    let (left, taken) = (left?, taken?);
    assert!(taken < Duration::from_secs(2), "{taken:?}");
    assert_eq!(left["result"]["task"]["status"]["state"], "TASK_STATE_SUBMITTED", "{left}");
    // Behind the turn that still runs there.
    let done = replicas.call(&other, "SendMessage", said("brief", "m-2")).await?;
    assert_eq!(done["result"]["task"]["status"]["state"], COMPLETED, "{done}");
    assert_eq!(stopped.process.wait()?.code(), Some(0));
    assert_eq!(replicas.conversation().await?, ["talk", "-", "brief", "-"]);
    drop((stopped, other));
    replicas.remove().await;
    Ok(())
}

/// Sends the message to one server after another until a server accepts it. Returns the task after it has ended.
async fn sent(replicas: &Replicas, urls: &[String], sent: Value) -> Result<Value> {
    let begin = Instant::now();
    let mut task = None;
    for url in urls.iter().cycle() {
        ensure!(begin.elapsed() < LIMIT * 2, "{sent} does not end");
        let answer = match &task {
            None => call(replicas.client(), url, "SendMessage", sent.clone()).await,
            Some(task) => call(replicas.client(), url, "GetTask", json!({"id": task})).await,
        };
        let found = answer.as_ref().ok().map(|answer| &answer["result"]);
        let found = found.map(|result| if result["task"].is_object() { &result["task"] } else { result });
        let Some(found) = found.filter(|found| found["id"].is_string()) else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let state = found["status"]["state"].as_str().unwrap_or_default();
        if [COMPLETED, FAILED].contains(&state) {
            return Ok(found.clone());
        }
        task = Some(found["id"].clone());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("there is no server")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_under_load_loses_and_fails_nothing() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let drains = "drain_seconds = 1";
    let mut servers = vec![start(&replicas, RERUN, drains)?, start(&replicas, RERUN, drains)?];
    // Addresses stay known although servers go, as they do behind a load balancer: those of the third and fourth are asked, too.
    let later = [start(&replicas, RERUN, drains)?, start(&replicas, RERUN, drains)?];
    let urls: Vec<String> = servers.iter().chain(&later).map(|server| server.url.clone()).collect();
    let load = (0..30).map(|number| {
        let mut urls = urls.clone();
        urls.rotate_left(number % 2);
        let replicas = &replicas;
        async move {
            tokio::time::sleep(Duration::from_millis(300 * u64::try_from(number)?)).await;
            // A third of them in one conversation, a third without a word before their end.
            let text = ["talk", "brief", "silent"][number % 3];
            let mut message = message(&format!("c-{number}"), &format!("m-{number}"));
            message["message"]["parts"] = json!([{"text": text}]);
            if text == "brief" {
                message["message"]["contextId"] = json!("shared");
            }
            Ok::<_, anyhow::Error>((number, sent(replicas, &urls, message).await?))
        }
    });
    let restarts = async {
        for server in &mut servers {
            // Longer than a turn takes: one that is begun for the second time is not left to a third process.
            tokio::time::sleep(Duration::from_millis(4_500)).await;
            server.signal(Signal::TERM)?;
            let status = tokio::task::block_in_place(|| server.process.wait())?;
            ensure!(status.code() == Some(0), "{status}");
        }
        Ok(())
    };
    let (ended, restarted) = tokio::join!(try_join_all(load), restarts);
    restarted?;
    let ended: HashMap<usize, Value> = ended?.into_iter().collect();
    for (number, task) in &ended {
        assert_eq!(task["status"]["state"], COMPLETED, "{number}: {task}");
    }
    assert_eq!(ended.len(), 30);
    let tasks = "SELECT count(*) FROM task WHERE state = 'TASK_STATE_COMPLETED' AND id <> $1";
    assert_eq!(number(&replicas, tasks, "").await?, 30, "each message is one task");
    drop((servers, later));
    replicas.remove().await;
    Ok(())
}
