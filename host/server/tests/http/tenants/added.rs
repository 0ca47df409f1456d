//! Tenants that are added while the server runs.

use std::fmt::Write as _;
use std::fs;

use annex_runtime::Digest;
use annex_test_support::{TEST_EXTENSION, TestServer};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{agent, answer, call, files, message, refused, say, serve};
use crate::auth::{ADA, BOB, api_keys};
use crate::installation::{TOKEN, addition, admin, marked};

pub(super) const ADMIN: &str = "[admin]\ntoken_file = \"token\"\n[runtime]\nwatch = false\n";

/// The config of a server to which tenants can be added; `more` is for its `[tenants]`.
pub(super) fn open(more: &str) -> TempDir {
    files(&format!("{ADMIN}{}\n[tenants]\n{more}", api_keys()), "", "")
}

/// A request of the admin API with header fields. The path is below `/v1/`.
pub(crate) async fn ask(
    server: &TestServer,
    method: &str,
    path: &str,
    fields: &[(&str, &str)],
    body: Value,
) -> (u16, Value, String) {
    let method = method.parse().expect("a method");
    let mut request = server.client().request(method, format!("{}/v1/{path}", server.admin_url())).bearer_auth(TOKEN);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let request = if body.is_null() { request } else { request.body(body.to_string()) };
    let reply = request.send().await.expect("a reply");
    let tag = reply.headers().get("etag").map(|tag| tag.to_str().expect("text").to_owned()).unwrap_or_default();
    (reply.status().as_u16(), reply.json().await.expect("JSON"), tag)
}

/// Adds a tenant and returns its tag.
pub(crate) async fn add(server: &TestServer, name: &str, text: &str) -> String {
    let fields = [("if-none-match", "*")];
    let (status, body, tag) = ask(server, "PUT", &format!("tenants/{name}"), &fields, json!({"config": text})).await;
    assert_eq!(status, 201, "{body}");
    tag
}

pub(super) async fn change(server: &TestServer, name: &str, tag: &str, body: Value) -> (u16, Value, String) {
    ask(server, "PUT", &format!("tenants/{name}"), &[("if-match", tag)], body).await
}

pub(super) async fn say_as(server: &TestServer, key: &str, tenant: &str, text: &str) -> Value {
    call(server, key, "", "SendMessage", message(tenant, text)).await
}

pub(super) fn code(body: &Value) -> &Value {
    &body["error"]["code"]
}

pub(crate) fn reason(body: &Value) -> &str {
    body["error"]["message"].as_str().unwrap_or_else(|| unreachable!("{body}"))
}

#[tokio::test]
async fn a_tenant_is_added_changed_suspended_and_removed_while_the_server_runs() {
    let folder = open("");
    let server = serve(&folder).await;
    let card = async || server.get("/hooli/.well-known/agent-card.json").await.expect("a reply").status().as_u16();
    assert_eq!((card().await, refused(&say_as(&server, ADA, "hooli", "x").await).1), (404, &json!("tenant")));
    let tag = add(&server, "hooli", &agent("hooli", "")).await;
    assert_eq!(card().await, 200);
    assert_eq!(answer(&say_as(&server, ADA, "hooli", "x").await), "hooli remembers ");

    let (status, shown, same) = ask(&server, "GET", "tenants/hooli", &[], Value::Null).await;
    assert_eq!((status, &same), (200, &tag), "{shown}");
    assert_eq!(shown["config"], agent("hooli", ""));
    assert_eq!(
        (&shown["source"], &shown["state"], &shown["loaded"]),
        (&json!("added"), &json!("active"), &json!(true))
    );

    let (status, sessions) = admin(&server, "GET", "sessions?tenant=hooli", Value::Null).await;
    assert_eq!((status, sessions["sessions"].as_array().map(Vec::len)), (200, Some(1)), "{sessions}");
    let (status, changed, tag) = change(&server, "hooli", &tag, json!({"config": agent("pied piper", "")})).await;
    assert_eq!(status, 200, "{changed}");
    assert_eq!(answer(&say_as(&server, ADA, "hooli", "x").await), "pied piper remembers hooli remembers ");

    let (status, suspended, tag) = change(&server, "hooli", &tag, json!({"state": "suspended"})).await;
    assert_eq!((status, &suspended["config"]), (200, &json!(agent("pied piper", ""))), "its text stays");
    assert_eq!((code(&say_as(&server, ADA, "hooli", "x").await), card().await), (&json!(-32_000), 503));
    let (status, _, tag) = change(&server, "hooli", &tag, json!({"state": "active"})).await;
    assert_eq!((status, card().await), (200, 200));

    let (status, removed, _) = ask(&server, "DELETE", "tenants/hooli", &[("if-match", &tag)], Value::Null).await;
    assert_eq!((status, &removed["removed"]), (200, &json!("hooli")), "{removed}");
    assert_eq!((card().await, refused(&say_as(&server, ADA, "hooli", "x").await).1), (404, &json!("tenant")));
    assert_eq!(ask(&server, "GET", "tenants/hooli", &[], Value::Null).await.0, 404);
}

