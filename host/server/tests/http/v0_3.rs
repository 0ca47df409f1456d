//! Clients of A2A 0.3.

use annex_test_support::{STATE_INJECTION, STATE_KEY, TestServer};
use serde_json::{Value, json};

use crate::auth::api_keys;
use crate::{ADA, QUESTION, agent, specialist};

mod grpc;

async fn older() -> TestServer {
    agent("Say something.", "").await
}

fn message(text: &str) -> Value {
    json!({"kind": "message", "messageId": uuid::Uuid::new_v4().to_string(), "role": "user",
           "parts": [{"kind": "text", "text": text}]})
}

async fn post(server: &TestServer, path: &str, headers: &[(&str, &str)], body: &Value) -> reqwest::Response {
    let mut request = server.client().post(format!("{}{path}", server.url())).json(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.send().await.expect("an answer")
}

async fn call(server: &TestServer, headers: &[(&str, &str)], method: &str, params: Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    post(server, "/a2a/jsonrpc", headers, &body).await.json().await.expect("JSON")
}

fn events(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(|data| serde_json::from_str(data).expect("JSON")).collect()
}

#[tokio::test]
async fn old_methods_are_served_unless_the_config_says_otherwise() {
    let server = agent("Say something.", "").await;
    let answer = call(&server, &[], "message/send", json!({"message": message("prompt")})).await;
    assert_eq!(answer["result"]["status"]["state"], "completed", "{answer}");
    let server = agent("Say something.", "[server]\na2a_0_3 = false").await;
    let answer = call(&server, &[("a2a-version", "1.0")], "message/send", json!({"message": message("prompt")})).await;
    assert_eq!(answer["error"]["code"], -32_601);
    let told = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(told.contains("`message/send` is one of A2A 0.3; call SendMessage, or send"), "{told}");
    let card: Value = server.get("/.well-known/agent-card.json").await.expect("a card").json().await.expect("JSON");
    assert!(card.get("protocolVersion").is_none() && card.get("url").is_none(), "{card}");
}

#[tokio::test]
async fn a_method_that_neither_version_has_is_unknown_whether_or_not_a_version_is_named() {
    let server = older().await;
    for headers in [&[][..], &[("a2a-version", "0.3")], &[("a2a-version", "1.0")]] {
        let answer = call(&server, headers, "nonexistent/method", json!({})).await;
        assert_eq!(answer["error"]["code"], -32_601, "{headers:?} {answer}");
    }
    // A method of 1.0 exists in 1.0 only.
    let answer = call(&server, &[], "GetTask", json!({"id": "nobody"})).await;
    assert_eq!(answer["error"]["code"], -32_009);
}

#[tokio::test]
async fn a_message_a_task_and_its_errors_have_the_old_shapes() {
    let server = older().await;
    let sent = call(&server, &[], "message/send", json!({"message": message("prompt")})).await;
    let task = &sent["result"];
    assert_eq!((&task["kind"], &task["status"]["state"]), (&json!("task"), &json!("completed")));
    assert_eq!(task["artifacts"][0]["parts"][0], json!({"kind": "text", "text": "Say something."}));
    let read = call(&server, &[("a2a-version", "0.3")], "tasks/get", json!({"id": task["id"]})).await;
    assert_eq!(&read["result"], task);
    let cancel = call(&server, &[], "tasks/cancel", json!({"id": task["id"]})).await;
    assert_eq!(cancel["error"]["code"], -32_002);
    let unknown = call(&server, &[], "tasks/get", json!({"id": "nobody"})).await;
    assert_eq!(unknown["error"]["code"], -32_001);
    let invalid = call(&server, &[], "message/send", json!({"message": {"kind": "message"}})).await;
    assert_eq!(invalid["error"]["code"], -32_602);
    let version = call(&server, &[("a2a-version", "9.9")], "tasks/get", json!({"id": "nobody"})).await;
    assert_eq!(version["error"]["code"], -32_603);
    // The new version goes on beside it.
    assert_eq!(server.say("prompt").send().await.expect("a reply").answer(), "Say something.");
}

#[tokio::test]
async fn a_client_that_posts_to_the_base_url_is_served_in_both_versions() {
    let server = older().await;
    let older = json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message("prompt")}});
    let sent: Value = post(&server, "/", &[], &older).await.json().await.expect("JSON");
    assert_eq!(sent["result"]["artifacts"][0]["parts"][0]["text"], "Say something.", "{sent}");
    let message = json!({"messageId": "newer", "role": "ROLE_USER", "parts": [{"text": "prompt"}]});
    let newer = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}});
    let sent: Value = post(&server, "/", &[("a2a-version", "1.0")], &newer).await.json().await.expect("JSON");
    assert_eq!(sent["result"]["task"]["artifacts"][0]["parts"][0]["text"], "Say something.", "{sent}");
    // A person who opens the address is told where the card is.
    let page = server.get("/").await.expect("an answer");
    assert_eq!(page.status(), 404);
    assert!(page.text().await.expect("text").contains("/.well-known/agent-card.json"));
    // There is no tenant.
    assert_eq!(post(&server, "/acme", &[], &older).await.status(), 404);
}

