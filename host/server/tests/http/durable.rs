//! Tasks that outlive their process, repeated messages, and a store that fails.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use annex_agent::{AgentError, AgentEvent, AgentExecutor, EventSender, TurnContext};
use annex_protocol::{Artifact, ArtifactId, Message, Part, TaskState};
use annex_test_support::{Reply, TestConfig, TestServer};
use async_trait::async_trait;
use rusqlite::Connection;
use serde_json::Value;
use tokio::sync::Semaphore;

/// Bytes of a long answer: more than sockets keep.
const LONG: usize = 6 << 20;

/// An agent that obeys the message and counts its turns.
pub(crate) struct Counting {
    pub(crate) turns: AtomicUsize,
    /// The permits that a turn takes if its message asks it to wait.
    pub(crate) go: Semaphore,
}

#[async_trait]
impl AgentExecutor for Counting {
    fn name(&self) -> &str {
        "counting"
    }

    async fn execute(&self, turn: TurnContext, events: EventSender) -> Result<(), AgentError> {
        let number = self.turns.fetch_add(1, Ordering::SeqCst) + 1;
        let message = || Message::agent(turn.context_id.clone(), None, vec![Part::text("hello")]);
        let status = |state| AgentEvent::Status { state, message: None };
        match turn.message.text().as_str() {
            "answer" => return events.send(AgentEvent::Message(message())).await,
            "ask" => return events.send(status(TaskState::InputRequired)).await,
            "log in" => {
                let message = Some(Message::agent(turn.context_id.clone(), None, vec![Part::text("Log in first.")]));
                return events.send(AgentEvent::Status { state: TaskState::AuthRequired, message }).await;
            }
            "long" => {
                let parts = vec![Part::text("x".repeat(LONG))];
                let artifact =
                    Artifact { artifact_id: ArtifactId::generate(), parts: parts.into(), ..Artifact::default() };
                return events.send(AgentEvent::Artifact { artifact, append: false, last_chunk: true }).await;
            }
            "wait" => {
                events.send(status(TaskState::Working)).await?;
                self.go.acquire().await.map_err(AgentError::internal)?.forget();
            }
            _ => events.send(status(TaskState::Working)).await?,
        }
        let parts = vec![Part::text(format!("turn {number}"))];
        let artifact = Artifact { artifact_id: ArtifactId::generate(), parts: parts.into(), ..Artifact::default() };
        events.send(AgentEvent::Artifact { artifact, append: false, last_chunk: true }).await
    }
}

pub(crate) fn counting() -> Arc<Counting> {
    Arc::new(Counting { turns: AtomicUsize::new(0), go: Semaphore::new(0) })
}

/// `tasks` goes on after the head of the table `[tasks]`.
pub(crate) async fn serve(agent: &Arc<Counting>, tasks: &str) -> TestServer {
    serve_with(agent, "", tasks).await
}

/// The same with more for the table `[server]`.
pub(crate) async fn serve_with(agent: &Arc<Counting>, server: &str, tasks: &str) -> TestServer {
    let config = TestConfig::without_agent().set("server.drain_seconds", 0);
    let config = config.with(&format!("[server]\n{server}\n[tasks]\n{tasks}"));
    config.start_with(Arc::clone(agent) as Arc<dyn AgentExecutor>).await.expect("a server")
}

async fn serve_on(agent: &Arc<Counting>, folder: &Path) -> TestServer {
    serve(agent, &format!("data_dir = {:?}", folder.join("data"))).await
}

async fn restart(mut server: TestServer, agent: &Arc<Counting>, folder: &Path) -> TestServer {
    server.begin_shutdown();
    server.ended().await.expect("a clean end");
    serve_on(agent, folder).await
}

pub(crate) fn state(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap_or_default()
}