#[tokio::test]
async fn a_change_names_the_change_before_it() {
    let folder = open("");
    let server = serve(&folder).await;
    let text = json!({"config": agent("hooli", "")});
    let put = async |fields: &[(&str, &str)]| {
        let (status, body, _) = ask(&server, "PUT", "tenants/hooli", fields, text.clone()).await;
        (status, reason(&body).to_owned())
    };
    let (status, reason_of_none) = put(&[]).await;
    assert_eq!(status, 428);
    assert!(reason_of_none.contains("If-None-Match: *") && reason_of_none.contains("ETag"), "{reason_of_none}");
    assert_eq!(ask(&server, "DELETE", "tenants/hooli", &[], Value::Null).await.0, 428);
    assert_eq!(put(&[("if-match", "\"1\"")]).await.0, 412, "there is none");
    let tag = add(&server, "hooli", &agent("hooli", "")).await;
    let (status, stale) = put(&[("if-none-match", "*")]).await;
    assert_eq!(status, 412);
    assert!(stale.contains("hooli") && stale.contains("is there"), "{stale}");
    let (_, _, newer) = change(&server, "hooli", &tag, json!({"state": "suspended"})).await;
    let (status, stale) = put(&[("if-match", &tag)]).await;
    assert_eq!(status, 412);
    assert!(stale.contains(newer.trim_matches('"')), "{newer}: {stale}");
    let (status, stale, _) = ask(&server, "DELETE", "tenants/hooli", &[("if-match", &tag)], Value::Null).await;
    assert_eq!((status, code(&stale)), (412, &json!("precondition_failed")));
    for wrong in ["*", "2", "W/\"2\"", "\"x\"", "\"1\", \"2\""] {
        assert_eq!(put(&[("if-match", wrong)]).await.0, 400, "{wrong}");
    }
    assert_eq!(put(&[("if-match", &newer), ("if-none-match", "*")]).await.0, 400);
}