#[tokio::test]
async fn the_base_url_checks_what_the_path_of_json_rpc_checks() {
    let server = agent("Say something.", &format!("{}\n[server]\nmax_body_bytes = 2000", api_keys())).await;
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message("prompt")}});
    let large = json!({"jsonrpc": "2.0", "id": 1, "method": "message/send",
                       "params": {"message": message(&"x".repeat(3_000))}});
    let key = ("x-api-key", crate::auth::ADA);
    let cases: [(&[(&str, &str)], &Value); 4] = [
        (&[], &body),
        (&[("x-api-key", "wrong")], &body),
        (&[key], &large),
        (&[key, ("content-type", "text/x")], &body),
    ];
    for (headers, body) in cases {
        let mut answers = Vec::new();
        for path in ["/a2a/jsonrpc", "/"] {
            let mut request = server.client().post(format!("{}{path}", server.url())).body(body.to_string());
            if !headers.iter().any(|(name, _)| *name == "content-type") {
                request = request.header("content-type", "application/json");
            }
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let answer = request.send().await.expect("an answer");
            let challenge = answer.headers().get("www-authenticate").cloned();
            answers.push((answer.status(), challenge, answer.text().await.expect("text")));
        }
        assert_eq!(answers[0], answers[1]);
        assert!(answers[0].2.contains("error"), "{answers:?}");
    }
}

#[tokio::test]
async fn a_stream_ends_with_the_final_event() {
    let server = older().await;
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": {"message": message("prompt")}});
    let response = post(&server, "/a2a/jsonrpc", &[], &body).await;
    let events = events(&response.text().await.expect("events"));
    let kinds: Vec<&str> = events.iter().map(|event| event["result"]["kind"].as_str().expect("a kind")).collect();
    assert_eq!(kinds, ["task", "status-update", "artifact-update", "status-update"]);
    assert_eq!(events[3]["result"]["final"], true);
    assert_eq!(events[1]["result"]["final"], false);
}

#[tokio::test]
async fn a_refused_stream_is_one_event_with_the_error() {
    let server = specialist("").await;
    for (method, params, code) in [
        ("message/stream", json!({"message": message(QUESTION)}), -32_008),
        ("tasks/resubscribe", json!({"id": "nobody"}), -32_001),
    ] {
        let body = json!({"jsonrpc": "2.0", "id": "a", "method": method, "params": params});
        let response = post(&server, "/a2a/jsonrpc", &[], &body).await;
        assert_eq!(response.headers()["content-type"], "text/event-stream", "{method}");
        let events = events(&response.text().await.expect("events"));
        assert_eq!((events.len(), &events[0]["error"]["code"], &events[0]["id"]), (1, &json!(code), &json!("a")));
    }
}

#[tokio::test]
async fn extensions_work_under_the_old_header() {
    let server = specialist("").await;
    let naive = call(&server, &[], "message/send", json!({"message": message(QUESTION)})).await;
    assert_eq!(naive["error"]["code"], -32_008);
    assert!(naive["error"]["message"].as_str().expect("a text").contains(STATE_INJECTION), "{naive}");
    let mut message = message(QUESTION);
    message["metadata"] = json!({STATE_KEY: serde_json::from_str::<Value>(ADA).expect("JSON")});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": message}});
    for header in ["x-a2a-extensions", "a2a-extensions"] {
        let mut body = body.clone();
        body["params"]["message"]["messageId"] = json!(header);
        let response = post(&server, "/a2a/jsonrpc", &[(header, STATE_INJECTION)], &body).await;
        assert_eq!(response.headers()["x-a2a-extensions"], STATE_INJECTION);
        let answer: Value = response.json().await.expect("JSON");
        let artifact = &answer["result"]["artifacts"][0];
        assert!(artifact["parts"][0]["text"].as_str().expect("a text").contains("ada@example.com"), "{answer}");
        assert_eq!(artifact["metadata"][STATE_KEY]["user_info"]["name"], "Ada");
    }
}

