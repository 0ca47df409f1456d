//! Sessions that outlive their process, turns without an answer, whose session is whose, and a store that fails.

use std::path::Path;
use std::sync::Arc;

use annex_agent::{AgentError, AgentEvent, AgentExecutor, EventSender, TurnContext};
use annex_conversation::{
    ConversationKey, ConversationStore, Event, Limits, SqliteStore, StateDelta, USER_AUTHOR, Window,
};
use annex_protocol::{Message, Part, TaskState};
use annex_test_support::{Reply, TestConfig, TestServer};
use async_trait::async_trait;

use crate::auth::{ADA, BOB, api_keys};
use crate::durable::sql;

/// An agent that stores the value of `set KEY VALUE` and answers with its knowledge and the number of its turns. It
/// fails on `fail`, panics on `panic`, asks on `ask`, waits on `wait`, and stores nothing for `hello`.
struct Diary;

#[async_trait]
impl AgentExecutor for Diary {
    fn name(&self) -> &str {
        "diary"
    }

    async fn execute(&self, turn: TurnContext, events: EventSender) -> Result<(), AgentError> {
        let text = turn.message.text();
        match text.as_str() {
            "fail" => return Err(AgentError::Failed { message: "It was told to.".to_owned() }),
            "panic" => unreachable!("it was told to"),
            "ask" => return events.send(AgentEvent::Status { state: TaskState::InputRequired, message: None }).await,
            "wait" => {
                events.send(AgentEvent::Status { state: TaskState::Working, message: None }).await?;
                return std::future::pending().await;
            }
            "hello" => return events.send(answer(&turn, "hello".to_owned())).await,
            _ => {}
        }
        let mut delta = StateDelta::new();
        if let Some((key, value)) = text.strip_prefix("set ").and_then(|text| text.split_once(' ')) {
            let value = annex_protocol::Json::parse(value.to_owned()).map_err(AgentError::internal)?;
            delta.insert(key, value);
        }
        let event = Event::new(self.name(), turn.task_id.as_str(), vec![Part::text("noted")], delta);
        turn.conversation.append([event.into()]).await.map_err(AgentError::internal)?;
        let history = turn.conversation.history(100).await.map_err(AgentError::internal)?;
        let times = history.iter().filter(|event| event.is_from_user()).count();
        events.send(answer(&turn, format!("{times} {}", turn.conversation.state().to_json_string()))).await
    }
}

fn answer(turn: &TurnContext, text: String) -> AgentEvent {
    AgentEvent::Message(Message::agent(turn.context_id.clone(), None, vec![Part::text(text)]))
}

async fn serve(more: &str) -> TestServer {
    let config = TestConfig::without_agent().set("server.drain_seconds", 0).with(more);
    config.start_with(Arc::new(Diary)).await.expect("a server")
}

async fn serve_on(folder: &Path) -> TestServer {
    serve(&format!("[tasks]\ndata_dir = {:?}", folder.join("data"))).await
}

async fn say(server: &TestServer, text: &str) -> Reply {
    server.say(text).context("c").send().await.expect("a reply")
}

fn text(reply: &Reply) -> &str {
    let parts = &reply.body["result"]["message"]["parts"];
    parts[0]["text"].as_str().unwrap_or_else(|| unreachable!("no message: {}", reply.text))
}

/// The events of the anonymous user's context `c`.
async fn events(folder: &Path) -> Vec<Arc<Event>> {
    events_of(folder, "c").await
}

async fn events_of(folder: &Path, context: &str) -> Vec<Arc<Event>> {
    let file = folder.join("data/conversations.sqlite");
    let store = SqliteStore::open(&file, None, Limits::default()).await.expect("a store");
    let key = ConversationKey::new("", "diary", format!("A2A_USER_{context}"), context);
    store.conversation(&key, Window::ALL).await.expect("a conversation").history
}

/// Author and code of the error of each event.
fn outline(events: &[Arc<Event>]) -> Vec<(&str, &str)> {
    let code = |event: &'_ Arc<Event>| event.error.as_ref().map_or("", |_| "error");
    events.iter().map(|event| (&*event.author, code(event))).collect()
}

