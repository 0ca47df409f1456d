//! Turns of `annex serve` during a short outage of its PostgreSQL database: the turns wait for the database, and each
//! ends once.

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::{join_all, try_join_all};
use serde_json::{Value, json};
use sqlx::Connection;
use sqlx::postgres::PgConnection;

use crate::cluster::Cluster;
use crate::push::is_without_gap;
use crate::replicas::{Replicas, ready, said};
use crate::support::Server;

const COMPLETED: &str = "TASK_STATE_COMPLETED";
/// The number of turns that run at once, each in a conversation of its own.
const TURNS: usize = 12;
/// The number of statuses that the agent sends in each turn before the last one.
const SAID: usize = 20;
/// The timeout for turns, which take a few seconds.
const LIMIT: Duration = Duration::from_secs(40);

fn talkative() -> String {
    let step = "{ wait_ms = 150 }, { status = { state = \"working\", text = \"still\" } }, ";
    let done = "{ wait_ms = 150 }, { status = { state = \"completed\", text = \"done\" } }";
    format!("[[agent.rule]]\ntext = \"talk\"\nsteps = [{}{done}]", step.repeat(SAID))
}

/// Begins [`TURNS`] turns that take three seconds, and returns the ids of their tasks.
async fn begin(replicas: &Replicas, server: &Server, round: &str) -> Result<Vec<String>> {
    let begun = (0..TURNS).map(|turn| {
        let mut sent = said("talk", "m");
        sent["message"]["contextId"] = json!(format!("{round}-{turn}"));
        replicas.begin_by(server, sent)
    });
    try_join_all(begun).await
}

/// Subscribes to the task until it ends. Returns the numbers of its events, and the last event.
async fn followed(replicas: &Replicas, server: &Server, task: &str) -> Result<(Vec<u64>, Value)> {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task}});
    let request = replicas.client().post(format!("{}/a2a/jsonrpc", server.url)).header("A2A-Version", "1.0");
    let text = request.header("content-type", "application/json").body(body.to_string()).send().await?.text().await?;
    let numbers = text.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect();
    let last = text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().context(text.clone())?;
    Ok((numbers, serde_json::from_str(last)?))
}

/// Checks that each task ended once with every event of its agent, and that subscribers got each event once.
async fn check(replicas: &Replicas, tasks: &[String], followed: Vec<Result<(Vec<u64>, Value)>>) -> Result<()> {
    let expected = i64::try_from(1 + SAID + 1)?;
    let mut database = PgConnection::connect(replicas.url()).await?;
    for task in tasks {
        let state: String =
            sqlx::query_scalar("SELECT state FROM task WHERE id = $1").bind(task).fetch_one(&mut database).await?;
        let counted = "SELECT count(*) FROM log_entry WHERE task_id = $1 AND kind <> 'event'";
        let events: i64 = sqlx::query_scalar(counted).bind(task).fetch_one(&mut database).await?;
        assert_eq!((state.as_str(), events), (COMPLETED, expected), "{task}");
    }
    for followed in followed {
        let (numbers, last) = followed?;
        assert_eq!(last["result"]["statusUpdate"]["status"]["state"], COMPLETED, "{last}");
        // The agent's last event in the conversation has a number, too.
        assert_eq!(numbers.last(), Some(&u64::try_from(expected + 1)?));
        assert!(is_without_gap(&numbers), "{numbers:?}");
    }
    // A message and the end of its turn in each conversation.
    let open = "SELECT count(*) FROM conversation WHERE number <> 2 OR turns <> ''";
    assert_eq!(sqlx::query_scalar::<_, i64>(open).fetch_one(&mut database).await?, 0);
    Ok(database.close().await?)
}

async fn until_completed(replicas: &Replicas, server: &Server, tasks: &[String]) -> Result<()> {
    try_join_all(tasks.iter().map(|task| replicas.until(server, task, COMPLETED, LIMIT))).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_whose_connections_break_again_and_again_end_once_and_lose_nothing() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let server = replicas.start(&talkative())?;
    let tasks = begin(&replicas, &server, "c").await?;
    let followers = join_all(tasks.iter().map(|task| followed(&replicas, &server, task)));
    let resets = async {
        let mut database = PgConnection::connect(replicas.url()).await?;
        let mut ended = 0;
        for _ in 0..8 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            let others = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                WHERE datname = current_database() AND pid <> pg_backend_pid()";
            ended += sqlx::query_scalar::<_, i64>(others).fetch_one(&mut database).await?;
        }
        database.close().await?;
        anyhow::Ok(ended)
    };
    let (followed, ended) = tokio::join!(followers, resets);
    ensure!(ended? > 8, "no connection was broken");
    until_completed(&replicas, &server, &tasks).await?;
    check(&replicas, &tasks, followed).await?;
    drop(server);
    replicas.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_survive_a_database_that_crashes_and_starts_again_within_their_lease() -> Result<()> {
    let database = match Cluster::create() {
        Ok(database) => database,
        Err(reason) => {
            let _ = writeln!(std::io::stderr(), "SKIPPED a PostgreSQL test: {reason}");
            return Ok(());
        }
    };
    let replicas = Replicas::at(database.url());
    let server = replicas.start(&talkative())?;
    let tasks = begin(&replicas, &server, "c").await?;
    let followers = join_all(tasks.iter().map(|task| followed(&replicas, &server, task)));
    let crash = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let away = Instant::now();
        tokio::task::block_in_place(|| database.stop().and_then(|()| database.start())).map_err(anyhow::Error::msg)?;
        anyhow::Ok(away.elapsed())
    };
    let (followed, away) = tokio::join!(followers, crash);
    println!("away for {:?}", away?);
    until_completed(&replicas, &server, &tasks).await?;
    check(&replicas, &tasks, followed).await?;

    // One that is away for longer than two seconds is not ready, until the database is back.
    database.stop().map_err(anyhow::Error::msg)?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(ready(&replicas, &server).await?.0, 503);
    database.start().map_err(anyhow::Error::msg)?;
    let begin_again = Instant::now();
    while ready(&replicas, &server).await?.0 != 200 {
        ensure!(begin_again.elapsed() < LIMIT, "not ready again");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Its lease was over, and a message that comes before the next one begins is sent again.
    let again = loop {
        match begin(&replicas, &server, &format!("d-{}", begin_again.elapsed().as_millis())).await {
            Ok(begun) => break begun,
            Err(error) => ensure!(begin_again.elapsed() < LIMIT, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    until_completed(&replicas, &server, &again).await?;
    drop(server);
    Ok(())
}