#[tokio::test]
async fn the_card_has_the_fields_of_both_versions() {
    let server = older().await;
    let card: Value = server.get("/.well-known/agent-card.json").await.expect("a card").json().await.expect("JSON");
    assert_eq!((&card["protocolVersion"], &card["preferredTransport"]), (&json!("0.3.0"), &json!("JSONRPC")));
    assert!(card["url"].as_str().expect("a URL").ends_with("/a2a/jsonrpc"));
    assert_eq!(card["supportedInterfaces"][0]["protocolVersion"], "1.0");
    // Where clients of 0.2 look, whose card is that of 0.3.
    let oldest: Value = server.get("/.well-known/agent.json").await.expect("a card").json().await.expect("JSON");
    assert_eq!(oldest, card);
    let own: Value = server.get("/a2a/rest/v1/card").await.expect("a card").json().await.expect("JSON");
    assert_eq!((&own["protocolVersion"], own.get("supportedInterfaces")), (&json!("0.3.0"), None));
}

#[tokio::test]
async fn the_old_rest_paths_speak_proto_json() {
    let server = older().await;
    let message = json!({"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "prompt"}]},
                         "configuration": {"blocking": true}});
    let sent = post(&server, "/a2a/rest/v1/message:send", &[], &message).await;
    let sent: Value = sent.json().await.expect("JSON");
    let task = &sent["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], "Say something.");
    let path = format!("/a2a/rest/v1/tasks/{}?historyLength=1", task["id"].as_str().expect("an id"));
    let read: Value = server.get(&path).await.expect("a task").json().await.expect("JSON");
    assert_eq!(read["id"], task["id"]);
    let unknown = server.get("/a2a/rest/v1/tasks/nobody").await.expect("an answer");
    assert_eq!(unknown.status(), 404);
    let streamed = post(&server, "/a2a/rest/v1/message:stream", &[], &message).await;
    let events = events(&streamed.text().await.expect("events"));
    assert_eq!(events.len(), 4);
    assert!(events[3]["statusUpdate"]["final"].as_bool().expect("a flag"));
}

#[tokio::test]
async fn a_method_of_0_3_under_version_1_0_is_unknown_there() {
    let server = older().await;
    for headers in [&[("a2a-version", "1.0")], &[("a2a-version", "1.0.1")]] {
        let answer = call(&server, headers, "tasks/get", json!({"id": "nobody"})).await;
        assert_eq!(answer["error"]["code"], -32_601, "{answer}");
        let message = answer["error"]["message"].as_str().expect("a message");
        assert!(message.contains("tasks/get") && message.contains("GetTask"), "{message}");
    }
}

#[tokio::test]
async fn authenticated_clients_of_0_3_get_the_extended_card_on_both_bindings() {
    let more = "[server]\na2a_0_3 = true\n[card.extended]\ndescription = 'All of it'";
    let server = crate::auth::guarded_with(more).await;
    let rest = server.client().get(format!("{}/a2a/rest/v1/card", server.url())).header("x-api-key", crate::auth::ADA);
    let rest = rest.send().await.expect("a card");
    assert!(rest.headers()["cache-control"].to_str().expect("ASCII").contains("private"));
    let rest: Value = rest.json().await.expect("JSON");
    let headers = [("x-api-key", crate::auth::ADA)];
    let rpc = call(&server, &headers, "agent/getAuthenticatedExtendedCard", json!({})).await;
    assert_eq!((&rest["description"], &rest), (&json!("All of it"), &rpc["result"]));
}

#[tokio::test]
async fn bytes_are_written_in_the_standard_alphabet_whichever_one_they_came_in() {
    let server = agent("Say something.", "[server]\na2a_0_3 = true").await;
    for (sent, written) in [("_-8", "/+8="), ("_w", "/w=="), ("AAA=", "AAA=")] {
        let message = json!({"messageId": uuid::Uuid::new_v4().to_string(), "role": "ROLE_USER",
                             "parts": [{"text": "prompt"}, {"raw": sent, "mediaType": "application/json"}]});
        let reply = server.call("SendMessage", json!({"message": message}).to_string()).send().await.expect("a reply");
        assert_eq!(reply.task()["history"][0]["parts"][1]["raw"], written, "{}", reply.text);
        let read = call(&server, &[], "tasks/get", json!({"id": reply.task()["id"]})).await;
        assert_eq!(read["result"]["history"][0]["parts"][1]["file"]["bytes"], written, "{read}");
        let path = format!("/a2a/rest/v1/tasks/{}", reply.task()["id"].as_str().expect("an id"));
        let read: Value = server.get(&path).await.expect("a task").json().await.expect("JSON");
        use base64::Engine as _;
        let field = &read["history"][0]["content"][1]["file"]["fileWithBytes"];
        let base64 = base64::engine::general_purpose::STANDARD.decode(field.as_str().expect("a text")).expect("base64");
        assert_eq!(base64, written.as_bytes(), "{read}");
    }
}
