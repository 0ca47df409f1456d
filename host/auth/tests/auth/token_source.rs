//! Access tokens for another server. The tests cover both grants, caching, outages, and servers that lie.

use std::sync::Arc;

use annex_auth::{AccessToken, Grant, OAuthConfig, TokenFetchError, TokenSource};
use annex_protocol::Secret;
use serde_json::{Value, json};

use crate::support::authorization_server::AuthorizationServer;
use crate::support::{changed, pass, secret};

/// The settings for the endpoint at this URL, with the secret in a file.
fn config(url: &str, secret: &tempfile::NamedTempFile, more: &str) -> OAuthConfig {
    let text = format!(
        "token_url = '{url}'\nclient_id = 'annex: ä'\nclient_secret_file = '{}'\n{more}\n",
        secret.path().display()
    );
    toml::from_str(&text).unwrap()
}

fn source(server: &AuthorizationServer, more: &str) -> Arc<TokenSource> {
    let file = secret("s%+ecret\n");
    TokenSource::load(&config(&server.url, &file, more), None).unwrap()
}

/// An answer with this token, with these members [`changed`].
fn answer(token: &str, changes: &Value) -> String {
    changed(json!({"access_token": token, "token_type": "Bearer", "expires_in": 600}), changes)
}

fn shown(token: &Result<AccessToken, TokenFetchError>) -> String {
    token.as_ref().unwrap().header_value().to_str().unwrap().to_owned()
}

/// The error with its causes.
fn reason(token: Result<AccessToken, TokenFetchError>) -> String {
    annex_text::with_causes(&token.unwrap_err())
}

#[tokio::test]
async fn both_grants_ask_as_the_rfcs_say() {
    let server = AuthorizationServer::start(&answer("theirs", &json!({}))).await;
    let wanted = "scope = 'read write'\naudience = 'agent'\nresource = 'https://agent.example/a2a'";
    assert_eq!(shown(&source(&server, wanted).token(None).await), "Bearer theirs");
    let ada = Secret::new("token-of-ada");
    let exchanging = source(&server, "grant = 'token_exchange'\nclient_authentication = 'post'");
    assert_eq!(shown(&exchanging.token(Some(&ada)).await), "Bearer theirs");
    let [plain, exchanged]: [String; 2] = server.requests().try_into().unwrap();
    let (head, body) = plain.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /endpoint HTTP/1.1\r\n"), "{head}");
    // `annex%3A+%C3%A4:s%25%2Becret` in base64.
    assert!(head.contains("Basic YW5uZXglM0ErJUMzJUE0OnMlMjUlMkJlY3JldA=="), "{head}");
    assert!(head.to_lowercase().contains("content-type: application/x-www-form-urlencoded"), "{head}");
    let resource = "https%3A%2F%2Fagent.example%2Fa2a";
    assert_eq!(body, format!("grant_type=client_credentials&scope=read+write&audience=agent&resource={resource}"));
    let (head, body) = exchanged.split_once("\r\n\r\n").unwrap();
    assert!(!head.to_lowercase().contains("authorization:"), "{head}");
    let access_token = "urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Aaccess_token";
    assert_eq!(
        body,
        format!(
            "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange&subject_token=token-of-ada&\
             subject_token_type={access_token}&requested_token_type={access_token}&client_id=annex%3A+%C3%A4&\
             client_secret=s%25%2Becret"
        )
    );
}

#[tokio::test]
async fn a_token_is_kept_for_its_caller_until_shortly_before_it_expires() {
    let server = AuthorizationServer::start(&answer("first", &json!({}))).await;
    let source = source(&server, "grant = 'token_exchange'");
    let (ada, bob) = (Secret::new("token-of-ada"), Secret::new("token-of-bob"));
    for _ in 0..20 {
        assert_eq!(shown(&source.token(Some(&ada)).await), "Bearer first");
    }
    assert_eq!(server.hits(), 1);
    server.answer_with(&answer("second", &json!({"expires_in": "20"})));
    assert_eq!(shown(&source.token(Some(&bob)).await), "Bearer second", "one caller never gets the token of another");
    assert_eq!(shown(&source.token(None).await), "Bearer second");
    assert_eq!(shown(&source.token(Some(&ada)).await), "Bearer first");
    assert_eq!(server.hits(), 3);
    pass(11).await;
    server.answer_with(&answer("third", &json!({"expires_in": null})));
    assert_eq!(shown(&source.token(Some(&bob)).await), "Bearer third", "half of a short lifetime has passed");
    pass(560).await;
    server.answer_with(&answer("fourth", &json!({"expires_in": 0})));
    assert_eq!(shown(&source.token(Some(&ada)).await), "Bearer fourth", "less than half a minute was left");
    assert_eq!(shown(&source.token(Some(&ada)).await), "Bearer fourth");
    assert_eq!(server.hits(), 6, "a token without a lifetime is not kept");
}

