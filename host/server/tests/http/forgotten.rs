//! The grant `forget-metadata`: metadata of messages that is stored nowhere and shown to nobody but the extension.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use annex_agent::AgentExecutor;
use annex_test_support::{COMMAND_KEY, TEST_EXTENSION, TestConfig, TestServer};
use serde_json::{Value, json};

use crate::durable::{counting, state};
use crate::push::receiver;

/// A word behind the command in the extension's metadata. The extension ignores it.
const SECRET: &str = "plum-4711";
/// A command with the word. It sets the key `test` of the session.
const COMMANDS: &str = r#"{"validate": "delta plum-4711"}"#;
/// Metadata under a key that no extension owns.
const KEPT: &str = "pear-4712";

const FORGETS: &str = "activate = \"metadata\"\n[extension.grants]\nforget-metadata = true";

/// A config whose data lies in `folder`, with the test extension. `keys` are further keys of the extension.
fn config(base: TestConfig, folder: &Path, keys: &str) -> TestConfig {
    base.set("tasks.data_dir", folder.join("data")).extension(annex_components::TEST_EXTENSION, keys)
}

async fn post(server: &TestServer, path: &str, version: &str, body: &Value) -> String {
    let request = server.client().post(format!("{}{path}", server.url())).json(body).header("a2a-version", version);
    request.send().await.expect("an answer").text().await.expect("a text")
}

/// The files below `folder` that contain `word`.
pub(crate) fn files_with(folder: &Path, word: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("a file").path();
        if path.is_dir() {
            found.extend(files_with(&path, word));
        } else if fs::read(&path).expect("bytes").windows(word.len()).any(|bytes| bytes == word.as_bytes()) {
            found.push(path.display().to_string());
        }
    }
    found
}

