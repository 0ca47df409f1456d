//! Web pages of other origins that the config allows: the preflights of browsers, and the answers that pages may read.

use annex_test_support::{TestConfig, TestServer};
use axum::http::{Method, StatusCode};
use reqwest::Response;
use serde_json::{Value, json};

use crate::auth::{ADA, guarded_with};
use crate::installation::{CARD, Installation, TOKEN};

const APP: &str = "https://app.example";
const OTHER: &str = "https://other.example";
const LISTED: &str = "[server]\ncors_origins = [\"https://app.example\", \"http://localhost:3000\"]";

/// Where each binding takes a message, with the version that its clients name.
const BINDINGS: [(&str, &str); 5] = [
    ("/a2a/jsonrpc", "1.0"),
    ("/", "1.0"),
    ("/a2a/jsonrpc", "0.3"),
    ("/a2a/rest/message:send", "1.0"),
    ("/a2a/rest/v1/message:send", "0.3"),
];

async fn serve(more: &str) -> TestServer {
    TestConfig::template("Say something.").with(more).start().await.expect("a server")
}

/// The preflight that a browser sends for a page of `origin`.
async fn preflight(server: &TestServer, path: &str, origin: &str) -> Response {
    let request = server.client().request(Method::OPTIONS, format!("{}{path}", server.url()));
    let request = request.header("origin", origin).header("sec-fetch-site", "cross-site");
    let request = request.header("access-control-request-method", "POST");
    request.header("access-control-request-headers", "content-type").send().await.expect("an answer")
}

/// A message of a page of `origin`, as the version writes it.
async fn message(server: &TestServer, path: &str, version: &str, origin: &str) -> Response {
    let id = uuid::Uuid::new_v4().to_string();
    let (method, message) = if version == "1.0" {
        ("SendMessage", json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": "prompt"}]}))
    } else {
        (
            "message/send",
            json!({"kind": "message", "messageId": id, "role": "user", "parts": [{"kind": "text", "text": "prompt"}]}),
        )
    };
    let params = if path.contains("/rest/v1") {
        json!({"message": {"messageId": id, "role": "ROLE_USER", "content": [{"text": "prompt"}]},
            "configuration": {"blocking": true}})
    } else {
        json!({"message": message})
    };
    let body = if path.contains("/rest/") {
        params
    } else {
        json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    };
    let request = server.client().post(format!("{}{path}", server.url())).json(&body);
    let request = request.header("a2a-version", version).header("x-api-key", ADA);
    request.header("origin", origin).header("sec-fetch-site", "cross-site").send().await.expect("an answer")
}

fn field<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().expect("text"))
}

/// True if a list of names, such as `a, b`, has this one.
fn has(list: &str, name: &str) -> bool {
    list.split(',').any(|one| one.trim().eq_ignore_ascii_case(name))
}

/// Checks that a page of [`APP`] may read this.
fn check_readable(response: &Response, what: &str) {
    assert_eq!(field(response, "access-control-allow-origin"), APP, "{what}");
    assert!(has(field(response, "vary"), "origin"), "{what}");
    for name in ["A2A-Extensions", "X-A2A-Extensions", "WWW-Authenticate", "Retry-After", "*"] {
        assert!(has(field(response, "access-control-expose-headers"), name), "{what}: {name}");
    }
    assert_eq!(field(response, "access-control-allow-credentials"), "", "{what}: no cookies");
}

