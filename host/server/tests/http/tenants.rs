//! Tenants: several agents behind one listener, and their isolation from each other.

use std::fs;

use annex_grpc::pb;
use annex_grpc::pb::a2a_service_client::A2aServiceClient;
use annex_grpc::pb::extension::CallRequest;
use annex_grpc::pb::extension::extension_service_client::ExtensionServiceClient;
use annex_server::Config;
use annex_test_support::{TEST_EXTENSION, TestConfig, TestServer};
use serde_json::{Value, json};
use tempfile::TempDir;
use tonic::transport::Channel;

use crate::auth::{ADA, BOB, api_keys};
use crate::catalogue::approval;
use crate::installation::{TOKEN, addition, admin, marked, segment};
use crate::scoped_keys::capable;

pub(crate) mod added;
mod caller_quotas;
mod costs;
mod denied;
mod failing;
mod fair;
mod locked;
mod many;
mod outliving;
mod pulled;
mod quotas;

const PERMITS: &str = "https://github.com/a2aproject/experimental-ext-oid4vp-auth/tree/main/v1";
const KEYS: &str = "https://annex.example/capabilities/v1";

/// An agent that answers with `name` and the state of its session.
pub(crate) fn agent(name: &str, extensions: &str) -> String {
    let rule = format!(
        r#"
        [[agent.model.scripted.rules]]
        when = "."
        answer = "{name} remembers {{last}}"
        extract = {{ last = "(?s)^(.*)$" }}
        "#
    );
    let agent = TestConfig::template("{last?}").set("agent.name", "same_name").set("agent.output_key", "last");
    agent.set("card.name", name).with(&rule).with(extensions).toml()
}

/// A folder with the config and the files of two tenants. `more` is for the config, `of_acme` for its `[[tenant]]`.
fn files(more: &str, of_acme: &str, acme: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("acme")).expect("a folder");
    let write = |name: &str, text: String| fs::write(folder.path().join(name), text).expect("a file");
    let tenants = format!(
        "[[tenant]]\nname = \"acme\"\nconfig = \"acme/agent.toml\"\n{of_acme}\n[[tenant]]\nname = \"globex\"\nconfig = \
         \"globex.toml\"\n"
    );
    write("token", TOKEN.to_owned());
    write("annex.toml", agent("main", &format!("{more}\n{tenants}")));
    write("acme/agent.toml", agent("acme", acme));
    write("globex.toml", agent("globex", &capable(KEYS, "", "")));
    folder
}

async fn serve(folder: &TempDir) -> TestServer {
    TestServer::from_file(&folder.path().join("annex.toml"), None).await.expect("a server")
}

async fn channel(server: &TestServer) -> Channel {
    Channel::from_shared(server.url().to_owned()).expect("a URL").connect().await.expect("a channel")
}

/// A call by the caller with `key`, which requests `extensions`.
async fn call(server: &TestServer, key: &str, extensions: &str, method: &str, params: Value) -> Value {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let request = server.client().post(format!("{}/a2a/jsonrpc", server.url())).header("a2a-version", "1.0");
    let request = request.header("x-api-key", key).header("a2a-extensions", extensions);
    request.json(&body).send().await.expect("an answer").json().await.expect("JSON")
}

fn message(tenant: &str, text: &str) -> Value {
    let id = uuid::Uuid::new_v4().to_string();
    json!({"tenant": tenant, "message": {
        "messageId": id, "contextId": "c", "role": "ROLE_USER", "parts": [{"text": text}]}})
}

async fn say(server: &TestServer, tenant: &str, text: &str) -> Value {
    call(server, "", "", "SendMessage", message(tenant, text)).await
}

fn answer(body: &Value) -> &str {
    body["result"]["task"]["artifacts"][0]["parts"][0]["text"].as_str().unwrap_or_else(|| unreachable!("{body}"))
}

/// The field that the request is refused for.
fn refused(body: &Value) -> (&Value, &Value) {
    (&body["error"]["code"], &body["error"]["data"][1]["fieldViolations"][0]["field"])
}

