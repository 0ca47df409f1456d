//! Keys that are fetched from the issuer's URL. The tests cover rotation, outages, and callers who try to cause a fetch
//! at every request.

use std::sync::Arc;

use annex_auth::{AuthError, Authenticator};
use serde_json::{Value, json};

use crate::support::jwks_server::{Answer, JwksServer};
use crate::support::token::{claims, signed, token};
use crate::support::{authenticate_token, authenticator, config, fixture, is_invalid, jwt_config, pass};

/// Longer than the shortest time between two fetches of a key set, in seconds.
const PAUSE: u64 = 31;
/// Older than a key set that is used without another fetch, in seconds.
const MAX_AGE: u64 = 601;

fn for_server(server: &JwksServer) -> Authenticator {
    let file = jwt_config("").lines().find(|line| line.starts_with("jwks_file")).unwrap().to_owned();
    authenticator(&jwt_config("").replace(&file, &format!("jwks_url = '{}'", server.url)))
}

/// The keys of `jwks.json` with these ids.
fn keys(ids: &[&str]) -> Answer {
    let mut jwks: Value = serde_json::from_str(&fixture("jwks.json")).unwrap();
    jwks["keys"].as_array_mut().unwrap().retain(|key| ids.contains(&key["kid"].as_str().unwrap()));
    Answer::Keys(jwks.to_string())
}

fn token_of_other() -> String {
    signed("other-p256", &json!({"alg": "ES256", "kid": "other-p256"}), &claims(&json!({})))
}

fn token_of_nobody(number: usize) -> String {
    signed("p256", &json!({"alg": "ES256", "kid": format!("unknown-{number}")}), &claims(&json!({})))
}

#[tokio::test]
async fn the_issuer_is_asked_once_for_many_tokens() {
    let server = JwksServer::start(keys(&["p256"])).await;
    let authenticator = for_server(&server);
    assert_eq!(server.hits(), 0);
    for _ in 0..20 {
        assert!(authenticate_token(&authenticator, &token(&json!({}))).await.is_ok());
    }
    assert_eq!(server.hits(), 1);
}

#[tokio::test]
async fn a_config_that_is_read_again_knows_the_keys_of_before_as_long_as_they_are_at_the_same_url() {
    let server = JwksServer::start(keys(&["p256"])).await;
    let first = for_server(&server);
    assert!(authenticate_token(&first, &token(&json!({}))).await.is_ok());
    let file = jwt_config("").lines().find(|line| line.starts_with("jwks_file")).unwrap().to_owned();
    let at_url = |url: &str| config(&jwt_config("leeway_seconds = 7").replace(&file, &format!("jwks_url = '{url}'")));
    let same = first.read_again(&at_url(&server.url)).unwrap();
    assert!(authenticate_token(&same, &token(&json!({}))).await.is_ok());
    assert_eq!(server.hits(), 1);
    let other = JwksServer::start(keys(&["other-p256"])).await;
    let moved = same.read_again(&at_url(&other.url)).unwrap();
    assert!(is_invalid(&authenticate_token(&moved, &token(&json!({}))).await));
    assert_eq!((server.hits(), other.hits()), (1, 1));
}

#[tokio::test]
async fn a_new_key_is_found_without_a_restart() {
    let server = JwksServer::start(keys(&["p256"])).await;
    let authenticator = for_server(&server);
    assert!(authenticate_token(&authenticator, &token(&json!({}))).await.is_ok());
    server.answer_with(keys(&["p256", "other-p256"]));
    pass(PAUSE).await;
    assert!(authenticate_token(&authenticator, &token_of_other()).await.is_ok());
    assert!(authenticate_token(&authenticator, &token(&json!({}))).await.is_ok());
    assert_eq!(server.hits(), 2);
}

