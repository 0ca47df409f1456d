//! The usage of a tenant survives unloading the tenant.

use std::fs;

use annex_runtime::Digest;
use annex_test_support::{COMMAND_KEY, TEST_EXTENSION, TestConfig, TestServer, until};
use axum::http::header;
use futures::future::join_all;
use serde_json::{Value, json};

use super::added::{add, ask, change, open, say_as};
use super::{agent, call, files, message, serve};
use crate::auth::ADA;
use crate::installation::marked;

/// The quota that refuses the answer.
fn quota(body: &Value) -> Option<&str> {
    let info = &body["error"]["data"][0];
    (info["reason"] == "QUOTA_EXCEEDED").then(|| info["metadata"]["quota"].as_str()).flatten()
}

async fn loaded(server: &TestServer, name: &str) -> bool {
    ask(server, "GET", &format!("tenants/{name}"), &[], Value::Null).await.1["loaded"] == true
}

/// Has hooli let go by asking for another tenant, where one is kept loaded.
async fn let_go(server: &TestServer) {
    until("another takes its place", async || {
        assert_eq!(quota(&say_as(server, ADA, "other", "x").await), None);
        !loaded(server, "hooli").await
    })
    .await;
}

#[tokio::test]
async fn the_cpu_time_that_a_tenant_owes_is_owed_when_it_was_let_go_or_changed() {
    let folder = open("max_loaded = 1\ncomponents = [\"x.wasm\"]\n");
    fs::write(folder.path().join("x.wasm"), marked("x")).expect("a file");
    let server = serve(&folder).await;
    let text = |name: &str, quota: &str| {
        let extension = format!("[[extension]]\ncomponent = \"{}\"\n{quota}", Digest::of(&marked("x")));
        agent(name, &extension)
    };
    let limited = "[quota]\ncpu_ms_per_second = 1\n";
    let tag = add(&server, "hooli", &text("hooli", limited)).await;
    add(&server, "other", &agent("other", "")).await;
    let work = async || {
        let mut params = message("hooli", "x");
        params["message"]["metadata"] = json!({COMMAND_KEY: "loop 4000000"});
        call(&server, ADA, TEST_EXTENSION, "SendMessage", params).await
    };
    let list = async || {
        let listed = json!({"tenant": "hooli", "contextId": "none"});
        call(&server, ADA, "", "ListTasks", listed).await
    };
    // All of this is charged when the tenant is asked for something again, and it is not loaded any more then.
    join_all((0..8).map(|_| work())).await;
    let_go(&server).await;
    assert_eq!(quota(&list().await), Some("cpu_ms_per_second"));

    let (status, _, tag) = change(&server, "hooli", &tag, json!({"config": text("pied piper", limited)})).await;
    assert_eq!((status, quota(&list().await)), (200, Some("cpu_ms_per_second")), "its text is another");
    // What it owes comes at the pace of the limits that it has now.
    let wide = text("pied piper", "[quota]\ncpu_ms_per_second = 1000000\n");
    let (status, _, _) = change(&server, "hooli", &tag, json!({"config": wide})).await;
    assert_eq!((status, list().await["result"]["totalSize"].as_u64()), (200, Some(0)));
}

#[tokio::test]
async fn what_a_tenant_has_stored_is_counted_before_it_is_served_again() {
    let folder = open("max_loaded = 1\n");
    let server = serve(&folder).await;
    add(&server, "hooli", &agent("hooli", "[quota]\nsessions = 1\n")).await;
    add(&server, "other", &agent("other", "")).await;
    let begin = async |context: &str| {
        let mut params = message("hooli", "x");
        params["message"]["contextId"] = json!(context);
        call(&server, ADA, "", "SendMessage", params).await
    };
    assert_eq!(quota(&begin("first").await), None);
    for round in 0..3 {
        let_go(&server).await;
        let refused = begin(&format!("second-{round}")).await;
        assert_eq!(quota(&refused), Some("sessions"), "{refused}");
    }
    assert_eq!(quota(&begin("first").await), None);
}

#[tokio::test]
async fn turns_that_an_earlier_text_began_count_for_the_tenant() {
    let folder = open("");
    let server = serve(&folder).await;
    let rule =
        "[[agent.model.scripted.rules]]\nwhen = \"^long$\"\nanswer = \"one two\"\nchunks = 2\ndelay_ms = 60000\n";
    let text = |name: &str| {
        let agent = TestConfig::template("").set("card.name", name);
        agent.with(rule).with("[quota]\nturns = 1\n").toml()
    };
    let tag = add(&server, "hooli", &text("hooli")).await;
    let mut params = message("hooli", "long");
    params["configuration"] = json!({"returnImmediately": true});
    let begun = call(&server, ADA, "", "SendMessage", params).await;
    let task = begun["result"]["task"]["id"].as_str().unwrap_or_else(|| unreachable!("{begun}"));
    let (status, _, _) = change(&server, "hooli", &tag, json!({"config": text("pied piper")})).await;
    let refused = say_as(&server, ADA, "hooli", "x").await;
    assert_eq!((status, quota(&refused)), (200, Some("turns")), "{refused}");
    let params = json!({"tenant": "hooli", "id": task});
    call(&server, ADA, "", "CancelTask", params).await;
    while quota(&say_as(&server, ADA, "hooli", "x").await).is_some() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn reads_of_a_card_are_counted_and_take_nothing_from_the_tenant_s_callers() {
    let quota_of_one = "[tenant.quota]\nrequests_per_second = 1\n";
    let folder = files("[admin]\ntoken_file = \"token\"\n[tenants]\nmax_loaded = 1\n", quota_of_one, "");
    let server = serve(&folder).await;
    add(&server, "hooli", &agent("hooli", "[quota]\nrequests_per_second = 1\n")).await;
    for tenant in ["acme", "hooli"] {
        let card = async || server.get(&format!("/{tenant}/.well-known/agent-card.json")).await.expect("a reply");
        let mut told = card().await;
        while told.status() == 200 {
            told = card().await;
        }
        assert_eq!((told.status().as_u16(), &told.headers()[header::RETRY_AFTER]), (429, &"1".parse().expect("text")));
        let text = told.text().await.expect("a text");
        assert!(text.contains("requests_per_second"), "{text}");
        let params = json!({"tenant": tenant, "contextId": "none"});
        let listed = call(&server, ADA, "", "ListTasks", params).await;
        assert_eq!(listed["result"]["totalSize"], 0, "{listed}");
    }
    // That of the config itself has no quota.
    for _ in 0..20 {
        assert_eq!(server.get("/.well-known/agent-card.json").await.expect("a reply").status(), 200);
    }
}
