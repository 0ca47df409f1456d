//! Authentication: the accepted callers, and the owners of tasks and sessions.

use std::path::Path;

use annex_grpc::pb;
use annex_grpc::pb::a2a_service_client::A2aServiceClient;
use annex_server::Config;
use annex_test_support::{TestConfig, TestServer};
use axum::http::StatusCode;
use axum::routing::post as posted;
use serde_json::{Value, json};

use crate::agent;
use crate::upstream::foreign;

/// SHA-256 of the two keys below.
const AUTH: &str = r#"
    [[auth.api_key]]
    principal = "ada"
    key_sha256 = "ADA_DIGEST"
    [[auth.api_key]]
    principal = "bob"
    key_sha256 = "BOB_DIGEST"
"#;
pub(crate) const ADA: &str = "ada-key-0123456789abcdef";
pub(crate) const BOB: &str = "bob-key-0123456789abcdef";

pub(crate) async fn guarded() -> TestServer {
    guarded_with("").await
}

pub(crate) async fn guarded_with(more: &str) -> TestServer {
    agent("seen={last_answer?}", &format!("{}\n{more}", api_keys())).await
}

/// The config of the two keys.
pub(crate) fn api_keys() -> String {
    use sha2::{Digest, Sha256};
    let digest = |key: &str| Sha256::digest(key).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    AUTH.replace("ADA_DIGEST", &digest(ADA)).replace("BOB_DIGEST", &digest(BOB))
}

async fn call(server: &TestServer, key: Option<&str>, method: &str, params: Value) -> (u16, Option<String>, Value) {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let mut request = server.client().post(format!("{}/a2a/jsonrpc", server.url())).header("a2a-version", "1.0");
    if let Some(key) = key {
        request = request.header("x-api-key", key);
    }
    let response = request.json(&body).send().await.expect("an answer");
    let challenge = response.headers().get("www-authenticate").map(|value| value.to_str().expect("ASCII").to_owned());
    (response.status().as_u16(), challenge, response.json().await.expect("JSON"))
}

fn message(context: Option<&str>) -> Value {
    let mut message = json!({"messageId": uuid::Uuid::new_v4().to_string(), "role": "ROLE_USER",
                             "parts": [{"text": "prompt"}]});
    if let Some(context) = context {
        message["contextId"] = json!(context);
    }
    json!({"message": message})
}

#[tokio::test]
async fn strangers_are_challenged_on_each_binding() {
    let server = guarded().await;
    for key in [None, Some("wrong-key-0123456789"), Some("")] {
        let (status, challenge, body) = call(&server, key, "SendMessage", message(None)).await;
        assert_eq!(status, 401, "{body}");
        assert!(challenge.is_some());
        assert_eq!(body["error"]["data"][0]["reason"], "UNAUTHENTICATED");
    }
    let rest = server.get("/a2a/rest/tasks/nobody").await.expect("an answer");
    assert_eq!(rest.status(), 401);
    assert!(rest.headers().contains_key("www-authenticate"));
    let channel = tonic::transport::Channel::from_shared(server.url().to_owned()).expect("a URL");
    let mut client = A2aServiceClient::new(channel.connect().await.expect("a channel"));
    let get = pb::GetTaskRequest { id: "nobody".to_owned(), ..pb::GetTaskRequest::default() };
    let status = client.get_task(get.clone()).await.expect_err("refused");
    assert_eq!(status.code(), tonic::Code::Unauthenticated);
    // A stranger hears so before its message is even read.
    let endless = futures::stream::pending::<Result<bytes::Bytes, std::io::Error>>();
    let h2 = reqwest::Client::builder().http2_prior_knowledge().build().expect("a client");
    let request = h2.post(format!("{}/lf.a2a.v1.A2AService/SendMessage", server.url()));
    let request = request.header("content-type", "application/grpc").body(reqwest::Body::wrap_stream(endless));
    let refused = tokio::time::timeout(std::time::Duration::from_secs(10), request.send()).await.expect("at once");
    assert_eq!(refused.expect("an answer").headers()["grpc-status"], "16");
    let mut request = tonic::Request::new(get);
    request.metadata_mut().insert("x-api-key", ADA.parse().expect("ASCII"));
    request.metadata_mut().insert("a2a-version", "1.0".parse().expect("ASCII"));
    assert_eq!(client.get_task(request).await.expect_err("unknown").code(), tonic::Code::NotFound);
}

