//! Cards with entries that extensions declare again.

use annex_auth::{Jwks, signature};
use annex_components::STEERING_GRANTS;
use annex_test_support::{TestConfig, TestServer, until};
use serde_json::{Value, json};

use crate::auth::{ADA, api_keys};
use crate::installation::{ADMIN, CARD, Installation, admin, ready, segment};
use crate::output::{STEERING, state};

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../auth/tests/auth/fixtures");

/// An extension whose hook `live-card` executes `live`, given as TOML. `behaviour` has commands for other hooks.
fn declaring(live: &str, behaviour: &str) -> String {
    format!(
        r#"
        [[extension]]
        component = {:?}
        activate = "always"
        parameters = {{ live = {live}, behaviour = {{ {behaviour} }} }}
        [extension.grants]
        caller = {{ principal = true }}
        live-card = {{ at_least_seconds = 1 }}
        {STEERING_GRANTS}
        "#,
        annex_test_support::component("test-steering"),
    )
}

/// A card as a client gets it.
#[derive(Debug, PartialEq)]
struct ServedCard {
    etag: String,
    caching: String,
    text: String,
}

impl ServedCard {
    async fn of(server: &TestServer, path: &str) -> Self {
        let answer = server.get(path).await.expect("a card");
        assert_eq!(answer.status().as_u16(), 200);
        let header = |name: &str| answer.headers()[name].to_str().expect("text").to_owned();
        let (etag, caching) = (header("etag"), header("cache-control"));
        Self { etag, caching, text: answer.text().await.expect("a body") }
    }

    /// The first card on which the extension has declared its entry more than `declarations` times.
    async fn after(server: &TestServer, path: &str, declarations: u64) -> Self {
        let is_later = async || number(&Self::of(server, path).await.text) > declarations;
        until("the entry is declared again", is_later).await;
        Self::of(server, path).await
    }
}

/// How often the extension had declared its entry when it declared the one on this card.
fn number(card: &str) -> u64 {
    let card: Value = serde_json::from_str(card).expect("JSON");
    let number = card["capabilities"]["extensions"][0]["params"]["n"].as_u64();
    number.unwrap_or_else(|| unreachable!("no number: {card}"))
}

/// A server with an admin API.
async fn managed(extension: &str) -> (Installation, TestServer) {
    let installation = Installation::new();
    installation.config(&format!("{ADMIN}{extension}"));
    let server = installation.serve().await;
    (installation, server)
}

/// The last declaration, as the admin API shows it.
async fn last(server: &TestServer) -> Value {
    let (status, details) = admin(server, "GET", &format!("extensions/{}", segment(STEERING)), Value::Null).await;
    assert_eq!(status, 200, "{details}");
    details["live_card"].clone()
}

#[tokio::test]
async fn an_entry_is_declared_again_after_its_time_and_the_etag_changes() {
    let config = TestConfig::template("Say something.").with(&declaring("\"counter\"", ""));
    let server = config.start().await.expect("a server");
    let first = ServedCard::of(&server, CARD).await;
    assert_eq!(first.caching, "public, max-age=1", "the entry holds for a second");
    let later = ServedCard::after(&server, CARD, number(&first.text)).await;
    assert_ne!(first.etag, later.etag);
    let request = server.client().get(format!("{}{CARD}", server.url())).header("if-none-match", first.etag);
    assert_eq!(request.send().await.expect("an answer").status().as_u16(), 200);
}

