//! The effects of a reload of the config: on callers, limits, the permissions of tenants, and access to the admin API.

use std::fs;

use annex_runtime::Digest;
use annex_test_support::{TestConfig, TestServer};
use serde_json::{Value, json};
use sha2::Sha256;
use tempfile::TempDir;

use crate::auth::{ADA, BOB};
use crate::installation::{CARD, TOKEN, admin, marked};
use crate::tenants::added::{add, ask, reason};

const CAROL: &str = "carol-key-0123456789abcd";

/// A config with these callers, each with a key, and `more`.
fn config(callers: &[(&str, &str)], more: &str) -> String {
    let digest = |key: &str| {
        use sha2::Digest as _;
        Sha256::digest(key).iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let key = |(principal, key): &(&str, &str)| {
        format!("[[auth.api_key]]\nprincipal = {principal:?}\nkey_sha256 = \"{}\"\n", digest(key))
    };
    let keys: String = callers.iter().map(key).collect();
    let admin = "[admin]\ntoken_file = \"token\"\n[runtime]\nwatch = false\n";
    TestConfig::template("hello").with(&keys).with(admin).with(more).toml()
}

struct ReloadingServer {
    folder: TempDir,
    server: TestServer,
}

impl ReloadingServer {
    async fn start(config: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("token"), TOKEN).expect("a file");
        fs::write(folder.path().join("annex.toml"), config).expect("a config");
        let server = TestServer::from_file(&folder.path().join("annex.toml"), None).await.expect("a server");
        Self { folder, server }
    }

    /// Has this config read, and returns the answer.
    async fn read(&self, config: &str) -> (u16, Value) {
        fs::write(self.folder.path().join("annex.toml"), config).expect("a config");
        admin(&self.server, "POST", "reload", Value::Null).await
    }

    /// The status and the answer to a message from the caller with this key.
    async fn say(&self, header: &str, key: &str, text: &str) -> (u16, Value) {
        let id = uuid::Uuid::new_v4().to_string();
        let message = json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]});
        let params = json!({"message": message, "configuration": {"returnImmediately": true}});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params});
        let request = self.server.client().post(format!("{}/a2a/jsonrpc", self.server.url()));
        let reply = request.header("a2a-version", "1.0").header(header, key).json(&body).send().await.expect("a reply");
        (reply.status().as_u16(), reply.json().await.expect("JSON"))
    }

    async fn status(&self, key: &str) -> u16 {
        self.say("x-api-key", key, "hello").await.0
    }
}

#[tokio::test]
async fn callers_are_let_in_and_shut_out_and_the_card_says_how_they_show_who_they_are() {
    let running = ReloadingServer::start(&config(&[("ada", ADA), ("bob", BOB)], "")).await;
    assert_eq!((running.status(ADA).await, running.status(CAROL).await), (200, 401));
    let (status, reloaded) = running.read(&config(&[("ada", ADA), ("carol", CAROL)], "")).await;
    assert_eq!((status, &reloaded["changed"], &reloaded["needs_restart"]), (200, &json!(true), &json!([])));
    assert_eq!((running.status(ADA).await, running.status(CAROL).await, running.status(BOB).await), (200, 200, 401));

    let header = async || {
        let card: Value = running.server.get(CARD).await.expect("a card").json().await.expect("JSON");
        card["securitySchemes"]["apiKey"]["apiKeySecurityScheme"]["name"].clone()
    };
    assert_eq!(header().await, "x-api-key");
    let (_, reloaded) = running.read(&config(&[("ada", ADA)], "[auth.api_key_header]\nname = \"x-caller\"")).await;
    assert_eq!(reloaded["needs_restart"], json!([]), "{reloaded}");
    assert_eq!((header().await, running.status(ADA).await), (json!("x-caller"), 401));
    assert_eq!(running.say("x-caller", ADA, "hello").await.0, 200);
    assert_eq!(reloaded["changed_keys"], json!(["auth.api_key", "auth.api_key_header"]), "{reloaded}");
    assert_eq!(reloaded["extensions_changed"], false, "{reloaded}");
    let (_, same) = running.read(&config(&[("ada", ADA)], "[auth.api_key_header]\nname = \"x-caller\"")).await;
    assert_eq!((&same["changed"], &same["changed_keys"]), (&json!(false), &json!([])), "{same}");
}