#[tokio::test]
async fn many_who_need_one_token_fetch_it_once_and_one_that_goes_away_stops_nobody() {
    let server = AuthorizationServer::start_closed(&answer("theirs", &json!({}))).await;
    let source = source(&server, "");
    let fetch = || {
        let source = Arc::clone(&source);
        tokio::spawn(async move { source.token(None).await })
    };
    let first = fetch();
    server.was_asked(1).await;
    let others: Vec<_> = (0..50).map(|_| fetch()).collect();
    tokio::task::yield_now().await;
    first.abort();
    server.open();
    for other in others {
        assert_eq!(shown(&other.await.unwrap()), "Bearer theirs");
    }
    assert_eq!(server.hits(), 1);
}

#[tokio::test]
async fn a_token_that_is_not_accepted_is_replaced_once_it_is_a_second_old() {
    let server = AuthorizationServer::start(&answer("first", &json!({}))).await;
    let source = source(&server, "");
    let first = source.token(None).await.unwrap();
    assert!(!source.replace(&first), "a new token would not be accepted either");
    pass(2).await;
    assert!(source.replace(&first));
    server.answer_with(&answer("second", &json!({})));
    assert_eq!(shown(&source.token(None).await), "Bearer second");
    assert!(source.replace(&first));
    assert_eq!(shown(&source.token(None).await), "Bearer second", "the newer token stays");
    assert_eq!(server.hits(), 2);
}

#[tokio::test]
async fn a_token_endpoint_that_lies_breaks_off_or_sends_elsewhere_gives_no_token() {
    let elsewhere = AuthorizationServer::start(&answer("stolen", &json!({}))).await;
    let server = AuthorizationServer::start("").await;
    let source = source(&server, "grant = 'token_exchange'");
    let good = answer("theirs", &json!({}));
    let redirect = |status: &str| {
        format!("HTTP/1.1 {status}\r\nlocation: {}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", elsewhere.url)
    };
    let with = |status: &str, body: &str| {
        format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    };
    let ok = |body: &str| with("200 OK", body);
    let cases = [
        redirect("302 Found"),
        redirect("307 Temporary Redirect"),
        redirect("308 Permanent Redirect"),
        with("400 Bad Request", &good),
        with("401 Unauthorized", "<html>"),
        with("500 Internal Server Error", &good),
        with("204 No Content", ""),
        ok(""),
        ok("<html>"),
        ok("[]"),
        ok("{}"),
        ok(&answer("", &json!({}))),
        ok(&answer("two words", &json!({}))),
        ok(&answer("line\r\nx-injected: yes", &json!({}))),
        ok(&answer(&"x".repeat((16 << 10) + 1), &json!({}))),
        ok(&answer("theirs", &json!({"access_token": 7}))),
        ok(&answer("theirs", &json!({"token_type": null}))),
        ok(&answer("theirs", &json!({"token_type": "DPoP"}))),
        ok(&answer("theirs", &json!({"token_type": "N_A"}))),
        ok(&answer("theirs", &json!({"issued_token_type": "urn:ietf:params:oauth:token-type:saml2"}))),
        ok(&answer("theirs", &json!({"expires_in": -1}))),
        ok(&answer("theirs", &json!({"expires_in": "soon"}))),
        ok(&answer("theirs", &json!({"padding": "x".repeat(64 << 10)}))),
        // The declared length does not arrive.
        format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 9999\r\n\r\n{good}"),
        // The body does not end.
        "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n...".to_owned(),
        "nonsense\r\n\r\n".to_owned(),
        String::new(),
    ];
    for (number, response) in cases.iter().enumerate() {
        server.answer_raw(response);
        let outcome = source.token(Some(&Secret::new(format!("t-{number}")))).await;
        assert!(outcome.is_err(), "{response:.200}");
    }
    assert_eq!(elsewhere.hits(), 0, "no redirect is followed");
    server.answer_with(&good);
    assert!(source.token(Some(&Secret::new("t-good"))).await.is_ok(), "the server has come back");
}

