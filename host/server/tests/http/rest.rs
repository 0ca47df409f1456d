//! The HTTP+JSON binding, with the same results and errors as JSON-RPC.

use annex_test_support::{STATE_INJECTION, STATE_KEY, TestServer};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{ADA, QUESTION, agent, specialist};

struct Reply {
    status: u16,
    content_type: String,
    extensions: Option<String>,
    body: Value,
}

async fn call(server: &TestServer, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
    let url = format!("{}/a2a/rest{path}", server.url());
    let mut request = server.client().request(method, url).body(body.to_owned());
    let is_versioned = path.contains("A2A-Version") || headers.iter().any(|(name, _)| *name == "a2a-version");
    if !is_versioned {
        request = request.header("a2a-version", "1.0");
    }
    if !body.is_empty() && !headers.iter().any(|(name, _)| *name == "content-type") {
        request = request.header("content-type", "application/a2a+json");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.expect("an answer");
    let text = |name: &str| response.headers().get(name).map(|value| value.to_str().expect("ASCII").to_owned());
    let status = response.status().as_u16();
    let content_type = text("content-type").unwrap_or_default();
    let extensions = text("a2a-extensions");
    let body = response.text().await.expect("a body");
    Reply { status, content_type, extensions, body: serde_json::from_str(&body).unwrap_or(Value::String(body)) }
}

fn message(text: &str) -> String {
    json!({"message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": text}]}}).to_string()
}

fn injecting(state: &str) -> String {
    format!(
        r#"{{"message":{{"messageId":"m1","role":"ROLE_USER","parts":[{{"text":"{QUESTION}"}}],"metadata":{{"{STATE_KEY}":{state}}}}}}}"#
    )
}

fn reason(reply: &Reply) -> &str {
    reply.body["error"]["details"][0]["reason"].as_str().expect("an ErrorInfo")
}

#[tokio::test]
async fn a_message_is_answered_and_its_extension_acknowledged() {
    let server = specialist("").await;
    let activate = [("a2a-extensions", STATE_INJECTION)];
    let reply = call(&server, Method::POST, "/message:send", &activate, &injecting(ADA)).await;
    assert_eq!((reply.status, reply.content_type.as_str()), (200, "application/a2a+json"));
    assert_eq!(reply.extensions.as_deref(), Some(STATE_INJECTION));
    let task = &reply.body["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    let answer = task["artifacts"][0]["parts"][0]["text"].as_str().expect("a text");
    assert!(answer.contains("Ada") && answer.contains("ada@example.com"), "{answer}");
    assert_eq!(task["artifacts"][0]["metadata"][STATE_KEY]["user_info"]["name"], "Ada");
}

#[tokio::test]
async fn a_stream_carries_the_bare_events() {
    let server = agent("Say something.", "").await;
    let url = format!("{}/a2a/rest/message:stream", server.url());
    let request = server.client().post(url).header("a2a-version", "1.0").header("content-type", "application/json");
    let response = request.body(message("prompt")).send().await.expect("an answer");
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = response.text().await.expect("events");
    let events: Vec<Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).expect("JSON"))
        .collect();
    let kinds: Vec<&str> =
        events.iter().map(|event| event.as_object().expect("an object").keys().next().expect("one").as_str()).collect();
    assert_eq!(kinds, ["task", "statusUpdate", "artifactUpdate", "statusUpdate"]);
}

#[tokio::test]
async fn tasks_are_read_listed_cancelled_and_followed() {
    let server = agent("Say something.", "").await;
    let sent = call(&server, Method::POST, "/message:send", &[], &message("prompt")).await;
    let id = &sent.body["task"]["id"];
    let context = &sent.body["task"]["contextId"];
    let id = id.as_str().expect("an id");
    let context = context.as_str().expect("an id");
    let read = call(&server, Method::GET, &format!("/tasks/{id}"), &[], "").await;
    assert_eq!((read.status, &read.body), (200, &sent.body["task"]));
    let short = call(&server, Method::GET, &format!("/tasks/{id}?historyLength=0"), &[], "").await;
    assert!(short.body.get("history").is_none());
    let listed = call(
        &server,
        Method::GET,
        &format!("/tasks?contextId={context}&pageSize=1&status=TASK_STATE_COMPLETED&includeArtifacts=true"),
        &[],
        "",
    )
    .await;
    assert_eq!((listed.body["totalSize"].as_i64(), &listed.body["tasks"][0]), (Some(1), &sent.body["task"]));
    let cancelled = call(&server, Method::POST, &format!("/tasks/{id}:cancel"), &[], "").await;
    assert_eq!((cancelled.status, reason(&cancelled)), (400, "TASK_NOT_CANCELABLE"));
    for method in [Method::GET, Method::POST] {
        let followed = call(&server, method, &format!("/tasks/{id}:subscribe"), &[], "").await;
        assert_eq!((followed.status, reason(&followed)), (400, "UNSUPPORTED_OPERATION"));
    }
}

