//! `annex serve` with stored tasks: killed under load, and on PostgreSQL.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sqlx::Connection as _;
use tokio::sync::watch;

use crate::cluster::Scratch;
use crate::support::{Server, template_agent};

/// A config of an agent without extensions. `tasks` is the text of its `[tasks]` table.
pub(crate) fn config(tasks: &str) -> String {
    template_agent("Say something.", &format!("[tasks]\n{tasks}"))
}

pub(crate) async fn call(client: &reqwest::Client, url: &str, method: &str, params: Value) -> Result<Value> {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let request = client.post(format!("{url}/a2a/jsonrpc")).header("A2A-Version", "1.0");
    let reply = request.header("content-type", "application/json").body(body.to_string()).send().await?;
    Ok(serde_json::from_str(&reply.text().await?)?)
}

pub(crate) fn message(context: &str, id: &str) -> Value {
    json!({"message": {"messageId": id, "contextId": context, "role": "ROLE_USER", "parts": [{"text": "hello"}]}})
}

/// Sends messages until the server stops, and stores each completed task in `seen`.
async fn client(url: String, number: usize, seen: watch::Sender<BTreeMap<String, Value>>) {
    let client = reqwest::Client::new();
    for round in 0.. {
        let id = format!("m-{round}");
        let Ok(reply) = call(&client, &url, "SendMessage", message(&format!("c-{number}"), &id)).await else { return };
        let task = &reply["result"]["task"];
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{reply}");
        let key = format!("c-{number}/{id}");
        seen.send_modify(|seen| {
            seen.insert(key, task.clone());
        });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_keeps_every_task_that_it_acknowledged_once() -> Result<()> {
    const CLIENTS: usize = 4;
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir()?;
    let config = config(&format!("data_dir = {:?}", folder.path().join("data")));
    let mut server = Server::start(&config)?;
    let seen = watch::Sender::new(BTreeMap::new());
    let clients: Vec<_> =
        (0..CLIENTS).map(|number| tokio::spawn(client(server.url.clone(), number, seen.clone()))).collect();
    let mut watched = seen.subscribe();
    let enough = watched.wait_for(|seen| seen.len() >= 100);
    drop(tokio::time::timeout(Duration::from_secs(60), enough).await??);
    server.process.kill()?;
    server.process.wait()?;
    for client in clients {
        client.await?;
    }
    drop(server);

    let server = Server::start(&config)?;
    let client = reqwest::Client::new();
    let seen = seen.borrow().clone();
    let mut listed = Vec::new();
    for number in 0..CLIENTS {
        listed.extend(list(&client, &server.url, &format!("c-{number}")).await?);
    }
    for (key, task) in &seen {
        let read = call(&client, &server.url, "GetTask", json!({"id": task["id"]})).await?;
        assert_eq!(&read["result"], task, "{key}");
        let times = listed.iter().filter(|listed| listed["id"] == task["id"]).count();
        assert_eq!(times, 1, "{key}");
        let (context, id) = key.split_once('/').context("a key")?;
        let again = call(&client, &server.url, "SendMessage", message(context, id)).await?;
        assert_eq!(again["result"]["task"], *task, "{key} was worked on twice");
    }
    // What else is there was not acknowledged: at most one task per client.
    ensure!(listed.len() <= seen.len() + CLIENTS, "{} listed, {} acknowledged", listed.len(), seen.len());
    let states = ["TASK_STATE_COMPLETED", "TASK_STATE_FAILED"];
    assert!(listed.iter().all(|task| task["status"]["state"].as_str().is_some_and(|state| states.contains(&state))));
    Ok(())
}

pub(crate) async fn list(client: &reqwest::Client, url: &str, context: &str) -> Result<Vec<Value>> {
    let mut tasks = Vec::new();
    let mut token = String::new();
    loop {
        let params = json!({"contextId": context, "pageSize": 100, "pageToken": token});
        let page = call(client, url, "ListTasks", params).await?["result"].clone();
        tasks.extend(page["tasks"].as_array().context("tasks")?.iter().cloned());
        token = page["nextPageToken"].as_str().context("a token")?.to_owned();
        if token.is_empty() {
            return Ok(tasks);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_share_the_tasks_of_a_postgresql_database() -> Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let Some(scratch) = Scratch::create().await else { return Ok(()) };
    let config = config("postgres_env = \"ANNEX_TEST_TASKS\"");
    let environment = [("ANNEX_TEST_TASKS", scratch.url())];
    let one = Server::start_with(&config, &environment)?;
    let other = Server::start_with(&config, &environment)?;
    let client = reqwest::Client::new();
    let sent = call(&client, &one.url, "SendMessage", message("c", "m")).await?;
    let task = &sent["result"]["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{sent}");
    assert_eq!(call(&client, &other.url, "GetTask", json!({"id": task["id"]})).await?["result"], *task);
    let again = call(&client, &other.url, "SendMessage", message("c", "m")).await?;
    assert_eq!(again["result"]["task"], *task, "the message was worked on twice");
    assert_eq!(list(&client, &other.url, "c").await?.len(), 1);
    drop((one, other));
    scratch.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_has_no_more_connections_than_the_config_says() -> Result<()> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let Some(scratch) = Scratch::create().await else { return Ok(()) };
    let config = config("postgres_env = \"ANNEX_TEST_TASKS\"\n[postgres]\nmax_connections = 2");
    let server = Server::start_with(&config, &[("ANNEX_TEST_TASKS", scratch.url())])?;
    let client = reqwest::Client::new();
    let contexts: Vec<String> = (0..16).map(|number| format!("c-{number}")).collect();
    let sent = contexts.iter().map(|context| call(&client, &server.url, "SendMessage", message(context, "m")));
    for sent in futures::future::join_all(sent).await {
        let sent = sent?;
        assert_eq!(sent["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED", "{sent}");
    }
    // None has left yet, because each may be wanted again.
    let count =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'annex'";
    let mut own = sqlx::PgConnection::connect(scratch.url()).await?;
    let connections: i64 = sqlx::query_scalar(count).fetch_one(&mut own).await?;
    // One or two more renew the lease of the process, one hears of others, and one tells them.
    assert!((2..=6).contains(&connections), "{connections} connections");
    own.close().await?;
    drop(server);
    scratch.remove().await;
    Ok(())
}

#[test]
fn a_database_url_is_never_told() -> Result<()> {
    let config = config("postgres_env = \"ANNEX_TEST_TASKS\"");
    let url = "postgres://annex:hunter2@127.0.0.1:1/annex";
    let refusal = Server::start_with(&config, &[("ANNEX_TEST_TASKS", url)]).err().context("the server started")?;
    let refusal = refusal.to_string();
    assert!(refusal.contains("the store of conversations and tasks") && !refusal.contains("hunter2"), "{refusal}");
    Ok(())
}