#[tokio::test]
async fn a_page_that_is_listed_sends_messages_on_each_binding() {
    let server = serve(LISTED).await;
    for (path, version) in BINDINGS {
        let asked = preflight(&server, path, APP).await;
        assert!(asked.status().is_success(), "{path}");
        assert_eq!(field(&asked, "access-control-allow-origin"), APP, "{path}");
        for method in ["GET", "POST", "DELETE"] {
            assert!(has(field(&asked, "access-control-allow-methods"), method), "{path}");
        }
        let headers = field(&asked, "access-control-allow-headers").to_owned();
        for name in ["Content-Type", "Authorization", "A2A-Version", "A2A-Extensions", "X-A2A-Extensions"] {
            assert!(has(&headers, name), "{path}: {headers}");
        }
        assert!(has(&headers, "X-API-Key") && has(&headers, "Last-Event-ID"), "{path}: {headers}");
        assert!(field(&asked, "access-control-max-age").parse::<u32>().is_ok_and(|seconds| seconds > 0), "{path}");

        let answered = message(&server, path, version, APP).await;
        check_readable(&answered, path);
        assert_eq!(answered.status(), StatusCode::OK, "{path}");
        let text = answered.text().await.expect("a body");
        assert!(text.contains("Say something.") && !text.contains("\"error\""), "{path} {version}: {text}");
    }
}

#[tokio::test]
async fn a_page_that_is_listed_reads_the_card_and_streams() {
    let server = serve(LISTED).await;
    let request = server.client().get(format!("{}{CARD}", server.url())).header("origin", APP);
    check_readable(&request.send().await.expect("a card"), "the card");
    let body = json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "prompt"}]}});
    let request = server.client().post(format!("{}/a2a/rest/message:stream", server.url())).json(&body);
    let request = request.header("a2a-version", "1.0").header("origin", "http://localhost:3000");
    let stream = request.send().await.expect("a stream");
    assert_eq!(field(&stream, "content-type"), "text/event-stream");
    assert_eq!(field(&stream, "access-control-allow-origin"), "http://localhost:3000");
}

#[tokio::test]
async fn errors_can_be_read_by_the_page_too() {
    let server = guarded_with("[server]\nmax_body_bytes = 1000\ncors_origins = [\"https://app.example\"]").await;
    let large = "x".repeat(2_000);
    let cases = [
        (Method::POST, "/a2a/jsonrpc", "", "{}", 401),
        (Method::GET, "/a2a/rest/tasks/t", "", "", 401),
        (Method::POST, "/a2a/jsonrpc", ADA, large.as_str(), 413),
        (Method::GET, "/a2a/rest/tasks/nobody", ADA, "", 404),
        (Method::GET, "/a2a/rest/acme/tasks/t", ADA, "", 400),
        (Method::GET, "/a2a/rest/message:send", ADA, "", 405),
        (Method::GET, "/nowhere", "", "", 404),
        (Method::GET, "/acme/.well-known/agent-card.json", "", "", 404),
    ];
    for (method, path, key, body, status) in cases {
        let request = server.client().request(method, format!("{}{path}", server.url())).body(body.to_owned());
        let request = request.header("content-type", "application/json").header("a2a-version", "1.0");
        let response = request.header("x-api-key", key).header("origin", APP).send().await.expect("an answer");
        assert_eq!(response.status().as_u16(), status, "{path}");
        check_readable(&response, path);
        assert_eq!(status == 401, response.headers().contains_key("www-authenticate"), "{path}");
    }
}

#[tokio::test]
async fn a_page_that_is_not_listed_is_told_nothing_and_changes_nothing() {
    let server = serve(LISTED).await;
    for origin in [OTHER, "null", "https://app.example.evil.example", "http://app.example", "https://APP.example"] {
        let asked = preflight(&server, "/a2a/jsonrpc", origin).await;
        assert_eq!(field(&asked, "access-control-allow-origin"), "", "{origin}");
        let answered = message(&server, "/a2a/jsonrpc", "1.0", origin).await;
        assert_eq!(answered.status(), StatusCode::FORBIDDEN, "{origin}");
        assert_eq!(field(&answered, "access-control-allow-origin"), "", "{origin}");
        assert!(has(field(&answered, "vary"), "origin"), "what a cache keeps is not for other pages");
        let text = answered.text().await.expect("a body");
        assert!(text.contains("cors_origins"), "{text}");
    }
    let two = server.client().post(format!("{}/a2a/jsonrpc", server.url())).header("origin", APP);
    let two = two.header("origin", OTHER).header("a2a-version", "1.0").send().await.expect("an answer");
    assert_eq!(two.status(), StatusCode::FORBIDDEN, "no browser sends two origins");
}

