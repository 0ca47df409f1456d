use annex_test_support::Reply;
use serde_json::{Value, json};

use crate::catalogue::{catalogue, declaration, refusal, send};

const URI: &str = "https://annex.example/strict-parts/v1";
const ORDER: &str = "application/vnd.example.order+json";

fn order(data: &Value) -> Value {
    json!({"data": data, "mediaType": ORDER})
}

fn violations(reply: &Reply) -> Vec<String> {
    assert_eq!(reply.code(), -32_602, "{}", reply.text);
    reply.violations()
}

#[tokio::test]
async fn the_card_says_what_messages_may_contain() {
    let server = catalogue().await;
    let params = declaration(&server, URI).await["params"].clone();
    assert_eq!(params["allowText"], false);
    assert_eq!(params["schemas"][0]["mediaType"], ORDER);
    assert_eq!(params["schemas"][0]["schema"]["required"], json!(["item", "count"]));
}

#[tokio::test]
async fn a_message_that_fits_becomes_a_task() {
    let server = catalogue().await;
    let reply = send(&server, URI, json!([order(&json!({"item": "tea", "count": 2}))]), json!({})).await;
    assert_eq!(reply.task()["status"]["state"], "TASK_STATE_COMPLETED", "{}", reply.text);
    assert_eq!(reply.extensions.as_deref(), Some(URI));
}

#[tokio::test]
async fn each_thing_that_is_wrong_is_named_by_pointer() {
    let server = catalogue().await;
    let parts = json!([order(&json!({"item": 7, "count": 0})), {"text": "and sugar"}, {"data": {}}]);
    let mut found = violations(&send(&server, URI, parts, json!({})).await);
    found.sort();
    let expected =
        ["/message/parts/0/data/count", "/message/parts/0/data/item", "/message/parts/1", "/message/parts/2"];
    assert_eq!(found, expected);
    let none = send(&server, URI, json!([{"text": "tea, please"}]), json!({})).await;
    assert_eq!(violations(&none), ["/message/parts/0", "/message/parts"]);
}

#[tokio::test]
async fn whoever_does_not_activate_the_profile_is_not_held_to_it() {
    let server = catalogue().await;
    let reply = server.say("tea, please").send().await.expect("a reply");
    assert_eq!(reply.code(), 0, "{}", reply.text);
}

#[tokio::test]
async fn a_schema_that_cannot_be_used_keeps_the_server_from_starting() {
    let schema = "schema = { type = \"object\", properties = { a = { type = \"nothing\" } } }";
    let error = refusal(&format!("component = \"strict-parts\"\n[[extension.parameters.schemas]]\n{schema}")).await;
    assert!(error.contains("schemas[0]"), "{error}");
}
