//! The extensions that ship with Annex, all installed in one server.

use std::path::Path;

use annex_test_support::{Reply, TestConfig, TestServer};
use serde_json::{Value, json};

mod adk;
mod agentstack;
mod approval;
mod badges;
mod conversations;
mod gateway;
mod history;
mod images;
mod interfaces;
mod passports;
mod payments;
pub(crate) mod permits;
mod stamps;
mod strict;
mod table;
mod traces;
mod x402;

/// The examples' folder.
pub(crate) const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/catalogue");

/// The extension that lets each task wait for an approval, with further keys of its `[[extension]]`.
pub(crate) fn approval(keys: &str) -> String {
    format!(
        r#"
        [[extension]]
        component = "in-task-authorization"
        {keys}
        [extension.grants]
        keyvalue = {{}}
        task-resumption = true
        secrets = {{ VERIFIER_SECRET = {{ file = "{FOLDER}/verifier.key" }} }}
        [extension.parameters]
        client_id = "redirect_uri:https://verifier.example.com/authorize"
        request_uri = "openid4vp://?state={{state}}"
        "#
    )
}

/// The server of an example config.
async fn example(name: &str) -> TestServer {
    TestServer::from_file(&Path::new(FOLDER).join(name), None).await.expect("the example starts")
}

/// The server with everything that ships.
pub(crate) async fn catalogue() -> TestServer {
    example("annex.toml").await
}

/// A message with these parts and metadata, and one extension activated.
async fn send(server: &TestServer, uri: &str, parts: Value, metadata: Value) -> Reply {
    let id = uuid::Uuid::new_v4().to_string();
    let message = json!({"messageId": id, "role": "ROLE_USER", "parts": parts, "metadata": metadata});
    call(server, uri, "SendMessage", &json!({"message": message})).await
}

/// A call of a method with one extension activated.
async fn call(server: &TestServer, uri: &str, method: &str, params: &Value) -> Reply {
    server.call(method, params.to_string()).extensions(uri).send().await.expect("a reply")
}

/// The extension's entry on the card.
async fn declaration(server: &TestServer, uri: &str) -> Value {
    let card = server.get("/.well-known/agent-card.json").await.expect("a card").json::<Value>().await.expect("JSON");
    let entries = card["capabilities"]["extensions"].as_array().cloned().unwrap_or_default();
    entries.into_iter().find(|entry| entry["uri"] == uri).expect("the card declares it")
}

/// The reason for which a server with this config does not start.
async fn refusal(extension: &str) -> String {
    match TestConfig::template("i").with(&format!("[[extension]]\n{extension}")).start().await {
        Ok(_) => panic!("the server starts"),
        Err(error) => format!("{error:#}"),
    }
}
