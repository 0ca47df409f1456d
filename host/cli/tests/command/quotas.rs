//! Quotas of a tenant. Several `annex serve` processes on one PostgreSQL database count them together.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use reqwest::Client;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cluster::Scratch;
use crate::support::Server;

/// An agent whose turns end at once. For the text `long` a turn takes eight seconds.
const AGENT: &str = r#"
[card]
name = "acme"
description = "b"
[agent]
kind = "script"
name = "c"
[[agent.rule]]
steps = [{ status = { state = "completed", text = "done" } }]
[[agent.rule]]
text = "long"
steps = [{ status = { state = "working" } }, { wait_ms = 8000 }, { status = { state = "completed", text = "done" } }]
"#;

/// Two servers with the same tenant, `acme`.
struct Pair {
    scratch: Scratch,
    client: Client,
    servers: [Server; 2],
    _folder: TempDir,
}

impl Pair {
    /// Starts the servers. `None`, after a note on standard error, without PostgreSQL.
    async fn start(quota: &str) -> Result<Option<Self>> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let Some(scratch) = Scratch::create().await else { return Ok(None) };
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("acme.toml");
        fs::write(&file, AGENT)?;
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[tasks]\npostgres_env = \"ANNEX_TEST_TASKS\"\n{AGENT}\n[[tenant]]\nname = \
             \"acme\"\nconfig = {file:?}\n[tenant.quota]\n{quota}\n"
        );
        let start = || Server::start_with(&config, &[("ANNEX_TEST_TASKS", scratch.url())]);
        let servers = [start()?, start()?];
        // Each knows of the other a second after that one has started.
        tokio::time::sleep(Duration::from_secs(2)).await;
        Ok(Some(Self { scratch, client: Client::new(), servers, _folder: folder }))
    }

    /// Calls a method, and returns the HTTP status and the body. Even numbers call the first server, odd numbers the
    /// second.
    async fn call(&self, server: usize, method: &str, params: Value) -> Result<(u16, Value)> {
        let server = self.servers.iter().cycle().nth(server).map_or("", |server| &server.url);
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let request = self.client.post(format!("{server}/a2a/jsonrpc")).header("A2A-Version", "1.0");
        let reply = request.header("content-type", "application/json").body(body).send().await?;
        Ok((reply.status().as_u16(), serde_json::from_str(&reply.text().await?)?))
    }

    async fn say(&self, server: usize, text: &str) -> Result<(u16, Value)> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = format!("m-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let message = json!({"messageId": id, "contextId": id, "role": "ROLE_USER", "parts": [{"text": text}]});
        let configuration = json!({"returnImmediately": true});
        let params = json!({"tenant": "acme", "message": message, "configuration": configuration});
        self.call(server, "SendMessage", params).await
    }

    async fn remove(self) {
        drop(self.servers);
        self.scratch.remove().await;
    }
}

/// True if the answer is a result, false if it is a refusal because of `quota`. Fails for any other answer.
fn is_taken((status, body): &(u16, Value), quota: &str) -> Result<bool> {
    if body["result"].is_object() {
        return Ok(true);
    }
    let data = &body["error"]["data"];
    let is_refusal = data[0]["reason"] == "QUOTA_EXCEEDED" && data[0]["metadata"]["quota"] == quota;
    ensure!(*status == 429 && is_refusal && data[1]["retryDelay"].is_string(), "not refused for its quota: {body}");
    Ok(false)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_has_as_many_turns_at_once_as_it_may_through_two_processes() -> Result<()> {
    let Some(pair) = Pair::start("turns = 20").await? else { return Ok(()) };
    let begun = futures::future::try_join_all((0..60).map(|number| pair.say(number, "long"))).await?;
    let taken: Vec<bool> = begun.iter().map(|answer| is_taken(answer, "turns")).collect::<Result<_>>()?;
    assert_eq!(taken.iter().filter(|taken| **taken).count(), 20);
    let started = Instant::now();
    let mut taken = 0;
    // The turns end, and their places are given back.
    while taken < 20 {
        ensure!(started.elapsed() < Duration::from_secs(30), "{taken} turns");
        let is_one = is_taken(&pair.say(taken, "long").await?, "turns")?;
        taken += usize::from(is_one);
        if !is_one {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    pair.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_let_as_many_requests_of_a_tenant_through_as_one_would() -> Result<()> {
    let Some(pair) = Pair::start("requests_per_second = 10").await? else { return Ok(()) };
    let started = Instant::now();
    let list = |number| pair.call(number, "ListTasks", json!({"tenant": "acme", "contextId": "c"}));
    let answers = futures::future::try_join_all((0..60).map(list)).await?;
    let taken: Vec<bool> =
        answers.iter().map(|answer| is_taken(answer, "requests_per_second")).collect::<Result<_>>()?;
    let taken = taken.into_iter().filter(|taken| *taken).count();
    // Those of a second at once, and those that came meanwhile.
    let most = 10.0 + 10.0 * started.elapsed().as_secs_f64();
    assert!(taken >= 10 && taken as f64 <= most + 2.0, "{taken} of at most {most}");
    pair.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_one_process_has_made_count_in_another() -> Result<()> {
    let Some(pair) = Pair::start("sessions = 20").await? else { return Ok(()) };
    for _ in 0..20 {
        let answer = pair.say(0, "short").await?;
        ensure!(is_taken(&answer, "sessions")?, "{}", answer.1);
    }
    ensure!(!is_taken(&pair.say(0, "short").await?, "sessions")?, "one more in the same process");
    let started = Instant::now();
    let mut beyond = 0;
    while is_taken(&pair.say(1, "short").await?, "sessions")? {
        beyond += 1;
        ensure!(started.elapsed() < Duration::from_secs(10), "{beyond} sessions beyond");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // It counts once a second, while the tenant is asked for something.
    assert!(beyond < 20, "{beyond}");
    pair.remove().await;
    Ok(())
}
