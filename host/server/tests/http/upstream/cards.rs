//! The card in front of an upstream, and the extensions on that card.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use annex_test_support::{STATE_INJECTION, TIMESTAMP, TestConfig, TestServer, until};
use axum::Router;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::routing::get;
use serde_json::{Value, json};

use super::{ITS_OWN, config, foreign};

async fn card(front: &TestServer) -> Value {
    front.get("/.well-known/agent-card.json").await.expect("a card").json().await.expect("JSON")
}

const EXTENSIONS: &str = "[[extension]]\ncomponent = \"timestamp\"\n[extension.grants]\nclock = true\n";

#[tokio::test]
async fn the_card_is_the_upstreams_with_addresses_and_extensions_of_this_server() {
    let declared = json!([{"uri": ITS_OWN, "description": "its own"}, {"uri": TIMESTAMP, "description": "its stamps"}]);
    let url = foreign::agent_with(false, declared, async |_| foreign::result(&foreign::message("c"))).await;
    let front = config(&url, "").with(EXTENSIONS).start().await.expect("the front starts");
    let shown = card(&front).await;
    assert_eq!((&shown["name"], &shown["version"]), (&json!("Foreign"), &json!("7")));
    assert_eq!((&shown["defaultOutputModes"], &shown["skills"][0]["id"]), (&json!(["text/html"]), &json!("s")));
    assert_eq!(shown["capabilities"]["streaming"], true, "every stream is made here");
    let uris: Vec<&Value> =
        shown["capabilities"]["extensions"].as_array().expect("extensions").iter().map(|one| &one["uri"]).collect();
    assert_eq!(uris, [TIMESTAMP, ITS_OWN], "own ones first, and no two of one URI");
    assert!(!shown.to_string().contains(&url), "{shown}");

    let overridden = "[card]\nname = \"Mine\"\nversion = \"2\"\n[[card.skill]]\nid = \"x\"\nname = \"X\"\n";
    let front = config(&url, "").with(overridden).start().await.expect("the front starts");
    let shown = card(&front).await;
    assert_eq!((&shown["name"], &shown["version"]), (&json!("Mine"), &json!("2")));
    assert_eq!((&shown["description"], &shown["skills"][0]["id"]), (&json!("Made by hand"), &json!("x")));
}

#[tokio::test]
async fn extensions_of_the_upstream_are_passed_on_and_enforced_and_echoed_only_as_it_says() {
    let answer = async |_| {
        let mut response = foreign::result(&foreign::message("c"));
        let active = format!("{ITS_OWN}, {TIMESTAMP}, urn:never:asked");
        response.headers_mut().insert("a2a-extensions", active.parse().expect("a value"));
        response
    };
    let declared = json!([{"uri": ITS_OWN, "required": true}, {"uri": TIMESTAMP}]);
    let url = foreign::agent_with(false, declared, answer).await;
    let front = config(&url, "").with(EXTENSIONS).start().await.expect("the front starts");
    let refused = front.say("hi").send().await.expect("a reply");
    assert_eq!(refused.code(), -32008, "{}", refused.text);
    assert!(refused.text.contains(ITS_OWN), "{}", refused.text);
    let both = front.say("hi").extensions(&format!("{ITS_OWN}, {TIMESTAMP}, urn:unknown"));
    let both = both.send().await.expect("a reply");
    assert_eq!(both.extensions.as_deref(), Some(format!("{TIMESTAMP},{ITS_OWN}").as_str()), "{}", both.text);
    let one = front.say("hi").extensions(ITS_OWN).streaming().open().await.expect("a stream");
    assert_eq!(one.extensions.as_deref(), Some(ITS_OWN));
}

#[tokio::test]
async fn an_upstream_that_requires_what_no_client_can_ask_for_serves_all_the_same() {
    let declared = json!([{"uri": "a, b", "required": true}, {"uri": "urn:\u{202e}c", "required": true}]);
    let url = foreign::agent_with(false, declared, async |_| foreign::result(&foreign::message("c"))).await;
    let front = config(&url, "").start().await.expect("the front starts");
    assert!(front.say("hi").send().await.expect("a reply").text.contains("Hi."));
    assert_eq!(card(&front).await["capabilities"].get("extensions"), None);
}

#[tokio::test]
async fn a_card_that_changes_is_shown_without_a_restart_and_asked_for_by_its_etag() {
    let version = Arc::new(AtomicUsize::new(1));
    let unchanged = Arc::new(AtomicUsize::new(0));
    let now = Arc::clone(&version);
    let not_modified = Arc::clone(&unchanged);
    let served = get(move |headers: HeaderMap| async move {
        let etag = format!("\"{}\"", now.load(Ordering::SeqCst));
        if headers.get("if-none-match").is_some_and(|known| known == etag.as_str()) {
            not_modified.fetch_add(1, Ordering::SeqCst);
            return axum::http::StatusCode::NOT_MODIFIED.into_response();
        }
        let mut card = foreign::card("http://127.0.0.1:1/rpc", false, &json!([{"uri": STATE_INJECTION}]));
        card["name"] = etag.clone().into();
        ([("etag", etag)], card.to_string()).into_response()
    });
    let url = foreign::serve(Router::new().route("/card.json", served)).await;
    let more = "refresh_seconds = 1\nallow_hosts = [\"127.0.0.1:1\"]";
    let front = super::front(&format!("{url}/card.json"), more).await;
    assert_eq!(card(&front).await["name"], "\"1\"");
    until("the card is asked for again", async || unchanged.load(Ordering::SeqCst) > 0).await;
    version.store(2, Ordering::SeqCst);
    until("the new card is shown", async || card(&front).await["name"] == "\"2\"").await;
}

#[tokio::test]
async fn an_upstream_that_cannot_be_used_is_named_with_the_reason() {
    let check = async |config: &TestConfig, said: &[&str]| {
        let error = config.start().await.err().map(|error| format!("{error:#}")).unwrap_or_default();
        assert!(said.iter().all(|part| error.contains(part)), "{error}");
    };
    let one = "start_seconds = 1";
    let url = "http://127.0.0.1:1";
    check(&config(url, one), &[url, "cannot connect"]).await;
    let html = foreign::serve(Router::new().route("/card.json", get(async || "<html>"))).await;
    check(&config(&format!("{html}/card.json"), one), &[&html, "is not an agent card"]).await;
    check(&config(&html, one), &[&html, "404"]).await;
    let elsewhere = foreign::card_of("http://elsewhere.example", true, "1.0").await;
    check(&config(&elsewhere, one), &["http://elsewhere.example", "elsewhere.example:80 in allow_hosts"]).await;
    check(&config("ftp://x", one), &["ftp://x", "is not the URL"]).await;
    let without_card = TestConfig::without_agent().set("agent.kind", "upstream").set("agent.name", "n");
    check(&without_card, &["agent.card: is missing; an agent of kind `upstream` needs it"]).await;
    check(&config(url, "instruction = \"x\""), &["agent.instruction: unknown key"]).await;
    check(&config(url, "idle_seconds = 0"), &["agent.idle_seconds: must be at least 1"]).await;
    check(&config(url, "headers_forward = [\"A2A-Version\"]"), &["A2A-Version", "set by the protocol"]).await;
    check(&config(url, "credentials = { env = \"NOT_SET_ANYWHERE\" }"), &["NOT_SET_ANYWHERE", "is not set"]).await;
    check(&config(url, "[agent.state]\nsend = \"data-part\""), &["state.key"]).await;
    check(&config(url, "[agent.state]\nsend = \"text-part\"\nkey = \"k\""), &["state.template"]).await;
}
