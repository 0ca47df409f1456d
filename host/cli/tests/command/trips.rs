//! Counts the round trips of a turn between the server and PostgreSQL. A statement that is prepared or sent in a wrong
//! way still works, but takes more round trips.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use sqlx::postgres::PgConnectOptions;

use crate::cluster::Scratch;
use crate::durable::{call, config, message};
use crate::statement_counter::Counter;
use crate::support::Server;

/// The time after which background statements have finished.
const SETTLED: Duration = Duration::from_millis(50);

/// The median number of round trips of five calls. A median ignores the renewal of a lease, or a late trip on a busy
/// machine, which adds trips to one call only.
async fn usual<T>(counter: &Counter, mut call: impl AsyncFnMut(usize) -> Result<T>) -> Result<u64> {
    let mut trips = [0; 5];
    for (time, trips) in trips.iter_mut().enumerate() {
        counter.take();
        call(time).await?;
        // Statements that still run after the answer belong to this call.
        tokio::time::sleep(SETTLED).await;
        *trips = counter.take();
    }
    trips.sort_unstable();
    Ok(trips[2])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_takes_few_trips_to_postgresql() -> Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let Some(scratch) = Scratch::create().await else { return Ok(()) };
    let database: PgConnectOptions = scratch.url().parse()?;
    let counter = Counter::start(database.clone());
    let config = config("postgres_env = \"ANNEX_TEST_TASKS\"");
    let server = Server::start_with(&config, &[("ANNEX_TEST_TASKS", &counter.url(&database))])?;
    let client = reqwest::Client::new();
    let send = async |id: &str| call(&client, &server.url, "SendMessage", message("c", id)).await;
    let first = send("first").await?;
    assert_eq!(first["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{first}");
    // The message is claimed, the turn enters the queue, which reads the conversation, and the message and the answer are
    // appended. With the answer the turn leaves the queue.
    let trips = usual(&counter, async |time| send(&format!("m-{time}")).await).await?;
    assert_eq!(trips, 4, "a message in a known context");
    let trips = usual(&counter, async |_| send("first").await).await?;
    assert_eq!(trips, 2, "a message that came before");
    let id = &first["result"]["task"]["id"];
    let trips = usual(&counter, async |_| call(&client, &server.url, "GetTask", json!({"id": id})).await).await?;
    assert_eq!(trips, 1, "GetTask");
    drop(server);
    scratch.remove().await;
    Ok(())
}
