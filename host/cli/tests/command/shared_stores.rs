//! Several `annex serve` that share a PostgreSQL database. These tests cover data other than tasks and sessions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use reqwest::Client;
use serde_json::{Value, json};
use sqlx::Connection as _;

use crate::cluster::Scratch;
use crate::support::Server;

/// The variable and the value of a secret. The verifier of authorizations knows it, and it is also a caller's API key.
const SECRET: (&str, &str) = ("ANNEX_TEST_SECRET", "a-secret-for-this-test");
const AUTHORIZATION: &str = "https://github.com/a2aproject/experimental-ext-oid4vp-auth/tree/main/v1";
const CAPABILITIES: &str = "https://annex.example/capabilities/v1";

/// A database for servers that share their stores.
struct StoreSetup {
    scratch: Scratch,
    client: Client,
}

impl StoreSetup {
    /// Creates the database. `None`, after a note on standard error, without PostgreSQL.
    async fn create() -> Option<Self> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Some(Self { scratch: Scratch::create().await?, client: Client::new() })
    }

    /// Starts a server on the database. `more` is the text of its agent and of further tables.
    fn start(&self, more: &str) -> Result<Server> {
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\n[card]\nname = \"a\"\ndescription = \"b\"\n[tasks]\n\
             postgres_env = \"ANNEX_TEST_TASKS\"\n{more}"
        );
        Server::start_with(&config, &[("ANNEX_TEST_TASKS", self.scratch.url()), SECRET])
    }

    /// Calls a method and requests the extension `uri`.
    async fn call(&self, server: &Server, uri: &str, method: &str, params: Value) -> Result<Value> {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let request = self.client.post(format!("{}/a2a/jsonrpc", server.url)).header("A2A-Version", "1.0");
        let request = request.header("A2A-Extensions", uri).header("x-api-key", SECRET.1);
        let request = request.header("content-type", "application/json");
        Ok(serde_json::from_str(&request.body(body.to_string()).send().await?.text().await?)?)
    }

    async fn remove(self) {
        self.scratch.remove().await;
    }
}

/// A config of an agent that answers with an artifact, or with a question for the text `ask`. Its extension reads and
/// writes keys on command.
fn with_keys(more: &str) -> String {
    let component = annex_components::TEST_CAPABILITIES;
    format!(
        r#"
        [agent]
        kind = "script"
        name = "c"
        [[agent.rule]]
        steps = [
            {{ artifact = {{ id = "answer", parts = [{{ text = "Done." }}] }} }},
            {{ status = {{ state = "completed" }} }},
        ]
        [[agent.rule]]
        text = "ask"
        steps = [{{ status = {{ state = "input-required", text = "Which one?" }} }}]
        [[extension]]
        component = {component:?}
        [extension.grants]
        clock = true
        random = true
        http = {{ allow = [{{ host = "api.example.com" }}] }}
        keyvalue = {{}}
        session-state = {{ read = true }}
        task = true
        tasks = true
        task-resumption = true
        agent-steps = true
        {more}
        "#
    )
}

/// Sends a message with commands that the extension runs after the agent's answer. Returns the results of the commands.
async fn results(
    shared: &StoreSetup,
    server: &Server,
    (context, task): (&str, Option<&str>),
    commands: Value,
) -> Result<Vec<String>> {
    let message = json!({
        "messageId": new_id(), "contextId": context, "taskId": task, "role": "ROLE_USER", "parts": [{"text": "go on"}],
        "metadata": {"test/later": commands},
    });
    let answer = shared.call(server, CAPABILITIES, "SendMessage", json!({"message": message})).await?;
    let results = answer["result"]["task"]["artifacts"][0]["metadata"]["test/result"].clone();
    serde_json::from_value(results).with_context(|| answer.to_string())
}

/// A message id that no other message has.
fn new_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("m-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_an_extension_are_the_same_in_all_processes_and_after_a_restart() -> Result<()> {
    let Some(shared) = StoreSetup::create().await else { return Ok(()) };
    let [one, other] = [shared.start(&with_keys(""))?, shared.start(&with_keys(""))?];
    let commands = json!([{"increment": ["n", 1]}]);
    let mut counts = Vec::new();
    for server in [&one, &other, &one, &other, &one, &other] {
        counts.extend(results(&shared, server, ("c", None), commands.clone()).await?);
    }
    assert_eq!(counts, ["1", "2", "3", "4", "5", "6"]);
    drop(one);
    let one = shared.start(&with_keys(""))?;
    assert_eq!(results(&shared, &one, ("c", None), commands).await?, ["7"]);
    drop((one, other));
    shared.remove().await;
    Ok(())
}