#[tokio::test]
async fn a_refusal_is_quoted_on_one_line_without_secrets_and_asked_for_again_a_second_later() {
    let server = AuthorizationServer::start("").await;
    let source = source(&server, "grant = 'token_exchange'");
    let words = format!("s%+ecret=s%25%2Becret and token-of-ada\n{}", "x".repeat(1_000));
    let body = json!({"error": "invalid_client", "error_description": words}).to_string();
    server.answer_raw(&format!(
        "HTTP/1.1 401 Unauthorized\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ));
    let ada = Secret::new("token-of-ada");
    let refused = reason(source.token(Some(&ada)).await);
    assert!(refused.contains("\"invalid_client\" ((hidden)=(hidden) and (hidden)\\nxxx"), "{refused}");
    assert!(refused.len() < 600 && !refused.contains("endpoint"), "{refused}");
    for _ in 0..20 {
        assert!(source.token(Some(&ada)).await.is_err());
    }
    assert_eq!(server.hits(), 1);
    pass(2).await;
    server.answer_with(&answer("theirs", &json!({})));
    assert_eq!(shown(&source.token(Some(&ada)).await), "Bearer theirs");
}

#[tokio::test]
async fn a_token_endpoint_that_hangs_is_given_up_after_five_seconds() {
    let server = AuthorizationServer::start_closed(&answer("theirs", &json!({}))).await;
    let source = source(&server, "");
    let waiting = {
        let source = Arc::clone(&source);
        tokio::spawn(async move { source.token(None).await })
    };
    server.was_asked(1).await;
    pass(6).await;
    assert!(waiting.await.unwrap().is_err());
    server.open();
    pass(2).await;
    assert!(source.token(None).await.is_ok());
}

#[tokio::test]
async fn a_probe_tells_a_wrong_client_from_a_wrong_token() {
    let server = AuthorizationServer::start(&answer("theirs", &json!({}))).await;
    let source = source(&server, "grant = 'token_exchange'");
    source.probe(Grant::ClientCredentials).await.unwrap();
    let refuse = |code: &str| {
        let body = json!({"error": code}).to_string();
        server.answer_raw(&format!(
            "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ));
    };
    refuse("invalid_request");
    source.probe(Grant::TokenExchange).await.unwrap();
    assert!(source.probe(Grant::ClientCredentials).await.is_err());
    for code in ["invalid_client", "unauthorized_client", "unsupported_grant_type", "invalid_scope", "invalid_target"] {
        refuse(code);
        assert!(source.probe(Grant::TokenExchange).await.is_err(), "{code}");
    }
}

#[test]
fn settings_of_a_token_source_that_cannot_work_are_refused_by_name() {
    let file = secret("a secret");
    let good = config("https://issuer.example/token", &file, "");
    TokenSource::load(&good, None).unwrap();
    let at = |url: &str| OAuthConfig { token_url: url.to_owned(), ..good.clone() };
    let text = |value: &str| Some(value.to_owned());
    let in_file = |file: Option<&str>| OAuthConfig { client_secret_file: file.map(Into::into), ..good.clone() };
    let fallback = Some(annex_auth::Fallback::ClientCredentials);
    let empty = secret("\n");
    for (key, wrong) in [
        ("oauth.token_url", at("token")),
        ("oauth.token_url", at("http://issuer.example/token")),
        ("oauth.token_url", at("https://user:hidden@issuer.example/token")),
        ("oauth.token_url", at("https://10.0.0.7/token")),
        ("oauth.token_url", at("https://169.254.169.254/token")),
        ("oauth.token_url", at("file:///etc/passwd")),
        ("oauth.client_id", OAuthConfig { client_id: String::new(), ..good.clone() }),
        ("oauth.client_secret_env", in_file(None)),
        ("oauth.client_secret_env", OAuthConfig { client_secret_env: text("HOME"), ..good.clone() }),
        ("oauth.client_secret_env", OAuthConfig { client_secret_env: text("ANNEX_NO_SUCH_VARIABLE"), ..in_file(None) }),
        ("oauth.client_secret_file", in_file(Some("/no/such/file"))),
        ("oauth.client_secret_file", in_file(empty.path().to_str())),
        ("oauth.scope", OAuthConfig { scope: text("two  spaces"), ..good.clone() }),
        ("oauth.scope", OAuthConfig { scope: text("quo\"te"), ..good.clone() }),
        ("oauth.audience", OAuthConfig { audience: text(""), ..good.clone() }),
        ("oauth.resource", OAuthConfig { resource: text("/a2a"), ..good.clone() }),
        ("oauth.resource", OAuthConfig { resource: text("https://a.example/#x"), ..good.clone() }),
        ("oauth.fallback", OAuthConfig { fallback, ..good.clone() }),
        ("oauth.allow_private", OAuthConfig { allow_private: vec!["*.example".to_owned()], ..good.clone() }),
    ] {
        let error = TokenSource::load(&wrong, None).unwrap_err();
        assert!(error.key == key && !error.to_string().contains("hidden"), "{wrong:?}: {error}");
    }
    let private = OAuthConfig { allow_private: vec!["10.0.0.0/8".to_owned()], ..at("https://10.0.0.7/token") };
    TokenSource::load(&private, None).unwrap();
    let screen = annex_egress::Screen::new(annex_egress::ScreenConfig::default());
    for url in ["http://127.0.0.1:8080/token", "https://10.0.0.7/token"] {
        let chosen_by_a_stranger = OAuthConfig { allow_private: private.allow_private.clone(), ..at(url) };
        assert!(TokenSource::load(&chosen_by_a_stranger, Some(&screen)).is_err(), "{url}");
    }
    assert!(!format!("{:?}", TokenSource::load(&good, None).unwrap()).contains("a secret"));
}