#[tokio::test]
async fn a_key_that_is_taken_back_stops_to_work() {
    let server = JwksServer::start(keys(&["p256"])).await;
    let authenticator = for_server(&server);
    assert!(authenticate_token(&authenticator, &token(&json!({}))).await.is_ok());
    server.answer_with(keys(&["other-p256"]));
    pass(MAX_AGE).await;
    assert!(is_invalid(&authenticate_token(&authenticator, &token(&json!({}))).await));
    server.answer_with(keys(&[]));
    pass(MAX_AGE).await;
    assert!(is_invalid(&authenticate_token(&authenticator, &token_of_other()).await));
}

#[tokio::test]
async fn unknown_key_ids_do_not_hammer_the_issuer() {
    let server = JwksServer::start(keys(&["p256"])).await;
    let authenticator = Arc::new(for_server(&server));
    let calls = (0..50).map(|number| {
        let authenticator = Arc::clone(&authenticator);
        let token = token_of_nobody(number);
        tokio::spawn(async move { authenticate_token(&authenticator, &token).await })
    });
    for call in calls.collect::<Vec<_>>() {
        assert!(is_invalid(&call.await.unwrap()));
    }
    assert_eq!(server.hits(), 1);
    pass(PAUSE).await;
    for number in 0..5 {
        assert!(is_invalid(&authenticate_token(&authenticator, &token_of_nobody(number)).await));
    }
    assert_eq!(server.hits(), 2);
}

#[tokio::test]
async fn tokens_with_a_refused_algorithm_do_not_reach_the_issuer() {
    let server = JwksServer::start(keys(&["p256"])).await;
    let authenticator = for_server(&server);
    for algorithm in ["HS256", "none", "RS512"] {
        let token = signed("p256", &json!({"alg": algorithm, "kid": "new"}), &claims(&json!({})));
        assert!(is_invalid(&authenticate_token(&authenticator, &token).await));
    }
    assert_eq!(server.hits(), 0);
}

#[tokio::test]
async fn the_last_good_keys_stay_in_use_while_the_issuer_is_down() {
    let server = JwksServer::start(keys(&["p256"])).await;
    let authenticator = for_server(&server);
    assert!(authenticate_token(&authenticator, &token(&json!({}))).await.is_ok());
    for answer in [Answer::Status("503 Service Unavailable"), Answer::Keys("<html>".to_owned()), Answer::Endless] {
        server.answer_with(answer);
        pass(MAX_AGE).await;
        assert!(authenticate_token(&authenticator, &token(&json!({}))).await.is_ok());
    }
    assert_eq!(server.hits(), 4);
    server.stop().await;
    pass(MAX_AGE).await;
    assert!(authenticate_token(&authenticator, &token(&json!({}))).await.is_ok());
    // The key cannot be checked while the issuer is down.
    assert_eq!(authenticate_token(&authenticator, &token_of_other()).await, Err(AuthError::Unavailable));
}

#[tokio::test]
async fn without_any_keys_the_issuer_is_unavailable_and_comes_back() {
    let server = JwksServer::start(Answer::Status("500 Internal Server Error")).await;
    let authenticator = for_server(&server);
    for _ in 0..5 {
        let refused = authenticate_token(&authenticator, &token(&json!({}))).await.unwrap_err();
        assert_eq!((refused.www_authenticate(), &refused), (None, &AuthError::Unavailable));
    }
    assert_eq!(server.hits(), 1);
    server.answer_with(keys(&["p256"]));
    pass(PAUSE).await;
    assert!(authenticate_token(&authenticator, &token(&json!({}))).await.is_ok());
}

#[tokio::test]
async fn an_answer_that_never_comes_is_given_up() {
    let server = JwksServer::start_closed(keys(&["p256"])).await;
    let authenticator = Arc::new(for_server(&server));
    let waiting = {
        let authenticator = Arc::clone(&authenticator);
        tokio::spawn(async move { authenticate_token(&authenticator, &token(&json!({}))).await })
    };
    server.was_asked().await;
    pass(6).await;
    assert_eq!(waiting.await.unwrap(), Err(AuthError::Unavailable));
}