async fn get(server: &TestServer, id: &str) -> Reply {
    server.call("GetTask", format!(r#"{{"id":"{id}"}}"#)).send().await.expect("a reply")
}

pub(crate) fn id_of(reply: &Reply) -> String {
    reply.task()["id"].as_str().unwrap_or_else(|| unreachable!("no task: {}", reply.text)).to_owned()
}

/// After a stop each database is a single file, so that a copy of that file is complete.
#[tokio::test]
async fn a_server_that_has_stopped_leaves_whole_files() {
    let agent = counting();
    let folder = tempfile::tempdir().expect("a folder");
    let mut server = serve_on(&agent, folder.path()).await;
    server.say("work").send().await.expect("a reply");
    server.begin_shutdown();
    server.ended().await.expect("a clean end");
    let files = std::fs::read_dir(folder.path().join("data")).expect("a folder");
    let names: Vec<String> =
        files.map(|file| file.expect("a file").file_name().to_string_lossy().into_owned()).collect();
    for store in ["conversations", "tenants"] {
        let of_store: Vec<&String> = names.iter().filter(|name| name.starts_with(store)).collect();
        assert_eq!(of_store, [&format!("{store}.sqlite")]);
    }
}

#[tokio::test]
async fn tasks_outlive_the_server_and_go_on_where_they_were() {
    let agent = counting();
    let folder = tempfile::tempdir().expect("a folder");
    let server = serve_on(&agent, folder.path()).await;
    let finished = server.say("work").context("c").send().await.expect("a reply");
    let paused = server.say("ask").context("c").send().await.expect("a reply");
    assert_eq!((state(finished.task()), state(paused.task())), ("TASK_STATE_COMPLETED", "TASK_STATE_INPUT_REQUIRED"));

    let server = restart(server, &agent, folder.path()).await;
    assert_eq!(&get(&server, &id_of(&finished)).await.body["result"], finished.task());
    let list = server.call("ListTasks", r#"{"contextId":"c","includeArtifacts":true}"#).send().await.expect("a list");
    assert_eq!(list.body["result"]["totalSize"], 2);
    assert_eq!(&list.body["result"]["tasks"][1], finished.task());

    let params = format!(r#"{{"id":"{}"}}"#, id_of(&paused));
    let subscriber = server.call("SubscribeToTask", params.clone()).open().await.expect("a stream");
    let resumed = server.say("work").field("taskId", &id_of(&paused)).send().await.expect("a reply");
    assert_eq!((state(resumed.task()), resumed.context()), ("TASK_STATE_COMPLETED", "c"), "{}", resumed.text);
    assert_eq!(resumed.task()["history"].as_array().map(Vec::len), Some(2));
    let events = subscriber.rest().await.expect("events");
    assert_eq!(events.len(), 4, "snapshot, working, artifact, completed: {events:?}");
    assert_eq!(&get(&server, &id_of(&paused)).await.body["result"], resumed.task());
    assert_eq!(server.call("CancelTask", params).send().await.expect("a reply").code(), -32_002);
}

#[tokio::test]
async fn a_paused_task_can_be_cancelled_after_a_restart() {
    let agent = counting();
    let folder = tempfile::tempdir().expect("a folder");
    let server = serve_on(&agent, folder.path()).await;
    let paused = server.say("ask").send().await.expect("a reply");
    let server = restart(server, &agent, folder.path()).await;
    let params = format!(r#"{{"id":"{}"}}"#, id_of(&paused));
    let canceled = server.call("CancelTask", params).send().await.expect("a reply");
    assert_eq!(state(&canceled.body["result"]), "TASK_STATE_CANCELED");
    assert_eq!(get(&server, &id_of(&paused)).await.body["result"], canceled.body["result"]);
}

#[tokio::test]
async fn a_task_that_ran_when_the_process_stopped_is_failed_with_the_reason() {
    let agent = counting();
    let folder = tempfile::tempdir().expect("a folder");
    let crashed = serve_on(&agent, folder.path()).await;
    let mut stream = crashed.say("wait").streaming().open().await.expect("a stream");
    let first = stream.next().await.expect("an event").expect("a task");
    stream.next().await.expect("an event").expect("working");
    let id = first["result"]["task"]["id"].as_str().expect("an id");

    let server = serve_on(&agent, folder.path()).await;
    let task = get(&server, id).await.body["result"].clone();
    assert_eq!(state(&task), "TASK_STATE_FAILED");
    let text = task["status"]["message"]["parts"][0]["text"].as_str().expect("a text");
    assert_eq!(text, "The server stopped while the task ran; send the message again.");

    // The first one was not dead after all: it sees what happened, and nothing is stored twice.
    agent.go.add_permits(1);
    let rest = stream.rest().await.expect("events");
    assert_eq!(rest.len(), 1, "{rest:?}");
    assert_eq!(state(&rest[0]["result"]["statusUpdate"]), "TASK_STATE_FAILED");
    assert_eq!(get(&server, id).await.body["result"], task);
}

#[tokio::test]
async fn the_same_message_twice_is_one_turn() {
    let agent = counting();
    let folder = tempfile::tempdir().expect("a folder");
    let server = serve_on(&agent, folder.path()).await;
    let message = |server: &TestServer| server.say("work").context("c").field("messageId", "m");
    let first = message(&server).send().await.expect("a reply");
    let second = message(&server).send().await.expect("a reply");
    assert_eq!(first.task(), second.task());
    let server = restart(server, &agent, folder.path()).await;
    assert_eq!(message(&server).send().await.expect("a reply").task(), first.task());
    let events = message(&server).streaming().open().await.expect("a stream").rest().await.expect("events");
    assert_eq!((events.len(), &events[0]["result"]["task"]), (1, first.task()));
    assert_eq!(agent.turns.load(Ordering::SeqCst), 1);
    // In another context it is another message.
    let other = server.say("work").context("d").field("messageId", "m").send().await.expect("a reply");
    assert_ne!(other.task()["id"], first.task()["id"]);
}

#[tokio::test]
async fn a_message_that_comes_again_while_its_turn_runs_follows_that_turn() {
    let agent = counting();
    let server = serve(&agent, "").await;
    let message = || server.say("wait").context("c").field("messageId", "m");
    let mut stream = message().streaming().open().await.expect("a stream");
    stream.next().await.expect("an event").expect("a task");
    let working = stream.next().await.expect("an event").expect("working");
    assert_eq!(state(&working["result"]["statusUpdate"]), "TASK_STATE_WORKING");
    let again = message().streaming().open().await.expect("a stream");
    let waiting = tokio::spawn(message().send());
    agent.go.add_permits(1);
    let rest = stream.rest().await.expect("events");
    let again = again.rest().await.expect("events");
    assert_eq!(rest, again[1..], "a snapshot and then the same");
    let reply = waiting.await.expect("no panic").expect("a reply");
    assert_eq!(state(reply.task()), "TASK_STATE_COMPLETED");
    assert_eq!(agent.turns.load(Ordering::SeqCst), 1);
}

/// Runs SQL on the file of a running server.
pub(crate) async fn sql(folder: &Path, sql: &str) {
    let (file, sql) = (folder.join("data/conversations.sqlite"), sql.to_owned());
    // On a thread of its own: the server may have to run until the lock of its transaction is free.
    let executed = tokio::task::spawn_blocking(move || Connection::open(file)?.execute_batch(&sql));
    executed.await.expect("no panic").expect("valid SQL");
}

async fn fail_events(folder: &Path, when: &str) {
    let trigger = format!(
        "CREATE TRIGGER broken BEFORE INSERT ON log_entry WHEN {when} BEGIN SELECT RAISE(ABORT, 'secret'); END"
    );
    sql(folder, &trigger).await;
}

#[tokio::test]
async fn an_event_that_cannot_be_stored_fails_the_turn_and_is_not_shown() {
    let agent = counting();
    let folder = tempfile::tempdir().expect("a folder");
    let server = serve_on(&agent, folder.path()).await;
    fail_events(folder.path(), "NEW.json LIKE '%artifactUpdate%'").await;
    let events = server.say("work").streaming().open().await.expect("a stream").rest().await.expect("events");
    assert_eq!(events.len(), 2, "task, failed: {events:?}");
    let status = &events[1]["result"]["statusUpdate"]["status"];
    assert_eq!(status["state"], "TASK_STATE_FAILED");
    let text = status["message"]["parts"][0]["text"].as_str().expect("a text");
    assert!(text.contains("error id") && !text.contains("secret"), "{text}");
}

#[tokio::test]
async fn a_turn_whose_end_cannot_be_stored_ends_its_streams_and_is_failed_later() {
    let agent = counting();
    let folder = tempfile::tempdir().expect("a folder");
    let server = serve_on(&agent, folder.path()).await;
    fail_events(folder.path(), "NEW.number > 2").await;
    let mut stream = server.say("wait").streaming().open().await.expect("a stream");
    let first = stream.next().await.expect("an event").expect("a task");
    stream.next().await.expect("an event").expect("working");
    let id = first["result"]["task"]["id"].as_str().expect("an id");
    agent.go.add_permits(1);
    // What was not stored is not shown, and the stream says that it has no end.
    let last = stream.rest().await.expect("a clean end");
    assert_eq!((last.len(), &last[0]["error"]["code"]), (1, &Value::from(-32_603)), "{last:?}");
    let text = last[0].to_string();
    assert!(text.contains("error id") && !text.contains("secret"), "{text}");
    sql(folder.path(), "DROP TRIGGER broken").await;
    fail_events(folder.path(), "NEW.number > 1").await;
    let reply = server.say("work").send().await.expect("a reply");
    assert_eq!(reply.code(), -32_603, "{}", reply.text);
    assert!(reply.text.contains("error id") && !reply.text.contains("secret"), "{}", reply.text);
    sql(folder.path(), "DROP TRIGGER broken").await;
    let begin = Instant::now();
    while state(&get(&server, id).await.body["result"]) != "TASK_STATE_FAILED" {
        assert!(begin.elapsed() < Duration::from_secs(10), "it goes on");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(state(server.say("work").send().await.expect("a reply").task()), "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn a_task_that_cannot_be_stored_does_not_begin_and_its_message_may_come_again() {
    let agent = counting();
    let folder = tempfile::tempdir().expect("a folder");
    let server = serve_on(&agent, folder.path()).await;
    fail_events(folder.path(), "1").await;
    let message = || server.say("work").context("c").field("messageId", "m").send();
    assert_eq!(message().await.expect("a reply").code(), -32_603);
    sql(folder.path(), "DROP TRIGGER broken").await;
    assert_eq!(state(message().await.expect("a reply").task()), "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn a_store_that_does_not_open_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("data");
    std::fs::write(&file, "no folder").expect("a file");
    let cases = [
        (format!("data_dir = {file:?}"), "tasks.data_dir"),
        ("postgres_env = \"ANNEX_NO_SUCH_VARIABLE\"".to_owned(), "ANNEX_NO_SUCH_VARIABLE"),
        ("postgres_env = \"A\"\ndata_dir = \"b\"".to_owned(), "leave one out"),
        ("keep_days = 0".to_owned(), "tasks.keep_days"),
    ];
    for (tasks, expected) in cases {
        let config = TestConfig::template("i").with(&format!("[tasks]\n{tasks}"));
        let error = config.start().await.err().expect("a refusal");
        assert!(format!("{error:#}").contains(expected), "{tasks}: {error:#}");
    }
}

#[tokio::test]
async fn receivers_are_still_registered_after_a_restart() {
    let agent = counting();
    let folder = tempfile::tempdir().expect("a folder");
    let (url, mut received) = crate::push::receiver().await;
    let with_push = async || {
        let data = folder.path().join("data");
        serve(&agent, &format!("data_dir = {data:?}\n[push]\nallow = [\"127.0.0.0/8\"]")).await
    };
    let mut server = with_push().await;
    let paused = server.say("ask").context("c").send().await.expect("a reply");
    let config = format!(r#"{{"taskId":"{}","id":"a","url":"{url}"}}"#, id_of(&paused));
    let made = server.call("CreateTaskPushNotificationConfig", config).send().await.expect("a reply");
    assert_eq!(made.body["result"]["id"], "a", "{}", made.text);
    server.begin_shutdown();
    server.ended().await.expect("a clean end");

    let server = with_push().await;
    let read = format!(r#"{{"taskId":"{}","id":"a"}}"#, id_of(&paused));
    let read = server.call("GetTaskPushNotificationConfig", read).send().await.expect("a reply");
    assert_eq!(read.body["result"]["url"], url);
    server.say("work").field("taskId", &id_of(&paused)).send().await.expect("a reply");
    loop {
        let (_, event) = received.recv().await.expect("an event");
        if event["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED" {
            break;
        }
    }
}