#[tokio::test]
async fn limits_count_for_what_comes_from_then_on() {
    let callers = [("ada", ADA)];
    let running = ReloadingServer::start(&config(&callers, "")).await;
    let long = "x".repeat(5_000);
    assert_eq!(running.say("x-api-key", ADA, &long).await.0, 200);
    let (_, reloaded) = running
        .read(&config(
            &callers,
            "[server]\nmax_body_bytes = 4000\nmax_running_turns_per_caller = 1\nmax_turn_seconds = 60",
        ))
        .await;
    assert_eq!((&reloaded["changed"], &reloaded["needs_restart"]), (&json!(true), &json!([])), "{reloaded}");
    assert_eq!(running.say("x-api-key", ADA, &long).await.0, 413);
    let (status, begun) = running.say("x-api-key", ADA, "slow").await;
    assert_eq!((status, begun["result"]["task"].is_object()), (200, true), "{begun}");
    let (_, refused) = running.say("x-api-key", ADA, "hello").await;
    assert_eq!(refused["error"]["code"], -32_000, "{refused}");
    assert!(refused.to_string().contains("1 turns of yours run already"), "{refused}");
    running.read(&config(&callers, "")).await;
    assert_eq!(running.say("x-api-key", ADA, &long).await.0, 200);
    let (_, taken) = running.say("x-api-key", ADA, "hello").await;
    assert!(taken["result"]["task"].is_object(), "{taken}");
}

#[tokio::test]
async fn messages_of_grpc_have_the_limit_that_is_in_force() {
    use annex_grpc::pb;
    use annex_grpc::pb::a2a_service_client::A2aServiceClient;
    let callers = [("ada", ADA)];
    let running = ReloadingServer::start(&config(&callers, "[server]\nmax_body_bytes = 100")).await;
    let channel = tonic::transport::Channel::from_shared(running.server.url().to_owned()).expect("a URL");
    let mut client = A2aServiceClient::new(channel.connect().await.expect("a channel"));
    let mut get = async || {
        let mut request = tonic::Request::new(pb::GetTaskRequest { id: "x".repeat(150), ..Default::default() });
        request.metadata_mut().insert("x-api-key", ADA.parse().expect("ASCII"));
        request.metadata_mut().insert("a2a-version", "1.0".parse().expect("ASCII"));
        client.get_task(request).await.expect_err("there is no such task").code()
    };
    assert_eq!(get().await, tonic::Code::OutOfRange);
    running.read(&config(&callers, "[server]\nmax_body_bytes = 1000")).await;
    assert_eq!(get().await, tonic::Code::NotFound);
}

#[tokio::test]
async fn pages_of_other_origins_are_let_in_when_the_config_lists_them() {
    let callers = [("ada", ADA)];
    let running = ReloadingServer::start(&config(&callers, "")).await;
    let allowed = async || {
        let request = running.server.client().get(format!("{}{CARD}", running.server.url()));
        let reply = request.header("origin", "https://app.example").send().await.expect("a reply");
        reply.headers().get("access-control-allow-origin").map(|value| value.to_str().expect("ASCII").to_owned())
    };
    assert_eq!(allowed().await, None);
    running.read(&config(&callers, "[server]\ncors_origins = [\"https://app.example\"]")).await;
    assert_eq!(allowed().await.as_deref(), Some("https://app.example"));
    running.read(&config(&callers, "")).await;
    assert_eq!(allowed().await, None);
}

#[tokio::test]
async fn a_config_that_cannot_be_used_changes_nothing() {
    let running = ReloadingServer::start(&config(&[("ada", ADA)], "[tenants]")).await;
    let good = config(&[("carol", CAROL)], "[tenants]\n[server]\nmax_body_bytes = 10");
    for (broken, expected) in [
        ("[[auth.api_key]]\nprincipal = \"bob\"\nkey_env = \"ANNEX_NO_SUCH_VARIABLE\"", "ANNEX_NO_SUCH_VARIABLE"),
        ("[[admin.token]]\nname = \"bot\"\ntoken_env = \"ANNEX_NO_SUCH_VARIABLE\"", "ANNEX_NO_SUCH_VARIABLE"),
        ("[[extension]]\ncomponent = \"./missing.wasm\"", "missing.wasm"),
        ("[server]\nmax_streams = 0", "server.max_streams"),
    ] {
        let broken = TestConfig::without_agent().with(&good).with(broken).toml();
        let (status, refused) = running.read(&broken).await;
        assert_eq!(status, 422, "{refused}");
        assert!(reason(&refused).contains(expected), "{expected}: {refused}");
        assert_eq!((running.status(ADA).await, running.status(CAROL).await), (200, 401), "{expected}");
    }
    assert_eq!(running.read(&good).await.0, 200);
    assert_eq!(running.status(CAROL).await, 413);
}