#[tokio::test]
async fn each_tenant_has_an_agent_a_card_and_sessions_of_its_own() {
    let folder = files("", "", "");
    let server = serve(&folder).await;
    for tenant in ["", "acme", "globex"] {
        let name = if tenant.is_empty() { "main" } else { tenant };
        let path = if tenant.is_empty() { String::new() } else { format!("/{tenant}") };
        let card = server.get(&format!("{path}/.well-known/agent-card.json")).await.expect("a card");
        let card: Value = card.json().await.expect("JSON");
        assert_eq!(card["name"], name);
        let named = if tenant.is_empty() { Value::Null } else { json!(tenant) };
        let interfaces = card["supportedInterfaces"].as_array().expect("interfaces");
        // A request of 0.3 has no field for the tenant: the URL names it.
        let of_1_0 = |interface: &&Value| interface["protocolVersion"] == "1.0";
        assert!(interfaces.iter().filter(of_1_0).all(|interface| interface["tenant"] == named), "{card}");
        assert_eq!(card["url"], format!("{}{path}/a2a/jsonrpc", server.url()));
        // All have the same name and the client the same context: nothing but the tenant keeps them apart.
        assert_eq!(answer(&say(&server, tenant, "one").await), format!("{name} remembers "));
        assert_eq!(answer(&say(&server, tenant, "two").await), format!("{name} remembers {name} remembers "));
    }
    let missing = server.get("/none/.well-known/agent-card.json").await.expect("a reply");
    assert_eq!(missing.status().as_u16(), 404);
    assert_eq!(refused(&say(&server, "none", "x").await), (&json!(-32_602), &json!("tenant")));
}

#[tokio::test]
async fn a_tenant_is_served_at_the_url_of_its_card_without_the_field_in_both_versions() {
    let folder = files("", "", "");
    let server = serve(&folder).await;
    let oldest = server.get("/acme/.well-known/agent.json").await.expect("a card");
    let oldest: Value = oldest.json().await.expect("JSON");
    assert_eq!(oldest["name"], "acme");
    let post = async |path: &str, version: &str, body: &Value| -> Value {
        let request = server.client().post(format!("{}{path}", server.url())).header("a2a-version", version);
        request.json(body).send().await.expect("an answer").json().await.expect("JSON")
    };
    for path in ["/acme", "/acme/", "/acme/a2a/jsonrpc"] {
        let id = uuid::Uuid::new_v4().to_string();
        let said = json!({"kind": "message", "messageId": id, "role": "user",
                          "parts": [{"kind": "text", "text": "x"}]});
        let older = json!({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": said}});
        let sent = post(path, "0.3", &older).await;
        assert_eq!(sent["result"]["artifacts"][0]["parts"][0]["text"], "acme remembers ", "{path} {sent}");
        let read = json!({"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": sent["result"]["id"]}});
        assert_eq!(post(path, "0.3", &read).await["result"], sent["result"]);
        // The task is the tenant's.
        assert_eq!(post("/", "0.3", &read).await["error"]["code"], -32_001);
        // The path may be repeated in the field, and not contradicted.
        for (tenant, field) in [("", None), ("acme", None), ("globex", Some("tenant"))] {
            let mut params = message("", "x");
            params["tenant"] = json!(tenant);
            params["message"]["contextId"] = json!(uuid::Uuid::new_v4().to_string());
            let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params});
            let sent = post(path, "1.0", &body).await;
            match field {
                None => assert_eq!(answer(&sent), "acme remembers "),
                Some(field) => assert_eq!(refused(&sent), (&json!(-32_602), &json!(field))),
            }
        }
    }
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": message("", "x")});
    assert_eq!(refused(&post("/none", "1.0", &body).await), (&json!(-32_602), &json!("tenant")));
}