#[tokio::test]
async fn each_card_has_the_entry_and_a_signature_over_it() {
    let config = TestConfig::template("Say something.").set("server.a2a_0_3", true).with(&format!(
        "[card.signing]\nkid = \"k1\"\nkey_file = \"{FIXTURES}/p256.pem\"\n[card.extended]\ndescription = \"All of it\"\n\
         {}\n{}",
        api_keys(),
        declaring("\"counter\"", "")
    ));
    let server = config.start().await.expect("a server");
    let get = async |path: &str| {
        let request = server.client().get(format!("{}{path}", server.url())).header("x-api-key", ADA);
        let answer = request.header("a2a-version", "1.0").send().await.expect("a card");
        answer.text().await.expect("a body")
    };
    let keys = std::fs::read_to_string(format!("{FIXTURES}/p256.pub.pem")).expect("a fixture");
    let keys = Jwks::from_pem(&keys).expect("a key");
    for path in [CARD, "/a2a/rest/extendedAgentCard"] {
        let first = number(&get(path).await);
        until("the entry is declared again", async || number(&get(path).await) > first).await;
        signature::verify(&get(path).await, &keys).expect("the signature holds");
    }
    // The card of 0.3 is made of the same entries.
    let request = async || {
        let card = server.client().get(format!("{}/a2a/rest/v1/card", server.url())).header("x-api-key", ADA);
        number(&card.send().await.expect("a card").text().await.expect("a body"))
    };
    let first = request().await;
    until("the entry is declared again", async || request().await > first).await;
}

#[tokio::test]
async fn an_unchanged_entry_changes_nothing() {
    let entry = "{ description = \"The same.\", params = { a = 1 }, seconds = 1 }";
    let signing = format!("[card.signing]\nkid = \"k1\"\nkey_file = \"{FIXTURES}/p256.pem\"\n");
    let (_files, server) = managed(&format!("{signing}{}", declaring(entry, ""))).await;
    let card = ServedCard::of(&server, CARD).await;
    let declared = last(&server).await;
    let is_declared_again = async || last(&server).await["declared_at"] != declared["declared_at"];
    until("the entry is declared again", is_declared_again).await;
    // Each signing gives another signature, so the card was not signed again.
    assert_eq!(ServedCard::of(&server, CARD).await, card);
}

#[tokio::test]
async fn an_entry_without_a_time_lets_clients_keep_the_card_as_ever() {
    let config = TestConfig::template("Say something.").with(&declaring("{ params = { a = 1 }, seconds = 0 }", ""));
    let server = config.start().await.expect("a server");
    // The extension may use keys, so it is asked once more after the load.
    let is_lasting = async || ServedCard::of(&server, CARD).await.caching == "public, max-age=60";
    until("the entry holds until the next load", is_lasting).await;
}

#[tokio::test]
async fn a_failing_declaration_leaves_the_last_entry() {
    for (command, reason) in [
        ("error-after 1", "failed in live-card"),
        ("trap-after 1", "trapped in live-card"),
        ("loop-after 1", "reached its"),
        ("big-after 1", "live-card"),
        ("bad-json-after 1", "params is not a JSON object"),
    ] {
        let (_files, server) = managed(&declaring(&format!("{command:?}"), "")).await;
        let card = ServedCard::of(&server, CARD).await;
        assert_eq!(number(&card.text), 1, "{command}");
        until("the declaration fails", async || !last(&server).await["error"].is_null()).await;
        let last = last(&server).await;
        assert!(last["error"].as_str().expect("a reason").contains(reason), "{command}: {last}");
        assert_ne!(last["failed_at"], last["declared_at"], "{command}: {last}");
        let kept = ServedCard::of(&server, CARD).await;
        assert_eq!((&kept.etag, &kept.text), (&card.etag, &card.text), "{command}");
    }
}

#[tokio::test]
async fn a_turn_pinned_to_a_version_does_not_move_with_the_card() {
    let config = TestConfig::template("The agent.").with(&declaring("\"counter\"", "before-agent = \"first\""));
    let server = config.start().await.expect("a server");
    let edition = ready(&server).await["edition"].clone();
    let waiting = server.say("prompt").context("c").send().await.expect("a reply");
    assert_eq!(state(waiting.task()), "TASK_STATE_INPUT_REQUIRED", "{}", waiting.text);
    let first = ServedCard::of(&server, CARD).await;
    ServedCard::after(&server, CARD, number(&first.text)).await;
    assert_eq!(ready(&server).await["edition"], edition, "another card is no other edition");
    let task = waiting.task()["id"].as_str().expect("an id");
    let done = server.say("prompt").field("taskId", task).send().await.expect("a reply");
    assert_eq!((state(done.task()), done.answer()), ("TASK_STATE_COMPLETED", "The agent."), "{}", done.text);
}