#[tokio::test]
async fn state_and_history_outlive_the_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut server = serve_on(folder.path()).await;
    assert_eq!(text(&say(&server, "set big 9007199254740993").await), r#"1 {"big":9007199254740993}"#);
    assert_eq!(
        text(&say(&server, r#"set user:name {"b":1.0,"a":null}"#).await).split_once(' ').expect("a text").0,
        "2"
    );
    server.begin_shutdown();
    server.ended().await.expect("a clean end");
    let server = serve_on(folder.path()).await;
    let expected = r#"3 {"big":9007199254740993,"user:name":{"b":1.0,"a":null}}"#;
    assert_eq!(text(&say(&server, "again").await), expected);
}

#[tokio::test]
async fn a_turn_without_an_answer_is_an_event_of_the_agent_all_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = serve_on(folder.path()).await;
    for words in ["fail", "set a 1", "ask", "hello", "panic", "set a 2"] {
        say(&server, words).await;
    }
    let events = events(folder.path()).await;
    let expected = ["error", "", "", "", "error", ""].map(|error| [(USER_AUTHOR, ""), ("diary", error)]);
    assert_eq!(outline(&events), expected.concat());
    let failed = events[1].error.as_ref().expect("an error");
    assert_eq!((failed.code.as_str(), failed.message.as_str()), ("TASK_STATE_FAILED", "It was told to."));
    assert_eq!(events[9].error.as_ref().expect("an error").code, "TASK_STATE_FAILED");
    for turn in events.chunks(2) {
        assert_eq!(turn[0].invocation_id, turn[1].invocation_id);
    }
}

#[tokio::test]
async fn a_cancelled_turn_is_answered_by_an_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = serve_on(folder.path()).await;
    let mut stream = server.say("wait").context("c").streaming().open().await.expect("a stream");
    let first = stream.next().await.expect("an event").expect("a task");
    let id = first["result"]["task"]["id"].as_str().expect("an id").to_owned();
    server.call("CancelTask", format!(r#"{{"id":"{id}"}}"#)).send().await.expect("a reply");
    stream.rest().await.expect("events");
    assert_eq!(text(&say(&server, "set a 1").await), r#"2 {"a":1}"#);
    let events = events(folder.path()).await;
    assert_eq!(outline(&events), [("user", ""), ("diary", "error"), ("user", ""), ("diary", "")]);
    assert_eq!(events[1].error.as_ref().expect("an error").code, "TASK_STATE_CANCELED");
}

#[tokio::test]
async fn a_store_that_fails_is_told_by_an_error_id_and_works_again_without_a_restart() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = serve_on(folder.path()).await;
    say(&server, "set a 1").await;
    let trigger = "CREATE TRIGGER broken BEFORE INSERT ON log_entry BEGIN SELECT RAISE(ABORT, 'secret'); END";
    sql(folder.path(), trigger).await;
    let reply = say(&server, "set a 2").await;
    assert_eq!(reply.code(), -32_603, "{}", reply.text);
    assert!(reply.text.contains("error id") && !reply.text.contains("secret"), "{}", reply.text);
    sql(folder.path(), "DROP TRIGGER broken").await;

    sql(folder.path(), &trigger.replace("log_entry BEGIN", "log_entry WHEN NEW.json LIKE '%noted%' BEGIN")).await;
    let failed = say(&server, "set a 3").await;
    assert_eq!(failed.task()["status"]["state"], "TASK_STATE_FAILED", "{}", failed.text);
    sql(folder.path(), "DROP TRIGGER broken").await;
    assert_eq!(text(&say(&server, "again").await), r#"3 {"a":1}"#);
    let events = events(folder.path()).await;
    let expected = ["", "error", ""].map(|error| [(USER_AUTHOR, ""), ("diary", error)]);
    assert_eq!(outline(&events), expected.concat());
}

#[tokio::test]
async fn a_message_is_stored_or_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = serve_on(folder.path()).await;
    let say = async |words: &str, context: &str| {
        server.say(words).context(context).field("messageId", words).send().await.expect("a reply")
    };
    sql(folder.path(), "CREATE TRIGGER broken BEFORE INSERT ON log_entry BEGIN SELECT RAISE(ABORT, 'secret'); END")
        .await;
    for words in ["hello", "set a 1", "ask", "fail", "wait"] {
        let reply = say(words, words).await;
        let is_told = reply.text.contains("error id") && !reply.text.contains("secret");
        assert!(reply.code() == -32_603 && is_told, "{words}: {}", reply.text);
        let listed = server.call("ListTasks", format!(r#"{{"contextId":"{words}"}}"#)).send().await.expect("a reply");
        assert_eq!(listed.body["result"]["totalSize"], 0, "{}", listed.text);
        assert!(events_of(folder.path(), words).await.is_empty());
    }
    sql(folder.path(), "DROP TRIGGER broken").await;

    // It was never taken, so the same message is a new one.
    assert_eq!(text(&say("hello", "hello").await), "hello");
    assert_eq!(text(&say("set a 1", "set a 1").await), r#"1 {"a":1}"#);
    for (words, state) in [("ask", "TASK_STATE_INPUT_REQUIRED"), ("fail", "TASK_STATE_FAILED")] {
        let reply = say(words, words).await;
        assert_eq!(reply.task()["status"]["state"], state, "{}", reply.text);
    }
    for (words, error) in [("hello", ""), ("set a 1", ""), ("ask", ""), ("fail", "error")] {
        let events = events_of(folder.path(), words).await;
        assert_eq!(outline(&events), [(USER_AUTHOR, ""), ("diary", error)], "{words}");
    }
    let mut stream = server.say("wait").context("wait").streaming().open().await.expect("a stream");
    stream.next().await.expect("an event").expect("a task");
    assert_eq!(
        outline(&events_of(folder.path(), "wait").await),
        [(USER_AUTHOR, "")],
        "it is stored before the agent waits"
    );
}

#[tokio::test]
async fn a_session_is_of_one_principal_and_never_passes_to_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let tasks = format!("[tasks]\ndata_dir = {:?}", folder.path().join("data"));
    let mut server = serve(&tasks).await;
    say(&server, "set secret 1").await;
    server.begin_shutdown();
    server.ended().await.expect("a clean end");

    let server = serve(&format!("{tasks}\n{}", api_keys())).await;
    let say = async |key: &str, words: &str| {
        let reply = server.say(words).context("c").header("x-api-key", key).send().await.expect("a reply");
        text(&reply).to_owned()
    };
    assert_eq!(say(ADA, "set name 1").await, r#"1 {"name":1}"#, "the anonymous session is not adopted");
    assert_eq!(say(ADA, "set user:theme 2").await, r#"2 {"name":1,"user:theme":2}"#);
    assert_eq!(say(BOB, "hi").await, "1 {}", "one principal cannot name another's context");
    assert_eq!(say(ADA, "hi").await, r#"3 {"name":1,"user:theme":2}"#);
}

#[tokio::test]
async fn a_name_that_a_client_makes_up_is_nobody() {
    let server = serve("").await;
    for (name, value) in [("x-user", "ada"), ("x-api-key", ADA), ("authorization", "Basic YWRhOg==")] {
        let first = server.say("set user:a 1").context(name).header(name, value).send().await.expect("a reply");
        assert_eq!(text(&first), r#"1 {"user:a":1}"#);
        let context = format!("{name} again");
        let other = server.say("hi").context(&context).header(name, value).send().await.expect("a reply");
        assert_eq!(text(&other), "1 {}", "{name}");
    }
}

#[tokio::test]
async fn a_session_store_that_does_not_open_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("data");
    std::fs::write(&file, "no folder").expect("a file");
    let cases = [
        (format!("data_dir = {file:?}"), "sessions.data_dir"),
        ("postgres_env = \"ANNEX_NO_SUCH_VARIABLE\"".to_owned(), "sessions.postgres_env"),
        ("postgres_env = \"A\"\ndata_dir = \"b\"".to_owned(), "leave one out"),
        ("keep_days = 0".to_owned(), "sessions.keep_days"),
        ("max_state_keys = 0".to_owned(), "sessions.max_state_keys"),
    ];
    for (sessions, expected) in cases {
        let config = include_str!("../../../../examples/specialist/annex.toml");
        let error = TestServer::start(&format!("{config}\n[sessions]\n{sessions}")).await.err().expect("a refusal");
        assert!(format!("{error:#}").contains(expected), "{sessions}: {error:#}");
    }
}