#[tokio::test]
async fn what_needs_a_restart_is_named_with_the_reason_and_does_not_count() {
    let running = ReloadingServer::start(&config(&[("ada", ADA)], "")).await;
    let without_auth = config(&[], "[server]\npublic_url = \"http://localhost\"\nmax_streams = 5");
    let (status, reloaded) = running.read(&without_auth).await;
    let expected = json!([
        "auth (whether callers are authenticated is decided at the start)",
        "server.public_url (cards and links begin with it)"
    ]);
    assert_eq!((status, &reloaded["needs_restart"]), (200, &expected), "{reloaded}");
    assert_eq!((running.status(ADA).await, running.status(CAROL).await), (200, 401));
}

#[tokio::test]
async fn what_needs_a_restart_is_named_when_a_reload_fails_too_and_each_mistake_has_a_line() {
    let callers = [("ada", ADA)];
    let running = ReloadingServer::start(&config(&callers, "")).await;
    fs::write(running.folder.path().join("broken.wasm"), b"no component").expect("a file");
    let broken = "[[extension]]\ncomponent = \"broken.wasm\"\n[server]\npublic_url = \"http://localhost\"";
    let (status, refused) = running.read(&config(&callers, broken)).await;
    assert_eq!(status, 422, "{refused}");
    let needed = "\nNeeds a restart: server.public_url (cards and links begin with it)";
    assert!(reason(&refused).ends_with(needed), "{refused}");
    let (_, refused) = running.read(&config(&callers, "[server]\nmax_streams = 0\nmax_connections = 0")).await;
    let lines: Vec<&str> = reason(&refused).lines().skip(1).collect();
    let keys = lines.iter().filter(|line| line.contains("annex.toml:") && line.contains(" server.max_")).count();
    assert!(keys >= 2 && keys == lines.len(), "{refused}");
}

#[tokio::test]
async fn added_tenants_are_judged_and_loaded_by_the_tables_that_are_in_force() {
    let callers = [("ada", ADA)];
    let running = ReloadingServer::start(&config(&callers, "[tenants]")).await;
    fs::write(running.folder.path().join("x.wasm"), marked("x")).expect("a file");
    let digest = Digest::of(&marked("x")).to_string();
    let text = TestConfig::template("i").extension(&digest, "").toml();
    let put = async || {
        let fields = [("if-none-match", "*")];
        ask(&running.server, "PUT", "tenants/acme", &fields, json!({"config": text})).await
    };
    let (status, refused, _) = put().await;
    assert_eq!(status, 422, "{refused}");
    assert!(reason(&refused).contains("tenants.components"), "{refused}");
    let (_, reloaded) = running.read(&config(&callers, "[tenants]\ncomponents = [\"x.wasm\"]")).await;
    assert_eq!(reloaded["needs_restart"], json!([]), "{reloaded}");
    assert_eq!(put().await.0, 201);
    let card =
        async || running.server.get("/acme/.well-known/agent-card.json").await.expect("a reply").status().as_u16();
    assert_eq!(card().await, 200);
    // What a tenant was loaded with is no longer in force, so that it is loaded anew.
    running.read(&config(&callers, "[tenants]")).await;
    assert_eq!(card().await, 503);
    running.read(&config(&callers, "[tenants]\ncomponents = [\"x.wasm\"]")).await;
    assert_eq!(card().await, 200, "one that could not be loaded is tried at once");
}

#[tokio::test]
async fn admin_tokens_are_replaced_while_the_server_runs() {
    let callers = [("ada", ADA)];
    let running = ReloadingServer::start(&config(&callers, "")).await;
    let other = "another-token-of-the-tests";
    let status = async |token: &str| {
        let url = format!("{}/v1/extensions", running.server.admin_url());
        running.server.client().get(url).bearer_auth(token).send().await.expect("a reply").status().as_u16()
    };
    assert_eq!((status(TOKEN).await, status(other).await), (200, 401));
    fs::write(running.folder.path().join("bot"), other).expect("a file");
    let named = config(&callers, "[[admin.token]]\nname = \"deploy-bot\"\ntoken_file = \"bot\"");
    assert_eq!(running.read(&named).await.0, 200);
    assert_eq!((status(TOKEN).await, status(other).await), (200, 200));
    let alone = named.replace("token_file = \"token\"\n", "");
    assert_ne!(alone, named);
    assert_eq!(running.read(&alone).await.0, 200);
    assert_eq!((status(TOKEN).await, status(other).await), (401, 200));
}

