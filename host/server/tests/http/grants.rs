//! The grants of extensions in a real server.

use std::fs;

use annex_test_support::TestServer;
use serde_json::Value;

use crate::agent;

const URI: &str = "https://annex.example/capabilities/v1";

/// An agent with the extension that uses its grants. `more` is the TOML after the grants.
async fn capable(more: &str) -> TestServer {
    let component = annex_test_support::component("test-capabilities");
    let extension = format!(
        r#"
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
        rewrite-message = true
        {more}
        "#
    );
    agent("{results?}", &extension).await
}

/// The answer repeats what came of the commands.
async fn results(server: &TestServer, commands: &str) -> String {
    let request = server.say("prompt").extensions(URI).metadata("test/capability", commands);
    let reply = request.send().await.expect("a reply");
    assert_eq!(reply.code(), 0, "{}", reply.text);
    reply.answer().to_owned()
}

#[tokio::test]
async fn a_secret_of_a_file_reaches_the_extension_without_its_line_break() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("key");
    fs::write(&path, "from a file\r\n").expect("a file");
    let server = capable(&format!("secrets = {{ KEY = {{ file = {path:?} }} }}")).await;
    let answer = results(&server, r#"[{"secret": "KEY"}]"#).await;
    assert!(answer.contains(r#""from a file""#), "{answer}");
}

#[tokio::test]
async fn keys_outlive_the_server_when_there_is_a_folder_for_data() {
    let folder = tempfile::tempdir().expect("a folder");
    for section in ["tasks", "keyvalue"] {
        let config = format!("[{section}]\ndata_dir = {:?}", folder.path().join(section));
        let mut first = capable(&config).await;
        assert!(results(&first, r#"[{"set": ["key", "kept"]}]"#).await.contains("ok"));
        first.begin_shutdown();
        first.ended().await.expect("the server ends");
        let second = capable(&config).await;
        let answer = results(&second, r#"[{"get": "key"}]"#).await;
        assert!(answer.contains("kept"), "{section}: {answer}");
        assert!(folder.path().join(section).join("keyvalue.sqlite").is_file());
    }
}

#[tokio::test]
async fn the_task_is_shown_from_when_there_is_one() {
    let server = capable("").await;
    let request = server.say("prompt").extensions(URI).metadata("test/capability", r#"["task"]"#);
    let reply = request.send().await.expect("a reply");
    assert!(reply.answer().contains("none"), "{}", reply.text);
    let task = reply.task();
    let shown = task["artifacts"][0]["metadata"]["test/result"].as_str().expect("what respond saw");
    let shown: Value = serde_json::from_str(shown).expect("a task");
    assert_eq!((&shown["id"], &shown["contextId"]), (&task["id"], &task["contextId"]));
    assert!(shown["status"]["state"].as_str().is_some_and(|state| state.starts_with("TASK_STATE_")), "{shown}");
    assert_eq!(shown["status"]["message"], Value::Null);
    assert_eq!(shown["history"], Value::Null);
}