#[tokio::test]
async fn a_tenant_is_named_in_the_path_or_in_the_field_of_each_binding() {
    let folder = files("", "", "");
    let server = serve(&folder).await;
    let url = format!("{}/a2a/rest/acme/message:send", server.url());
    let sent = json!({"message": message("", "x")["message"]});
    let request = server.client().post(url).header("a2a-version", "1.0").json(&sent);
    let body: Value = request.send().await.expect("an answer").json().await.expect("JSON");
    assert_eq!(body["task"]["artifacts"][0]["parts"][0]["text"], "acme remembers ");

    // Where there is no body, the field is in the query.
    let id = body["task"]["id"].as_str().expect("an id");
    let url = format!("{}/a2a/rest/tasks/{id}:subscribe?tenant=acme", server.url());
    let request = server.client().get(url).header("a2a-version", "1.0");
    let text = request.send().await.expect("an answer").text().await.expect("text");
    assert!(text.contains("UNSUPPORTED_OPERATION"), "the task is found, and is over: {text}");

    let mut client = A2aServiceClient::new(channel(&server).await);
    let part = pb::Part { content: Some(pb::part::Content::Text("x".to_owned())), ..pb::Part::default() };
    let message = pb::Message {
        message_id: "m".to_owned(),
        role: pb::Role::User.into(),
        parts: vec![part],
        ..pb::Message::default()
    };
    let request = pb::SendMessageRequest {
        tenant: "globex".to_owned(),
        message: Some(message),
        ..pb::SendMessageRequest::default()
    };
    let mut request = tonic::Request::new(request);
    request.metadata_mut().insert("a2a-version", "1.0".parse().expect("a value"));
    let response = client.send_message(request).await.expect("an answer").into_inner();
    assert!(format!("{response:?}").contains("globex remembers "), "{response:?}");
}

#[tokio::test]
async fn no_tenant_finds_the_tasks_of_another() {
    let folder = files(&api_keys(), "", "");
    let server = serve(&folder).await;
    let sent = call(&server, ADA, "", "SendMessage", message("acme", "x")).await;
    let id = sent["result"]["task"]["id"].as_str().expect("a task");
    for tenant in ["", "globex"] {
        let of = |more: Value| {
            let mut params = json!({"tenant": tenant});
            params.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
            params
        };
        for method in ["GetTask", "CancelTask", "SubscribeToTask"] {
            let body = call(&server, ADA, "", method, of(json!({"id": id}))).await;
            assert_eq!(body["error"]["code"], -32_001, "{method} of {tenant:?}: {body}");
        }
        let listed = call(&server, ADA, "", "ListTasks", of(json!({}))).await;
        assert_eq!(listed["result"]["totalSize"], 0, "{listed}");
        let mut go_on = message(tenant, "more");
        go_on["message"]["taskId"] = json!(id);
        assert_eq!(call(&server, ADA, "", "SendMessage", go_on).await["error"]["code"], -32_001);
    }
    let own = call(&server, ADA, "", "GetTask", json!({"tenant": "acme", "id": id})).await;
    assert_eq!(own["result"]["id"], id);
}

#[tokio::test]
async fn an_anonymous_client_lists_no_tasks_of_a_tenant_without_their_context() {
    let folder = files("", "", "");
    let server = serve(&folder).await;
    say(&server, "acme", "x").await;
    let all = call(&server, "", "", "ListTasks", json!({"tenant": "acme"})).await;
    assert_eq!(refused(&all), (&json!(-32_602), &json!("contextId")), "{all}");
    let one = call(&server, "", "", "ListTasks", json!({"tenant": "acme", "contextId": "c"})).await;
    assert_eq!(one["result"]["totalSize"], 1, "{one}");
}

#[tokio::test]
async fn keys_of_one_extension_are_apart_in_each_tenant() {
    let folder = files("", "", &capable(KEYS, "", ""));
    let server = serve(&folder).await;
    let run = async |tenant: &str, command: Value| {
        let mut sent = message(tenant, "x");
        sent["message"]["metadata"] = json!({"test/capability": [], "test/later": [command]});
        let body = call(&server, "", KEYS, "SendMessage", sent).await;
        body["result"]["task"]["artifacts"][0]["metadata"]["test/result"].clone()
    };
    run("acme", json!({"set": ["k", "of acme"]})).await;
    assert_eq!(run("globex", json!({"get": "k"})).await, json!(["none"]));
    assert_eq!(run("acme", json!({"get": "k"})).await, json!(["of acme"]));
}