/// The limit on CPU time is the standard one, 50 ms per call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_a_thousand_keys_of_a_database_takes_no_cpu_time() -> Result<()> {
    let Some(shared) = StoreSetup::create().await else { return Ok(()) };
    let config = with_keys("[extension.limits]\nwall_ms = 9_000");
    let server = tokio::task::block_in_place(|| shared.start(&config))?;
    let commands: Vec<Value> = (0..1_000).map(|number| json!({"get": number.to_string()})).collect();
    assert_eq!(results(&shared, &server, ("c", None), commands.into()).await?, vec!["none"; 1_000]);
    drop(server);
    shared.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn increments_of_several_processes_at_once_all_count() -> Result<()> {
    let Some(shared) = StoreSetup::create().await else { return Ok(()) };
    let [one, other] = [shared.start(&with_keys(""))?, shared.start(&with_keys(""))?];
    let send = async |server: &Server, context: String| {
        let counted = results(&shared, server, (&context, None), json!([{"increment": ["n", 1]}])).await?;
        anyhow::Ok(counted.first().context("no count")?.parse::<u32>()?)
    };
    let sent = (0..20).map(|number| send(if number % 2 == 0 { &one } else { &other }, format!("c-{number}")));
    let mut counts = futures::future::try_join_all(sent).await?;
    counts.sort_unstable();
    assert_eq!(counts, (1..=20).collect::<Vec<_>>());
    drop((one, other));
    shared.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_a_task_and_a_conversation_are_there_in_the_turn_of_another_process() -> Result<()> {
    let Some(shared) = StoreSetup::create().await else { return Ok(()) };
    let [one, other] = [shared.start(&with_keys(""))?, shared.start(&with_keys(""))?];
    let message = json!({
        "messageId": new_id(), "contextId": "c", "role": "ROLE_USER", "parts": [{"text": "ask"}],
        "metadata": {"test/capability": [{"in": ["task", {"set": ["k", "mine"]}]}, {"in": ["context", {"set": ["k", "ours"]}]}]},
    });
    let asked = shared.call(&one, CAPABILITIES, "SendMessage", json!({"message": message})).await?;
    let task = asked["result"]["task"]["id"].as_str().with_context(|| asked.to_string())?;
    let read = json!([{"in": ["task", {"get": "k"}]}, {"in": ["context", {"get": "k"}]}]);
    assert_eq!(results(&shared, &other, ("c", Some(task)), read.clone()).await?, ["mine", "ours"]);
    assert_eq!(results(&shared, &one, ("c", None), read).await?, ["none", "ours"]);
    drop((one, other));
    shared.remove().await;
    Ok(())
}

/// Starts an upstream agent, which keeps its tasks in memory. It completes each task, or asks a question for the text
/// `ask`.
fn upstream() -> Result<Server> {
    Server::start(
        r#"
        [server]
        listen = "127.0.0.1:0"
        [card]
        name = "upstream"
        description = "b"
        [tasks]
        list_all_anonymous = true
        [agent]
        kind = "script"
        name = "c"
        [[agent.rule]]
        steps = [{ status = { state = "completed", text = "done" } }]
        [[agent.rule]]
        text = "ask"
        steps = [{ status = { state = "input-required", text = "Which one?" } }]
        "#,
    )
}

fn in_front_of(upstream: &Server) -> String {
    let card = format!("{}/.well-known/agent-card.json", upstream.url);
    format!("[agent]\nkind = \"upstream\"\nname = \"front\"\ncard = {card:?}")
}

/// The tasks of the upstream agent, the oldest first.
async fn tasks_of(shared: &StoreSetup, upstream: &Server) -> Result<Vec<Value>> {
    let listed = shared.call(upstream, "", "ListTasks", json!({"pageSize": 100, "historyLength": 100})).await?;
    let mut tasks = listed["result"]["tasks"].as_array().with_context(|| listed.to_string())?.clone();
    tasks.reverse();
    Ok(tasks)
}

async fn say(shared: &StoreSetup, server: &Server, text: &str, task: Option<&Value>) -> Result<Value> {
    let message = json!({
        "messageId": new_id(), "contextId": "c", "taskId": task, "role": "ROLE_USER", "parts": [{"text": text}],
    });
    let answer = shared.call(server, "", "SendMessage", json!({"message": message})).await?;
    ensure!(answer["result"]["task"].is_object(), "no task: {answer}");
    Ok(answer["result"]["task"].clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_with_an_upstream_agent_is_one_through_all_processes() -> Result<()> {
    let Some(shared) = StoreSetup::create().await else { return Ok(()) };
    let upstream = upstream()?;
    let [one, other] = [shared.start(&in_front_of(&upstream))?, shared.start(&in_front_of(&upstream))?];
    for (number, server) in [&one, &other, &one].into_iter().enumerate() {
        let task = say(&shared, server, &format!("hello {number}"), None).await?;
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{task}");
    }
    drop(one);
    let one = shared.start(&in_front_of(&upstream))?;
    say(&shared, &one, "hello again", None).await?;
    let tasks = tasks_of(&shared, &upstream).await?;
    assert_eq!(tasks.len(), 4, "{tasks:?}");
    assert!(tasks.iter().all(|task| task["contextId"] == tasks[0]["contextId"]), "{tasks:?}");
    drop((one, other, upstream));
    shared.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_waits_at_an_upstream_agent_goes_on_there_through_another_process() -> Result<()> {
    let Some(shared) = StoreSetup::create().await else { return Ok(()) };
    let upstream = upstream()?;
    let [one, other] = [shared.start(&in_front_of(&upstream))?, shared.start(&in_front_of(&upstream))?];
    let asked = say(&shared, &one, "ask", None).await?;
    assert_eq!(asked["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{asked}");
    let done = say(&shared, &other, "the left one", Some(&asked["id"])).await?;
    assert_eq!((&done["id"], &done["status"]["state"]), (&asked["id"], &json!("TASK_STATE_COMPLETED")), "{done}");
    let tasks = tasks_of(&shared, &upstream).await?;
    assert_eq!(tasks.len(), 1, "{tasks:?}");
    assert_eq!(tasks[0]["status"]["state"], "TASK_STATE_COMPLETED");
    drop((one, other, upstream));
    shared.remove().await;
    Ok(())
}

/// A config of an agent whose tasks wait for the approval of a verifier.
fn with_authorization() -> String {
    let component = annex_components::IN_TASK_AUTHORIZATION;
    format!(
        r#"
        [agent]
        kind = "script"
        name = "c"
        [[agent.rule]]
        steps = [{{ status = {{ state = "working" }} }}, {{ status = {{ state = "completed", text = "done" }} }}]
        [[extension]]
        component = {component:?}
        [extension.grants]
        keyvalue = {{}}
        task-resumption = true
        secrets = {{ VERIFIER_SECRET = {{ env = "ANNEX_TEST_SECRET" }} }}
        [extension.parameters]
        client_id = "redirect_uri:https://verifier.example.com/authorize"
        request_uri = "openid4vp://?state={{state}}"
        "#
    )
}

/// Begins a task that waits for the verifier. Returns the task's id, and the `state` parameter for the verifier.
async fn waiting(shared: &StoreSetup, server: &Server) -> Result<(Value, String)> {
    let message = json!({"messageId": new_id(), "role": "ROLE_USER", "parts": [{"text": "hello"}]});
    let answer = shared.call(server, AUTHORIZATION, "SendMessage", json!({"message": message})).await?;
    let task = &answer["result"]["task"];
    ensure!(task["status"]["state"] == "TASK_STATE_AUTH_REQUIRED", "it does not wait: {answer}");
    let uri = &task["status"]["message"]["metadata"][AUTHORIZATION]["authorizationRequest"]["request_uri"];
    let (_, state) = uri.as_str().and_then(|uri| uri.rsplit_once("state=")).with_context(|| answer.to_string())?;
    Ok((task["id"].clone(), state.to_owned()))
}

async fn approve(shared: &StoreSetup, server: &Server, state: &str) -> Result<Value> {
    let params = json!({"state": state, "token": SECRET.1});
    shared.call(server, AUTHORIZATION, "in-task-authorization/approve", params).await
}

/// Waits until the task is completed, and returns it.
async fn completed(shared: &StoreSetup, server: &Server, id: &Value) -> Result<Value> {
    let begin = Instant::now();
    loop {
        let task = shared.call(server, "", "GetTask", json!({"id": id})).await?["result"].clone();
        if task["status"]["state"] == "TASK_STATE_COMPLETED" {
            return Ok(task);
        }
        ensure!(begin.elapsed() < Duration::from_secs(20), "not completed: {task}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_waits_for_a_verifier_is_approved_through_another_process() -> Result<()> {
    let Some(shared) = StoreSetup::create().await else { return Ok(()) };
    let [one, other] = [shared.start(&with_authorization())?, shared.start(&with_authorization())?];
    let (id, state) = waiting(&shared, &one).await?;
    let approved = approve(&shared, &other, &state).await?;
    assert_eq!(approved["result"]["taskId"], id, "{approved}");
    completed(&shared, &one, &id).await?;
    for server in [&one, &other] {
        let again = approve(&shared, server, &state).await?;
        assert_eq!(again["error"]["code"], -32_602, "{again}");
    }
    drop((one, other));
    shared.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_is_approved_through_two_processes_at_once_goes_on_once() -> Result<()> {
    let Some(shared) = StoreSetup::create().await else { return Ok(()) };
    let [one, other] = [shared.start(&with_authorization())?, shared.start(&with_authorization())?];
    let mut connection = sqlx::PgConnection::connect(shared.scratch.url()).await?;
    for _ in 0..5 {
        let (id, state) = waiting(&shared, &one).await?;
        let (first, second) = tokio::join!(approve(&shared, &one, &state), approve(&shared, &other, &state));
        let [first, second] = [first?, second?];
        assert!(first["result"].is_object() || second["result"].is_object(), "{first} {second}");
        completed(&shared, &other, &id).await?;
        let count = "SELECT count(*) FROM log_entry WHERE task_id = $1 AND kind = 'update' AND json LIKE '%TASK_STATE_WORKING%'";
        let count: i64 = sqlx::query_scalar(count).bind(id.as_str()).fetch_one(&mut connection).await?;
        assert_eq!(count, 1, "turns of one task");
    }
    connection.close().await?;
    drop((one, other));
    shared.remove().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_waits_for_a_verifier_is_approved_after_a_restart() -> Result<()> {
    let Some(shared) = StoreSetup::create().await else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let in_file = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\n[card]\nname = \"a\"\ndescription = \"b\"\n[tasks]\ndata_dir = {:?}\n{}",
        folder.path(),
        with_authorization()
    );
    let in_postgresql = || shared.start(&with_authorization());
    let in_sqlite = || Server::start_with(&in_file, &[SECRET]);
    for start in [&in_postgresql as &dyn Fn() -> Result<Server>, &in_sqlite] {
        let mut first = start()?;
        let (id, state) = waiting(&shared, &first).await?;
        first.process.kill()?;
        first.process.wait()?;
        let again = start()?;
        let approved = approve(&shared, &again, &state).await?;
        assert_eq!(approved["result"]["taskId"], id, "{approved}");
        completed(&shared, &again, &id).await?;
    }
    shared.remove().await;
    Ok(())
}

/// A config with an authenticated caller, and with an agent whose turns take a while.
const AUTHENTICATED: &str = r#"
[agent]
kind = "script"
name = "c"
[[agent.rule]]
steps = [{ status = { state = "working" } }, { wait_ms = 8000 }, { status = { state = "completed", text = "done" } }]
[auth]
[[auth.api_key]]
principal = "ada"
key_env = "ANNEX_TEST_SECRET"
"#;

/// Begins `count` turns at the same time, alternating between the servers. Returns the ids of the accepted tasks.
async fn begin(shared: &StoreSetup, servers: &[&Server], text: &str, count: usize) -> Result<Vec<Value>> {
    let begun = servers.iter().cycle().take(count).map(|server| async move {
        let message = json!({"messageId": new_id(), "role": "ROLE_USER", "parts": [{"text": text}]});
        let params = json!({"message": message, "configuration": {"returnImmediately": true}});
        let answer = shared.call(server, "", "SendMessage", params).await?;
        if answer["result"]["task"].is_object() {
            return Ok(Some(answer["result"]["task"]["id"].clone()));
        }
        let reason = answer["error"]["message"].as_str().unwrap_or_default();
        ensure!(reason.contains("turns of yours run already"), "not refused for its number: {answer}");
        Ok(None)
    });
    Ok(futures::future::try_join_all(begun).await?.into_iter().flatten().collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_has_as_many_turns_at_once_as_it_may_through_all_processes() -> Result<()> {
    let Some(shared) = StoreSetup::create().await else { return Ok(()) };
    let [one, other] = [shared.start(AUTHENTICATED)?, shared.start(AUTHENTICATED)?];
    // Each knows of the other a second after that one has started.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let begun = begin(&shared, &[&one, &other], "hello", 240).await?;
    assert_eq!(begun.len(), 100);
    for id in &begun {
        completed(&shared, &one, id).await?;
    }
    // One process may have all but the share of the other.
    let begun = begin(&shared, &[&one], "hello", 110).await?;
    assert_eq!(begun.len(), 88);
    drop((one, other));
    shared.remove().await;
    Ok(())
}