#[tokio::test]
async fn tenants_of_the_config_come_first_and_are_not_changed_here() {
    let folder = open("");
    let server = serve(&folder).await;
    for (method, fields) in
        [("PUT", [("if-none-match", "*")]), ("PUT", [("if-match", "\"1\"")]), ("DELETE", [("if-match", "\"1\"")])]
    {
        let (status, body, _) = ask(&server, method, "tenants/acme", &fields, json!({"config": agent("x", "")})).await;
        assert_eq!((status, code(&body)), (409, &json!("tenant_of_config")), "{body}");
        assert!(reason(&body).contains("change it there"), "{body}");
    }
    for number in 0..3 {
        add(&server, &format!("t-{number}"), &agent("t", "")).await;
    }
    let (_, first, _) = ask(&server, "GET", "tenants?limit=2", &[], Value::Null).await;
    let names = |list: &Value| {
        list["tenants"].as_array().expect("a list").iter().map(|tenant| tenant["name"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&first), ["acme", "globex", "t-0", "t-1"]);
    assert_eq!((&first["tenants"][0]["source"], &first["tenants"][2]["loaded"]), (&json!("config"), &json!(false)));
    let next = first["next"].as_str().expect("another list");
    let (_, last, _) = ask(&server, "GET", &format!("tenants?limit=2&after={next}"), &[], Value::Null).await;
    assert_eq!((names(&last), &last["next"]), (vec![json!("t-2")], &Value::Null));
    let (_, shown, _) = ask(&server, "GET", "tenants/acme", &[], Value::Null).await;
    assert_eq!((&shown["source"], &shown["config"], &shown["rev"]), (&json!("config"), &Value::Null, &Value::Null));
}

#[tokio::test]
async fn a_server_without_the_table_takes_no_tenants() {
    let folder = files(ADMIN, "", "");
    let server = serve(&folder).await;
    let fields = [("if-none-match", "*")];
    let (status, body, _) = ask(&server, "PUT", "tenants/hooli", &fields, json!({"config": agent("x", "")})).await;
    assert_eq!((status, code(&body)), (409, &json!("no_added_tenants")));
    assert!(reason(&body).contains("[tenants]"), "{body}");
    let (status, list, _) = ask(&server, "GET", "tenants", &[], Value::Null).await;
    assert_eq!((status, list["tenants"].as_array().map(Vec::len)), (200, Some(2)));
}

#[tokio::test]
async fn a_text_that_reaches_for_more_than_it_may_is_refused_and_changes_nothing() {
    let folder = open("secrets = { lent = { env = \"HOME\" } }\n");
    let server = serve(&folder).await;
    fs::write(folder.path().join("x.wasm"), marked("x")).expect("a file");
    let path = folder.path().join("x.wasm");
    let unknown = Digest::of(b"x").to_string();
    let upstream = |card: &str| format!("[agent]\nkind = \"upstream\"\nname = \"a\"\ncard = {card:?}\n");
    let hostile = [
        (agent("x", "[card.signing]\nkid = \"k\"\nkey_file = \"token\""), "key_file"),
        (agent("x", "[card.signing]\nkid = \"k\"\nkey_env = \"HOME\""), "key_env"),
        (agent("x", "[[agent.mcp]]\nname = \"m\"\ncommand = \"sh\"\nargs = [\"-c\", \"id\"]"), "args"),
        (agent("x", &format!("[[extension]]\ncomponent = {path:?}")), "extension.component"),
        (agent("x", "[[extension]]\ncomponent = \"../x.wasm\""), "extension.component"),
        (agent("x", &format!("[[extension]]\ncomponent = {unknown:?}")), "tenants.components"),
        (
            agent(
                "x",
                "[[extension]]\ncomponent = \"timestamp\"\n[extension.grants]\nsecrets = { S = { env = \"HOME\" } }",
            ),
            "a text in quotes",
        ),
        (
            agent("x", "[[extension]]\ncomponent = \"timestamp\"\n[extension.grants]\nsecrets = { S = \"other\" }"),
            "[tenants.secrets]",
        ),
        (agent("x", "[[extension]]\ncomponent = \"timestamp\"\n[extension.limits]\nmemory_mib = 65"), "memory_mib"),
        (upstream(&format!("{}/", server.admin_url())), "tenants.hosts"),
        (upstream("http://user:secret@127.0.0.1/"), "a user or a password"),
        (agent("x", "[tasks]\ndata_dir = \"/tmp\""), "tasks: unknown key"),
        ("[card]\nname = \"x\"".to_owned(), "agent"),
        (agent("x", "[card.extended]\n[server]\nlisten = \"0.0.0.0:1\""), "server: unknown key"),
    ];
    for (text, expected) in hostile {
        let fields = [("if-none-match", "*")];
        let (status, body, _) = ask(&server, "PUT", "tenants/hooli", &fields, json!({"config": text})).await;
        assert_eq!((status, code(&body)), (422, &json!("invalid_config")), "{text}: {body}");
        assert!(reason(&body).contains(expected), "{expected}: {body}");
    }
    for name in ["Hooli", "v1", "tasks", "a2a", "livez", "readyz", "a%2Fb", "%2e%2e%2fx", "%00"] {
        let fields = [("if-none-match", "*")];
        let (status, body, _) =
            ask(&server, "PUT", &format!("tenants/{name}"), &fields, json!({"config": agent("x", "")})).await;
        assert_eq!((status, code(&body)), (400, &json!("invalid_name")), "{name}: {body}");
    }
    for (body, expected) in [
        (json!({"config": agent("x", ""), "name": "y"}), 400),
        (json!({"state": "active"}), 400),
        (json!({"config": "#".repeat(300 << 10)}), 422),
        (json!({"config": "#".repeat(2 << 20)}), 413),
    ] {
        let (status, refused, _) = ask(&server, "PUT", "tenants/hooli", &[("if-none-match", "*")], body).await;
        assert_eq!(status, expected, "{refused}");
    }
    assert_eq!(ask(&server, "GET", "tenants/hooli", &[], Value::Null).await.0, 404);
    let unauthenticated =
        server.client().get(format!("{}/v1/tenants", server.admin_url())).send().await.expect("a reply");
    assert_eq!(unauthenticated.status().as_u16(), 401);
}

#[tokio::test]
async fn a_text_names_components_by_digest_and_its_extensions_are_changed_with_it() {
    let folder = open("components = [\"x.wasm\"]\n");
    fs::write(folder.path().join("x.wasm"), marked("x")).expect("a file");
    let server = serve(&folder).await;
    let digest = Digest::of(&marked("x"));
    let text = agent("hooli", &format!("[[extension]]\ncomponent = \"{digest}\""));
    add(&server, "hooli", &text).await;
    let body = call(&server, ADA, TEST_EXTENSION, "SendMessage", message("hooli", "x")).await;
    assert_eq!(body["result"]["task"]["artifacts"][0]["extensions"], json!([TEST_EXTENSION]), "{body}");
    let (_, list) = admin(&server, "GET", "extensions?tenant=hooli", Value::Null).await;
    assert_eq!(list["extensions"][0]["digest"], json!(digest.to_string()), "{list}");
    let (status, refused) = admin(&server, "POST", "extensions?tenant=hooli", addition("t", &marked("1"), None)).await;
    assert_eq!((status, code(&refused)), (409, &json!("tenant_was_added")));
    assert!(reason(&refused).contains("PUT /v1/tenants/hooli"), "{refused}");

    // Another file in its place is not what the text names.
    fs::write(folder.path().join("x.wasm"), marked("other")).expect("a file");
    let (status, refused, _) =
        ask(&server, "PUT", "tenants/other", &[("if-none-match", "*")], json!({"config": text})).await;
    assert_eq!(status, 422, "{refused}");
}

#[tokio::test]
async fn one_that_cannot_be_loaded_is_refused_alone_and_its_reason_is_the_operators() {
    let folder = open("components = [\"x.wasm\"]\n");
    fs::write(folder.path().join("x.wasm"), marked("x")).expect("a file");
    let server = serve(&folder).await;
    let digest = Digest::of(&marked("x")).to_string();
    let tag = add(&server, "hooli", &agent("hooli", &format!("[[extension]]\ncomponent = {digest:?}"))).await;
    fs::write(folder.path().join("x.wasm"), b"no component").expect("a file");
    add(&server, "fine", &agent("fine", "")).await;
    let failing = say_as(&server, ADA, "hooli", "x").await;
    assert_eq!(failing["error"]["data"][0]["reason"], "UNAVAILABLE", "{failing}");
    assert!(!failing.to_string().contains("wasm"), "{failing}");
    assert_eq!(answer(&say_as(&server, ADA, "fine", "x").await), "fine remembers ");
    let (_, shown, _) = ask(&server, "GET", "tenants/hooli", &[], Value::Null).await;
    assert!(shown["failure"].as_str().is_some_and(|failure| failure.contains(&digest)), "{shown}");
    let ready: Value = server.get("/readyz").await.expect("a reply").json().await.expect("JSON");
    assert_eq!(ready["impaired_tenants"], 1);
    let (status, _, _) = change(&server, "hooli", &tag, json!({"config": agent("hooli", "")})).await;
    assert_eq!((status, answer(&say_as(&server, ADA, "hooli", "x").await)), (200, "hooli remembers "));
}

#[tokio::test]
async fn callers_of_an_added_tenant_are_those_of_its_text() {
    let folder = open("");
    let server = serve(&folder).await;
    add(&server, "hooli", &format!("callers = [\"ada\"]\n{}", agent("hooli", "[quota]\nturns = 1"))).await;
    let foreign = say_as(&server, BOB, "hooli", "x").await;
    let unknown = say_as(&server, BOB, "hoolo", "x").await;
    assert_eq!(foreign.to_string(), unknown.to_string().replace("hoolo", "hooli"));
    let mut params = message("hooli", "slow");
    params["configuration"] = json!({"returnImmediately": true});
    let slow = call(&server, ADA, "", "SendMessage", params).await;
    assert!(slow["result"]["task"]["id"].is_string(), "{slow}");
    assert_eq!(code(&say_as(&server, ADA, "hooli", "x").await), &json!(-32_000), "its turns are counted");
}

#[tokio::test]
async fn a_tenant_with_a_turn_is_not_let_go_and_a_removed_one_s_turns_are_cancelled() {
    let folder = open("max_loaded = 1\nidle_seconds = 1\n");
    let server = serve(&folder).await;
    let tag = add(&server, "hooli", &agent("hooli", "")).await;
    add(&server, "fine", &agent("fine", "")).await;
    let begin = async || {
        let mut params = message("hooli", "slow");
        params["configuration"] = json!({"returnImmediately": true});
        let begun = call(&server, ADA, "", "SendMessage", params).await;
        begun["result"]["task"]["id"].as_str().unwrap_or_else(|| unreachable!("{begun}")).to_owned()
    };
    let loaded =
        async |name: &str| ask(&server, "GET", &format!("tenants/{name}"), &[], Value::Null).await.1["loaded"].clone();
    let task = begin().await;
    assert_eq!(answer(&say_as(&server, ADA, "fine", "x").await), "fine remembers ");
    assert_eq!(loaded("hooli").await, true, "the one that is used stays");
    let state = async |task: &str| {
        let read = call(&server, ADA, "", "GetTask", json!({"tenant": "hooli", "id": task})).await;
        read["result"]["status"]["state"].clone()
    };
    while state(&task).await != "TASK_STATE_COMPLETED" {
        tokio::task::yield_now().await;
    }
    // Its turn is over, so that it goes.
    while loaded("hooli").await == true {
        tokio::task::yield_now().await;
    }
    let task = begin().await;
    ask(&server, "DELETE", "tenants/hooli", &[("if-match", &tag)], Value::Null).await;
    // Its tasks are there for who has its name again.
    add(&server, "hooli", &agent("hooli", "")).await;
    while state(&task).await == "TASK_STATE_WORKING" || state(&task).await == "TASK_STATE_SUBMITTED" {
        tokio::task::yield_now().await;
    }
    assert_eq!(state(&task).await, "TASK_STATE_CANCELED");
}

#[tokio::test]
async fn tenants_of_the_config_are_added_changed_and_removed_when_it_is_read_again() {
    let folder = files(ADMIN, "", "");
    let server = serve(&folder).await;
    let tenant = |name: &str, more: &str| format!("[[tenant]]\nname = \"{name}\"\nconfig = \"{name}.toml\"\n{more}\n");
    let write = |name: &str, text: String| fs::write(folder.path().join(name), text).expect("a file");
    write("hooli.toml", agent("hooli", ""));
    write("globex.toml", agent("globex of another file", ""));
    let mut config = agent("main", ADMIN);
    write!(config, "{}{}", tenant("hooli", ""), tenant("globex", "[tenant.quota]\nturns = 3")).expect("a text");
    write("annex.toml", config);
    let (status, reloaded) = admin(&server, "POST", "reload", Value::Null).await;
    assert_eq!((status, &reloaded["needs_restart"], &reloaded["failed"]), (200, &json!([]), &json!([])), "{reloaded}");
    assert_eq!(reloaded["changed"], true);
    assert_eq!(answer(&say(&server, "hooli", "x").await), "hooli remembers ");
    assert_eq!(answer(&say(&server, "globex", "x").await), "globex of another file remembers ");
    assert_eq!(refused(&say(&server, "acme", "x").await).1, &json!("tenant"));
    assert_eq!(server.get("/acme/.well-known/agent-card.json").await.expect("a reply").status().as_u16(), 404);

    // A file that is changed counts whatever has changed in it; one that is broken changes nothing.
    write("hooli.toml", agent("hooli later", ""));
    write("globex.toml", "broken".to_owned());
    let (status, _) = admin(&server, "POST", "reload", Value::Null).await;
    assert_eq!(status, 422);
    assert_eq!(answer(&say(&server, "hooli", "y").await), "hooli later remembers hooli remembers ");
    assert!(answer(&say(&server, "globex", "y").await).contains("globex of another file"));
}

/// Counts connections.
async fn listener() -> (u16, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let seen = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&seen);
    tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    });
    (port, seen)
}