#[tokio::test]
async fn whoever_may_not_call_a_tenant_cannot_tell_that_it_is_there() {
    let folder = files(&api_keys(), "callers = [\"ada\"]", "");
    let server = serve(&folder).await;
    assert_eq!(answer(&call(&server, ADA, "", "SendMessage", message("acme", "x")).await), "acme remembers ");
    let foreign = call(&server, BOB, "", "SendMessage", message("acme", "x")).await;
    let unknown = call(&server, BOB, "", "SendMessage", message("acne", "x")).await;
    assert_eq!(foreign.to_string(), unknown.to_string().replace("acne", "acme"));
    assert_eq!(refused(&foreign), (&json!(-32_602), &json!("tenant")));
    assert_eq!(answer(&call(&server, BOB, "", "SendMessage", message("globex", "x")).await), "globex remembers ");
}

#[tokio::test]
async fn a_tenant_that_is_full_takes_no_room_from_others() {
    let folder = files("", "[tenant.quota]\nturns = 1", "");
    let server = serve(&folder).await;
    let mut params = message("acme", "slow");
    params["configuration"] = json!({"returnImmediately": true});
    let slow = call(&server, "", "", "SendMessage", params).await;
    assert!(slow["result"]["task"]["id"].is_string(), "{slow}");
    let refused = say(&server, "acme", "x").await;
    assert_eq!(refused["error"]["code"], -32_000, "{refused}");
    assert_eq!(
        refused["error"]["data"][0]["metadata"],
        json!({"quota": "turns", "used": "1", "limit": "1"}),
        "{refused}"
    );
    for tenant in ["", "globex"] {
        assert!(answer(&say(&server, tenant, "x").await).contains("remembers"));
    }
}

#[tokio::test]
async fn a_method_is_called_in_its_tenant_on_each_binding_and_nowhere_else() {
    let component = annex_test_support::component("test-extension");
    let extension =
        format!("[[extension]]\ncomponent = {component:?}\n[extension.parameters]\nmethods = [\"test/echo\"]\n");
    let folder = files("", "", &extension);
    let server = serve(&folder).await;
    let expected = json!({"operation": "test/echo", "params": {"a": 1}});
    let called = call(&server, "", TEST_EXTENSION, "test/echo", json!({"tenant": "acme", "a": 1})).await;
    assert_eq!(called["result"], expected, "{called}");
    let elsewhere = call(&server, "", TEST_EXTENSION, "test/echo", json!({"tenant": "globex", "a": 1})).await;
    assert_eq!(elsewhere["error"]["code"], -32_601, "{elsewhere}");

    let card: Value =
        server.get("/acme/.well-known/agent-card.json").await.expect("a card").json().await.expect("JSON");
    assert_eq!(card["capabilities"]["extensions"][0]["uri"], TEST_EXTENSION);
    let request = |tenant: &str| {
        let url = format!("{}/a2a/rest{tenant}/extensions/test/test/echo", server.url());
        let request = server.client().post(url).header("a2a-version", "1.0").header("a2a-extensions", TEST_EXTENSION);
        request.json(&json!({"a": 1})).send()
    };
    let there: Value = request("/acme").await.expect("an answer").json().await.expect("JSON");
    assert_eq!(there, expected);
    assert_eq!(request("").await.expect("an answer").status().as_u16(), 404);

    let mut client = ExtensionServiceClient::new(channel(&server).await);
    let params_json = json!({"tenant": "acme", "a": 1}).to_string();
    let mut request = tonic::Request::new(CallRequest { method: "test/echo".to_owned(), params_json });
    request.metadata_mut().insert("a2a-version", "1.0".parse().expect("a value"));
    request.metadata_mut().insert("a2a-extensions", TEST_EXTENSION.parse().expect("a value"));
    let result = client.call(request).await.expect("an answer").into_inner().result_json;
    assert_eq!(serde_json::from_str::<Value>(&result).expect("JSON"), expected);
}

