//! Access tokens for the upstream, and the errors that callers read.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use annex_grpc::pb;
use annex_grpc::pb::a2a_service_client::A2aServiceClient;
use annex_test_support::{COMMAND_KEY, Reply, TEST_EXTENSION, TestConfig, TestServer};
use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::{Value, json};
use tonic::transport::Channel;

use super::{foreign, state};
use crate::auth::{ADA, api_keys};
use crate::installation::{TOKEN, admin};

/// An authorization server. Each token `caller-NAME` is valid. The access tokens are `token-1`, `token-2` and so on.
#[derive(Clone, Default)]
struct Issuer {
    /// The bodies of the requests for tokens.
    requests: Arc<Mutex<Vec<String>>>,
}

impl Issuer {
    async fn start(&self) -> String {
        let requests = Arc::clone(&self.requests);
        let granted = move |body: String| {
            let mut requests = requests.lock().expect("a lock");
            requests.push(body);
            let token = format!("token-{}", requests.len());
            let granted = json!({"access_token": token, "token_type": "Bearer", "expires_in": 600});
            std::future::ready(foreign::json_answer(&granted))
        };
        foreign::serve(Router::new().route("/ask", post(introspected)).route("/token", post(granted))).await
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("a lock").clone()
    }
}

async fn introspected(body: String) -> Response {
    let caller = body.strip_prefix("token=caller-").and_then(|rest| rest.split('&').next());
    foreign::json_answer(&match caller {
        Some(name) => json!({"active": true, "sub": name, "aud": "annex", "exp": 99_999_999_999_u64}),
        None => json!({"active": false}),
    })
}

fn secret_in(folder: &Path) {
    let file = folder.join("secret");
    fs::write(&file, "the secret of the client").expect("a file");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("a file of the owner");
}

/// A server in front of the agent at `upstream`, which exchanges the tokens of its callers at the token endpoint
/// `token_url`.
async fn exchanging(upstream: &str, issuer: &str, token_url: &str) -> TestServer {
    exchanging_with(TestConfig::upstream(upstream), issuer, token_url).await
}

/// The same with a config that names the agent.
async fn exchanging_with(config: TestConfig, issuer: &str, token_url: &str) -> TestServer {
    let folder = tempfile::tempdir().expect("a folder");
    secret_in(folder.path());
    let config = config.with(&api_keys()).with(&format!(
        "[auth.introspection]\nurl = \"{issuer}/ask\"\nissuer = \"https://issuer.example\"\naudience = [\"annex\"]\n\
         client_id = \"annex\"\nclient_secret_file = \"secret\"\n[agent.oauth]\ntoken_url = \"{token_url}\"\n\
         grant = \"token_exchange\"\nclient_id = \"annex\"\nclient_secret_file = \"secret\"\n"
    ));
    let file = folder.path().join("annex.toml");
    fs::write(&file, config.toml()).expect("a config");
    TestServer::from_file(&file, None).await.expect("the front starts")
}

async fn say_as(front: &TestServer, caller: &str) -> Reply {
    let request = front.say("hi").header("authorization", &format!("Bearer {caller}"));
    request.send().await.expect("a reply")
}

