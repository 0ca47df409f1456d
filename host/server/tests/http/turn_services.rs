//! The services that extensions may use in a turn: the caller's tasks, the agent's steps.

use serde_json::{Value, json};

use crate::agent;
use crate::auth::{ADA, BOB, api_keys};
use crate::durable::{counting, serve};
use crate::scoped_keys::{TestMessage, capable};

const URI: &str = "https://annex.example/capabilities/v1";

/// Commands that list tasks with each of the requests.
fn listing(requests: &[Value]) -> String {
    let commands: Vec<Value> = requests.iter().map(|request| json!({"tasks": request.to_string()})).collect();
    Value::from(commands).to_string()
}

fn ids(list: &str) -> Vec<String> {
    let list: Value = serde_json::from_str(list).unwrap_or_else(|_| unreachable!("{list}"));
    let tasks = list["tasks"].as_array().expect("tasks");
    tasks.iter().map(|task| task["id"].as_str().expect("an id").to_owned()).collect()
}

#[tokio::test]
async fn an_extension_lists_the_tasks_of_the_caller_and_of_nobody_else() {
    let server = serve(&counting(), &format!("{}\n{}", api_keys(), capable(URI, "", ""))).await;
    let mut own = Vec::new();
    for key in [ADA, BOB, ADA] {
        let body = TestMessage { key: Some(key), context: Some("c"), ..TestMessage::default() }.to(&server).await;
        own.push((key, body["result"]["task"]["id"].as_str().expect("an id").to_owned()));
    }
    let later = listing(&[json!({}), json!({"contextId": "c", "pageSize": 1}), json!({"contextId": "other"})]);
    let lists = TestMessage { key: Some(BOB), later: &later, ..TestMessage::default() }.results(&server).await;
    let all = ids(&lists[0]);
    let page = ids(&lists[1]);
    assert!(all.contains(&own[1].1) && !all.contains(&own[0].1) && !all.contains(&own[2].1), "{all:?}");
    assert_eq!(page, [own[1].1.clone()]);
    assert_eq!(ids(&lists[2]), Vec::<String>::new());
    // What the client gets is the same, as text.
    let listed = server.client().post(format!("{}/a2a/jsonrpc", server.url()));
    let listed = listed.header("A2A-Version", "1.0").header("x-api-key", BOB);
    let params = json!({"contextId": "c", "pageSize": 1});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": params});
    let listed = listed.json(&body).send().await.expect("an answer").text().await.expect("text");
    assert!(listed.contains(&lists[1]), "{listed} has {}", lists[1]);
}

#[tokio::test]
async fn what_list_tasks_refuses_is_refused_in_its_words() {
    let server = serve(&counting(), &capable(URI, "", "")).await;
    let requests = [
        r#"{}"#,
        "",
        "{",
        "[]",
        r#"{"contextId":"c","pageSize":1000}"#,
        r#"{"contextId":7}"#,
        r#"{"contextId":"c","pageToken":"x"}"#,
    ];
    let later: Vec<Value> = requests.iter().map(|request| json!({"tasks": request})).collect();
    let results =
        TestMessage { later: &Value::from(later).to_string(), ..TestMessage::default() }.results(&server).await;
    let expected = [
        "error: invalid parameters: contextId: is required, because this server does not authenticate its clients",
        "error: the request is not JSON: ",
        "error: the request is not JSON: ",
        "error: invalid parameters: ",
        "error: invalid parameters: pageSize: ",
        "error: invalid parameters: contextId: ",
        "error: invalid parameters: pageToken: ",
    ];
    for (result, expected) in results.iter().zip(expected) {
        assert!(result.starts_with(expected), "{result} begins with {expected}");
    }
    assert_eq!(results.len(), expected.len());
}

#[tokio::test]
async fn a_list_beyond_the_limit_of_input_is_an_error() {
    let limits = "[extension.limits]\ninput_bytes = 4096";
    let server = serve(&counting(), &capable(URI, "", limits)).await;
    let said = TestMessage { context: Some("c"), ..TestMessage::default() };
    for _ in 0..20 {
        said.to(&server).await;
    }
    let later = listing(&[json!({"contextId": "c"}), json!({"contextId": "c", "pageSize": 1})]);
    let results = TestMessage { later: &later, ..said }.results(&server).await;
    assert!(results[0].starts_with("error: the answer has ") && results[0].ends_with("a smaller page"), "{results:?}");
    assert_eq!(ids(&results[1]).len(), 1);
}

#[tokio::test]
async fn the_agents_steps_are_shown_while_it_runs() {
    let server = agent("Be brief.", &capable(URI, "", "")).await;
    let steps = TestMessage { text: "hello", now: r#"["steps"]"#, later: r#"["steps"]"#, ..TestMessage::default() };
    let steps: Value = serde_json::from_str(&steps.results(&server).await[0]).expect("steps");
    let step = &steps[0];
    assert_eq!(
        (&step["kind"], &step["name"], steps.as_array().map(Vec::len)),
        (&json!("model"), &json!("scripted"), Some(1))
    );
    assert!(step["startTime"].as_str() <= step["endTime"].as_str() && step["startTime"].is_string(), "{step}");
    assert_eq!(step["error"], Value::Null);
}