#[tokio::test]
async fn the_card_of_a_tenant_changes_by_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).expect("a file");
    let fixed = declaring("{ params = { n = 1 }, seconds = 1 }", "");
    let tenant = "[[tenant]]\nname = \"acme\"\nconfig = \"acme.toml\"\n";
    write("annex.toml", TestConfig::template("I").with(&format!("{fixed}{tenant}")).toml());
    write("acme.toml", TestConfig::template("I").with(&declaring("\"counter\"", "")).toml());
    let server = TestServer::from_file(&folder.path().join("annex.toml"), None).await.expect("a server");
    let own = ServedCard::of(&server, CARD).await;
    let path = format!("/acme{CARD}");
    let first = ServedCard::of(&server, &path).await;
    assert_eq!(number(&first.text), 1, "a tenant has its own keys");
    let later = ServedCard::after(&server, &path, 1).await;
    assert_ne!(first.etag, later.etag);
    assert_eq!(ServedCard::of(&server, CARD).await.etag, own.etag);
}

#[tokio::test]
async fn a_tenant_in_debt_for_cpu_time_is_not_asked_for_its_entry() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).expect("a file");
    let counting = declaring("\"counter\"", "");
    let tenant = "[[tenant]]\nname = \"acme\"\nconfig = \"acme.toml\"\n[tenant.quota]\ncpu_ms_per_second = 10\n";
    write("annex.toml", TestConfig::template("I").with(&format!("{counting}{tenant}")).toml());
    let costly = declaring("\"counter\"", "before-agent = \"loop\"");
    let limits = "[extension.limits]\ncpu_ms = 500\nwall_ms = 10000\n";
    write("acme.toml", TestConfig::template("I").with(&format!("{costly}{limits}")).toml());
    let server = TestServer::from_file(&folder.path().join("annex.toml"), None).await.expect("a server");
    let mut sent = 0;
    let mut is_refused = async || {
        sent += 1;
        let message = json!({"messageId": format!("m-{sent}"), "role": "ROLE_USER", "parts": [{"text": "x"}]});
        let params = json!({"tenant": "acme", "message": message});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params});
        let request = server.client().post(format!("{}/a2a/jsonrpc", server.url())).header("a2a-version", "1.0");
        let reply: Value = request.json(&body).send().await.expect("an answer").json().await.expect("JSON");
        reply["error"]["data"][0]["metadata"]["quota"] == "cpu_ms_per_second"
    };
    // The declarations take CPU time too, so the first message may have to wait.
    until("a message is taken", async || !is_refused().await).await;
    // The message has taken 500 ms, which is the quota of 50 seconds.
    assert!(is_refused().await, "the tenant is in debt");
    let path = format!("/acme{CARD}");
    let own = async || number(&ServedCard::of(&server, CARD).await.text);
    let of_tenant = async || number(&ServedCard::of(&server, &path).await.text);
    // A declaration that has begun before the debt may still end.
    ServedCard::after(&server, CARD, own().await).await;
    let before = of_tenant().await;
    ServedCard::after(&server, CARD, own().await + 2).await;
    assert_eq!(of_tenant().await, before, "the own agent was asked meanwhile, and the tenant was not");
}

#[tokio::test]
async fn a_new_version_of_an_extension_declares_its_entry_at_once() {
    let (files, server) = managed(&declaring("{ params = { n = 5 }, seconds = 1 }", "")).await;
    assert_eq!(number(&ServedCard::of(&server, CARD).await.text), 5);
    files.config(&format!("{ADMIN}{}", declaring("{ params = { n = 6 }, seconds = 1 }", "")));
    let reloaded = server.installer().reload().await.expect("a reload");
    assert!(reloaded.extensions_changed, "{:?}", json!(reloaded.failed));
    assert_eq!(number(&ServedCard::of(&server, CARD).await.text), 6);
}