#[tokio::test]
async fn a_caller_who_hangs_up_does_not_stop_the_fetch_for_others() {
    let server = JwksServer::start_closed(keys(&["p256"])).await;
    let authenticator = Arc::new(for_server(&server));
    let impatient = {
        let authenticator = Arc::clone(&authenticator);
        tokio::spawn(async move { authenticate_token(&authenticator, &token_of_nobody(1)).await })
    };
    server.was_asked().await;
    impatient.abort();
    assert!(impatient.await.unwrap_err().is_cancelled());
    server.open();
    assert!(authenticate_token(&authenticator, &token(&json!({}))).await.is_ok());
    assert_eq!(server.hits(), 1);
}

#[tokio::test]
async fn a_known_key_does_not_wait_for_a_fetch_on_behalf_of_others() {
    let server = JwksServer::start_closed(keys(&["p256"])).await;
    let authenticator = Arc::new(for_server(&server));
    server.open_once();
    assert!(authenticate_token(&authenticator, &token(&json!({}))).await.is_ok());
    pass(MAX_AGE).await;
    let waiting = {
        let authenticator = Arc::clone(&authenticator);
        tokio::spawn(async move { authenticate_token(&authenticator, &token_of_nobody(1)).await })
    };
    server.was_asked_times(2).await;
    assert!(authenticate_token(&authenticator, &token(&json!({}))).await.is_ok());
    assert!(!waiting.is_finished());
    server.open();
    assert!(is_invalid(&waiting.await.unwrap()));
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_not_used() {
    let Answer::Keys(jwks) = keys(&["p256"]) else { panic!("keys") };
    let server = JwksServer::start(Answer::Keys(jwks.clone() + &" ".repeat(256 * 1024))).await;
    let authenticator = for_server(&server);
    assert_eq!(authenticate_token(&authenticator, &token(&json!({}))).await, Err(AuthError::Unavailable));
    server.answer_with(Answer::Keys(jwks.clone() + &" ".repeat(256 * 1024 - jwks.len())));
    pass(PAUSE).await;
    assert!(authenticate_token(&authenticator, &token(&json!({}))).await.is_ok());
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let target = JwksServer::start(keys(&["p256"])).await;
    let head: &'static str = format!("302 Found\r\nlocation: {}", target.url).leak();
    let server = JwksServer::start(Answer::Status(head)).await;
    let refused = authenticate_token(&for_server(&server), &token(&json!({}))).await;
    assert_eq!(refused, Err(AuthError::Unavailable));
    assert_eq!((server.hits(), target.hits()), (1, 0));
}

#[tokio::test]
async fn keys_that_cannot_be_used_are_skipped() {
    let jwks: Value = serde_json::from_str(&fixture("jwks.json")).unwrap();
    let good = jwks["keys"][1].clone();
    let with = |name: &str, value: Value| {
        let mut key = good.clone();
        key[name] = value;
        key
    };
    let bad = [
        json!(7),
        json!({"kty": "oct", "k": "AAAA", "kid": "p256"}),
        with("use", json!("enc")),
        with("key_ops", json!(["sign"])),
        with("alg", json!("ES384")),
        with("crv", json!("P-384")),
        with("x", json!("!")),
        with("y", json!(null)),
    ];
    let server = JwksServer::start(Answer::Keys(json!({"keys": bad}).to_string())).await;
    let authenticator = for_server(&server);
    assert!(is_invalid(&authenticate_token(&authenticator, &token(&json!({}))).await));
    let all: Vec<Value> = bad.into_iter().chain([good]).collect();
    server.answer_with(Answer::Keys(json!({"keys": all, "more": {}}).to_string()));
    pass(PAUSE).await;
    assert!(authenticate_token(&authenticator, &token(&json!({}))).await.is_ok());
}
