//! Quotas of the callers of a tenant. A caller beyond its quota is refused on each binding as a tenant beyond its quota is.
//! Other callers are not affected, however the caller tries.

use std::fs;
use std::time::Duration;

use annex_grpc::pb;
use annex_grpc::pb::a2a_service_client::A2aServiceClient;
use annex_test_support::{COMMAND_KEY, TEST_EXTENSION, TestConfig, TestServer};
use axum::http::header;
use axum::routing::post as posted;
use reqwest::Response;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::sleep;
use tonic_types::StatusExt;

use super::quotas::{ADMIN, COUNTED};
use super::{channel, files, message, serve};
use crate::auth::{ADA, BOB, api_keys};
use crate::installation::TOKEN;
use crate::upstream::foreign;

/// A server whose tenant acme has these quotas. Ada and Bob may call it.
async fn limited(quota: &str, acme: &str) -> (TempDir, TestServer) {
    let folder = files(&format!("{ADMIN}{}", api_keys()), quota, acme);
    let server = serve(&folder).await;
    (folder, server)
}

async fn post(
    server: &TestServer,
    (path, version): (&str, &str),
    key: &str,
    extension: &str,
    body: &Value,
) -> Response {
    let request = server.client().post(format!("{}{path}", server.url())).header("a2a-version", version);
    let request = request.header("x-api-key", key).header("a2a-extensions", extension);
    request.json(body).send().await.expect("an answer")
}

/// Calls a method of 1.0 as the caller with this key. Returns the HTTP status and the body.
async fn call(server: &TestServer, key: &str, method: &str, params: Value, extension: &str) -> (u16, Value) {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let reply = post(server, ("/a2a/jsonrpc", "1.0"), key, extension, &body).await;
    (reply.status().as_u16(), reply.json().await.expect("JSON"))
}

async fn read(server: &TestServer, key: &str) -> (u16, Value) {
    call(server, key, "GetTask", json!({"tenant": "acme", "id": "t"}), "").await
}

async fn say(server: &TestServer, key: &str) -> (u16, Value) {
    call(server, key, "SendMessage", message("acme", "x"), "").await
}

/// The quota that refuses the answer.
fn quota(body: &Value) -> Option<&str> {
    let info = &body["error"]["data"][0];
    (info["reason"] == "QUOTA_EXCEEDED").then(|| info["metadata"]["quota"].as_str()).flatten()
}

/// Asks until the answer is a refusal.
async fn refused(mut ask: impl AsyncFnMut() -> (u16, Value)) -> Value {
    for _ in 0..200 {
        let (status, body) = ask().await;
        if status == 429 {
            return body;
        }
    }
    unreachable!("nothing is refused")
}

/// Asks over gRPC as Ada until the answer is a refusal.
async fn refused_over_grpc(server: &TestServer) -> tonic::Status {
    let mut client = A2aServiceClient::new(channel(server).await);
    loop {
        let request = pb::GetTaskRequest { tenant: "acme".to_owned(), id: "t".to_owned(), ..Default::default() };
        let mut request = tonic::Request::new(request);
        request.metadata_mut().insert("a2a-version", "1.0".parse().expect("a value"));
        request.metadata_mut().insert("x-api-key", ADA.parse().expect("a value"));
        let status = client.get_task(request).await.expect_err("there is no such task");
        if status.code() != tonic::Code::NotFound {
            return status;
        }
    }
}

