//! The requests that a page of another origin, open in a browser on this machine, can make the browser send.

use annex_test_support::{TestConfig, TestServer};
use axum::http::{Method, Request, StatusCode};
use serde_json::Value;

use crate::auth::guarded;
use crate::connections::http2;
use crate::three_ways::{Binding, TestMessage, say};

/// A task of this agent waits for its client.
const CONFIG: &str = r#"
    [push]
    [[agent.rule]]
    text = "ask"
    steps = [{ status = { state = "input-required", text = "Which one?" } }]
"#;

type Field = (&'static str, &'static str);

/// Fields that a browser adds and no page can leave out.
const FOREIGN: [&[Field]; 7] = [
    &[("origin", "http://evil.example")],
    &[("origin", "null")],
    &[("origin", "https://localhost.evil.example:9999")],
    &[("sec-fetch-site", "cross-site")],
    &[("sec-fetch-site", "same-site"), ("origin", "http://localhost:3000")],
    &[("sec-fetch-site", "none"), ("origin", "http://evil.example")],
    &[("sec-fetch-site", "something-new")],
];
/// Header fields that are accepted: those of the user's own requests, of the server's own pages, and of clients that
/// are not browsers.
const OWN: [&[Field]; 4] = [
    &[],
    &[("sec-fetch-site", "same-origin"), ("origin", "http://127.0.0.1:9999")],
    &[("sec-fetch-site", "none")],
    &[("origin", "http://localhost:3000")],
];

/// Every path that changes something.
fn mutating() -> Vec<(Method, String)> {
    let posts = [
        "message:send",
        "message:stream",
        "tasks/t:cancel",
        "tasks/t:subscribe",
        "tasks/t/pushNotificationConfigs",
        "extensions/history/tasks/search",
    ];
    let deletes = ["tasks/t/pushNotificationConfigs/c"];
    let below = ["/a2a/rest", "/a2a/rest/acme", "/a2a/rest/v1"].into_iter();
    let rest = below.flat_map(move |below| {
        let posts = posts.map(|path| (Method::POST, format!("{below}/{path}")));
        posts.into_iter().chain(deletes.map(|path| (Method::DELETE, format!("{below}/{path}"))))
    });
    let json_rpc = ["/a2a/jsonrpc", "/a2a/jsonrpc/", "/", "/acme", "/acme/", "/acme/a2a/jsonrpc"]
        .map(|path| (Method::POST, path.to_owned()));
    let grpc = ["/lf.a2a.v1.A2AService/CancelTask", "/annex.extension.v1.ExtensionService/Call"];
    rest.chain(json_rpc).chain(grpc.map(|path| (Method::POST, path.to_owned()))).collect()
}

/// Sends a request that a web page can send without a preflight: with a query, without a body and a content type. Paths
/// of 0.3 refuse the version 1.0.
async fn send(server: &TestServer, method: &Method, path: &str, fields: &[Field]) -> (StatusCode, String) {
    let version = if path.contains("/v1/") { "0.3" } else { "1.0" };
    let url = format!("{}{path}?A2A-Version={version}", server.url());
    let mut request = server.client().request(method.clone(), url);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let response = request.send().await.expect("an answer");
    (response.status(), response.text().await.expect("a body"))
}

async fn script() -> TestServer {
    TestConfig::script(CONFIG).start().await.expect("it starts")
}

#[tokio::test]
async fn no_page_of_another_origin_changes_anything_at_a_server_that_trusts_its_machine() {
    let server = script().await;
    for (method, path) in mutating() {
        for fields in FOREIGN {
            let (status, text) = send(&server, &method, &path, fields).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{method} {path} {fields:?}");
            assert!(text.contains("another origin") && text.contains("cors_origins"), "{text}");
        }
        for fields in OWN {
            let (status, _) = send(&server, &method, &path, fields).await;
            assert_ne!(status, StatusCode::FORBIDDEN, "{method} {path} {fields:?}");
        }
    }
}

#[tokio::test]
async fn a_waiting_task_is_cancelled_by_its_client_and_not_by_a_page() {
    let server = script().await;
    for below in ["/a2a/rest", "/a2a/rest/v1"] {
        let heard = say(&server, Binding::JsonRpc, TestMessage { text: "ask", ..TestMessage::default() }).await;
        let cancel = format!("{below}/tasks/{}:cancel", heard.task());
        for fields in FOREIGN {
            assert_eq!(send(&server, &Method::POST, &cancel, fields).await.0, StatusCode::FORBIDDEN, "{fields:?}");
        }
        let (_, read) = send(&server, &Method::GET, &format!("/a2a/rest/tasks/{}", heard.task()), &[]).await;
        let read: Value = serde_json::from_str(&read).expect("JSON");
        assert_eq!(read["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{below}");
        let (status, cancelled) = send(&server, &Method::POST, &cancel, &[]).await;
        assert!(status == StatusCode::OK && cancelled.to_lowercase().contains("cancel"), "{below}: {cancelled}");
    }
}

#[tokio::test]
async fn what_only_reads_is_answered_whichever_page_asks() {
    let server = script().await;
    for path in ["/.well-known/agent-card.json", "/livez", "/readyz"] {
        for fields in FOREIGN {
            let (status, _) = send(&server, &Method::GET, path, fields).await;
            assert_eq!(status, StatusCode::OK, "{path} {fields:?}");
        }
    }
}

#[tokio::test]
async fn a_page_over_http2_changes_nothing_either() {
    let server = script().await;
    let (mut client, _connection) = http2(&server, h2::client::Builder::new()).await;
    let cases = [(Some("http://evil.example"), true), (Some("http://localhost:3000"), false), (None, false)];
    for content_type in ["application/grpc", "application/grpc-web"] {
        for (origin, is_refused) in cases {
            let mut request = Request::post("http://localhost/lf.a2a.v1.A2AService/CancelTask");
            request = request.header("content-type", content_type);
            if let Some(origin) = origin {
                request = request.header("origin", origin);
            }
            client = client.ready().await.expect("ready");
            let (response, _) = client.send_request(request.body(()).expect("a request"), true).expect("sent");
            let status = response.await.expect("an answer").status();
            assert_eq!(status == StatusCode::FORBIDDEN, is_refused, "{content_type} {origin:?}: {status}");
        }
    }
}

#[tokio::test]
async fn a_page_has_no_credentials_for_a_server_that_wants_them() {
    let server = guarded().await;
    for (method, path) in mutating() {
        for fields in FOREIGN.into_iter().chain(OWN) {
            let (status, text) = send(&server, &method, &path, fields).await;
            // gRPC has the status of its own in a trailer, and wants its media type first. A server without tenants has nothing
            // below the name of one.
            let is_nothing = status == StatusCode::NOT_FOUND && path.starts_with("/acme");
            let is_refused = status == StatusCode::UNAUTHORIZED || path.contains("Service/") || is_nothing;
            assert!(is_refused, "{method} {path} {fields:?}: {status} {text}");
        }
    }
}
