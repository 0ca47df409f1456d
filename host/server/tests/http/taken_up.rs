//! Operations on a finished task give the same answers with every store.

use annex_test_support::TestServer;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::durable::{counting, id_of, serve, state};

/// A server with tasks in memory, and one with tasks in a file.
async fn servers(folder: &TempDir) -> [TestServer; 2] {
    let file = format!("data_dir = {:?}", folder.path().join("data"));
    [serve(&counting(), "").await, serve(&counting(), &file).await]
}

/// Resumes a stream after the event `last`. Returns the following events, or `None` if the request is refused because
/// the task is finished.
async fn take_up(server: &TestServer, task: &str, last: u64) -> Option<Vec<Value>> {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task}});
    let request = server.client().post(format!("{}/a2a/jsonrpc", server.url())).header("a2a-version", "1.0");
    let reply = request.header("last-event-id", last.to_string()).json(&body).send().await.expect("an answer");
    let text = reply.text().await.expect("a text");
    if let Ok(refusal) = serde_json::from_str::<Value>(&text) {
        assert_eq!(refusal["error"]["code"], -32_004, "{text}");
        return None;
    }
    let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
    Some(lines.map(|line| serde_json::from_str::<Value>(line).expect("JSON")["result"].clone()).collect())
}

#[tokio::test]
async fn a_stream_that_is_taken_up_when_its_task_has_ended_brings_what_was_missed_from_each_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut ends = Vec::new();
    for server in servers(&folder).await {
        let id = id_of(&server.say("work").send().await.expect("a reply"));
        // The first event is the task with the message, which is entry 1.
        let mut seen = 1;
        while let Some(missed) = take_up(&server, &id, seen).await {
            let last = missed.last().unwrap_or_else(|| unreachable!("nothing behind event {seen}"));
            let status = [&last["statusUpdate"], &last["task"]].map(|event| state(event) == "TASK_STATE_COMPLETED");
            assert!(status.contains(&true), "{missed:?}");
            seen += 1;
        }
        assert!(take_up(&server, &id, seen + 1).await.is_none());
        ends.push(seen);
    }
    assert!(ends[0] > 1 && ends[0] == ends[1], "{ends:?}");
}

#[tokio::test]
async fn a_task_that_is_cancelled_again_says_the_same_from_each_store() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut told = Vec::new();
    for server in servers(&folder).await {
        for text in ["wait", "ask"] {
            let message = json!({"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]});
            let params = json!({"message": message, "configuration": {"returnImmediately": true}});
            let begun = server.call("SendMessage", params.to_string()).send().await.expect("a reply");
            let cancel = || server.call("CancelTask", json!({"id": id_of(&begun)}).to_string()).send();
            let mut of_task = Vec::new();
            for _ in 0..3 {
                let cancelled = cancel().await.expect("a reply");
                of_task.push((state(&cancelled.body["result"]).to_owned(), cancelled.body["error"]["code"].clone()));
            }
            told.push(of_task);
        }
    }
    let [wait, ask, of_file @ ..] = told.as_slice() else { unreachable!("{told:?}") };
    assert_eq!([wait, ask], [&of_file[0], &of_file[1]]);
    assert_eq!(wait[0].0, "TASK_STATE_CANCELED");
    assert_eq!((&wait[1].1, &ask[2].1), (&json!(-32_002), &json!(-32_002)));
}
