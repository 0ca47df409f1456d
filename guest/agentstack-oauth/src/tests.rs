//! Tests the extension as a host calls it, with an authorization server in memory.

use annex_sdk::http::{Error, ErrorCode, Response};
use annex_sdk::testing::{self, Host};
use annex_sdk::{Entry, Interruption, Location, MetadataEntry, Rejection, Request, Waiting};
use serde_json::{Value, json};

use crate::{Oauth, URI, url};

const CALLBACK: &str = "https://client.example.com/callback";
const KEY: &str = "0123456789abcdef0123456789abcdef";

fn parameters() -> Value {
    json!({
        "authorization_endpoint": "https://login.example.com/authorize",
        "token_endpoint": "https://login.example.com/token",
        "client_id": "annex agent",
        "scope": "read write",
        "redirect_uris": [CALLBACK],
    })
}

/// A host whose authorization server answers each request with this status and body.
fn host_with(status: u16, body: &'static str) -> Host {
    let host = Host::new().parameters(parameters().to_string()).secret("STATE_KEY", KEY);
    host.http(move |_| Ok(Response { status, fields: Vec::new(), body: body.into() }))
}

fn host() -> Host {
    host_with(200, r#"{"access_token": "t-0k3n", "token_type": "Bearer", "expires_in": 60}"#)
}

fn entry(value: &Value) -> Vec<MetadataEntry> {
    vec![MetadataEntry { location: Location::Message, key: URI.to_owned(), value: value.to_string() }]
}

fn of_task() -> Request {
    Request { task_id: Some("task-1".to_owned()), ..testing::request() }
}

fn validated(host: &Host, request: Request, value: &Value) -> Result<Option<String>, String> {
    host.validate::<Oauth>(request, entry(value)).map_err(|rejection| match rejection {
        Rejection::Violations(list) => list.into_iter().map(|one| format!("{} {}", one.pointer, one.message)).collect(),
        Rejection::Error(error) => panic!("{error:?}"),
    })
}

fn begun(host: &Host) -> Entry {
    host.begin::<Oauth>(testing::request(), testing::beginning()).unwrap()
}

/// Begins an authorization, and returns its URL.
fn asked(host: &Host) -> String {
    let fulfillments = json!({"oauth_fulfillments": {"default": {"redirect_uri": CALLBACK}}});
    assert_eq!(validated(host, testing::request(), &fulfillments), Ok(None));
    let Entry::Interrupt(Interruption { waiting, text, metadata }) = begun(host) else { panic!("the agent runs") };
    assert_eq!((waiting, text.as_str()), (Waiting::Authorization, "Authorization required"));
    let [(key, value)] = metadata.as_slice() else { panic!("one entry: {metadata:?}") };
    assert_eq!(key, URI);
    let value: Value = serde_json::from_str(value).unwrap();
    value["authorization_endpoint_url"].as_str().unwrap().to_owned()
}

fn answer(state: &str) -> Value {
    json!({"redirect_uri": format!("{CALLBACK}?code=c%2F0de&state={state}")})
}

#[test]
fn a_task_waits_for_a_code_and_the_agent_gets_the_token() {
    let host = host();
    let asked = asked(&host);
    assert!(asked.starts_with("https://login.example.com/authorize?response_type=code&client_id=annex%20agent&"));
    let field = |name: &str| url::field(&asked, name).unwrap();
    assert_eq!((field("redirect_uri"), field("scope")), (CALLBACK.to_owned(), "read write".to_owned()));
    assert_eq!((field("code_challenge_method"), field("code_challenge").len()), ("S256".to_owned(), 43));
    let state = field("state");
    let delta = validated(&host, of_task(), &answer(&state)).unwrap().unwrap();
    assert_eq!(serde_json::from_str::<Value>(&delta).unwrap(), json!({"temp:oauth_token": "t-0k3n"}));
    assert!(matches!(begun(&host), Entry::Proceed));
    let sent = host.sent();
    assert_eq!(
        sent.iter().map(|request| request.url.as_str()).collect::<Vec<_>>(),
        ["https://login.example.com/token"]
    );
    let form = format!("?{}", String::from_utf8(sent[0].body.clone()).unwrap());
    assert_eq!(url::field(&form, "code").as_deref(), Some("c/0de"));
    assert_eq!(url::field(&form, "code_verifier").map(|verifier| verifier.len()), Some(43));
    // The answer ends its authorization.
    let again = validated(&host, of_task(), &answer(&state)).unwrap_err();
    assert!(again.contains("belongs to no authorization that is open"), "{again}");
    // The next message to the task has no token, and the client has named its redirect URI before.
    assert_eq!(validated(&host, of_task(), &json!({})), Ok(None));
    assert!(matches!(begun(&host), Entry::Interrupt(_)));
}

#[test]
fn a_client_without_a_redirect_uri_is_rejected() {
    let host = host();
    assert_eq!(validated(&host, testing::request(), &json!({})), Ok(None));
    match begun(&host) {
        Entry::Veto(reason) => assert!(reason.contains("names no redirect URI"), "{reason}"),
        other => panic!("{other:?}"),
    }
    let other = json!({"oauth_fulfillments": {"default": {"redirect_uri": "https://evil.example/callback"}}});
    let refused = validated(&host, testing::request(), &other).unwrap_err();
    assert!(
        refused
            .ends_with("/oauth_fulfillments/default/redirect_uri is none of the redirect URIs that the agent allows")
    );
}

#[test]
fn a_forged_answer_gets_no_token_and_asks_nobody() {
    for (answer, expected) in [
        (json!("c0de"), "is not an object"),
        (json!({"redirect_uri": 1}), "is not a text"),
        (json!({"redirect_uri": "https://evil.example/callback?code=c0de&state=s"}), "is not at the redirect URI"),
        (json!({"redirect_uri": format!("{CALLBACK}?code=c0de&state=forged")}), "belongs to no authorization"),
        (json!({"redirect_uri": format!("{CALLBACK}?code=c0de")}), "belongs to no authorization"),
    ] {
        let host = host();
        asked(&host);
        let refused = validated(&host, of_task(), &answer).unwrap_err();
        assert!(refused.contains(expected) && !refused.contains("c0de"), "{answer}: {refused}");
        assert!(host.sent().is_empty(), "{answer}");
    }
    let refused = validated(&host(), of_task(), &answer("s")).unwrap_err();
    assert!(refused.contains("answers no authorization of this task"), "{refused}");
    let refused = validated(&host(), testing::request(), &answer("s")).unwrap_err();
    assert!(refused.contains("answers no task"), "{refused}");
}

#[test]
fn the_log_says_why_the_token_endpoint_cannot_be_called() {
    let host = host().http(|_| Err(Error::Failed(ErrorCode::ConnectionRefused)));
    let state = url::field(&asked(&host), "state").unwrap();
    let refused = validated(&host, of_task(), &answer(&state)).unwrap_err();
    assert!(refused.ends_with("the token endpoint cannot be called"), "{refused}");
    let log = host.log();
    let [line] = log.as_slice() else { panic!("one line: {log:?}") };
    assert!(line.starts_with("warn: ") && line.contains("ConnectionRefused"), "{line}");
}

#[test]
fn a_server_that_gives_no_token_is_named_without_its_answer() {
    for (status, body, expected) in [
        (400, r#"{"error": "invalid_grant", "error_description": "t-0k3n"}"#, "with the status 400 (invalid_grant)"),
        (302, "", "with the status 302"),
        (200, "t-0k3n", "has none"),
        (200, r#"{"access_token": "t-0k3n", "token_type": "mac"}"#, "no bearer token"),
        (200, r#"{"access_token": "t-0k3n\n", "token_type": "bearer"}"#, "characters that no header field has"),
    ] {
        let host = host_with(status, body);
        let state = url::field(&asked(&host), "state").unwrap();
        let refused = validated(&host, of_task(), &answer(&state)).unwrap_err();
        assert!(refused.contains(expected) && !refused.contains("t-0k3n"), "{body}: {refused}");
    }
    let host = host();
    let state = url::field(&asked(&host), "state").unwrap();
    let denied = json!({"redirect_uri": format!("{CALLBACK}?error=access_denied%0A&state={state}")});
    let refused = validated(&host, of_task(), &denied).unwrap_err();
    assert!(refused.ends_with("access was not granted: access_denied"), "{refused}");
}

#[test]
fn parameters_that_cannot_work_stop_the_load() {
    for (key, value, expected) in [
        ("token_endpoint", json!("login.example.com"), "begins with https://"),
        ("authorization_endpoint", json!("https://a.example/#x"), "no fragment"),
        ("redirect_uris", json!(["https://a.example/?x"]), "has a query"),
        ("client_secret", json!("ABSENT"), "there is no secret \"ABSENT\""),
        ("state_key", json!("SHORT"), "less than 32"),
    ] {
        let mut parameters = parameters();
        parameters[key] = value;
        let host = Host::new().parameters(parameters.to_string()).secret("STATE_KEY", KEY).secret("SHORT", "short");
        let error = host.descriptor::<Oauth>().unwrap_err();
        assert!(error.contains(expected), "{key}: {error}");
    }
}
