//! Several `annex serve` on one PostgreSQL database, which together limit the turns that one caller may run at once.

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};
use sqlx::Connection;
use sqlx::postgres::PgConnection;

use crate::replicas::Replicas;
use crate::support::Server;

const KEYS: [(&str, &str); 2] =
    [("ANNEX_TEST_ADA", "the-secret-key-of-ada"), ("ANNEX_TEST_BOB", "the-secret-key-of-bob")];

const CALLERS: &str = r#"
[[agent.rule]]
text = "brief"
steps = [{ status = { state = "working" } }, { wait_ms = 8000 }, { status = { state = "completed" } }]
[auth]
[[auth.api_key]]
principal = "ada"
key_env = "ANNEX_TEST_ADA"
[[auth.api_key]]
principal = "bob"
key_env = "ANNEX_TEST_BOB"
"#;

/// Begins a turn for the caller whose API key is `key`. Returns the answer.
async fn begin(replicas: &Replicas, server: &Server, (key, id): (&str, &str)) -> Result<Value> {
    let message = json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": "brief"}]});
    let params = json!({"message": message, "configuration": {"returnImmediately": true}});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params});
    let request = replicas.client().post(format!("{}/a2a/jsonrpc", server.url)).header("A2A-Version", "1.0");
    let request = request.header("x-api-key", key).header("content-type", "application/json");
    Ok(serde_json::from_str(&request.body(body.to_string()).send().await?.text().await?)?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_whose_turns_wait_for_places_keeps_no_connection_from_others() -> Result<()> {
    let Some(replicas) = Replicas::create().await else { return Ok(()) };
    let [one, other] = [replicas.start_with(CALLERS, &KEYS)?, replicas.start_with(CALLERS, &KEYS)?];
    // Each knows of the other a second after that one has started.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut locks = PgConnection::connect(replicas.url()).await?;
    sqlx::query("BEGIN").execute(&mut locks).await?;
    sqlx::query("LOCK TABLE turn_place IN ACCESS EXCLUSIVE MODE").execute(&mut locks).await?;
    let [(_, ada), (_, bob)] = KEYS;
    // More than have places that this process gives by itself, and more than there are connections beside.
    let many = (0..50).map(|number| {
        let (replicas, one) = (&replicas, &one);
        async move { begin(replicas, one, (ada, &format!("m-{number}"))).await }
    });
    let meanwhile = async {
        // Until they wait.
        let waiting =
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%turn_place%'";
        let begun = Instant::now();
        while replicas.number(waiting).await? == 0 {
            anyhow::ensure!(begun.elapsed() < Duration::from_secs(20), "none waits");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let begun = Instant::now();
        for number in 0..5 {
            let answer = begin(&replicas, &one, (bob, &format!("m-{number}"))).await?;
            anyhow::ensure!(answer["result"]["task"].is_object(), "{answer}");
        }
        let took = begun.elapsed();
        sqlx::query("ROLLBACK").execute(&mut locks).await?;
        Ok(took)
    };
    let (many, took) = tokio::join!(futures::future::join_all(many), meanwhile);
    let took = took?;
    assert!(took < Duration::from_secs(3), "{took:?}");
    for answer in many {
        let answer = answer?;
        assert!(answer["result"]["task"].is_object(), "{answer}");
    }
    locks.close().await?;
    drop((one, other));
    replicas.remove().await;
    Ok(())
}
