//! Keys that extensions store with a task or a conversation: their visibility and their removal.

use std::path::Path;
use std::sync::Arc;

use annex_test_support::{TestServer, until};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::auth::{ADA, BOB, api_keys};
use crate::durable::{Counting, counting, serve};

const URI: &str = "https://annex.example/capabilities/v1";
const OTHER: &str = "https://annex.example/capabilities/v2";
const SET: &str = r#"[{"in": ["task", {"set": ["k", "mine"]}]}, {"in": ["context", {"set": ["k", "ours"]}]}]"#;
const READ: &str = r#"[{"in": ["task", {"get": "k"}]}, {"in": ["context", {"get": "k"}]}]"#;

/// The extension that uses its grants, installed as `uri`.
pub(crate) fn capable(uri: &str, keyvalue: &str, more: &str) -> String {
    let component = annex_test_support::component("test-capabilities");
    format!(
        r#"
        [[extension]]
        component = {component:?}
        [extension.parameters]
        uri = {uri:?}
        [extension.grants]
        clock = true
        random = true
        http = {{ allow = [{{ host = "api.example.com" }}] }}
        keyvalue = {{ {keyvalue} }}
        session-state = {{ read = true }}
        task = true
        tasks = true
        task-resumption = true
        agent-steps = true
        {more}
        "#
    )
}

/// A message with commands for the extension: for the way in, and for the way out.
#[derive(Clone, Copy)]
pub(crate) struct TestMessage<'a> {
    pub(crate) key: Option<&'a str>,
    pub(crate) uri: &'a str,
    pub(crate) text: &'a str,
    pub(crate) context: Option<&'a str>,
    pub(crate) task: Option<&'a str>,
    pub(crate) now: &'a str,
    pub(crate) later: &'a str,
}

impl Default for TestMessage<'_> {
    fn default() -> Self {
        Self { key: None, uri: URI, text: "work", context: None, task: None, now: "[]", later: "[]" }
    }
}

impl TestMessage<'_> {
    /// Sends it and gives the body of the answer.
    pub(crate) async fn to(&self, server: &TestServer) -> Value {
        let read = |commands: &str| serde_json::from_str::<Value>(commands).expect("commands");
        let message = json!({
            "messageId": uuid::Uuid::new_v4().to_string(), "role": "ROLE_USER", "parts": [{"text": self.text}],
            "contextId": self.context, "taskId": self.task,
            "metadata": {"test/capability": read(self.now), "test/later": read(self.later)},
        });
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}});
        let mut request = server.client().post(format!("{}/a2a/jsonrpc", server.url()));
        request = request.header("A2A-Version", "1.0").header("A2A-Extensions", self.uri);
        if let Some(key) = self.key {
            request = request.header("x-api-key", key);
        }
        request.json(&body).send().await.expect("an answer").json().await.expect("JSON")
    }

    /// Sends it and gives what came of the commands for the way out.
    pub(crate) async fn results(&self, server: &TestServer) -> Vec<String> {
        let body = self.to(server).await;
        let artifacts = body["result"]["task"]["artifacts"].as_array().unwrap_or_else(|| unreachable!("{body}"));
        let results = &artifacts.last().expect("an artifact")["metadata"]["test/result"];
        serde_json::from_value(results.clone()).unwrap_or_else(|_| unreachable!("{body}"))
    }
}

fn id_of(body: &Value) -> &str {
    body["result"]["task"]["id"].as_str().unwrap_or_else(|| unreachable!("no task: {body}"))
}

/// The entries of the file of keys: kinds and ids.
fn entries(folder: &Path) -> Vec<(String, String)> {
    let connection = Connection::open(folder.join("keyvalue.sqlite")).expect("a database");
    let mut query = connection.prepare("SELECT kind, id FROM entry ORDER BY kind, id").expect("valid SQL");
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
    rows.collect::<Result<_, _>>().expect("entries")
}

/// Waits until the removals after the answer are complete.
async fn until_there_are(folder: &Path, expected: &[(&str, &str)]) {
    let what = format!("the file comes to have {expected:?}");
    until(&what, async || {
        let found = entries(folder);
        found.iter().map(|(kind, id)| (kind.as_str(), id.as_str())).eq(expected.iter().copied())
    })
    .await;
}

async fn durable(agent: &Arc<Counting>, folder: &Path, tasks: &str, more: &str) -> TestServer {
    serve(agent, &format!("data_dir = {folder:?}\n{tasks}\n{more}")).await
}

#[tokio::test]
async fn keys_of_a_task_and_a_conversation_are_there_in_later_turns_and_nowhere_else() {
    let agent = counting();
    let extensions = capable(URI, "", "") + &capable(OTHER, "", "");
    let server = serve(&agent, &format!("{}\n{extensions}", api_keys())).await;
    let ada = TestMessage { key: Some(ADA), context: Some("c"), later: READ, ..TestMessage::default() };
    let asked = TestMessage { text: "ask", now: SET, ..ada }.to(&server).await;
    let task = Some(id_of(&asked));
    let expected = [
        (TestMessage { context: Some("other"), ..ada }, ["none", "none"]),
        (TestMessage { key: Some(BOB), ..ada }, ["none", "none"]),
        (TestMessage { uri: OTHER, ..ada }, ["none", "none"]),
        (ada, ["none", "ours"]),
        (TestMessage { task, ..ada }, ["mine", "ours"]),
    ];
    for (said, expected) in expected {
        assert_eq!(said.results(&server).await, expected);
    }
}

