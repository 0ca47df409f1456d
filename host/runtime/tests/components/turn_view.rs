//! Parts of a turn's view besides session state: scoped keys, lists of tasks, agent steps, resumption.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use annex_protocol::{ExtensionUri, ListTasksResponse};
use annex_runtime::{Extension, Fault, LimitReached, Scope, ScopeKind, TurnView};
use async_trait::async_trait;

use crate::capabilities::{capable, load, results, served};
use crate::support::runtime;

/// A view with one task and one conversation of `ada`.
struct OneTask(&'static str);

impl TurnView for OneTask {
    fn key_scope(&self, kind: ScopeKind) -> Option<Scope> {
        match kind {
            ScopeKind::Lasting => None,
            ScopeKind::Context => Some(Scope::context("", "ada", &"c".into())),
            ScopeKind::Task => Some(Scope::task("", "ada", &self.0.into())),
        }
    }
}

fn in_task(task: &'static str) -> Arc<dyn TurnView> {
    Arc::new(OneTask(task))
}

async fn served_by(extension: &Arc<Extension>, view: &Arc<dyn TurnView>, commands: &str) -> Vec<String> {
    served(extension, view, commands).await.expect("the turn starts")
}

#[tokio::test]
async fn imports_report_errors_without_a_task_and_a_caller() {
    let extension = load(&runtime(), capable()).await;
    let commands = r#"{"in": ["task", {"get": "a"}]}, {"in": ["context", {"set": ["a", "1"]}]}, {"tasks": "{}"},
        {"resume": "t"}, "steps""#;
    let expected = [
        "error: there is no such store",
        "error: there is no such store",
        "error: there are no tasks to list here",
        "error: tasks cannot be resumed here",
        "[]",
    ];
    assert_eq!(results(&extension, commands).await, expected);
}

#[tokio::test]
async fn keys_of_a_task_a_conversation_and_the_extension_are_apart() {
    let extension = load(&runtime(), capable()).await;
    let set = r#"{"set": ["a", "lasting"]}, {"in": ["task", {"set": ["a", "of t"]}]},
        {"in": ["context", {"set": ["a", "of c"]}]}, {"in": ["task", {"increment": ["n", 7]}]}"#;
    assert_eq!(served_by(&extension, &in_task("t"), set).await, ["ok", "ok", "ok", "7"]);
    let read = r#"{"get": "a"}, {"in": ["task", {"get": "a"}]}, {"in": ["context", {"get": "a"}]},
        {"in": ["task", "list"]}, {"in": ["context", "list"]}, "list""#;
    let expected = ["lasting", "of t", "of c", "a n", "a", "a"];
    assert_eq!(served_by(&extension, &in_task("t"), read).await, expected);
    assert_eq!(served_by(&extension, &in_task("u"), read).await, ["lasting", "none", "of c", "", "a", "a"]);
    let delete = r#"{"in": ["task", {"delete": "a"}]}"#;
    served_by(&extension, &in_task("t"), delete).await;
    assert_eq!(served_by(&extension, &in_task("t"), read).await, ["lasting", "none", "of c", "n", "a", "a"]);
}

#[tokio::test]
async fn a_key_that_is_too_long_or_one_task_too_many_is_an_error() {
    let mut installation = capable();
    installation.grants.keyvalue =
        installation.grants.keyvalue.map(|quota| annex_runtime::Quota { max_scoped_keys: 1, ..quota });
    let extension = load(&runtime(), installation).await;
    let commands = format!(
        r#"{{"in": ["task", {{"set": ["{}", ""]}}]}}, {{"in": ["task", {{"set": ["a", ""]}}]}}"#,
        "k".repeat(100_000)
    );
    let expected = ["error: the key is longer than 512 bytes", "ok"];
    assert_eq!(served_by(&extension, &in_task("t"), &commands).await, expected);
    let expected = "error: there are 1 keys of tasks and conversations, and no more are allowed";
    assert_eq!(served_by(&extension, &in_task("u"), r#"{"in": ["task", {"set": ["a", ""]}]}"#).await, [expected]);
}

/// A view whose task list has this many bytes, or never arrives.
struct Lists(Option<usize>);

#[async_trait]
impl TurnView for Lists {
    async fn list_tasks(&self, request: &str) -> Result<ListTasksResponse, String> {
        match (self.0, request) {
            (_, "wrong") => Err("is wrong".to_owned()),
            (Some(bytes), _) => Ok(response(bytes)),
            (None, _) => std::future::pending().await,
        }
    }
}

/// A response of `bytes` bytes of JSON.
fn response(bytes: usize) -> ListTasksResponse {
    let with_token = |length| ListTasksResponse { next_page_token: "x".repeat(length), ..ListTasksResponse::default() };
    with_token(bytes - encoded(&with_token(0)).len())
}

fn encoded(response: &ListTasksResponse) -> String {
    serde_json::to_string(response).expect("JSON")
}

/// A view that lists one task with metadata in each place.
struct Task;

#[async_trait]
impl TurnView for Task {
    async fn list_tasks(&self, _request: &str) -> Result<ListTasksResponse, String> {
        let metadata = r#"{"other/key":"private","test/capability":"own"}"#;
        let message =
            format!(r#"{{"messageId":"m","role":"ROLE_USER","parts":[{{"text":"hi"}}],"metadata":{metadata}}}"#);
        let artifact = format!(r#"{{"artifactId":"a","parts":[{{"text":"ho"}}],"metadata":{metadata}}}"#);
        let status = format!(r#"{{"state":"TASK_STATE_COMPLETED","message":{message}}}"#);
        let task = format!(
            r#"{{"id":"t","contextId":"c","status":{status},"artifacts":[{artifact}],"history":[{message}],"metadata":{metadata}}}"#
        );
        Ok(serde_json::from_str(&format!(r#"{{"tasks":[{task}]}}"#)).expect("a response"))
    }
}

#[tokio::test]
async fn the_tasks_of_a_list_are_shown_without_the_metadata_of_others() {
    let extension = load(&runtime(), capable()).await;
    let view: Arc<dyn TurnView> = Arc::new(Task);
    let shown = served_by(&extension, &view, r#"{"tasks": "{}"}"#).await;
    assert!(shown[0].contains("ho") && shown[0].matches("own").count() == 4, "{}", shown[0]);
    assert!(!shown[0].contains("private"), "{}", shown[0]);
}

fn listing(bytes: Option<usize>) -> Arc<dyn TurnView> {
    Arc::new(Lists(bytes))
}

#[tokio::test]
async fn a_list_of_tasks_has_the_size_limit_of_hook_input() {
    let mut installation = capable();
    installation.limits.input = 1_000;
    let extension = load(&runtime(), installation).await;
    let list = r#"{"tasks": "{}"}, {"tasks": "wrong"}"#;
    let fitting = served_by(&extension, &listing(Some(1_000)), list).await;
    assert_eq!(fitting, [encoded(&response(1_000)), "error: is wrong".to_owned()]);
    let large = served_by(&extension, &listing(Some(1_001)), list).await;
    let expected = "error: the answer has 1001 bytes, and at most 1000 are allowed; ask for a smaller page";
    assert_eq!(large[0], expected);
}

#[tokio::test]
async fn a_list_that_does_not_come_ends_with_the_outer_limit() {
    let mut installation = capable();
    installation.limits.wall = Duration::from_millis(50);
    let extension = load(&runtime(), installation).await;
    let fault = served(&extension, &listing(None), r#"{"tasks": "{}"}"#).await.expect_err("it takes too long");
    assert!(matches!(fault, Fault::LimitReached { limit: LimitReached::Wall, .. }), "{fault:?}");
}

#[derive(Default)]
struct ResumedTasks(Mutex<Vec<String>>);

#[async_trait]
impl TurnView for ResumedTasks {
    async fn resume_task(&self, task_id: &str, extension: &ExtensionUri) -> Result<(), String> {
        self.0.lock().expect("no panic").push(format!("{task_id} {extension}"));
        if task_id == "t" { Ok(()) } else { Err("there is no such task".to_owned()) }
    }

    fn agent_steps(&self) -> String {
        r#"[{"kind":"model"}]"#.to_owned()
    }
}

#[tokio::test]
async fn resuming_names_the_extension_that_asks_and_steps_are_handed_on() {
    let noted = Arc::new(ResumedTasks::default());
    let view: Arc<dyn TurnView> = Arc::clone(&noted) as Arc<dyn TurnView>;
    let extension = load(&runtime(), capable()).await;
    let commands = r#"{"resume": "t"}, {"resume": "u"}, "steps""#;
    let expected = ["ok", "error: there is no such task", r#"[{"kind":"model"}]"#];
    assert_eq!(served_by(&extension, &view, commands).await, expected);
    let uri = "https://annex.example/capabilities/v1";
    assert_eq!(*noted.0.lock().expect("no panic"), [format!("t {uri}"), format!("u {uri}")]);
}
