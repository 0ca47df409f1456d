//! Tenants that cannot be loaded, next to others that can.

use std::fs;

use annex_grpc::pb::a2a_service_client::A2aServiceClient;
use annex_grpc::pb::{self};
use annex_test_support::TestServer;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{agent, answer, channel, files, message, refused, say, serve};
use crate::auth::{ADA, BOB, api_keys};
use crate::installation::admin;
use crate::metrics::scrape;

const ADMIN: &str = "[admin]\ntoken_file = \"token\"\n[runtime]\nwatch = false\n";

/// The files of a server. The file of tenant `acme` has a line with a secret that is not TOML.
fn broken(more: &str, of_acme: &str) -> TempDir {
    let folder = files(&format!("{ADMIN}{more}"), of_acme, "");
    fs::write(folder.path().join("acme/agent.toml"), "[agent]\nkey = hunter2\n").expect("a file");
    folder
}

/// The status and the body of a JSON-RPC request.
async fn post(server: &TestServer, key: &str, tenant: &str) -> (u16, Value) {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message(tenant, "x")});
    let request = server.client().post(format!("{}/a2a/jsonrpc", server.url())).header("a2a-version", "1.0");
    let reply = request.header("x-api-key", key).json(&body).send().await.expect("an answer");
    (reply.status().as_u16(), reply.json().await.expect("JSON"))
}

#[tokio::test]
async fn a_tenant_that_cannot_be_loaded_is_refused_alone_on_each_binding() {
    let folder = broken("", "");
    let server = serve(&folder).await;
    for tenant in ["", "globex"] {
        assert!(answer(&say(&server, tenant, "x").await).contains("remembers"));
    }
    let (status, body) = post(&server, "", "acme").await;
    assert_eq!((status, &body["error"]["code"], &body["id"]), (503, &json!(-32_000), &json!(1)), "{body}");
    assert_eq!(body["error"]["data"][0]["reason"], "UNAVAILABLE", "{body}");
    assert!(!body.to_string().contains("agent.toml"), "the reason is the operator's: {body}");

    let sent = json!({"message": message("", "x")["message"]});
    let url = format!("{}/a2a/rest/acme/message:send", server.url());
    let reply = server.client().post(url).header("a2a-version", "1.0").json(&sent).send().await.expect("an answer");
    assert_eq!(reply.status().as_u16(), 503);
    let card = server.get("/acme/.well-known/agent-card.json").await.expect("an answer");
    assert_eq!(card.status().as_u16(), 503);

    let mut client = A2aServiceClient::new(channel(&server).await);
    let tenant = "acme".to_owned();
    let mut request = tonic::Request::new(pb::GetTaskRequest { tenant, id: "t".to_owned(), ..Default::default() });
    request.metadata_mut().insert("a2a-version", "1.0".parse().expect("a value"));
    let status = client.get_task(request).await.expect_err("a refusal");
    assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
}

#[tokio::test]
async fn an_operator_sees_why_a_tenant_is_not_served_and_a_reload_tries_it_again() {
    let folder = broken("", "");
    let server = serve(&folder).await;
    let (_, list) = admin(&server, "GET", "extensions", Value::Null).await;
    assert_eq!(list["tenants"], json!(["acme", "globex"]));
    let failure = &list["failures"][0];
    assert_eq!(failure["source"], "tenant acme", "{list}");
    let reason = failure["reason"].as_str().expect("a reason");
    assert!(reason.contains("agent.toml:2:") && !reason.contains("hunter2"), "{reason}");
    let (status, refused) = admin(&server, "GET", "extensions?tenant=acme", Value::Null).await;
    assert_eq!((status, &refused["error"]["code"]), (503, &json!("tenant_not_served")), "{refused}");
    let ready = server.get("/readyz").await.expect("a reply");
    assert_eq!(ready.status().as_u16(), 200, "others are served");
    assert_eq!(ready.json::<Value>().await.expect("JSON")["impaired_tenants"], 1);
    let page = scrape(&server).await;
    assert_eq!(page.value("annex_tenants", &[("state", "failing")]), 1.0);
    assert_eq!(page.value("annex_tenants", &[("state", "served")]), 1.0);

    let (status, reloaded) = admin(&server, "POST", "reload", Value::Null).await;
    assert_eq!((status, &reloaded["changed"]), (200, &json!(false)), "{reloaded}");
    assert!(reloaded["failed"][0].as_str().is_some_and(|failed| failed.starts_with("tenant acme: ")), "{reloaded}");
    fs::write(folder.path().join("acme/agent.toml"), agent("acme", "")).expect("a file");
    let (status, reloaded) = admin(&server, "POST", "reload", Value::Null).await;
    assert_eq!((status, &reloaded["changed"], &reloaded["failed"]), (200, &json!(true), &json!([])), "{reloaded}");
    assert_eq!(answer(&say(&server, "acme", "x").await), "acme remembers ");
    let ready: Value = server.get("/readyz").await.expect("a reply").json().await.expect("JSON");
    assert_eq!(ready["impaired_tenants"], Value::Null);
}

#[tokio::test]
async fn a_tenant_that_cannot_be_loaded_is_tried_again_by_itself() {
    let folder = files("", "", "");
    fs::remove_file(folder.path().join("globex.toml")).expect("a file");
    let server = serve(&folder).await;
    assert_eq!(post(&server, "", "globex").await.0, 503);
    fs::write(folder.path().join("globex.toml"), agent("globex", "")).expect("a file");
    while post(&server, "", "globex").await.0 == 503 {
        tokio::task::yield_now().await;
    }
    assert_eq!(answer(&say(&server, "globex", "x").await), "globex remembers globex remembers ");
}

#[tokio::test]
async fn whoever_may_not_call_a_tenant_cannot_tell_that_it_is_not_served() {
    let folder = broken(&api_keys(), "callers = [\"ada\"]");
    let server = serve(&folder).await;
    assert_eq!(post(&server, ADA, "acme").await.0, 503);
    let (status, foreign) = post(&server, BOB, "acme").await;
    assert_eq!((status, refused(&foreign)), (200, (&json!(-32_602), &json!("tenant"))), "{foreign}");
}

#[tokio::test]
async fn a_server_whose_own_agent_cannot_be_loaded_does_not_start() {
    let folder = files("[[extension]]\ncomponent = \"./none.wasm\"\n", "", "");
    let started = TestServer::from_file(&folder.path().join("annex.toml"), None).await;
    let error = started.err().expect("an error");
    assert!(format!("{error:#}").contains("none.wasm"), "{error:#}");
}