#[tokio::test]
async fn too_many_requests_of_a_caller_are_refused_on_each_binding_and_those_of_others_are_taken() {
    let (_folder, server) = limited("[tenant.quota.caller]\nrequests_per_second = 2\n", "").await;
    let body = refused(async || read(&server, ADA).await).await;
    let error = &body["error"];
    assert_eq!(error["code"], -32_000);
    let text = "the caller's quota `caller.requests_per_second` is used up: 2 of 2; try again in 1 s";
    assert_eq!(error["message"], text);
    let metadata = json!({"quota": "caller.requests_per_second", "used": "2", "limit": "2"});
    let info = "type.googleapis.com/google.rpc.ErrorInfo";
    let info = json!({"@type": info, "reason": "QUOTA_EXCEEDED", "domain": "a2a-protocol.org", "metadata": metadata});
    let retry = json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1s"});
    assert_eq!(error["data"], json!([info, retry]));

    let older = json!({"jsonrpc": "2.0", "id": 7, "method": "tasks/get", "params": {"id": "t"}});
    let older = async || post(&server, ("/acme", "0.3"), ADA, "", &older).await;
    let mut reply = older().await;
    while reply.status() != 429 {
        reply = older().await;
    }
    assert_eq!(reply.headers()[header::RETRY_AFTER], "1");
    let body: Value = reply.json().await.expect("JSON");
    assert_eq!((&body["id"], &body["error"]["code"]), (&json!(7), &json!(-32_000)), "{body}");

    let said = json!({"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "x"}]});
    let streamed = json!({"jsonrpc": "2.0", "id": 8, "method": "message/stream", "params": {"message": said}});
    let streamed = async || post(&server, ("/acme", "0.3"), ADA, "", &streamed).await;
    let mut reply = streamed().await;
    while reply.status() != 429 {
        reply = streamed().await;
    }
    assert_eq!(reply.headers()[header::RETRY_AFTER], "1");
    assert!(reply.headers()[header::CONTENT_TYPE].to_str().expect("text").starts_with("text/event-stream"));
    assert!(reply.text().await.expect("text").contains("caller.requests_per_second"), "the event says why");

    let url = format!("{}/a2a/rest/acme/tasks/t", server.url());
    let rest = async || {
        let request = server.client().get(&url).header("a2a-version", "1.0").header("x-api-key", ADA);
        request.send().await.expect("an answer")
    };
    let mut reply = rest().await;
    while reply.status() != 429 {
        reply = rest().await;
    }
    assert_eq!(reply.headers()[header::RETRY_AFTER], "1");
    let body: Value = reply.json().await.expect("JSON");
    assert_eq!((&body["error"]["status"], &body["error"]["details"]), (&json!("RESOURCE_EXHAUSTED"), &error["data"]));

    let status = refused_over_grpc(&server).await;
    assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status:?}");
    assert_eq!(status.get_details_retry_info().expect("a time").retry_delay, Some(Duration::from_secs(1)));

    assert_eq!(read(&server, BOB).await.1["error"]["code"], -32_001, "another caller is served");
    sleep(Duration::from_secs(1)).await;
    assert_eq!(read(&server, ADA).await.1["error"]["code"], -32_001, "the caller is served again");

    let metrics = server.client().get(format!("{}/metrics", server.admin_url())).bearer_auth(TOKEN).send().await;
    let metrics = metrics.expect("an answer").text().await.expect("text");
    assert!(metrics.contains("reason=\"quota\""), "{metrics}");
    assert!(!metrics.contains("\"ada\"") && !metrics.contains("\"bob\""), "no metric has a label for callers");
}

#[tokio::test]
async fn requests_that_a_caller_may_not_send_take_nothing_from_the_quota_of_its_tenant() {
    let quota_of_both = "[tenant.quota]\nrequests_per_second = 8\ncaller = { requests_per_second = 1 }\n";
    let (_folder, server) = limited(quota_of_both, "").await;
    for _ in 0..100 {
        let (_, body) = read(&server, ADA).await;
        assert_ne!(quota(&body), Some("requests_per_second"), "the tenant has room");
    }
    assert_eq!(read(&server, BOB).await.1["error"]["code"], -32_001);
}

#[tokio::test]
async fn a_caller_whose_extensions_take_too_long_is_refused_alone_until_that_is_paid_back() {
    let component = annex_test_support::component("test-extension");
    let extension = format!("[[extension]]\ncomponent = {component:?}\n");
    let (_folder, server) = limited("[tenant.quota.caller]\ncpu_ms_per_second = 2\n", &extension).await;
    let work = async || {
        let mut params = message("acme", "x");
        params["message"]["metadata"] = json!({COMMAND_KEY: "loop 4000000"});
        call(&server, ADA, "SendMessage", params, TEST_EXTENSION).await
    };
    let body = refused(work).await;
    assert_eq!(quota(&body), Some("caller.cpu_ms_per_second"), "{body}");
    assert_eq!(quota(&read(&server, ADA).await.1), Some("caller.cpu_ms_per_second"), "each request is refused");
    assert_eq!(read(&server, BOB).await.1["error"]["code"], -32_001, "another caller is served");
    let delay = body["error"]["data"][1]["retryDelay"].as_str().and_then(|delay| delay.strip_suffix('s'));
    sleep(Duration::from_secs(delay.and_then(|delay| delay.parse().ok()).expect("a time"))).await;
    assert_eq!(read(&server, ADA).await.1["error"]["code"], -32_001, "the debt is paid back");
}

#[tokio::test]
async fn tokens_of_a_caller_are_counted_over_restarts_and_others_have_their_own() {
    let complete = posted(async || ([(header::CONTENT_TYPE, "text/event-stream")], COUNTED));
    let url = foreign::serve(axum::Router::new().route("/v1/chat/completions", complete)).await;
    let more = format!("{ADMIN}[tasks]\ndata_dir = \"data\"\n{}", api_keys());
    let folder = files(&more, "[tenant.quota.caller]\ntokens_per_day = 30\n", "");
    let generative = TestConfig::without_agent().with(&format!(
        "[agent]\nkind = \"template\"\nname = \"a\"\ninstruction = \"i\"\n[agent.model.generative]\nmodel = \"m\"\n\
         endpoint = \"{url}/v1/\"\n"
    ));
    fs::write(folder.path().join("acme/agent.toml"), generative.toml()).expect("a file");
    let mut server = serve(&folder).await;
    for _ in 0..2 {
        assert_eq!(say(&server, ADA).await.1["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    }
    let (status, body) = say(&server, ADA).await;
    assert_eq!((status, quota(&body)), (429, Some("caller.tokens_per_day")), "{body}");
    assert_eq!(body["error"]["data"][0]["metadata"]["used"], "30");
    assert_eq!(read(&server, ADA).await.1["error"]["code"], -32_001, "what needs no model is served");
    assert_eq!(say(&server, BOB).await.0, 200, "another caller has tokens of its own");
    server.begin_shutdown();
    server.ended().await.expect("an end");

    let server = serve(&folder).await;
    let (status, body) = say(&server, ADA).await;
    assert_eq!((status, quota(&body)), (429, Some("caller.tokens_per_day")), "the first request of a process: {body}");
    assert_eq!(say(&server, BOB).await.0, 200);
    let (status, body) = say(&server, BOB).await;
    assert_eq!((status, quota(&body)), (429, Some("caller.tokens_per_day")), "{body}");
}

#[tokio::test]
async fn anonymous_callers_of_a_tenant_are_one_caller_whatever_they_send() {
    let folder = files(ADMIN, "[tenant.quota.caller]\nrequests_per_second = 1\n", "");
    let server = serve(&folder).await;
    let mut number = 0;
    let body = refused(async || {
        number += 1;
        // A server without authentication looks at no credentials, so these open no further quota.
        read(&server, &format!("key-of-a-stranger-{number}")).await
    })
    .await;
    assert_eq!(quota(&body), Some("caller.requests_per_second"), "{body}");
}