#[tokio::test]
async fn a_page_that_is_listed_does_not_reach_the_server_under_a_name_of_its_own() {
    let server = serve("[server]\ncors_origins = [\"*\"]").await;
    let request = server.client().post(format!("{}/a2a/jsonrpc", server.url())).header("host", "evil.example");
    let answer = request.header("origin", "http://evil.example").send().await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    assert!(answer.text().await.expect("a body").contains("evil.example"));
}

#[tokio::test]
async fn a_star_lets_every_page_call() {
    let server = serve("[server]\ncors_origins = [\"*\"]").await;
    for origin in [APP, OTHER, "null"] {
        assert_eq!(field(&preflight(&server, "/", origin).await, "access-control-allow-origin"), "*");
        let answered = message(&server, "/a2a/jsonrpc", "1.0", origin).await;
        assert_eq!(answered.status(), StatusCode::OK, "{origin}");
        assert_eq!(field(&answered, "access-control-allow-origin"), "*");
        assert_eq!(field(&answered, "access-control-allow-credentials"), "");
    }
}

#[tokio::test]
async fn a_server_that_lists_no_origin_says_nothing_about_pages() {
    let server = serve("").await;
    let asked = preflight(&server, "/a2a/jsonrpc", APP).await;
    assert!(!asked.status().is_success(), "{}", asked.status());
    let card = server.client().get(format!("{}{CARD}", server.url())).header("origin", APP).send().await;
    let card = card.expect("a card");
    for answer in [asked, card] {
        let names: Vec<&str> = answer.headers().keys().map(reqwest::header::HeaderName::as_str).collect();
        assert!(!names.iter().any(|name| name.starts_with("access-control-") || *name == "vary"), "{names:?}");
    }
}

#[tokio::test]
async fn a_page_may_send_the_field_of_keys_whatever_its_name_and_what_an_upstream_is_to_be_sent() {
    let server = guarded_with(&format!("{LISTED}\n[auth.api_key_header]\nname = \"X-Key\"")).await;
    let headers = preflight(&server, "/a2a/jsonrpc", APP).await;
    let headers = field(&headers, "access-control-allow-headers");
    assert!(has(headers, "X-Key") && !has(headers, "X-API-Key"), "{headers}");
    let upstream = serve("").await;
    let front = TestConfig::upstream(upstream.url()).set("agent.headers_forward", ["x-tenant-of-caller"]).with(LISTED);
    let front = front.start().await.expect("a server");
    let headers = preflight(&front, "/a2a/jsonrpc", APP).await;
    assert!(has(field(&headers, "access-control-allow-headers"), "X-Tenant-Of-Caller"));
}

#[tokio::test]
async fn a_page_shows_its_key_as_any_client_does() {
    let server = guarded_with(LISTED).await;
    let answered = message(&server, "/a2a/jsonrpc", "1.0", APP).await;
    check_readable(&answered, "a message with a key");
    let answer: Value = answered.json().await.expect("JSON");
    assert!(answer["result"]["task"]["id"].is_string(), "{answer}");
}

#[tokio::test]
async fn no_page_of_another_origin_reads_the_admin_api_whatever_is_listed() {
    let installation = Installation::new();
    installation.config("[server]\ncors_origins = [\"*\"]\n[admin]\ntoken_file = \"token\"");
    let server = installation.serve().await;
    for method in [Method::OPTIONS, Method::GET] {
        let url = format!("{}/extensions", server.admin_url());
        let request = server.client().request(method, url).header("origin", APP).bearer_auth(TOKEN);
        let answer = request.header("access-control-request-method", "GET").send().await.expect("an answer");
        let names: Vec<&str> = answer.headers().keys().map(reqwest::header::HeaderName::as_str).collect();
        assert!(!names.iter().any(|name| name.starts_with("access-control-")), "{names:?}");
    }
}