#[tokio::test]
async fn the_token_of_a_caller_is_exchanged_on_each_binding_and_the_upstream_never_sees_it() {
    let (upstream, received) = foreign::recorder().await;
    let issuer = Issuer::default();
    let url = issuer.start().await;
    let front = exchanging(&upstream, &url, &format!("{url}/token")).await;
    for caller in ["caller-ada", "caller-bob", "caller-ada"] {
        let reply = say_as(&front, caller).await;
        assert!(reply.body["result"]["message"].is_object(), "{}", reply.text);
    }
    let body = json!({"message": {"messageId": "over-rest", "role": "ROLE_USER", "parts": [{"text": "hi"}]}});
    let request = front.client().post(format!("{}/a2a/rest/message:send", front.url())).header("a2a-version", "1.0");
    let response = request.bearer_auth("caller-ada").json(&body).send().await.expect("an answer");
    assert_eq!(response.status(), 200);
    let channel = Channel::from_shared(front.url().to_owned()).expect("a URL").connect().await.expect("a channel");
    let part = pb::Part { content: Some(pb::part::Content::Text("hi".to_owned())), ..Default::default() };
    let role = pb::Role::User.into();
    let message = pb::Message { message_id: "over-grpc".to_owned(), role, parts: vec![part], ..Default::default() };
    let mut request = tonic::Request::new(pb::SendMessageRequest { message: Some(message), ..Default::default() });
    request.metadata_mut().insert("a2a-version", "1.0".parse().expect("a value"));
    request.metadata_mut().insert("authorization", "Bearer caller-ada".parse().expect("a value"));
    A2aServiceClient::new(channel).send_message(request).await.expect("an answer");

    let received = received.lock().expect("a lock").clone();
    let tokens: Vec<&str> = received.iter().map(|headers| headers["authorization"].to_str().expect("text")).collect();
    assert_eq!(tokens, [1, 2, 1, 1, 1].map(|number| format!("Bearer token-{number}")));
    assert!(received.iter().all(|headers| !format!("{headers:?}").contains("caller-")), "{received:?}");
    let requests = issuer.requests();
    assert!(requests.len() == 2 && requests[0].contains("subject_token=caller-ada&"), "{requests:?}");
}

#[tokio::test]
async fn a_caller_without_a_token_is_refused_by_an_agent_that_needs_one() {
    let (upstream, received) = foreign::recorder().await;
    let issuer = Issuer::default();
    let url = issuer.start().await;
    let front = exchanging(&upstream, &url, &format!("{url}/token")).await;
    let reply = front.say("hi").header("x-api-key", ADA).send().await.expect("a reply");
    assert_eq!(reply.code(), -32_000, "{}", reply.text);
    assert!(reply.text.contains("no bearer token") && reply.text.contains("UNAUTHENTICATED"), "{}", reply.text);
    assert!(received.lock().expect("a lock").is_empty() && issuer.requests().is_empty());
}

/// A message that an extension lets wait could run later, without a request of its caller.
#[tokio::test]
async fn no_extension_sees_a_message_of_a_caller_without_a_token() {
    let (upstream, _received) = foreign::recorder().await;
    let url = Issuer::default().start().await;
    let config = TestConfig::upstream(&upstream).extension(annex_components::TEST_EXTENSION, "");
    let front = exchanging_with(config, &url, &format!("{url}/token")).await;
    for (field, value, code) in [("x-api-key", ADA, -32_000), ("authorization", "Bearer caller-ada", -32_602)] {
        let said = front.say("hi").extensions(TEST_EXTENSION).metadata(COMMAND_KEY, "\"violation\"");
        let reply = said.header(field, value).send().await.expect("a reply");
        assert_eq!(reply.code(), code, "{field}: {}", reply.text);
    }
}

#[tokio::test]
async fn a_token_endpoint_that_refuses_fails_the_task_and_only_the_log_says_why() {
    let (upstream, received) = foreign::recorder().await;
    let url = Issuer::default().start().await;
    let refusal = json!({"error": "invalid_target", "error_description": "of nobody's business"}).to_string();
    let refused = post(move || std::future::ready((StatusCode::BAD_REQUEST, refusal.clone()).into_response()));
    let endpoint = foreign::serve(Router::new().route("/token", refused)).await;
    let front = exchanging(&upstream, &url, &format!("{endpoint}/token")).await;
    let reply = say_as(&front, "caller-ada").await;
    assert_eq!(state(&reply), "TASK_STATE_FAILED", "{}", reply.text);
    let text = reply.task()["status"]["message"]["parts"][0]["text"].as_str().expect("a text");
    assert!(
        text.starts_with("This server cannot authenticate to the agent behind it.")
            && text.contains("log has the details")
    );
    assert!(!reply.text.contains("invalid_target") && !reply.text.contains("business"), "{}", reply.text);
    assert!(received.lock().expect("a lock").is_empty());
}

