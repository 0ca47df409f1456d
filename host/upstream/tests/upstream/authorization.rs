//! Access tokens of requests to the upstream.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use annex_agent::{AgentError, CallerToken, TurnStart, UpstreamContext};
use annex_protocol::{A2aError, Secret};
use annex_upstream::{Credentials, UpstreamConfig};
use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::net::TcpListener;

use crate::bench::{Bench, Call, Turn, config};
use crate::upstream::{Answer, RecordedRequest, Upstream, task};

/// The token of the caller in the tests.
const OF_ADA: &str = "token-of-ada";

/// An authorization server that numbers its tokens: `token-0`, `token-1` and so on.
struct Issuer {
    url: String,
    /// The bodies of the requests so far.
    requests: Arc<Mutex<Vec<String>>>,
    /// The status and the body of all answers from now on, in place of a token.
    fault: Arc<Mutex<Option<(StatusCode, Value)>>>,
    secret: NamedTempFile,
}

impl Issuer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/token", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let fault = Arc::new(Mutex::new(None));
        let (seen, answers) = (Arc::clone(&requests), Arc::clone(&fault));
        let answered = move |body: String| {
            let mut seen = seen.lock().unwrap();
            let granted = json!({"access_token": format!("token-{}", seen.len()), "token_type": "Bearer"});
            seen.push(body);
            let answer: Option<(StatusCode, Value)> = answers.lock().unwrap().clone();
            let (status, body) = answer.unwrap_or((StatusCode::OK, granted));
            std::future::ready((status, [("content-type", "application/json")], body.to_string()))
        };
        tokio::spawn(async move { axum::serve(listener, Router::new().route("/token", post(answered))).await });
        let secret = NamedTempFile::new().unwrap();
        std::fs::write(secret.path(), "the secret of the client").unwrap();
        Self { url, requests, fault, secret }
    }

    /// The config of an agent in front of `upstream` with further keys of `oauth`.
    fn config(&self, upstream: &Upstream, more: &Value) -> UpstreamConfig {
        let mut oauth = json!({"token_url": self.url, "client_id": "annex", "client_secret_file": self.secret.path()});
        oauth.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        UpstreamConfig { oauth: Some(serde_json::from_value(oauth).unwrap()), ..config(&upstream.url) }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn exchange() -> Value {
    json!({"grant": "token_exchange"})
}

fn authorization(request: &RecordedRequest) -> &str {
    request.headers["authorization"].to_str().unwrap()
}

fn tokens(upstream: &Upstream) -> Vec<String> {
    upstream.asked().iter().map(|request| authorization(request).to_owned()).collect()
}

async fn say_as(bench: &Bench, task: &'static str, told: fn(&mut UpstreamContext)) -> Turn {
    bench.call(Call { told, ..Call::new(task) }).await
}

fn ada(remote: &mut UpstreamContext) {
    remote.caller_token = CallerToken::Verified(Secret::new(OF_ADA));
}

/// Moves the clock forward. The clock is paused only for this moment, because sockets need it to run.
async fn pass(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn all_calls_of_a_server_have_its_own_token_which_is_fetched_once() {
    let issuer = Issuer::start().await;
    let upstream = Upstream::start(false, |number, method, _| {
        let state = if method == "GetTask" { "COMPLETED" } else { "WORKING" };
        let task = task(number / 2, state);
        Answer::Result(if method == "GetTask" { task } else { json!({"task": task}) })
    })
    .await;
    let bench = Bench::with(issuer.config(&upstream, &json!({"scope": "ask"}))).await;
    for task in ["one", "two"] {
        bench.say(task).await.result.unwrap();
    }
    assert_eq!(tokens(&upstream), vec!["Bearer token-0"; 4]);
    assert_eq!(issuer.requests(), ["grant_type=client_credentials&scope=ask"]);
}

#[tokio::test]
async fn the_token_of_a_caller_is_exchanged_and_reaches_the_upstream_nowhere() {
    let issuer = Issuer::start().await;
    let upstream = Upstream::completing().await;
    let bench = Bench::with(issuer.config(&upstream, &exchange())).await;
    for task in ["one", "two"] {
        say_as(&bench, task, ada).await.result.unwrap();
    }
    say_as(&bench, "of-bob", |remote| remote.caller_token = CallerToken::Verified(Secret::new("token-of-bob")))
        .await
        .result
        .unwrap();
    assert_eq!(tokens(&upstream), ["Bearer token-0", "Bearer token-0", "Bearer token-1"]);
    let requests = issuer.requests();
    assert_eq!(requests.len(), 2);
    assert!(requests[0].contains("subject_token=token-of-ada&"), "{requests:?}");
    for RecordedRequest { headers, params, .. } in upstream.asked() {
        assert!(!format!("{headers:?}{params}").contains("token-of-"), "{headers:?}{params}");
    }
}

#[tokio::test]
async fn a_turn_without_a_token_of_its_caller_is_refused_before_anything_is_sent() {
    let issuer = Issuer::start().await;
    let upstream = Upstream::completing().await;
    let fallback = json!({"grant": "token_exchange", "fallback": "client_credentials"});
    let plain = Bench::with(issuer.config(&upstream, &exchange())).await;
    let falling_back = Bench::with(issuer.config(&upstream, &fallback)).await;
    for bench in [&plain, &falling_back] {
        match say_as(bench, "of-nobody", |remote| remote.caller_token = CallerToken::Absent).await.result.unwrap_err() {
            AgentError::Refused(A2aError::Unauthenticated { reason, challenge }) => {
                assert!(reason.contains("no bearer token") && challenge.starts_with("Bearer "), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
    let gone = say_as(&plain, "gone", |remote| remote.caller_token = CallerToken::Gone).await;
    assert!(matches!(gone.result, Err(AgentError::Refused(A2aError::Unauthenticated { .. }))), "{gone:?}");
    let lost = say_as(&plain, "lost", |remote| remote.begins_with = TurnStart::LostTurn).await;
    assert!(matches!(&lost.result, Err(AgentError::Failed { message }) if message.contains("token of its caller")));
    assert!(upstream.asked().is_empty() && issuer.requests().is_empty());

    say_as(&falling_back, "gone", |remote| remote.caller_token = CallerToken::Gone).await.result.unwrap();
    say_as(&falling_back, "of-ada", ada).await.result.unwrap();
    assert_eq!(tokens(&upstream), ["Bearer token-0", "Bearer token-1"]);
    assert_eq!(issuer.requests()[0], "grant_type=client_credentials");
}

#[tokio::test]
async fn a_token_that_the_upstream_does_not_accept_is_replaced_and_the_message_sent_once_more() {
    let info = json!({"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "UNAUTHENTICATED", "domain": "d"});
    let error = json!({"code": -32_000, "message": "expired", "data": [info]});
    let bare = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32_000, "message": "expired"}}).to_string();
    for refusal in [Answer::Status(401, "expired".to_owned()), Answer::Status(401, bare), Answer::Error(error)] {
        let issuer = Issuer::start().await;
        let answer = move |number, _: &str, _: &Value| match number {
            1 | 3 | 4 => refusal.clone(),
            number => Answer::Result(json!({"task": task(number, "COMPLETED")})),
        };
        let upstream = Upstream::start(false, answer).await;
        let bench = Bench::with(issuer.config(&upstream, &json!({}))).await;
        bench.say("one").await.result.unwrap();
        pass(2).await;
        bench.say("two").await.result.unwrap();
        pass(2).await;
        let denied = bench.say("three").await.failure();
        assert!(denied.contains("does not accept the credentials of this server"), "{denied}");
        let expected = [0, 0, 1, 1, 2].map(|number| format!("Bearer token-{number}"));
        assert_eq!(tokens(&upstream), expected);
        assert_eq!(issuer.requests().len(), 3);
    }
}

#[tokio::test]
async fn a_token_that_has_just_been_fetched_is_not_replaced() {
    let issuer = Issuer::start().await;
    let upstream = Upstream::start(false, |_, _, _| Answer::Status(401, String::new())).await;
    let bench = Bench::with(issuer.config(&upstream, &json!({}))).await;
    assert!(bench.say("t").await.failure().contains("does not accept the credentials"));
    assert_eq!((upstream.asked().len(), issuer.requests().len()), (1, 1));
}

#[tokio::test]
async fn without_a_token_nothing_is_sent_and_the_caller_reads_that_this_server_cannot_authenticate() {
    let issuer = Issuer::start().await;
    let upstream = Upstream::completing().await;
    let bench = Bench::with(issuer.config(&upstream, &exchange())).await;
    let refusal = json!({"error": "invalid_request", "error_description": "token-of-ada is stale"});
    *issuer.fault.lock().unwrap() = Some((StatusCode::BAD_REQUEST, refusal));
    // More often than the failures that open the circuit.
    for _ in 0..7 {
        let turn = say_as(&bench, "t", ada).await;
        assert_eq!(turn.failure(), "This server cannot authenticate to the agent behind it.");
        let Err(AgentError::Broken { source, .. }) = turn.result else { panic!("not broken") };
        let text = annex_text::with_causes(&*source);
        assert!(text.contains("\"invalid_request\" ((hidden) is stale)"), "{text}");
    }
    assert!(upstream.asked().is_empty());
    *issuer.fault.lock().unwrap() = None;
    pass(2).await;
    say_as(&bench, "t", ada).await.result.unwrap();
}

#[tokio::test]
async fn the_field_of_the_token_is_set_by_nothing_else() {
    let issuer = Issuer::start().await;
    let upstream = Upstream::completing().await;
    let config = || issuer.config(&upstream, &json!({}));
    config().check_environment().unwrap();
    let credentials = Some(Credentials { header: "Authorization".to_owned(), env: "PATH".to_owned() });
    let headers_forward = vec!["authorization".to_owned()];
    for (wrong, expected) in [
        (UpstreamConfig { credentials, ..config() }, "credentials.header is \"authorization\", which `oauth`"),
        (UpstreamConfig { headers_forward, ..config() }, "headers_forward has \"authorization\", which `oauth`"),
        (issuer.config(&upstream, &json!({"token_url": "http://issuer.example"})), "oauth.token_url must be https"),
        (issuer.config(&upstream, &json!({"client_id": ""})), "oauth.client_id must be"),
    ] {
        let error = wrong.check().unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