#[tokio::test]
async fn a_text_whose_components_cannot_be_loaded_is_refused_with_the_reason() {
    let running =
        ReloadingServer::start(&config(&[("ada", ADA)], "[tenants]\ncomponents = [\"x.wasm\", \"y.wasm\"]")).await;
    fs::write(running.folder.path().join("x.wasm"), b"no component").expect("a file");
    fs::write(running.folder.path().join("y.wasm"), marked("y")).expect("a file");
    let component = |bytes: &[u8], more: &str| format!("[[extension]]\ncomponent = \"{}\"\n{more}", Digest::of(bytes));
    let twice = component(&marked("y"), "").repeat(2);
    for (extensions, expected) in [
        (component(b"no component", ""), "WebAssembly component"),
        ("[[extension]]\ncomponent = \"timestamp\"".to_owned(), "clock = true"),
        (component(&marked("y"), "[extension.parameters.behaviour]\ndescribe = \"trap\""), "self-test"),
        (twice, "two installed extensions"),
    ] {
        let text = TestConfig::template("i").with(&extensions).toml();
        let fields = [("if-none-match", "*")];
        let (status, refused, _) = ask(&running.server, "PUT", "tenants/acme", &fields, json!({"config": text})).await;
        assert_eq!(status, 422, "{refused}");
        assert!(reason(&refused).contains(expected), "{expected}: {refused}");
        assert_eq!(ask(&running.server, "GET", "tenants/acme", &[], Value::Null).await.0, 404);
    }
    let text = TestConfig::template("i").with(&component(&marked("y"), "")).toml();
    add(&running.server, "acme", &text).await;
    let (_, shown, _) = ask(&running.server, "GET", "tenants/acme", &[], Value::Null).await;
    assert_eq!(shown["loaded"], false, "the trial leaves nothing loaded");
}

#[tokio::test]
async fn a_component_is_uploaded_for_tenants_and_named_by_its_digest() {
    let running = ReloadingServer::start(&config(&[("ada", ADA)], "[tenants]\nmax_uploads = 1")).await;
    let upload = async |bytes: Vec<u8>| {
        let url = format!("{}/v1/components", running.server.admin_url());
        let reply = running.server.client().post(url).bearer_auth(TOKEN).body(bytes).send().await.expect("a reply");
        (reply.status().as_u16(), reply.json::<Value>().await.expect("JSON"))
    };
    let digest = Digest::of(&marked("x")).to_string();
    let text = TestConfig::template("i").extension(&digest, "").toml();
    let fields = [("if-none-match", "*")];
    let (status, refused, _) = ask(&running.server, "PUT", "tenants/acme", &fields, json!({"config": text})).await;
    assert_eq!((status, reason(&refused).contains("annex component push")), (422, true), "{refused}");
    let (status, refused) = upload(b"no component".to_vec()).await;
    assert_eq!((status, &refused["error"]["code"]), (422, &json!("no_component")));
    let (status, uploaded) = upload(marked("x")).await;
    assert_eq!((status, &uploaded["digest"]), (201, &json!(digest)));
    assert_eq!(upload(marked("x")).await.0, 200, "it is there");
    let (status, full) = upload(marked("y")).await;
    assert_eq!((status, reason(&full).contains("tenants.max_uploads")), (507, true), "{full}");
    let (_, list) = admin(&running.server, "GET", "components", Value::Null).await;
    assert_eq!((&list["components"][0]["digest"], &list["max_uploads"]), (&json!(digest), &json!(1)), "{list}");

    let tag = add(&running.server, "acme", &text).await;
    let card = running.server.get("/acme/.well-known/agent-card.json").await.expect("a reply");
    assert_eq!(card.status().as_u16(), 200);
    let (_, installed) = admin(&running.server, "GET", "extensions?tenant=acme", Value::Null).await;
    assert_eq!(installed["extensions"][0]["digest"], json!(digest), "{installed}");

    let (status, used) = admin(&running.server, "DELETE", &format!("components/{digest}"), Value::Null).await;
    assert_eq!((status, &used["error"]["code"]), (409, &json!("in_use")));
    assert!(reason(&used).contains("these tenants: acme;"), "{used}");
    let fields = [("if-match", tag.as_str())];
    assert_eq!(ask(&running.server, "DELETE", "tenants/acme", &fields, Value::Null).await.0, 200);
    let (status, _) = admin(&running.server, "DELETE", &format!("components/{digest}"), Value::Null).await;
    assert_eq!(status, 200);
    let (status, gone) = admin(&running.server, "DELETE", &format!("components/{digest}"), Value::Null).await;
    assert_eq!((status, &gone["error"]["code"]), (404, &json!("no_component")));
}