#[tokio::test]
async fn forgotten_metadata_reaches_the_extension_and_no_store_read_or_push() {
    let folder = tempfile::tempdir().expect("a folder");
    let (url, mut received) = receiver().await;
    let base = TestConfig::template("{test?}").set("server.a2a_0_3", true).set("push.allow", ["127.0.0.0/8"]);
    let mut server = config(base, folder.path(), FORGETS).start().await.expect("a server");
    let commands: Value = serde_json::from_str(COMMANDS).expect("JSON");
    let mut metadata = json!({"other/key": KEPT});
    metadata[COMMAND_KEY] = commands;
    let message = |id: &str| {
        let parts = json!([{"text": "prompt"}]);
        json!({"messageId": id, "role": "ROLE_USER", "parts": parts, "contextId": "c", "metadata": metadata})
    };
    let push = json!({"taskPushNotificationConfig": {"url": url}});
    let params = |id: &str| json!({"message": message(id), "configuration": push, "metadata": metadata});
    let call = |method: &str, params: Value| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let mut older = json!({"messageId": "m-4", "role": "user", "parts": [{"kind": "text", "text": "prompt"}]});
    older["metadata"] = metadata.clone();
    let answers = [
        post(&server, "/a2a/jsonrpc", "1.0", &call("SendMessage", params("m-1"))).await,
        post(&server, "/a2a/jsonrpc", "1.0", &call("SendStreamingMessage", params("m-2"))).await,
        post(&server, "/a2a/rest/message:send", "1.0", &params("m-3")).await,
        post(&server, "/a2a/jsonrpc", "0.3", &call("message/send", json!({"message": older}))).await,
        // A repetition gets the task of the first message.
        post(&server, "/a2a/jsonrpc", "1.0", &call("SendMessage", params("m-1"))).await,
        post(
            &server,
            "/a2a/jsonrpc",
            "1.0",
            &call("ListTasks", json!({"contextId": "c", "historyLength": 9, "includeArtifacts": true})),
        )
        .await,
    ];
    for (number, answer) in answers.iter().enumerate() {
        assert!(answer.contains("\"delta\""), "the extension got the metadata: {number}: {answer}");
        assert!(!answer.contains(SECRET) && !answer.contains(COMMAND_KEY), "{number}: {answer}");
    }
    assert!(answers.last().is_some_and(|list| list.contains(KEPT)), "{answers:?}");
    loop {
        let (_, event) = received.recv().await.expect("a notification");
        assert!(!event.to_string().contains(SECRET), "{event}");
        if event["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED" {
            break;
        }
    }
    assert_eq!(files_with(folder.path(), SECRET), Vec::<String>::new());
    server.begin_shutdown();
    server.ended().await.expect("a clean end");
    assert_eq!(files_with(folder.path(), SECRET), Vec::<String>::new());
    assert!(!files_with(folder.path(), KEPT).is_empty(), "the metadata of others is stored");
}

#[tokio::test]
async fn metadata_is_forgotten_although_the_client_has_not_activated_the_extension() {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = "[extension.grants]\nforget-metadata = true";
    let server = config(TestConfig::template("{test?}"), folder.path(), keys).start().await.expect("a server");
    let said = server.say("prompt").metadata(COMMAND_KEY, COMMANDS).metadata("other/key", "1");
    let reply = said.send().await.expect("a reply");
    assert_eq!(state(reply.task()), "TASK_STATE_COMPLETED", "{}", reply.text);
    assert_eq!(reply.task()["history"][0]["metadata"], json!({"other/key": 1}), "{}", reply.text);
    assert_eq!(files_with(folder.path(), SECRET), Vec::<String>::new());
}

/// The control of the tests above: without the grant the same metadata is stored.
#[tokio::test]
async fn metadata_is_stored_without_the_grant() {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = "activate = \"metadata\"";
    let server = config(TestConfig::template("{test?}"), folder.path(), keys).start().await.expect("a server");
    let reply = server.say("prompt").metadata(COMMAND_KEY, COMMANDS).send().await.expect("a reply");
    assert!(reply.text.contains(SECRET), "{}", reply.text);
    assert!(!files_with(folder.path(), SECRET).is_empty());
}

/// The grant covers the metadata alone. Copies in other places are stored.
#[tokio::test]
async fn what_an_extension_writes_of_forgotten_metadata_is_stored() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = config(TestConfig::template("{test?}"), folder.path(), FORGETS).start().await.expect("a server");
    let said = server.say("prompt").metadata(COMMAND_KEY, r#"{"validate": "seen plum-4711"}"#);
    let reply = said.send().await.expect("a reply");
    assert!(reply.answer().contains(SECRET), "{}", reply.text);
    assert!(reply.task()["history"][0].get("metadata").is_none(), "{}", reply.text);
    assert!(!files_with(folder.path(), SECRET).is_empty());
}

#[tokio::test]
async fn a_message_with_forgotten_metadata_does_not_wait_for_another_turn() {
    let agent = counting();
    let folder = tempfile::tempdir().expect("a folder");
    let config = config(TestConfig::without_agent(), folder.path(), FORGETS);
    let server = config.start_with(Arc::clone(&agent) as Arc<dyn AgentExecutor>).await.expect("a server");
    let mut stream = server.say("wait").context("c").streaming().open().await.expect("a stream");
    loop {
        let event = stream.next().await.expect("an event").expect("one more");
        if event["result"]["statusUpdate"]["status"]["state"] == "TASK_STATE_WORKING" {
            break;
        }
    }
    let say = || server.say("hello").context("c").field("messageId", "m-1").metadata(COMMAND_KEY, COMMANDS);
    let refused = say().send().await.expect("a reply");
    assert_eq!(refused.code(), -32_004, "{}", refused.text);
    assert!(refused.text.contains("send the message again after that turn"), "{}", refused.text);
    assert!(!refused.text.contains(SECRET), "{}", refused.text);
    agent.go.add_permits(1);
    stream.rest().await.expect("events");
    let done = say().send().await.expect("a reply");
    assert_eq!(state(done.task()), "TASK_STATE_COMPLETED", "{}", done.text);
    let list = server.call("ListTasks", r#"{"contextId":"c"}"#).send().await.expect("a list");
    assert_eq!(list.body["result"]["totalSize"], 2, "{}", list.text);
    assert_eq!(files_with(folder.path(), SECRET), Vec::<String>::new());
}

#[tokio::test]
async fn a_large_secret_is_refused_without_repeating_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = config(TestConfig::template("i"), folder.path(), FORGETS).start().await.expect("a server");
    let large = format!(r#"{{"validate": "delta {}"}}"#, "x".repeat(600_000));
    let refused = server.say("prompt").metadata(COMMAND_KEY, &large).send().await.expect("a reply");
    assert_eq!(refused.code(), -32_602, "{}", refused.text);
    assert_eq!(refused.violations(), ["/message/metadata/test~1command"], "{}", refused.text);
    assert!(!refused.text.contains("xxx"));
    assert_eq!(files_with(folder.path(), "xxxxxxxx"), Vec::<String>::new());
}

#[tokio::test]
async fn extensions_that_share_a_key_forget_it_together_or_not_at_all() {
    let with = |second: &str| {
        let second = format!("{second}\n[extension.parameters]\nuri = \"urn:second\"");
        let config = TestConfig::template("i").extension(annex_components::TEST_EXTENSION, FORGETS);
        config.extension(annex_components::TEST_EXTENSION, &second)
    };
    assert!(with("[extension.grants]\nforget-metadata = true").start().await.is_ok());
    match with("").start().await {
        Ok(_) => panic!("the server starts"),
        Err(error) => {
            let error = format!("{error:#}");
            assert!(error.contains(TEST_EXTENSION) && error.contains("forget-metadata"), "{error}");
        }
    }
}