#[tokio::test]
async fn tenants_share_no_tokens_and_a_changed_tenant_gets_a_new_one() {
    let (upstream, received) = foreign::recorder().await;
    let issuer = Issuer::default();
    let url = issuer.start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let of_tenant = |scope: &str| {
        let oauth = format!(
            "[agent.oauth]\ntoken_url = \"{url}/token\"\nclient_id = \"annex\"\nclient_secret_file = \"secret\"\n\
             scope = \"{scope}\"\n"
        );
        TestConfig::upstream(&upstream).with(&oauth).toml()
    };
    let mut config =
        TestConfig::script("[agent]\nrule = []\n").with("[admin]\ntoken_file = \"token\"\n[runtime]\nwatch = false\n");
    fs::write(folder.path().join("token"), TOKEN).expect("a file");
    for name in ["acme", "globex"] {
        fs::create_dir(folder.path().join(name)).expect("a folder");
        // A relative path starts at the folder of the tenant's file.
        secret_in(&folder.path().join(name));
        fs::write(folder.path().join(name).join("agent.toml"), of_tenant("ask")).expect("a file");
        config = config.with(&format!("[[tenant]]\nname = \"{name}\"\nconfig = \"{name}/agent.toml\"\n"));
    }
    fs::write(folder.path().join("annex.toml"), config.toml()).expect("a config");
    let server = TestServer::from_file(&folder.path().join("annex.toml"), None).await.expect("a server");
    let say = async |tenant: &str| {
        let id = uuid::Uuid::new_v4().to_string();
        let message = json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": "hi"}]});
        let reply = server.call("SendMessage", json!({"tenant": tenant, "message": message}).to_string()).send().await;
        let reply = reply.expect("a reply");
        assert!(reply.body["result"]["message"].is_object(), "{}", reply.text);
        received.lock().expect("a lock").pop().expect("a request")["authorization"].to_str().expect("text").to_owned()
    };
    assert_eq!(say("acme").await, "Bearer token-1");
    assert_eq!(say("globex").await, "Bearer token-2");
    assert_eq!(say("acme").await, "Bearer token-1");
    fs::write(folder.path().join("acme/agent.toml"), of_tenant("tell")).expect("a file");
    let (status, reloaded) = admin(&server, "POST", "reload", Value::Null).await;
    assert_eq!(status, 200, "{reloaded}");
    assert_eq!(say("acme").await, "Bearer token-3");
    assert_eq!(say("globex").await, "Bearer token-2");
    assert!(issuer.requests()[2].ends_with("&scope=tell"), "{:?}", issuer.requests());
}

#[tokio::test]
async fn settings_of_access_tokens_that_cannot_work_keep_the_server_from_starting() {
    let check = async |oauth: &str, said: &[&str]| {
        let oauth =
            format!("[agent.oauth]\nclient_id = \"annex\"\nclient_secret_env = \"CARGO_MANIFEST_DIR\"\n{oauth}");
        let error = super::config("http://127.0.0.1:1", &oauth).start().await.err();
        let error = error.map(|error| format!("{error:#}")).unwrap_or_default();
        assert!(said.iter().all(|part| error.contains(part)), "{error}");
    };
    let good = "token_url = \"https://issuer.example/token\"\n";
    check("", &["agent.oauth.token_url", "is missing"]).await;
    check("token_url = \"http://issuer.example/token\"\n", &["oauth.token_url", "must be https"]).await;
    check("token_url = \"https://10.0.0.7/token\"\n", &["agent.oauth.token_url", "allow_private"]).await;
    check(&format!("{good}grant = \"password\"\n"), &["agent.oauth.grant"]).await;
    check(&format!("{good}fallback = \"client_credentials\"\n"), &["oauth.fallback", "token_exchange"]).await;
    check(&format!("{good}grant = \"token_exchange\"\n"), &["agent.oauth.grant", "no caller has a token"]).await;
}