#[tokio::test]
async fn what_belongs_to_one_principal_does_not_exist_for_another() {
    let server = guarded().await;
    let (status, _, sent) = call(&server, Some(ADA), "SendMessage", message(Some("shared"))).await;
    assert_eq!(status, 200);
    let task = &sent["result"]["task"];
    let id = json!({"id": task["id"]});
    let nobody = json!({"id": "00000000-0000-4000-8000-000000000000"});
    for method in ["GetTask", "CancelTask", "SubscribeToTask"] {
        let code = |body: &Value| body["error"]["code"].as_i64();
        let (_, _, foreign) = call(&server, Some(BOB), method, id.clone()).await;
        let (_, _, unknown) = call(&server, Some(BOB), method, nobody.clone()).await;
        assert_eq!((code(&foreign), code(&unknown)), (Some(-32_001), Some(-32_001)), "{method}");
    }
    let mut go_on = message(None);
    go_on["message"]["taskId"] = task["id"].clone();
    let (_, _, foreign) = call(&server, Some(BOB), "SendMessage", go_on.clone()).await;
    assert_eq!(foreign["error"]["code"], -32_001, "{foreign}");
    let (_, _, own) = call(&server, Some(ADA), "SendMessage", go_on).await;
    assert_eq!(own["error"]["code"], -32_004, "it is finished: {own}");
    let (_, _, own) = call(&server, Some(ADA), "GetTask", id).await;
    assert_eq!(own["result"]["id"], task["id"]);
    let (_, _, listed) = call(&server, Some(BOB), "ListTasks", json!({"contextId": "shared"})).await;
    assert_eq!(listed["result"]["totalSize"], 0);
    // The same context is another session for another principal.
    let (_, _, bobs) = call(&server, Some(BOB), "SendMessage", message(Some("shared"))).await;
    assert_eq!(bobs["result"]["task"]["artifacts"][0]["parts"][0]["text"], "seen=");
    let (_, _, adas) = call(&server, Some(ADA), "SendMessage", message(Some("shared"))).await;
    assert_eq!(adas["result"]["task"]["artifacts"][0]["parts"][0]["text"], "seen=seen=");
}

#[tokio::test]
async fn principals_list_all_their_tasks_and_only_theirs() {
    let server = guarded().await;
    for (key, context) in [(ADA, "a"), (ADA, "b"), (BOB, "a")] {
        call(&server, Some(key), "SendMessage", message(Some(context))).await;
    }
    let (_, _, adas) = call(&server, Some(ADA), "ListTasks", json!({})).await;
    let (_, _, bobs) = call(&server, Some(BOB), "ListTasks", json!({})).await;
    assert_eq!((&adas["result"]["totalSize"], &bobs["result"]["totalSize"]), (&json!(2), &json!(1)));
}

/// The authorization server's answer to a question about a token.
async fn introspected(body: String) -> (StatusCode, String) {
    let claims = json!({"active": true, "sub": "ada", "aud": "annex", "exp": 99_999_999_999_u64});
    match body.split('&').next() {
        Some("token=good") => (StatusCode::OK, claims.to_string()),
        Some("token=bad") => (StatusCode::OK, json!({"active": false}).to_string()),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
    }
}

