//! Opaque tokens about which the authorization server is asked. The tests cover caching, outages, and servers that lie.

use std::net::IpAddr;
use std::sync::Arc;

use annex_auth::{AuthConfigError, AuthError, Authenticator, INTROSPECTION_SCHEME};
use serde_json::{Value, json};

use crate::support::authorization_server::AuthorizationServer;
use crate::support::token::{time, token};
use crate::support::{
    authenticate_token, authenticate_token_from, authenticator, changed, config, is_invalid, jwt_config, pass, secret,
};

const OPAQUE: &str = "b64+token/of.ada~==";

/// The table for the server at this URL. Without `more` the secret is in a file.
fn table(url: &str, more: &str) -> String {
    format!(
        "[introspection]\nurl = '{url}'\nissuer = 'https://issuer.example'\naudience = ['annex', 'other']\n\
         client_id = 'annex: ä'\n{more}\n"
    )
}

/// A file with the secret, and an authenticator that asks the server.
fn asking(server: &AuthorizationServer, more: &str) -> (tempfile::NamedTempFile, Authenticator) {
    let file = secret("s%+ecret\n");
    let secret = format!("client_secret_file = '{}'\n{more}", file.path().display());
    let authenticator = authenticator(&table(&server.url, &secret));
    (file, authenticator)
}

/// The answer about a valid token, with these members [`changed`].
fn answer(changes: &Value) -> String {
    let answer = json!({"active": true, "iss": "https://issuer.example", "aud": "annex", "sub": "ada",
                            "exp": time(600), "token_type": "Bearer", "scope": "read write", "org": "acme"});
    changed(answer, changes)
}

#[tokio::test]
async fn the_authorization_server_names_the_principal_and_is_asked_as_the_rfcs_say() {
    let server = AuthorizationServer::start(&answer(&json!({}))).await;
    let (_file, authenticator) = asking(&server, "");
    let caller = authenticate_token(&authenticator, OPAQUE).await.unwrap();
    assert_eq!((caller.id.as_str(), caller.scheme), ("https://issuer.example#ada", INTROSPECTION_SCHEME));
    assert_eq!(caller.scopes, ["read", "write"]);
    assert_eq!(caller.claims.get("org").map(|org| org.get()), Some("\"acme\""));
    assert!(caller.claims.get("active").is_none());
    let [request]: [String; 1] = server.requests().try_into().unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /endpoint HTTP/1.1\r\n"), "{head}");
    // `annex%3A+%C3%A4:s%25%2Becret` in base64.
    assert!(head.contains("Basic YW5uZXglM0ErJUMzJUE0OnMlMjUlMkJlY3JldA=="), "{head}");
    assert!(head.to_lowercase().contains("content-type: application/x-www-form-urlencoded"), "{head}");
    assert_eq!(body, "token=b64%2Btoken%2Fof.ada%7E%3D%3D&token_type_hint=access_token");
}

