use annex_test_support::{Reply, TestServer};
use serde_json::{Value, json};

use crate::catalogue::{call, catalogue};

const URI: &str = "https://annex.example/task-history/v1";

async fn search(server: &TestServer, params: Value) -> Reply {
    call(server, URI, "tasks/search", &params).await
}

fn ids(reply: &Reply) -> Vec<&str> {
    let tasks = reply.body["result"]["tasks"].as_array().unwrap_or_else(|| panic!("no tasks: {}", reply.text));
    tasks.iter().map(|task| task["id"].as_str().unwrap_or_default()).collect()
}

/// Three tasks of one conversation and one of another, in order of creation.
async fn four_tasks(server: &TestServer) -> Vec<String> {
    let mut ids = Vec::new();
    for (context, text) in
        [("trip", "a Flight"), ("trip", "a hotel"), ("trip", "another flight"), ("other", "a flight")]
    {
        let reply = server.say(text).context(context).send().await.expect("a reply");
        ids.push(reply.task()["id"].as_str().expect("a task").to_owned());
    }
    ids
}

#[tokio::test]
async fn tasks_are_found_by_their_text_the_latest_first_and_in_pages() {
    let server = catalogue().await;
    let made = four_tasks(&server).await;
    let all = search(&server, json!({"contextId": "trip", "query": "FLIGHT"})).await;
    assert_eq!(ids(&all), [&made[2], &made[0]]);
    assert_eq!(all.body["result"]["nextPageToken"], "");
    let first = search(&server, json!({"contextId": "trip", "query": "flight", "pageSize": 1})).await;
    assert_eq!(ids(&first), [&made[2]]);
    let token = &first.body["result"]["nextPageToken"];
    let second =
        search(&server, json!({"contextId": "trip", "query": "flight", "pageSize": 1, "pageToken": token})).await;
    assert_eq!(ids(&second), [&made[0]]);
    // What the agent said is searched as well.
    assert_eq!(ids(&search(&server, json!({"contextId": "trip", "query": "done."})).await).len(), 3);
}

#[tokio::test]
async fn tasks_are_found_by_state_and_time() {
    let server = catalogue().await;
    let made = four_tasks(&server).await;
    let within = async |more: Value| {
        let mut params = json!({"contextId": "trip"});
        params.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        search(&server, params).await
    };
    assert_eq!(ids(&within(json!({"state": "TASK_STATE_COMPLETED"})).await).len(), 3);
    assert!(ids(&within(json!({"state": "TASK_STATE_FAILED"})).await).is_empty());
    let second = server.call("GetTask", json!({"id": made[1]}).to_string()).send().await.expect("a task");
    let time = &second.body["result"]["status"]["timestamp"];
    assert!(ids(&within(json!({"from": time})).await).contains(&made[1].as_str()));
    assert!(!ids(&within(json!({"to": time})).await).contains(&made[1].as_str()));
}

#[tokio::test]
async fn what_list_tasks_refuses_is_refused_here_too() {
    let server = catalogue().await;
    let anonymous = search(&server, json!({"query": "flight"})).await;
    assert_eq!(anonymous.code(), -32_602, "{}", anonymous.text);
    assert!(anonymous.text.contains("contextId"), "{}", anonymous.text);
    let wrong = search(&server, json!({"contextId": "trip", "pageSize": 0, "sort": "up"})).await;
    assert_eq!(wrong.code(), -32_602, "{}", wrong.text);
}
