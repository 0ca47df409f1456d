//! The mistakes of clients, and the resulting errors.

use annex_test_support::{STATE_INJECTION, TestServer};

use crate::{agent, specialist};

async fn post(server: &TestServer, content_type: &str, body: impl Into<reqwest::Body>) -> (u16, i64) {
    let url = format!("{}/a2a/jsonrpc", server.url());
    let request = server.client().post(url).header("content-type", content_type).header("A2A-Version", "1.0");
    let reply = request.body(body).send().await.expect("a reply");
    let status = reply.status().as_u16();
    let body: serde_json::Value = reply.json().await.expect("JSON");
    (status, body["error"]["code"].as_i64().expect("an error"))
}

#[tokio::test]
async fn malformed_requests_get_the_error_that_fits() {
    let server = agent("Say something.", "").await;
    let message = |fields: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{{"message":{{{fields}}}}}}}"#)
    };
    let cases = [
        ("{".to_owned(), -32_700),
        ("\u{0}".to_owned(), -32_700),
        ("[]".to_owned(), -32_600),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"GetTask"}]"#.to_owned(), -32_600),
        (r#"{"id":1,"method":"GetTask"}"#.to_owned(), -32_600),
        (r#"{"jsonrpc":"2.0","id":{},"method":"GetTask"}"#.to_owned(), -32_600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"message/send","params":{}}"#.to_owned(), -32_601),
        (r#"{"jsonrpc":"2.0","id":1,"method":"GetExtendedAgentCard"}"#.to_owned(), -32_004),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ListTaskPushNotificationConfigs","params":{}}"#.to_owned(), -32_003),
        (r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{}}"#.to_owned(), -32_602),
        (message(r#""role":"ROLE_USER","parts":[{"text":"x"}]"#), -32_602),
        (message(r#""messageId":"m","role":"ROLE_AGENT","parts":[{"text":"x"}]"#), -32_602),
        (message(r#""messageId":"m","role":"ROLE_KING","parts":[{"text":"x"}]"#), -32_602),
        (message(r#""messageId":"m","role":"ROLE_USER","parts":[]"#), -32_602),
        (message(r#""messageId":"m","role":"ROLE_USER","parts":[{"text":"x","url":"y"}]"#), -32_602),
        (message(r#""messageId":"m","role":"ROLE_USER","parts":[{"raw":"%%%"}]"#), -32_602),
        (message(r#""messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}],"contextId":" c "#), -32_700),
        (message(r#""messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}],"contextId":" c ""#), -32_602),
        (format!("{} trailing", message("")), -32_700),
    ];
    for (body, code) in cases {
        assert_eq!(post(&server, "application/json", body.clone()).await, (200, code), "{body}");
    }
    assert_eq!(post(&server, "application/json", vec![0xff, 0xfe]).await, (200, -32_700));
    assert_eq!(post(&server, "text/plain", "{}").await, (200, -32_005));
}

#[tokio::test]
async fn violations_of_the_data_model_name_the_field() {
    let server = agent("Say something.", "").await;
    let params = r#"{"message":{"role":"ROLE_USER","parts":[]}}"#;
    let reply = server.call("SendMessage", params).send().await.expect("a reply");
    assert_eq!(reply.violations(), ["message.messageId", "message.parts"]);
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_without_being_read() {
    let server = agent("Say something.", "[server]\nmax_body_bytes = 1000").await;
    assert_eq!(post(&server, "application/json", "x".repeat(2_000)).await, (413, -32_600));
}

#[tokio::test]
async fn ids_that_are_repeated_in_every_event_are_bounded() {
    let server = agent("Say something.", "").await;
    let long = "x".repeat(257);
    for field in ["messageId", "contextId", "taskId"] {
        let reply = server.say("prompt").field(field, &long).send().await.expect("a reply");
        assert_eq!((reply.code(), reply.violations()), (-32_602, vec![format!("message.{field}")]));
    }
    let reply = server.say("prompt").id(&format!("\"{long}\"")).send().await.expect("a reply");
    assert_eq!(reply.code(), -32_600);
}

#[tokio::test]
async fn deep_nesting_is_an_error_and_not_a_crash() {
    let server = agent("Say something.", "").await;
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    assert_eq!(post(&server, "application/json", deep.clone()).await, (200, -32_600));
    let params = format!(r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{{"data":{deep}}}]}}}}"#);
    let reply = server.call("SendMessage", params).send().await.expect("a reply");
    assert_eq!(reply.code(), -32_600);
    assert_eq!(server.say("prompt").send().await.expect("a reply").code(), 0, "the server lives");
}

#[tokio::test]
async fn only_version_1_0_is_served_by_header_or_query() {
    let server = agent("Say something.", "").await;
    for version in [None, Some(""), Some("0.3"), Some("9.9"), Some("1.1"), Some("1")] {
        let reply = server.say("prompt").version(version).send().await.expect("a reply");
        assert_eq!((reply.status, reply.code()), (200, -32_009), "{version:?}");
        assert_eq!(reply.body["error"]["data"][0]["reason"], "VERSION_NOT_SUPPORTED");
    }
    let query = server.say("prompt").version(None).query("A2A-Version=1.0").send().await.expect("a reply");
    assert_eq!(query.code(), 0);
    let query = server.say("prompt").version(None).query("A2A-Version=0.3").send().await.expect("a reply");
    assert_eq!(query.code(), -32_009);
}

/// The code and the message of the error for a program such as curl that sets only these header fields.
async fn told(server: &TestServer, path: &str, fields: &[(&str, &str)]) -> (i64, String) {
    let message = r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}"#;
    let body = if path.contains("/rest/") {
        message.to_owned()
    } else {
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{message}}}"#)
    };
    let mut request = server.client().post(format!("{}{path}", server.url())).body(body);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let error: serde_json::Value = request.send().await.expect("a reply").json().await.expect("JSON");
    let error = &error["error"];
    (error["code"].as_i64().expect("a code"), error["message"].as_str().expect("a text").to_owned())
}

#[tokio::test]
async fn a_body_that_is_not_said_to_be_json_is_refused_with_the_header_to_send() {
    let server = agent("Say something.", "").await;
    for (path, code) in [("/a2a/jsonrpc", -32_005), ("/", -32_005), ("/a2a/rest/message:send", 400)] {
        let form = [("a2a-version", "1.0"), ("content-type", "application/x-www-form-urlencoded")];
        for fields in [&form[..1], &form] {
            let (found, text) = told(&server, path, fields).await;
            assert_eq!(found, code, "{path} {fields:?}: {text}");
            assert!(text.contains("-H 'content-type: application/json'"), "{path} {fields:?}: {text}");
        }
    }
}

#[tokio::test]
async fn a_message_without_a_version_is_refused_with_the_header_to_send() {
    let server = agent("Say something.", "").await;
    for path in ["/a2a/jsonrpc", "/a2a/rest/message:send"] {
        let (_, text) = told(&server, path, &[("content-type", "application/json")]).await;
        assert!(text.contains("send the header `A2A-Version: 1.0`"), "{path}: {text}");
    }
}

#[tokio::test]
async fn a_path_of_0_3_with_a_message_of_1_0_is_refused_with_the_path_of_1_0() {
    let fields = [("content-type", "application/json"), ("a2a-version", "1.0")];
    for config in ["", "[server]\na2a_0_3 = false"] {
        let server = agent("Say something.", config).await;
        let (code, text) = told(&server, "/a2a/rest/v1/message:send", &fields).await;
        assert_eq!(code, 400, "{text}");
        assert!(text.contains("A2A 0.3") && text.contains("A2A 1.0") && text.contains("`v1`"), "{config}: {text}");
    }
}

#[tokio::test]
async fn a_misspelt_extension_is_named_where_a_required_one_is_missing() {
    let server = specialist("").await;
    let misspelt = STATE_INJECTION.replace("state_injection", "state-injection");
    let line = format!("https://example.com/another/v1, {misspelt}");
    let reply = server.say("hello").extensions(&line).send().await.expect("a reply");
    assert_eq!(reply.code(), -32_008);
    let text = reply.body["error"]["message"].as_str().expect("a text");
    assert!(text.contains(&format!("{misspelt} is not known here, did you mean {STATE_INJECTION}?")), "{text}");
    assert!(text.contains("https://example.com/another/v1 is not known here"), "{text}");
}

#[tokio::test]
async fn a_tenant_that_does_not_exist_is_refused() {
    let server = agent("Say something.", "").await;
    let params = r#"{"tenant":"acme","message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}}"#;
    assert_eq!(server.call("SendMessage", params).send().await.expect("a reply").code(), -32_602);
}

#[tokio::test]
async fn an_unknown_path_says_where_the_card_is() {
    let server = agent("Say something.", "").await;
    let reply = server.get("/").await.expect("a reply");
    assert_eq!(reply.status().as_u16(), 404);
    assert!(reply.text().await.expect("text").contains("/.well-known/agent-card.json"));
}
