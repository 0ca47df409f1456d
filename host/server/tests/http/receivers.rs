//! Receivers that are registered and deleted around the turns of a task that goes on.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use annex_test_support::TestServer;
use serde_json::{Value, json};

use crate::durable::{Counting, counting, id_of, serve, state};
use crate::push::receiver;

const PUSH: &str = "[push]\nallow = [\"127.0.0.0/8\"]";

async fn serve_on(agent: &Arc<Counting>, folder: &Path) -> TestServer {
    serve(agent, &format!("data_dir = {:?}\n{PUSH}", folder.join("data"))).await
}

async fn call(server: &TestServer, method: &str, params: Value) -> Value {
    server.call(method, params.to_string()).send().await.expect("a reply").body
}

async fn register(server: &TestServer, task: &str, id: &str, url: &str) {
    let made = call(server, "CreateTaskPushNotificationConfig", json!({"taskId": task, "id": id, "url": url})).await;
    assert_eq!(made["result"]["id"], id, "{made}");
}

#[tokio::test]
async fn a_receiver_that_is_deleted_while_a_turn_begins_hears_nothing_of_what_follows() {
    let agent = counting();
    let folder = tempfile::tempdir().expect("a folder");
    let server = serve_on(&agent, folder.path()).await;
    let ((deleted, mut nothing), (kept, mut received)) = (receiver().await, receiver().await);
    for round in 0..20 {
        let task = id_of(&server.say("ask").send().await.expect("a reply"));
        register(&server, &task, "deleted", &deleted).await;
        register(&server, &task, "kept", &kept).await;
        let turn = server.say("wait").field("taskId", &task).streaming().open();
        let deletion = async {
            // At different moments of the turn's beginning.
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            call(&server, "DeleteTaskPushNotificationConfig", json!({"taskId": task, "id": "deleted"})).await
        };
        let (turn, _) = futures::future::join(turn, deletion).await;
        agent.go.add_permits(1);
        turn.expect("a stream").rest().await.expect("events");
        let is_end = |event: &Value| state(&event["statusUpdate"]) == "TASK_STATE_COMPLETED";
        while !is_end(&received.recv().await.expect("an event").1) {}
        while let Ok((_, event)) = nothing.try_recv() {
            assert!(!is_end(&event) && event.get("artifactUpdate").is_none(), "round {round}: {event}");
        }
    }
}

#[tokio::test]
async fn a_receiver_that_is_one_too_many_is_refused_before_the_turn_begins() {
    let agent = counting();
    let server = serve(&agent, PUSH).await;
    let (url, _received) = receiver().await;
    let task = id_of(&server.say("ask").send().await.expect("a reply"));
    for number in 0..100 {
        register(&server, &task, &number.to_string(), &url).await;
    }
    let follow_up = |id: &str| {
        json!({
            "message": {"messageId": "m", "taskId": task, "role": "ROLE_USER", "parts": [{"text": "work"}]},
            "configuration": {"taskPushNotificationConfig": {"id": id, "url": url}}
        })
    };
    let refused = call(&server, "SendMessage", follow_up("one more")).await;
    assert_eq!(refused["error"]["code"], -32_602, "{refused}");
    assert!(refused.to_string().contains("100"), "{refused}");
    let read = call(&server, "GetTask", json!({"id": task})).await;
    assert_eq!(state(&read["result"]), "TASK_STATE_INPUT_REQUIRED");
    assert_eq!(agent.turns.load(Ordering::SeqCst), 1);
    // One that is there is replaced.
    let replaced = call(&server, "SendMessage", follow_up("7")).await;
    assert_eq!(state(&replaced["result"]["task"]), "TASK_STATE_COMPLETED", "{replaced}");
}