#[tokio::test]
async fn a_valid_token_is_asked_about_once_a_minute_and_no_longer_accepted_than_it_lives() {
    let server = AuthorizationServer::start(&answer(&json!({}))).await;
    let (_file, authenticator) = asking(&server, "");
    for _ in 0..20 {
        assert!(authenticate_token(&authenticator, OPAQUE).await.is_ok());
    }
    assert_eq!(server.hits(), 1);
    server.answer_with(r#"{"active":false}"#);
    pass(59).await;
    assert!(authenticate_token(&authenticator, OPAQUE).await.is_ok());
    pass(2).await;
    assert!(is_invalid(&authenticate_token(&authenticator, OPAQUE).await), "it was revoked");
    assert_eq!(server.hits(), 2);

    server.answer_with(&answer(&json!({"exp": time(20)})));
    assert!(authenticate_token(&authenticator, "short-lived").await.is_ok());
    server.answer_with(r#"{"active":false}"#);
    pass(21).await;
    assert!(is_invalid(&authenticate_token(&authenticator, "short-lived").await), "it has expired");

    server.answer_with(&answer(&json!({"exp": null})));
    assert!(authenticate_token(&authenticator, "without-an-end").await.is_ok());
    server.answer_with(r#"{"active":false}"#);
    pass(61).await;
    assert!(is_invalid(&authenticate_token(&authenticator, "without-an-end").await));
}

#[tokio::test]
async fn an_invalid_token_is_asked_about_again_after_five_seconds() {
    let server = AuthorizationServer::start(r#"{"active":false}"#).await;
    let (_file, authenticator) = asking(&server, "");
    for _ in 0..20 {
        assert!(is_invalid(&authenticate_token(&authenticator, OPAQUE).await));
    }
    assert_eq!(server.hits(), 1);
    server.answer_with(&answer(&json!({})));
    assert!(is_invalid(&authenticate_token(&authenticator, OPAQUE).await));
    pass(6).await;
    assert!(authenticate_token(&authenticator, OPAQUE).await.is_ok());
    assert_eq!(server.hits(), 2);
}

#[tokio::test]
async fn texts_that_are_no_tokens_reach_no_server() {
    let server = AuthorizationServer::start(&answer(&json!({}))).await;
    let (_file, authenticator) = asking(&server, "");
    for text in ["", "two words", "quo\"te", "a,b", &"x".repeat(8 * 1024 + 1)] {
        assert!(is_invalid(&authenticate_token(&authenticator, text).await), "{text}");
    }
    assert_eq!(server.hits(), 0);
}

#[tokio::test]
async fn answers_about_tokens_of_others_or_of_other_times_accept_nothing() {
    let server = AuthorizationServer::start("").await;
    let (_file, authenticator) = asking(&server, "");
    let cases = [
        json!({"active": false}),
        json!({"iss": "https://other.example"}),
        json!({"iss": 7}),
        json!({"aud": "someone"}),
        json!({"aud": ["someone"]}),
        json!({"aud": null}),
        json!({"aud": {"annex": true}}),
        json!({"exp": time(-1)}),
        json!({"exp": 0}),
        json!({"nbf": time(3600)}),
        json!({"token_type": "DPoP"}),
        json!({"token_type": ["Bearer"]}),
        json!({"cnf": {"jkt": "x"}}),
        json!({"sub": null}),
        json!({"sub": ""}),
        json!({"sub": "two\nlines"}),
        json!({"sub": ["ada"]}),
        json!({"scope": ["read"]}),
    ];
    for (number, changes) in cases.iter().enumerate() {
        server.answer_with(&answer(changes));
        assert!(is_invalid(&authenticate_token(&authenticator, &format!("t-{number}")).await), "{changes}");
    }
    for (number, changes) in
        [json!({"aud": ["someone", "other"]}), json!({"iss": null}), json!({"token_type": null, "scope": null})]
            .iter()
            .enumerate()
    {
        server.answer_with(&answer(changes));
        assert!(authenticate_token(&authenticator, &format!("good-{number}")).await.is_ok(), "{changes}");
    }
}

#[tokio::test]
async fn a_server_that_lies_breaks_off_or_sends_elsewhere_accepts_nothing_and_is_unavailable() {
    let elsewhere = AuthorizationServer::start(&answer(&json!({}))).await;
    let server = AuthorizationServer::start("").await;
    let (_file, authenticator) = asking(&server, "");
    let good = answer(&json!({}));
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
        with("401 Unauthorized", &good),
        with("500 Internal Server Error", &good),
        with("204 No Content", ""),
        ok(""),
        ok("<html>"),
        ok("[]"),
        ok("true"),
        ok("{}"),
        ok(r#"{"active":"true"}"#),
        ok(r#"{"active":1}"#),
        ok(&good.replacen('{', r#"{"active":false,"#, 1)),
        ok(&answer(&json!({"exp": "tomorrow"}))),
        ok(&answer(&json!({"exp": -1}))),
        ok(&answer(&json!({"exp": 1.5}))),
        ok(&good.replacen('{', r#"{"nbf":1e999,"#, 1)),
        ok(&answer(&json!({"nbf": true}))),
        ok(&answer(&json!({"padding": "x".repeat(64 << 10)}))),
        // The declared length does not arrive.
        format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 9999\r\n\r\n{good}"),
        // The body does not end.
        "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n...".to_owned(),
        "HTTP/1.1 200 OK\r\nconnection: close\r\nx: ...".to_owned(),
        "nonsense\r\n\r\n".to_owned(),
        String::new(),
    ];
    for (number, response) in cases.iter().enumerate() {
        server.answer_raw(response);
        let outcome = authenticate_token(&authenticator, &format!("t-{number}")).await;
        assert_eq!(outcome, Err(AuthError::Unavailable), "{response:.200}");
    }
    assert_eq!(elsewhere.hits(), 0, "no redirect is followed");
    server.answer_with(&good);
    assert!(authenticate_token(&authenticator, "t-good").await.is_ok(), "the server has come back");
}

#[tokio::test]
async fn an_answer_that_never_comes_is_given_up_and_asked_for_again_a_second_later() {
    let server = AuthorizationServer::start_closed(&answer(&json!({}))).await;
    let (_file, authenticator) = asking(&server, "");
    let authenticator = Arc::new(authenticator);
    let waiting = {
        let authenticator = Arc::clone(&authenticator);
        tokio::spawn(async move { authenticate_token(&authenticator, OPAQUE).await })
    };
    server.was_asked(1).await;
    pass(6).await;
    assert_eq!(waiting.await.unwrap(), Err(AuthError::Unavailable));
    server.open();
    assert_eq!(authenticate_token(&authenticator, OPAQUE).await, Err(AuthError::Unavailable));
    assert_eq!(server.hits(), 1);
    pass(2).await;
    assert!(authenticate_token(&authenticator, OPAQUE).await.is_ok());
}

#[tokio::test]
async fn many_callers_with_one_token_ask_once_and_one_that_hangs_up_stops_nobody() {
    let server = AuthorizationServer::start_closed(&answer(&json!({}))).await;
    let (_file, authenticator) = asking(&server, "");
    let authenticator = Arc::new(authenticator);
    let calls: Vec<_> = (0..50)
        .map(|_| {
            let authenticator = Arc::clone(&authenticator);
            tokio::spawn(async move { authenticate_token(&authenticator, OPAQUE).await })
        })
        .collect();
    server.was_asked(1).await;
    calls[0].abort();
    server.open();
    for call in calls.into_iter().skip(1) {
        assert_eq!(call.await.unwrap().unwrap().id, "https://issuer.example#ada");
    }
    assert_eq!(server.hits(), 1);
}

#[tokio::test]
async fn a_flood_of_tokens_keeps_out_neither_other_networks_nor_callers_that_were_accepted_lately() {
    let server = AuthorizationServer::start_closed(&answer(&json!({}))).await;
    let (_file, authenticator) = asking(&server, "");
    let authenticator = Arc::new(authenticator);
    let ask = |network: u8, token: String| {
        let authenticator = Arc::clone(&authenticator);
        let network = IpAddr::from([192, 0, 2, network]);
        tokio::spawn(async move { authenticate_token_from(network, &authenticator, &token).await })
    };
    server.release_one();
    assert!(ask(1, "accepted".to_owned()).await.unwrap().is_ok());
    pass(61).await;
    let flood = |network: u8| (0..100).map(|number| ask(network, format!("t-{network}-{number}"))).collect::<Vec<_>>();
    let of_first = flood(1);
    server.was_asked(1 + 8).await;
    let stranger = ask(2, "new".to_owned());
    server.was_asked(1 + 8 + 1).await;
    let of_third = flood(3);
    server.was_asked(1 + 16).await;
    // The one who floods has the same address, such as that of a proxy.
    let accepted = ask(1, "accepted".to_owned());
    server.was_asked(1 + 16 + 1).await;
    let requests = server.requests();
    assert!(requests[9].contains("token=new&"), "{}", requests[9]);
    assert!(requests[17].contains("token=accepted&"), "{}", requests[17]);
    server.open();
    assert!(stranger.await.unwrap().is_ok() && accepted.await.unwrap().is_ok());
    for flood in [of_first, of_third] {
        let mut refused = 0;
        for call in flood {
            refused += usize::from(call.await.unwrap() == Err(AuthError::Unavailable));
        }
        assert!(refused >= 100 - 64, "{refused}");
    }
}

#[tokio::test]
async fn a_known_token_is_accepted_while_the_server_is_down_and_others_are_not() {
    let server = AuthorizationServer::start(&answer(&json!({}))).await;
    let (_file, authenticator) = asking(&server, "");
    assert!(authenticate_token(&authenticator, OPAQUE).await.is_ok());
    server.stop().await;
    assert!(authenticate_token(&authenticator, OPAQUE).await.is_ok());
    assert_eq!(authenticate_token(&authenticator, "another").await, Err(AuthError::Unavailable));
    pass(61).await;
    assert_eq!(authenticate_token(&authenticator, OPAQUE).await, Err(AuthError::Unavailable));
}

#[tokio::test]
async fn tokens_that_are_web_tokens_are_verified_here_if_there_are_keys_for_them() {
    let server = AuthorizationServer::start(&answer(&json!({"sub": "bob"}))).await;
    let (_file, asking_alone) = asking(&server, "");
    let (_other, asking_too) = asking(&server, &jwt_config(""));
    assert_eq!(authenticate_token(&asking_too, &token(&json!({}))).await.unwrap().id, "https://issuer.example#ada");
    let expired = token(&json!({"exp": time(-100)}));
    assert!(is_invalid(&authenticate_token(&asking_too, &expired).await), "the server cannot revive it");
    assert_eq!(server.hits(), 0);
    assert_eq!(authenticate_token(&asking_too, OPAQUE).await.unwrap().id, "https://issuer.example#bob");
    assert_eq!(authenticate_token(&asking_alone, &expired).await.unwrap().id, "https://issuer.example#bob");
    let names =
        |authenticator: &Authenticator| authenticator.security_schemes().schemes.into_keys().collect::<Vec<_>>();
    assert_eq!(
        (names(&asking_alone), names(&asking_too)),
        (vec!["bearer".to_owned()], vec!["jwt".to_owned(), "bearer".to_owned()])
    );
}

#[test]
fn two_claims_of_one_issuer_cannot_name_the_callers() {
    let file = secret("a secret");
    let introspection = |more: &str| {
        table("https://issuer.example/ask", &format!("client_secret_file = '{}'\n{more}", file.path().display()))
    };
    let both = |of_jwt: &str, of_introspection: &str| {
        Authenticator::new(&config(&format!("{}{}", introspection(of_introspection), jwt_config(of_jwt))))
    };
    let (email, subject) = ("principal_claim = 'email'\n", "principal_claim = 'sub'\n");
    for (of_jwt, of_introspection) in [(email, ""), ("", email), (email, subject)] {
        let error = both(of_jwt, of_introspection).unwrap_err();
        let is_it = matches!(error, AuthConfigError::Introspection { field: "principal_claim", .. });
        assert!(is_it, "{of_jwt} {of_introspection}: {error}");
    }
    for claim in ["", email, subject] {
        assert!(both(claim, claim).is_ok(), "{claim}");
    }
    let of_others = introspection(email).replace("'https://issuer.example'", "'https://other.example'");
    assert!(Authenticator::new(&config(&format!("{of_others}{}", jwt_config("")))).is_ok(), "they have two issuers");
}

#[test]
fn settings_of_introspection_that_cannot_work_are_refused_by_name() {
    let file = secret("a secret");
    let good = table("https://issuer.example/ask", &format!("client_secret_file = '{}'", file.path().display()));
    assert!(Authenticator::new(&config(&good)).is_ok());
    let empty = secret("\n");
    let changed = |from: &str, to: &str| good.replace(from, to);
    let at = |url: &str| changed("https://issuer.example/ask", url);
    let file_line = good.lines().find(|line| line.starts_with("client_secret_file")).unwrap();
    for (field, toml) in [
        ("url", at("ask")),
        ("url", at("http://issuer.example/ask")),
        ("url", at("https://user:hidden@issuer.example/ask")),
        ("url", at("https://10.0.0.7/ask")),
        ("url", at("https://169.254.169.254/ask")),
        ("url", at("https://issuer.example:25/ask")),
        ("url", at("file:///etc/passwd")),
        ("issuer", changed("'https://issuer.example'", "''")),
        ("issuer", changed("'https://issuer.example'", "'a#b'")),
        ("audience", changed("['annex', 'other']", "[]")),
        ("audience", changed("'annex', 'other'", "''")),
        ("client_id", changed("'annex: ä'", "''")),
        ("principal_claim", format!("{good}principal_claim = ''\n")),
        ("allow_private", format!("{good}allow_private = ['*.example']\n")),
        ("client_secret_env", changed(file_line, "")),
        ("client_secret_env", changed(file_line, "client_secret_env = 'ANNEX_NO_SUCH_VARIABLE'")),
        ("client_secret_env", format!("{good}client_secret_env = 'CARGO_MANIFEST_DIR'\n")),
        ("client_secret_file", changed(file_line, &format!("client_secret_file = '{}'", empty.path().display()))),
    ] {
        let error = Authenticator::new(&config(&toml)).unwrap_err();
        let is_it = matches!(&error, AuthConfigError::Introspection { field: actual, .. } if *actual == field);
        assert!(is_it && !error.to_string().contains("hidden"), "{toml}: {error}");
    }
    let missing = Authenticator::new(&config(&changed(file_line, "client_secret_file = '/no/such/file'"))).unwrap_err();
    assert!(matches!(missing, AuthConfigError::File { .. }), "{missing}");
    for (url, allowed) in [("https://10.0.0.7/ask", "10.0.0.0/8"), ("http://localhost:8080/ask", "other.example")] {
        let toml = format!("{}allow_private = ['{allowed}']\n", at(url));
        assert!(Authenticator::new(&config(&toml)).is_ok(), "{toml}");
    }
    assert!(!format!("{:?}", config(&good)).contains("a secret"));
}
