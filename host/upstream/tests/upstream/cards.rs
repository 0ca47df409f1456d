//! The card of the upstream, read at the start and again from time to time.

use std::time::Duration;

use annex_agent::AgentExecutor;
use annex_upstream::{UpstreamAgent, UpstreamConfig};
use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::bench::config;
use crate::upstream::Upstream;

/// The error of connecting, with all its causes in one text.
async fn refusal(config: UpstreamConfig) -> String {
    let error = UpstreamAgent::connect(config).await.unwrap_err();
    let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[tokio::test]
async fn an_upstream_that_is_still_starting_is_asked_again() {
    let upstream = Upstream::completing().await;
    let starting = (StatusCode::SERVICE_UNAVAILABLE, Value::Null);
    upstream.show([starting.clone(), starting, (StatusCode::OK, upstream.card())]);
    let agent = UpstreamAgent::connect(config(&upstream.url)).await.unwrap();
    assert_eq!(agent.remote_card().unwrap().borrow().name, "By hand");
}

#[tokio::test]
async fn what_no_waiting_changes_is_told_at_once_with_the_address() {
    let upstream = Upstream::completing().await;
    let mut elsewhere = upstream.card();
    elsewhere["supportedInterfaces"][0]["url"] = "http://elsewhere.example/rpc".into();
    let mut unknown = upstream.card();
    unknown["supportedInterfaces"][0]["protocolBinding"] = "CARRIER-PIGEON".into();
    let cases = [
        (StatusCode::NOT_FOUND, Value::Null, "404"),
        (StatusCode::OK, json!("a letter"), "is not an agent card"),
        (StatusCode::OK, elsewhere, "http://elsewhere.example"),
        (StatusCode::OK, unknown, "CARRIER-PIGEON"),
    ];
    for (status, card, expected) in cases {
        upstream.show([(status, card)]);
        // Longer than a test would wait.
        let patient = UpstreamConfig { start: Duration::from_secs(86_400), ..config(&upstream.url) };
        let refusal = refusal(patient).await;
        assert!(refusal.contains(&upstream.url) && refusal.contains(expected), "{expected}: {refusal}");
    }
}

#[tokio::test]
async fn an_interface_elsewhere_is_refused_with_what_would_allow_it() {
    let upstream = Upstream::completing().await;
    let mut elsewhere = upstream.card();
    elsewhere["supportedInterfaces"][0]["url"] = "http://localhost:1/rpc".into();
    upstream.show([(StatusCode::OK, elsewhere)]);
    let refusal = refusal(config(&upstream.url)).await;
    for said in ["http://localhost:1/rpc", "localhost:1 in allow_hosts", "correct the URL on the card"] {
        assert!(refusal.contains(said), "{refusal}");
    }
}

#[tokio::test]
async fn an_extension_that_no_client_can_ask_for_is_left_out_of_the_card() {
    let upstream = Upstream::completing().await;
    let mut card = upstream.card();
    card["capabilities"]["extensions"] = json!([{"uri": "urn:a, urn:b", "required": true}, {"uri": "urn:c", "required": true},
        {"uri": "urn:\u{202e}d", "required": true}, {"uri": "", "required": true}]);
    upstream.show([(StatusCode::OK, card)]);
    let agent = UpstreamAgent::connect(config(&upstream.url)).await.unwrap();
    let card = agent.remote_card().unwrap();
    let uris: Vec<String> =
        card.borrow().capabilities.extensions.iter().map(|extension| extension.uri.to_string()).collect();
    assert_eq!(uris, ["urn:c"]);
}

#[tokio::test]
async fn a_card_of_0_3_with_nulls_or_an_odd_interface_is_read() {
    let upstream = Upstream::completing().await;
    let url = format!("{}/rpc", upstream.url);
    for additional in [Value::Null, json!([{"url": url}, null, {"transport": "GRPC", "url": url}])] {
        let card = json!({"name": "Old", "url": url, "protocolVersion": "0.3.0", "preferredTransport": null,
            "additionalInterfaces": additional, "provider": null, "securitySchemes": null, "skills": []});
        upstream.show([(StatusCode::OK, card)]);
        let agent = UpstreamAgent::connect(config(&upstream.url)).await.unwrap();
        assert_eq!(agent.remote_card().unwrap().borrow().name, "Old");
    }
}

#[tokio::test]
async fn a_new_card_is_announced_and_a_broken_one_leaves_the_last_in_force() {
    let upstream = Upstream::completing().await;
    let refresh = Duration::from_millis(10);
    let agent = UpstreamAgent::connect(UpstreamConfig { refresh, ..config(&upstream.url) }).await.unwrap();
    let mut card = agent.remote_card().unwrap();
    let mut renamed = upstream.card();
    renamed["name"] = "Renamed".into();
    upstream.show(
        [(StatusCode::OK, json!("broken")), (StatusCode::INTERNAL_SERVER_ERROR, json!({}))]
            .into_iter()
            .chain([(StatusCode::OK, renamed)]),
    );
    card.changed().await.unwrap();
    assert_eq!(card.borrow().name, "Renamed", "the broken ones came before it");
}