#[tokio::test]
async fn errors_have_status_reason_and_details() {
    let server = specialist("").await;
    let naive = call(&server, Method::POST, "/message:send", &[], &message(QUESTION)).await;
    assert_eq!((naive.status, reason(&naive)), (400, "EXTENSION_SUPPORT_REQUIRED"));
    assert_eq!(naive.body["error"]["status"], "FAILED_PRECONDITION");
    assert_eq!(naive.body["error"]["details"][0]["metadata"]["extensions"], STATE_INJECTION);
    let naive = call(&server, Method::POST, "/message:stream", &[], &message(QUESTION)).await;
    assert_eq!((naive.status, reason(&naive)), (400, "EXTENSION_SUPPORT_REQUIRED"));

    let activate = [("a2a-extensions", STATE_INJECTION)];
    let invalid = call(&server, Method::POST, "/message:send", &activate, &injecting(r#"{"user_info":1}"#)).await;
    assert_eq!((invalid.status, reason(&invalid)), (400, "INVALID_PARAMS"));
    let violation = &invalid.body["error"]["details"][1]["fieldViolations"][0]["field"];
    assert!(violation.as_str().expect("a pointer").starts_with("/message/metadata/"), "{violation}");

    let unknown = call(&server, Method::GET, "/tasks/nobody", &[], "").await;
    assert_eq!((unknown.status, reason(&unknown)), (404, "TASK_NOT_FOUND"));
    let negative = call(&server, Method::GET, "/tasks/nobody?historyLength=-1", &[], "").await;
    assert_eq!((negative.status, reason(&negative)), (400, "INVALID_PARAMS"));
    let no_number = call(&server, Method::GET, "/tasks/nobody?historyLength=many", &[], "").await;
    assert_eq!(no_number.body["error"]["details"][1]["fieldViolations"][0]["field"], "historyLength");
    let broken = call(&server, Method::POST, "/message:send", &activate, "{").await;
    assert_eq!((broken.status, reason(&broken)), (400, "PARSE_ERROR"));
    let text = call(&server, Method::POST, "/message:send", &[("content-type", "text/plain")], "hello").await;
    assert_eq!((text.status, reason(&text)), (400, "CONTENT_TYPE_NOT_SUPPORTED"));
    let tenant = call(&server, Method::POST, "/acme/message:send", &activate, &message(QUESTION)).await;
    assert_eq!(tenant.body["error"]["details"][1]["fieldViolations"][0]["field"], "tenant");
    let nowhere = call(&server, Method::GET, "/nothing", &[], "").await;
    assert_eq!((nowhere.status, reason(&nowhere)), (404, "METHOD_NOT_FOUND"));
    let method = call(&server, Method::PUT, "/message:send", &[], "").await;
    assert_eq!(method.status, 405);
}

#[tokio::test]
async fn the_version_is_read_from_header_or_query() {
    let server = agent("Say something.", "").await;
    let by_query = call(&server, Method::POST, "/message:send?A2A-Version=1.0", &[], &message("prompt")).await;
    assert_eq!(by_query.status, 200);
    for version in ["9.9", "0.3", ""] {
        let refused =
            call(&server, Method::POST, "/message:send", &[("a2a-version", version)], &message("prompt")).await;
        assert_eq!((refused.status, reason(&refused)), (400, "VERSION_NOT_SUPPORTED"), "{version:?}");
    }
}

#[tokio::test]
async fn the_answer_has_the_media_type_of_the_request() {
    let server = agent("Say something.", "").await;
    let cases = [
        (vec![("content-type", "application/json")], "application/json"),
        (vec![("content-type", "application/json; charset=utf-8")], "application/json"),
        (vec![("content-type", "application/a2a+json")], "application/a2a+json"),
    ];
    for (headers, expected) in cases {
        let reply = call(&server, Method::POST, "/message:send", &headers, &message("prompt")).await;
        assert_eq!(reply.content_type, expected);
    }
    for (accept, expected) in [
        ("application/json", "application/json"),
        ("application/a2a+json, application/json", "application/a2a+json"),
        ("*/*", "application/a2a+json"),
    ] {
        let reply = call(&server, Method::GET, "/tasks/nobody", &[("accept", accept)], "").await;
        assert_eq!(reply.content_type, expected, "{accept}");
    }
}
