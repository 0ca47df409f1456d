//! The costs of a tenant's text: most of them are known when the text is stored. Later costs delay no other tenant and
//! count for this one.

use std::fs;

use annex_test_support::{TestConfig, TestServer};
use serde_json::{Value, json};

use super::added::{add, ask, code, open, reason};
use super::{agent, answer, call, files, message, say, serve};
use crate::auth::ADA;
use crate::installation::admin;

/// A template agent whose rules are searched for the longest that a message of `LETTERS` may take, and then do not apply.
fn costly() -> String {
    let rule = "[[agent.model.scripted.rules]]\nwhen = \"[ab]*a[ab]{100}[xy]\"\nanswer = \"\"\n";
    TestConfig::template("i").with(&rule.repeat(40)).toml()
}

const LETTERS: usize = 30_000;

/// Pseudo-random letters that do not compress.
fn letters() -> String {
    let mut number = 12_345_u64;
    let letter = |_| {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if number >> 63 == 0 { 'a' } else { 'b' }
    };
    (0..LETTERS).map(letter).collect()
}

async fn state(server: &TestServer, tenant: &str, task: &str) -> Value {
    let read = call(server, ADA, "", "GetTask", json!({"tenant": tenant, "id": task})).await;
    read["result"]["status"]["state"].clone()
}

#[tokio::test]
async fn neighbours_are_served_while_the_costliest_message_of_a_tenant_is_worked_on_which_ends_with_its_task() {
    // With more tenants the patterns would be more than the share of one.
    let server = serve(&open("max_loaded = 20\n")).await;
    add(&server, "costly", &costly()).await;
    add(&server, "fine", &agent("fine", "")).await;
    let mut params = message("costly", &letters());
    params["configuration"] = json!({"returnImmediately": true});
    let begun = call(&server, ADA, "", "SendMessage", params).await;
    let task = begun["result"]["task"]["id"].as_str().unwrap_or_else(|| unreachable!("{begun}")).to_owned();
    // This server has one thread: it would answer nobody if that worked on the message.
    assert_eq!(answer(&call(&server, ADA, "", "SendMessage", message("fine", "x")).await), "fine remembers ");
    assert_eq!(server.get("/livez").await.expect("a reply").status().as_u16(), 200);
    let now = state(&server, "costly", &task).await;
    assert!(now == "TASK_STATE_WORKING" || now == "TASK_STATE_SUBMITTED", "{now}");
    let cancelled = call(&server, ADA, "", "CancelTask", json!({"tenant": "costly", "id": task})).await;
    assert_eq!(cancelled["result"]["status"]["state"], "TASK_STATE_CANCELED", "{cancelled}");
}

#[tokio::test]
async fn what_the_agent_of_a_tenant_takes_of_the_cores_counts_against_its_quota() {
    let folder = files("[admin]\ntoken_file = \"token\"\n", "[tenant.quota]\ncpu_ms_per_second = 1\n", "");
    fs::write(folder.path().join("acme/agent.toml"), costly()).expect("a file");
    let server = serve(&folder).await;
    // A tenth of what is permitted is more than the quota by far.
    let letters = letters();
    let sent = say(&server, "acme", &letters[..LETTERS / 10]).await;
    assert_eq!(answer(&sent), "nothing matched");
    let refused = say(&server, "acme", "x").await;
    assert_eq!(refused["error"]["data"][0]["metadata"]["quota"], "cpu_ms_per_second", "{refused}");
    assert!(answer(&say(&server, "globex", "x").await).contains("remembers"), "others do not notice");
}

#[tokio::test]
async fn a_text_that_can_never_be_loaded_is_refused_when_it_is_put_with_the_key_and_the_reason() {
    let secrets = "hosts = [\"127.0.0.1\"]\nsecrets = { lent = { env = \"PATH\" }, missing = { env = \"NOT_SET_ANYWHERE\" }, \
                   pem = { file = \"pem\" } }\n";
    let folder = open(secrets);
    fs::write(folder.path().join("pem"), "no PEM").expect("a file");
    let server = serve(&folder).await;
    let upstream = |more: &str| {
        format!(
            "[agent]\nkind = \"upstream\"\nname = \"a\"\ncard = \"http://127.0.0.1:1\"\n[agent.credentials]\n{more}"
        )
    };
    let rule = |when: &str| agent("x", &format!("[[agent.model.scripted.rules]]\nwhen = {when:?}\nanswer = \"y\""));
    let mcp = "[[agent.mcp]]\nname = \"m\"\nurl = \"http://127.0.0.1:1\"\nsecret = \"missing\"";
    let texts = [
        (upstream("secret = \"lent\"\nheader = \"x\\r\\ny\""), "credentials.header"),
        (upstream("secret = \"lent\"\nheader = \"host\""), "set by the protocol itself"),
        (upstream("secret = \"missing\""), "NOT_SET_ANYWHERE"),
        (agent("x", mcp), "NOT_SET_ANYWHERE"),
        (agent("x", "[card.signing]\nkid = \"k\"\nsecret = \"pem\""), "card.signing"),
        (agent("x", "[card.signing]\nkid = \"k\"\nsecret = \"missing\""), "card.signing"),
        (rule("("), "rule 4: `when` is not a regular expression"),
        (rule(&r"\pL".repeat(80_000)), "bytes of patterns together; at most 8192 are allowed"),
        (rule(&r"\pL".repeat(400)), "rule 4: `when` has 1200 bytes; at most 1024 are allowed"),
        (rule("[ab]*a[ab]{30000}c"), "rule 4: `when` takes more than 262144 bytes"),
        (agent("x", &"[[extension]]\ncomponent = \"timestamp\"\n".repeat(65)), "at most 64"),
    ];
    for (text, expected) in texts {
        let fields = [("if-none-match", "*")];
        let (status, body, _) = ask(&server, "PUT", "tenants/hooli", &fields, json!({"config": text})).await;
        assert_eq!((status, code(&body)), (422, &json!("invalid_config")), "{expected}: {body}");
        assert!(reason(&body).contains(expected), "{expected}: {body}");
    }
    let (status, list) = admin(&server, "GET", "tenants", Value::Null).await;
    assert_eq!((status, list["tenants"].as_array().map(Vec::len)), (200, Some(2)), "nothing was added: {list}");
}