#[tokio::test]
async fn a_task_that_waits_is_taken_up_in_its_tenant_alone() {
    let waits = approval("");
    let folder = files("", "", &waits);
    fs::write(folder.path().join("globex.toml"), agent("globex", &waits)).expect("a file");
    let server = serve(&folder).await;
    let asked = call(&server, "", PERMITS, "SendMessage", message("acme", "x")).await;
    let task = &asked["result"]["task"];
    let uri = &task["status"]["message"]["metadata"][PERMITS]["authorizationRequest"]["request_uri"];
    let state = uri.as_str().and_then(|uri| uri.rsplit_once("state=")).unwrap_or_else(|| unreachable!("{asked}")).1;
    let decide = |tenant: &str| {
        let params = json!({"tenant": tenant, "state": state, "token": "another-demonstration-secret"});
        call(&server, "", PERMITS, "in-task-authorization/approve", params)
    };
    let foreign = decide("globex").await;
    assert_eq!(foreign["error"]["code"], -32_602, "{foreign}");
    let read = async || call(&server, "", "", "GetTask", json!({"tenant": "acme", "id": task["id"]})).await;
    assert_eq!(read().await["result"]["status"]["state"], "TASK_STATE_AUTH_REQUIRED");
    assert_eq!(decide("acme").await["result"]["taskId"], task["id"]);
    while read().await["result"]["status"]["state"] != "TASK_STATE_COMPLETED" {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_is_installed_for_a_tenant_changes_for_it_alone() {
    let folder = files("[admin]\ntoken_file = \"token\"\n[runtime]\nwatch = false\n", "", "");
    let server = serve(&folder).await;
    let (_, all) = admin(&server, "GET", "extensions", Value::Null).await;
    assert_eq!((&all["tenants"], &all["extensions"]), (&json!(["acme", "globex"]), &json!([])));
    let (status, added) = admin(&server, "POST", "extensions?tenant=acme", addition("t", &marked("1"), None)).await;
    assert_eq!(status, 201, "{added}");
    let uris = async |path: &str| {
        let (_, list) = admin(&server, "GET", path, Value::Null).await;
        let extensions = list["extensions"].as_array().cloned().unwrap_or_default();
        extensions.iter().map(|extension| extension["uri"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(uris("extensions?tenant=acme").await, [TEST_EXTENSION]);
    assert_eq!(uris("extensions?tenant=globex").await, [KEYS]);
    assert_eq!(uris("extensions").await, Vec::<String>::new());
    let (status, unknown) = admin(&server, "GET", "extensions?tenant=none", Value::Null).await;
    assert_eq!((status, &unknown["error"]["code"]), (404, &json!("no_tenant")));

    let metrics = server.client().get(format!("{}/metrics", server.admin_url())).bearer_auth(TOKEN);
    let metrics = metrics.send().await.expect("a reply").text().await.expect("a text");
    assert!(metrics.contains("annex_extensions_installed{tenant=\"acme\"} 1\n"), "{metrics}");
    assert!(metrics.contains("annex_extensions_installed 0\n"), "{metrics}");
    let path = format!("extensions/{}?tenant=acme", segment(TEST_EXTENSION));
    assert_eq!(admin(&server, "DELETE", &path, Value::Null).await.0, 200);
    assert_eq!(uris("extensions?tenant=acme").await, Vec::<String>::new());
}

#[tokio::test]
async fn the_files_of_tenants_are_read_again_with_the_config() {
    let folder = files("[admin]\ntoken_file = \"token\"\n[runtime]\nwatch = false\n", "", "");
    let server = serve(&folder).await;
    let write = |text: String| fs::write(folder.path().join("acme/agent.toml"), text).expect("a file");
    write(agent("acme renamed", &capable(KEYS, "", "")));
    let (status, reloaded) = admin(&server, "POST", "reload", Value::Null).await;
    assert_eq!((status, &reloaded["changed"]), (200, &json!(true)), "{reloaded}");
    assert_eq!(reloaded["needs_restart"], json!([]), "it is loaded as a whole");
    assert_eq!(answer(&say(&server, "acme", "x").await), "acme renamed remembers ");
    let (_, list) = admin(&server, "GET", "extensions?tenant=acme", Value::Null).await;
    assert_eq!(list["extensions"][0]["uri"], KEYS);

    write(agent("acme", "[server]\nlisten = \"127.0.0.1:1\""));
    let (status, refused) = admin(&server, "POST", "reload", Value::Null).await;
    assert_eq!(status, 422);
    assert!(refused.to_string().contains("agent.toml"), "{refused}");
    let ready: Value = server.get("/readyz").await.expect("a reply").json().await.expect("JSON");
    assert_eq!((&ready["impaired_tenants"], &ready["failed"]), (&json!(1), &Value::Null), "{ready}");
}

#[test]
fn a_tenant_is_refused_with_the_reason() {
    let two = "[[tenant]]\nname = \"a\"\nconfig = \"a.toml\"\n";
    let cases = [
        ("[[tenant]]\nname = \"A b\"\nconfig = \"a.toml\"\n", "tenant.name: \"A b\" is not a name"),
        ("[[tenant]]\nname = \"\"\nconfig = \"a.toml\"\n", "tenant.name: \"\" is not a name"),
        ("[[tenant]]\nname = \"tasks\"\nconfig = \"a.toml\"\n", "is the first segment of a path of the server"),
        ("[[tenant]]\nname = \"livez\"\nconfig = \"a.toml\"\n", "is the first segment of a path of the server"),
        (&format!("{two}{two}"), "is the name of an earlier [[tenant]] too"),
        (&format!("{two}[tenant.quota]\nturns = 0\n"), "tenant.quota.turns: must be at least 1"),
        (
            &format!("{two}[tenant.quota]\nturns = 0\ncaller = {{ tokens_per_day = 0 }}\n"),
            "tenant.quota.caller.tokens_per_day: must be at least 1",
        ),
        (&format!("{two}[tenant.quota]\nrequest_per_second = 9\n"), "did you mean `requests_per_second`?"),
        ("[[tenant]]\nname = \"a\"\nconfig = \"a.toml\"\nagent = 1\n", "tenant.agent: unknown key"),
        (
            "[tasks]\nlist_all_anonymous = true\n[[tenant]]\nname = \"a\"\nconfig = \"a.toml\"\n",
            "shows tasks of all tenants",
        ),
    ];
    for (tenants, reason) in cases {
        let error = Config::parse("annex.toml".as_ref(), &agent("n", tenants)).expect_err(reason).to_string();
        assert!(error.contains(reason) && error.contains("annex.toml"), "{error}");
    }
    let called_by = |caller: &str, auth: &str| {
        let config = agent("n", &format!("{two}callers = [\"bob\", {caller:?}]\n{auth}"));
        Config::parse("annex.toml".as_ref(), &config).map(drop).map_err(|error| error.to_string())
    };
    let refused = called_by("adda", &api_keys()).expect_err("nobody is adda");
    let reason = "tenant.callers: \"adda\" is the principal of no [[auth.api_key]]; did you mean \"ada\"?";
    assert!(refused.contains(reason), "{refused}");
    let jwt = "[auth.jwt]\nissuer = \"https://i.example\"\naudience = [\"a\"]\njwks_file = \"keys.json\"\n";
    for (caller, auth) in [("ada", api_keys()), ("https://i.example#adda", format!("{}{jwt}", api_keys()))] {
        assert_eq!(called_by(caller, &auth), Ok(()), "{caller}");
    }
}
