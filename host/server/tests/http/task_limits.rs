//! The limits of one task's size, and of the number and the age of tasks that wait.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use annex_agent::{AgentError, AgentEvent, AgentExecutor, EventSender, TurnContext};
use annex_protocol::{Artifact, Part, TaskState};
use annex_test_support::{Events, Reply, TestConfig, TestServer};
use async_trait::async_trait;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::auth::{ADA, BOB, api_keys};
use crate::durable::{counting, id_of, serve, state};

/// Nearly the largest size of a request, in bytes.
const LARGE: usize = 900_000;

/// Runs a case with tasks in memory, and with tasks in SQLite.
async fn on_both<F: Future<Output = ()>>(case: impl Fn(String) -> F) {
    case(String::new()).await;
    let folder = tempfile::tempdir().expect("a folder");
    case(format!("data_dir = {:?}", folder.path())).await;
}

/// A message that the counting agent answers by asking on.
async fn ask(server: &TestServer, task: Option<&str>, bytes: usize) -> Reply {
    let mut message = json!({
        "messageId": uuid::Uuid::new_v4().to_string(), "role": "ROLE_USER", "parts": [{"text": "ask"}],
        "metadata": {"filling": "x".repeat(bytes)}
    });
    match task {
        Some(task) => message["taskId"] = json!(task),
        None => message["contextId"] = json!("c"),
    }
    let params = json!({"message": message, "configuration": {"historyLength": 0}});
    server.call("SendMessage", params.to_string()).send().await.expect("a reply")
}

async fn task(server: &TestServer, id: &str) -> Value {
    let params = json!({"id": id}).to_string();
    server.call("GetTask", params).send().await.expect("a reply").body["result"].clone()
}

/// The task once the server has brought it to its end, which it does in its own time.
async fn ended(server: &TestServer, id: &str) -> Value {
    loop {
        let task = task(server, id).await;
        if state(&task) != "TASK_STATE_INPUT_REQUIRED" {
            return task;
        }
        tokio::task::yield_now().await;
    }
}

