//! The extension `a2ui`: what users do, and what agents show.

use annex_test_support::{Reply, TestConfig, TestServer};
use serde_json::{Value, json};

use crate::catalogue::{catalogue, declaration, send};

const URI: &str = "https://a2ui.org/a2a-extension/a2ui/v0.9.1";
const URI_1_0: &str = "https://a2ui.org/a2a-extension/a2ui/v1.0";
const BASIC: &str = "https://a2ui.org/specification/v0_9/catalogs/basic/catalog.json";
const BASIC_1_0: &str = "https://a2ui.org/specification/v1_0/catalogs/basic/catalog.json";

/// Rules of a scripted agent that shows a form.
const RULES: &str = r#"
    [[agent.rule]]
    text = "create"
    steps = [
      { artifact = { id = "ui", parts = [{ text = "Here it is." }, { media_type = "application/a2ui+json", data = '[{"version":"v0.9.1","createSurface":{"surfaceId":"form","catalogId":"https://a2ui.org/specification/v0_9/catalogs/basic/catalog.json"}}]' }] } },
      { artifact = { id = "ui", append = true, last_chunk = true, parts = [{ media_type = "application/a2ui+json", data = '[{"version":"v0.9.1","updateComponents":{"surfaceId":"form","components":[{"id":"root","component":"Text","text":"Hello"}]}}]' }] } },
      { status = { state = "completed" } },
    ]
    [[agent.rule]]
    text = "update"
    steps = [
      { artifact = { id = "ui", last_chunk = true, parts = [{ media_type = "application/a2ui+json", data = '[{"version":"v0.9","updateDataModel":{"surfaceId":"form","value":{"name":"Ada"}}}]' }] } },
      { status = { state = "completed" } },
    ]
    [[agent.rule]]
    text = "wrong"
    steps = [
      { artifact = { id = "ui", last_chunk = true, parts = [{ text = "Here it is." }, { media_type = "application/a2ui+json", data = '[{"version":"v0.9.1","createSurface":{"surfaceId":"form","catalogId":"https://a2ui.org/specification/v0_9/catalogs/basic/catalog.json"}},{"version":"v0.9.1","updateComponents":{"surfaceId":"form","components":[{"id":"root","component":"Script"}]}}]' }] } },
      { status = { state = "completed" } },
    ]
"#;

/// The extension, with further keys of its `[[extension]]`.
fn a2ui(keys: &str) -> String {
    format!(
        r#"
        [[extension]]
        component = "a2ui"
        {keys}
        [extension.grants]
        keyvalue = {{}}
        rewrite-answer = true
        "#
    )
}

async fn script(extensions: &str) -> TestServer {
    TestConfig::script(RULES).with(extensions).start().await.expect("a server")
}

fn capabilities() -> Value {
    json!({"a2uiClientCapabilities": {"v0.9": {"supportedCatalogIds": [BASIC]}}})
}

/// A message of a client that can show the basic catalogue.
async fn say(server: &TestServer, text: &str) -> Reply {
    send(server, URI, json!([{"text": text}]), capabilities()).await
}

/// The messages of A2UI in the answer.
fn shown(reply: &Reply) -> Vec<Value> {
    let artifacts = reply.task()["artifacts"].as_array().cloned().unwrap_or_default();
    let parts = artifacts.iter().filter_map(|artifact| artifact["parts"].as_array()).flatten();
    parts.filter_map(|part| part["data"].as_array()).flatten().cloned().collect()
}

fn action(context: &Value) -> Value {
    let action = json!({
        "name": "submit", "surfaceId": "form", "sourceComponentId": "send", "timestamp": "2026-01-01T00:00:00Z",
        "context": context,
    });
    json!([{"metadata": {"mimeType": "application/a2ui+json"}, "data": [{"version": "v0.9.1", "action": action}]}])
}

#[tokio::test]
async fn the_card_names_the_catalogues_of_user_interfaces() {
    let server = catalogue().await;
    let params = declaration(&server, URI).await["params"].clone();
    assert_eq!(params, json!({"supportedCatalogIds": [BASIC], "acceptsInlineCatalogs": false}));
}