#[tokio::test]
async fn opaque_tokens_are_accepted_as_the_authorization_server_says_and_a_caller_hears_when_it_cannot_say() {
    let url = foreign::serve(axum::Router::new().route("/ask", posted(introspected))).await;
    let secret = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(secret.path(), "the secret of the client").expect("a file");
    let config = format!(
        "[auth.introspection]\nurl = \"{url}/ask\"\nissuer = \"https://issuer.example\"\naudience = [\"annex\"]\n\
         client_id = \"annex\"\nclient_secret_file = {:?}\n",
        secret.path()
    );
    let server = agent("seen={last_answer?}", &config).await;
    let list = async |token: &str| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}});
        let request = server.client().post(format!("{}/a2a/jsonrpc", server.url())).header("a2a-version", "1.0");
        let reply = request.bearer_auth(token).json(&body).send().await.expect("an answer");
        let challenge = reply.headers().get("www-authenticate").map(|value| value.to_str().expect("ASCII").to_owned());
        (reply.status().as_u16(), challenge, reply.json::<Value>().await.expect("JSON"))
    };
    let (status, _, body) = list("good").await;
    assert_eq!((status, &body["result"]["totalSize"]), (200, &json!(0)), "{body}");
    let (status, challenge, _) = list("bad").await;
    assert!(status == 401 && challenge.is_some_and(|challenge| challenge.contains("invalid_token")));
    let (status, challenge, body) = list("unanswered").await;
    let reason = &body["error"]["data"][0]["reason"];
    assert_eq!((status, challenge, reason), (503, None, &json!("OVERLOADED")), "{body}");
    assert_eq!(body["error"]["message"].as_str().map(|text| text.contains("identity provider")), Some(true), "{body}");
    let card: Value = server.get("/.well-known/agent-card.json").await.expect("a card").json().await.expect("JSON");
    assert_eq!(card["securitySchemes"]["bearer"]["httpAuthSecurityScheme"]["scheme"], "Bearer");
}

#[tokio::test]
async fn the_card_is_public_and_names_the_schemes() {
    let server = guarded().await;
    let card: Value = server.get("/.well-known/agent-card.json").await.expect("a card").json().await.expect("JSON");
    assert_eq!(card["securitySchemes"]["apiKey"]["apiKeySecurityScheme"]["name"], "x-api-key");
    assert!(card["securityRequirements"][0]["schemes"]["apiKey"].is_object());
}

#[test]
fn listening_beyond_loopback_needs_authentication_or_a_word() {
    let config = |server: &str, more: &str| {
        let config = TestConfig::template("i").with(&format!("[server]\n{server}")).with(more);
        Config::parse(Path::new("test.toml"), &config.toml())
    };
    let error = config("listen = '0.0.0.0:9999'", "").expect_err("refused").to_string();
    assert!(error.contains("server.listen") && error.contains("allow_anonymous"), "{error}");
    assert!(config("listen = '[::]:9999'\nallow_anonymous = true", "").is_ok());
    assert!(config("listen = '0.0.0.0:9999'", AUTH).is_ok());
    assert!(config("listen = '[::1]:9999'", "").is_ok());
}

#[tokio::test]
async fn authenticated_callers_get_the_extended_card_on_each_binding() {
    let more = "[card.extended]\ndescription = 'All of it'\n[[card.extended.skill]]\nid = 'secret'\nname = 'Secret'";
    let server = guarded_with(more).await;
    let public: Value = server.get("/.well-known/agent-card.json").await.expect("a card").json().await.expect("JSON");
    assert_eq!(public["capabilities"]["extendedAgentCard"], true);
    assert!(!public.to_string().contains("secret"));
    let (_, _, card) = call(&server, Some(ADA), "GetExtendedAgentCard", json!({})).await;
    let card = &card["result"];
    assert_eq!((&card["description"], &card["skills"][0]["id"]), (&json!("All of it"), &json!("secret")));
    assert_eq!(call(&server, None, "GetExtendedAgentCard", json!({})).await.0, 401);
    let url = format!("{}/a2a/rest/extendedAgentCard", server.url());
    let request = server.client().get(url).header("a2a-version", "1.0").header("x-api-key", ADA);
    let response = request.send().await.expect("an answer");
    assert!(response.headers()["cache-control"].to_str().expect("ASCII").starts_with("private"));
    assert_eq!(&response.json::<Value>().await.expect("JSON"), card);
    let channel = tonic::transport::Channel::from_shared(server.url().to_owned()).expect("a URL");
    let mut client = A2aServiceClient::new(channel.connect().await.expect("a channel"));
    let mut request = tonic::Request::new(pb::GetExtendedAgentCardRequest::default());
    request.metadata_mut().insert("x-api-key", ADA.parse().expect("ASCII"));
    request.metadata_mut().insert("a2a-version", "1.0".parse().expect("ASCII"));
    let card = client.get_extended_agent_card(request).await.expect("a card").into_inner();
    assert_eq!(card.description, "All of it");
}