fn said(task: &Value) -> &str {
    task["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn a_task_that_large_messages_fill_refuses_the_next_and_the_conversation_goes_on() {
    on_both(|tasks| async move {
        let agent = counting();
        let server = serve(&agent, &tasks).await;
        let id = id_of(&ask(&server, None, LARGE).await);
        let mut taken = 1;
        let refused = loop {
            let reply = ask(&server, Some(&id), LARGE).await;
            if reply.code() != 0 {
                break reply;
            }
            taken += 1;
        };
        assert_eq!((taken, refused.code()), (8, -32_004), "{}", refused.text);
        let words = refused.body["error"]["message"].as_str().expect("words");
        assert!(words.contains("bytes") && words.contains("without taskId"), "{words}");
        // Nothing of the turn exists: the agent was not asked, and a short message is taken as if it had not come.
        assert_eq!(agent.turns.load(Ordering::SeqCst), 8);
        let kept = task(&server, &id).await;
        assert_eq!((kept["history"].as_array().map(Vec::len), state(&kept)), (Some(8), "TASK_STATE_INPUT_REQUIRED"));
        let short = ask(&server, Some(&id), 10).await;
        assert_eq!(state(short.task()), "TASK_STATE_INPUT_REQUIRED", "{}", short.text);
        let other = ask(&server, None, LARGE).await;
        assert_eq!((state(other.task()), other.context()), ("TASK_STATE_INPUT_REQUIRED", "c"));
    })
    .await;
}

#[tokio::test]
async fn a_history_has_a_bound_and_a_message_that_no_task_can_hold_is_refused() {
    on_both(|tasks| async move {
        let server = serve(&counting(), &format!("{tasks}\nmax_task_messages = 5\nmax_task_bytes = 20_000")).await;
        let id = id_of(&ask(&server, None, 10).await);
        for _ in 0..3 {
            assert_eq!(ask(&server, Some(&id), 10).await.code(), 0);
        }
        let refused = ask(&server, Some(&id), 10).await;
        assert!(refused.text.contains("5 messages"), "{}", refused.text);
        let refused = ask(&server, None, 20_000).await;
        assert!(refused.code() == -32_602 && refused.text.contains("too large for any task"), "{}", refused.text);
    })
    .await;
}

/// An agent that sends the number of artifacts, or pieces of one artifact, in the message.
struct Generous;

#[async_trait]
impl AgentExecutor for Generous {
    fn name(&self) -> &str {
        "generous"
    }

    async fn execute(&self, turn: TurnContext, events: EventSender) -> Result<(), AgentError> {
        let text = turn.message.text();
        let (what, count) = text.split_once(' ').unwrap_or(("artifacts", &text));
        if what != "at once" {
            events.send(AgentEvent::Status { state: TaskState::Working, message: None }).await?;
        }
        for number in 0..count.parse().unwrap_or(0) {
            let id = if what == "artifacts" { number } else { 0 };
            let parts = vec![Part::text("x".repeat(10_000))];
            let artifact =
                Artifact { artifact_id: format!("a-{id}").into(), parts: parts.into(), ..Artifact::default() };
            let append = what == "pieces" && number > 0;
            if what != "artifacts" {
                // Each is stored alone.
                tokio::task::yield_now().await;
            }
            events.send(AgentEvent::Artifact { artifact, append, last_chunk: false }).await?;
        }
        Ok(())
    }
}

#[tokio::test]
async fn an_agent_that_adds_too_much_fails_its_task_and_what_fitted_stays() {
    on_both(|tasks| async move {
        let config = TestConfig::without_agent().with(&format!("[tasks]\n{tasks}"));
        let config = config.set("tasks.max_task_artifacts", 3).set("tasks.max_task_bytes", 100_000);
        let server = config.start_with(Arc::new(Generous)).await.expect("a server");
        for (text, artifacts, parts, reason) in [
            ("artifacts 2", 2, 1, ""),
            ("artifacts 5", 3, 1, "4 artifacts, and 3 is the limit"),
            ("pieces 9", 1, 9, ""),
            ("pieces 30", 1, 9, "bytes, and 100000 is the limit"),
            ("replaced 30", 1, 1, ""),
            ("replaced 60", 1, 1, "bytes of events, and 400000 is the limit"),
        ] {
            let reply = server.say(text).send().await.expect("a reply");
            let task = reply.task();
            let expected = if reason.is_empty() { "TASK_STATE_COMPLETED" } else { "TASK_STATE_FAILED" };
            assert_eq!(state(task), expected, "{text}: {}", said(task));
            assert!(said(task).contains(reason), "{text}: {}", said(task));
            let kept = task["artifacts"].as_array().expect("artifacts");
            assert_eq!((kept.len(), kept[0]["parts"].as_array().map(Vec::len)), (artifacts, Some(parts)), "{text}");
            // Whoever asks later sees the same.
            let params = json!({"id": task["id"]}).to_string();
            let stored = server.call("GetTask", params).send().await.expect("a reply");
            assert_eq!(&stored.body["result"], task, "{text}");
        }
    })
    .await;
}

async fn asked_by(server: &TestServer, key: Option<&str>) -> Reply {
    let request = server.say("ask");
    match key {
        Some(key) => request.header("x-api-key", key).send().await.expect("a reply"),
        None => request.send().await.expect("a reply"),
    }
}

#[tokio::test]
async fn a_caller_that_fills_the_store_with_waiting_tasks_keeps_nobody_out() {
    // Anonymous callers are one.
    let server = serve(&counting(), "max_tasks = 100").await;
    let first = id_of(&asked_by(&server, None).await);
    for _ in 0..250 {
        assert_eq!(state(asked_by(&server, None).await.task()), "TASK_STATE_INPUT_REQUIRED");
    }
    assert_eq!(server.say("work").send().await.expect("a reply").code(), 0);
    // It is as if the task that made room had been deleted.
    for request in
        [server.say("work").field("taskId", &first), server.call("GetTask", json!({"id": first}).to_string())]
    {
        assert_eq!(request.send().await.expect("a reply").code(), -32_001);
    }
    let server = serve(&counting(), &format!("max_tasks = 100\n{}", api_keys())).await;
    let bobs = id_of(&asked_by(&server, Some(BOB)).await);
    for _ in 0..250 {
        assert_eq!(asked_by(&server, Some(ADA)).await.code(), 0);
    }
    let work = server.say("work").header("x-api-key", BOB).send().await.expect("a reply");
    assert_eq!(state(work.task()), "TASK_STATE_COMPLETED", "{}", work.text);
    let answered = server.say("work").field("taskId", &bobs).header("x-api-key", BOB).send().await.expect("a reply");
    assert_eq!(state(answered.task()), "TASK_STATE_COMPLETED", "{}", answered.text);
}

async fn subscribe(server: &TestServer, id: &str) -> Events {
    let mut events = server.call("SubscribeToTask", json!({"id": id}).to_string()).open().await.expect("a stream");
    events.next().await.expect("an event").expect("the task");
    events
}

#[tokio::test]
async fn the_stream_of_a_waiting_task_that_made_room_ends_with_an_error() {
    let server = serve(&counting(), "max_tasks = 3").await;
    let subscriber = subscribe(&server, &id_of(&asked_by(&server, None).await)).await;
    for _ in 0..3 {
        asked_by(&server, None).await;
    }
    let last = subscriber.rest().await.expect("events");
    assert_eq!((last.len(), &last[0]["error"]["code"]), (1, &json!(-32_001)), "as of a deleted task: {last:?}");
}

#[tokio::test]
async fn of_too_many_waiting_tasks_the_oldest_fails_and_its_readers_hear_why() {
    let server = serve(&counting(), &format!("max_waiting_per_caller = 2\n{}", api_keys())).await;
    let ask = async || id_of(&asked_by(&server, Some(ADA)).await);
    let first = ask().await;
    let params = json!({"id": first}).to_string();
    let subscribed = server.call("SubscribeToTask", params.clone()).header("x-api-key", ADA).open();
    let mut subscriber = subscribed.await.expect("a stream");
    subscriber.next().await.expect("an event").expect("the task");
    let others = [ask().await, ask().await];
    let events = subscriber.rest().await.expect("events");
    assert_eq!(events.len(), 1, "{events:?}");
    let heard = &events[0]["result"]["statusUpdate"];
    assert_eq!(state(heard), "TASK_STATE_FAILED");
    assert!(said(heard).contains("Too many of your tasks wait"), "{heard}");
    let kept = server.call("GetTask", params).header("x-api-key", ADA).send().await.expect("a reply");
    assert_eq!(state(&kept.body["result"]), "TASK_STATE_FAILED");
    for id in others {
        let kept = server.call("GetTask", json!({"id": id}).to_string()).header("x-api-key", ADA);
        assert_eq!(state(&kept.send().await.expect("a reply").body["result"]), "TASK_STATE_INPUT_REQUIRED");
    }
}

/// Sets back when a task began to wait.
fn age(folder: &Path, id: &str) {
    let connection = Connection::open(folder.join("conversations.sqlite")).expect("the database");
    assert_eq!(connection.execute("UPDATE task SET status_at = 1 WHERE id = ?", [id]).expect("a row"), 1);
}

#[tokio::test]
async fn tasks_that_waited_too_long_fail_when_the_store_is_swept() {
    let folder = tempfile::tempdir().expect("a folder");
    let tasks = format!("data_dir = {:?}\nmax_tasks = 2", folder.path());
    let agent = counting();
    let mut server = serve(&agent, &tasks).await;
    let old = id_of(&asked_by(&server, None).await);
    let surplus = id_of(&asked_by(&server, None).await);
    let young = [id_of(&asked_by(&server, None).await), id_of(&asked_by(&server, None).await)];
    server.begin_shutdown();
    server.ended().await.expect("a clean end");
    age(folder.path(), &old);
    // A server sweeps when it starts, and each hour.
    let server = serve(&agent, &tasks).await;
    for id in [&old, &surplus] {
        let failed = ended(&server, id).await;
        assert_eq!(state(&failed), "TASK_STATE_FAILED");
        assert!(said(&failed).contains("waited for too long"), "{failed}");
        let refused = server.say("work").field("taskId", id).send().await.expect("a reply");
        assert_eq!(refused.code(), -32_004, "{}", refused.text);
    }
    for id in &young {
        let done = server.say("work").field("taskId", id).send().await.expect("a reply");
        assert_eq!(state(done.task()), "TASK_STATE_COMPLETED", "{}", done.text);
    }
}