#[tokio::test]
async fn the_actions_of_users_are_checked_before_the_agent_runs() {
    let server = catalogue().await;
    let taken = send(&server, URI, action(&json!({"email": "ada@example.com"})), capabilities()).await;
    assert_eq!(taken.task()["status"]["state"], "TASK_STATE_COMPLETED", "{}", taken.text);
    assert_eq!(taken.extensions.as_deref(), Some(URI));
    let wrong = send(&server, URI, action(&json!("ada@example.com")), json!({})).await;
    assert_eq!(wrong.code(), -32_602, "{}", wrong.text);
    assert_eq!(wrong.violations(), ["/message/metadata", "/message/parts/0/data/0/action/context"]);
}

#[tokio::test]
async fn user_interfaces_that_fit_reach_the_client_and_others_fail_the_task() {
    let server = script(&a2ui("")).await;
    let fits = say(&server, "create").await;
    assert_eq!(fits.task()["status"]["state"], "TASK_STATE_COMPLETED", "{}", fits.text);
    assert_eq!(shown(&fits).len(), 2, "{}", fits.text);
    assert_eq!(fits.task()["artifacts"][0]["extensions"], json!([URI]));
    let wrong = say(&server, "wrong").await;
    assert_eq!(wrong.task()["status"]["state"], "TASK_STATE_FAILED", "{}", wrong.text);
    let reason = wrong.task()["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default().to_owned();
    let place = "part 1 of the answer does not fit at /data/1/updateComponents/components/0/component";
    assert!(reason.contains(place), "{reason}");
    assert!(shown(&wrong).is_empty(), "{}", wrong.text);
}

#[tokio::test]
async fn user_interfaces_that_do_not_fit_can_be_dropped_from_the_answer() {
    let server = script(&a2ui("parameters = { invalid = \"drop\" }")).await;
    let reply = say(&server, "wrong").await;
    assert_eq!(reply.task()["status"]["state"], "TASK_STATE_COMPLETED", "{}", reply.text);
    assert_eq!(reply.answer(), "Here it is.");
    let shown = shown(&reply);
    assert_eq!(shown.len(), 1, "{}", reply.text);
    assert_eq!(shown[0]["createSurface"]["surfaceId"], "form");
}

#[tokio::test]
async fn surfaces_belong_to_their_conversation() {
    let server = script(&a2ui("")).await;
    let created = say(&server, "create").await;
    let message = json!({
        "messageId": "second", "role": "ROLE_USER", "contextId": created.context(), "parts": [{"text": "update"}],
        "metadata": capabilities(),
    });
    let call = server.call("SendMessage", json!({"message": message}).to_string()).extensions(URI);
    let updated = call.send().await.expect("a reply");
    assert_eq!(updated.task()["status"]["state"], "TASK_STATE_COMPLETED", "{}", updated.text);
    let elsewhere = say(&server, "update").await;
    assert_eq!(elsewhere.task()["status"]["state"], "TASK_STATE_FAILED", "{}", elsewhere.text);
}

#[tokio::test]
async fn capabilities_activate_the_version_that_they_name() {
    let both = [a2ui("activate = \"metadata\""), a2ui("activate = \"metadata\"\nparameters = { version = \"1.0\" }")];
    let server = script(&both.concat()).await;
    let say = async |metadata: Value| {
        let message = json!({
            "messageId": uuid::Uuid::new_v4().to_string(), "role": "ROLE_USER", "parts": [{"text": "create"}],
            "metadata": metadata,
        });
        server.call("SendMessage", json!({"message": message}).to_string()).send().await.expect("a reply")
    };
    let older = say(capabilities()).await;
    assert_eq!(older.task()["status"]["state"], "TASK_STATE_COMPLETED", "{}", older.text);
    assert_eq!(older.task()["artifacts"][0]["extensions"], json!([URI]));
    let newer = say(json!({"a2uiRendererCapabilities": {"v1.0": {"supportedCatalogIds": [BASIC_1_0]}}})).await;
    // The agent answers in another version than the client can show.
    assert_eq!(newer.task()["status"]["state"], "TASK_STATE_FAILED", "{}", newer.text);
    let card = server.get("/.well-known/agent-card.json").await.expect("a card").text().await.expect("a text");
    assert!(card.contains(URI) && card.contains(URI_1_0), "{card}");
}