#[tokio::test]
async fn another_extension_sees_none_of_them_in_the_same_task() {
    let agent = counting();
    let extensions = capable(URI, "", "") + &capable(OTHER, "", "");
    let server = serve(&agent, &extensions).await;
    let asked = TestMessage { text: "ask", now: SET, ..TestMessage::default() }.to(&server).await;
    let said = TestMessage { uri: OTHER, task: Some(id_of(&asked)), later: READ, ..TestMessage::default() };
    assert_eq!(said.results(&server).await, ["none", "none"]);
}

#[tokio::test]
async fn a_message_that_is_refused_leaves_no_keys_behind() {
    let agent = counting();
    let folder = tempfile::tempdir().expect("a folder");
    let refusing = format!("{}\n[sessions]\nmax_state_bytes = 100", capable(URI, "", ""));
    let server = durable(&agent, folder.path(), "", &refusing).await;
    // What comes of so many commands is too much state.
    let now = format!("[{}{}", r#"{"random": 1}, "#.repeat(40), &SET[1..]);
    let refused = TestMessage { context: Some("c"), now: &now, ..TestMessage::default() };
    for _ in 0..3 {
        let body = refused.to(&server).await;
        assert_eq!(body["error"]["code"], -32_602, "{body}");
        until_there_are(folder.path(), &[]).await;
    }
    // The same commands in a message that is taken leave what they set.
    let taken = TestMessage { context: Some("c"), text: "ask", now: SET, ..TestMessage::default() }.to(&server).await;
    until_there_are(folder.path(), &[("context", "c"), ("task", id_of(&taken))]).await;
    assert_eq!(refused.to(&server).await["error"]["code"], -32_602);
    let again = TestMessage { context: Some("c"), later: READ, ..TestMessage::default() };
    assert_eq!(again.results(&server).await, ["none", "ours"], "the conversation's keys outlive a refusal");
}

#[tokio::test]
async fn a_message_that_is_answered_without_a_task_leaves_none_with_the_task() {
    let agent = counting();
    let folder = tempfile::tempdir().expect("a folder");
    let server = durable(&agent, folder.path(), "", &capable(URI, "", "")).await;
    let body = TestMessage { context: Some("c"), text: "answer", now: SET, ..TestMessage::default() }.to(&server).await;
    assert!(body["result"]["message"].is_object(), "{body}");
    until_there_are(folder.path(), &[("context", "c")]).await;
}

#[tokio::test]
async fn keys_outlive_a_restart_and_go_with_the_task_and_the_session_that_retention_removes() {
    let agent = counting();
    let folder = tempfile::tempdir().expect("a folder");
    let extension = capable(URI, "", "");
    let mut server = durable(&agent, folder.path(), "", &extension).await;
    let mut ids = Vec::new();
    let lasting = format!(r#"[{{"set": ["k", "for good"]}}, {}"#, &SET[1..]);
    for _ in 0..3 {
        ids.push(
            id_of(&TestMessage { context: Some("c"), now: &lasting, ..TestMessage::default() }.to(&server).await)
                .to_owned(),
        );
    }
    let mut kept: Vec<(&str, &str)> = ids.iter().map(|id| ("task", id.as_str())).collect();
    kept.sort_unstable();
    let all: Vec<_> = [("", ""), ("context", "c")].into_iter().chain(kept).collect();
    until_there_are(folder.path(), &all).await;
    server.begin_shutdown();
    server.ended().await.expect("a clean end");
    let mut server = durable(&agent, folder.path(), "keep_count = 1", &extension).await;
    until_there_are(folder.path(), &[("", ""), ("context", "c"), ("task", &ids[2])]).await;
    let said = TestMessage { context: Some("c"), later: READ, ..TestMessage::default() };
    assert_eq!(said.results(&server).await, ["none", "ours"]);
    TestMessage { context: Some("d"), ..said }.to(&server).await;
    server.begin_shutdown();
    server.ended().await.expect("a clean end");
    let one = format!("{extension}\n[sessions]\nkeep_count = 1");
    let server = durable(&agent, folder.path(), "keep_count = 1", &one).await;
    until_there_are(folder.path(), &[("", "")]).await;
    assert_eq!(said.results(&server).await, ["none", "none"]);
}

#[tokio::test]
async fn a_conversation_whose_session_went_begins_without_keys() {
    let agent = counting();
    let server = serve(&agent, &format!("{}\n[sessions]\nmax_sessions = 1", capable(URI, "", ""))).await;
    let said = TestMessage { context: Some("c"), later: READ, ..TestMessage::default() };
    TestMessage { now: SET, ..said }.to(&server).await;
    assert_eq!(said.results(&server).await, ["none", "ours"]);
    TestMessage { context: Some("other"), ..said }.to(&server).await;
    assert_eq!(said.results(&server).await, ["none", "none"]);
}

#[tokio::test]
async fn a_client_that_begins_many_tasks_fills_the_quota_of_tasks_and_nothing_else() {
    let agent = counting();
    let server = serve(&agent, &capable(URI, "max_scoped_keys = 5", "")).await;
    let later = r#"[{"in": ["task", {"set": ["k", ""]}]}, {"increment": ["n", 1]}]"#;
    let full = "error: there are 5 keys of tasks and conversations, and no more are allowed";
    for number in 1..=20_u32 {
        let results = TestMessage { later, ..TestMessage::default() }.results(&server).await;
        let expected = if number <= 5 { "ok" } else { full };
        assert_eq!(results, [expected, &number.to_string()]);
    }
}
