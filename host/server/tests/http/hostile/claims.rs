//! Claims of callers that are too large: for the extension that may see them, and for the server.

use std::fs;

use annex_test_support::{Reply, TestServer};
use axum::routing::post;
use serde_json::json;

use super::LIMITS;
use crate::agent;
use crate::output::steering;
use crate::upstream::foreign;

/// The authorization server's answer to a question about a token. The token decides the size of the claim `org`.
async fn introspected(body: String) -> String {
    let org = match body.split('&').next() {
        Some("token=large") => "a".repeat(20_000),
        Some("token=huge") => "a".repeat(1 << 20),
        _ => "acme".to_owned(),
    };
    json!({"active": true, "sub": "ada", "aud": "annex", "exp": 99_999_999_999_u64, "org": org}).to_string()
}

async fn say(server: &TestServer, token: &str) -> Reply {
    let said = server.say("prompt").header("authorization", &format!("Bearer {token}"));
    said.send().await.expect("a reply")
}

/// The caller as the extension sees it.
async fn seen(server: &TestServer, token: &str) -> String {
    let reply = say(server, token).await;
    let seen = reply.task()["artifacts"][0]["metadata"]["steering/result"].as_str();
    seen.unwrap_or_else(|| unreachable!("nothing is shown: {}", reply.text)).to_owned()
}

#[tokio::test]
async fn claims_that_are_too_large_are_an_error_of_the_import_or_of_their_own_request() {
    let url = foreign::serve(axum::Router::new().route("/ask", post(introspected))).await;
    let secret = tempfile::NamedTempFile::new().expect("a file");
    fs::write(secret.path(), "the secret of the client").expect("a file");
    let introspection = format!(
        "[auth.introspection]\nurl = \"{url}/ask\"\nissuer = \"https://issuer.example\"\naudience = [\"annex\"]\n\
         client_id = \"annex\"\nclient_secret_file = {:?}\n",
        secret.path()
    );
    let showing = steering(r#"respond = "caller""#);
    let showing = showing.replace("caller = { principal = true }", "caller = { claims = [\"org\"] }");
    let server = agent("Be short.", &format!("{introspection}{showing}\n{LIMITS}")).await;
    let good = r#"Authenticated nobody {"org":"acme"} []"#;
    assert!(seen(&server, "good").await.ends_with(good));
    // The request is answered. Only the extension learns nothing about the caller.
    assert_eq!(seen(&server, "large").await, "error: the claims have 20005 bytes; at most 16384 are shown");
    let refused = say(&server, "huge").await;
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert!(refused.text.contains("identity provider") && refused.text.len() < 1_000, "{}", refused.text);
    assert!(seen(&server, "good").await.ends_with(good), "others are served");
}