#[tokio::test]
async fn a_name_that_is_lent_and_leads_into_the_network_is_not_called_by_any_kind_of_agent() {
    let folder = open("hosts = [\"localhost\"]\n");
    let server = serve(&folder).await;
    let (port, seen) = listener().await;
    let template =
        "[card]\nname = \"n\"\ndescription = \"d\"\n[agent]\nkind = \"template\"\nname = \"a\"\ninstruction = \"i\"\n";
    let texts = [
        format!("[agent]\nkind = \"upstream\"\nname = \"a\"\nstart_seconds = 1\ncard = \"http://localhost:{port}/\"\n"),
        format!("{template}[agent.model.generative]\nmodel = \"m\"\nendpoint = \"http://localhost:{port}/v1\"\n"),
        format!(
            "{template}[agent.model.scripted]\nfallback = \"f\"\n[[agent.mcp]]\nname = \"m\"\nurl = \"http://localhost:{port}/\"\n"
        ),
    ];
    for (number, text) in texts.iter().enumerate() {
        let name = format!("inner{number}");
        add(&server, &name, text).await;
        let answered = say_as(&server, ADA, &name, "hello").await;
        let state = &answered["result"]["task"]["status"]["state"];
        assert!(answered["error"].is_object() || state == "TASK_STATE_FAILED", "{answered}");
    }
    assert_eq!(seen.load(std::sync::atomic::Ordering::Relaxed), 0, "somebody there was connected to");
}
