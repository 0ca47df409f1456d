//! Failed calls to the upstream, and the errors that callers get.

use annex_agent::AgentError;
use annex_protocol::A2aError;
use annex_upstream::{LostContext, UpstreamConfig};
use serde_json::{Value, json};

use crate::bench::{Bench, config};
use crate::upstream::{Answer, Upstream, task};

fn error(code: i64, message: &str) -> Value {
    json!({"code": code, "message": message})
}

/// The error of a turn whose first message the upstream refuses with `error`.
async fn refused(error: Value) -> AgentError {
    let upstream = Upstream::start(false, move |_, _, _| Answer::Error(error.clone())).await;
    let turn = Bench::new(&upstream).await.say("t").await;
    assert!(turn.events.is_empty(), "{turn:?}");
    turn.result.unwrap_err()
}

type AnswerFunction = fn(&str) -> Answer;

#[tokio::test]
async fn an_error_about_the_request_is_the_callers() {
    let field = json!([{"@type": "type.googleapis.com/google.rpc.BadRequest",
        "fieldViolations": [{"field": "message.parts[0]", "description": "is not to my taste"}]}]);
    let mut invalid = error(-32_602, "Invalid parameters");
    invalid["data"] = field;
    match refused(invalid).await {
        AgentError::Refused(A2aError::InvalidParams { violations }) => {
            assert_eq!((violations.len(), violations[0].field.as_str()), (1, "message.parts[0]"));
        }
        other => panic!("{other:?}"),
    }
    match refused(error(-32_004, "not today")).await {
        AgentError::Refused(A2aError::UnsupportedOperation { reason }) => assert_eq!(reason, "not today"),
        other => panic!("{other:?}"),
    }
    let media_type = refused(error(-32_005, "what is that")).await;
    assert!(matches!(media_type, AgentError::Refused(A2aError::ContentTypeNotSupported { .. })), "{media_type:?}");
}

#[tokio::test]
async fn an_error_of_any_length_is_passed_on_cut() {
    let long = "é".repeat(5_000);
    let field = json!({"field": long, "description": long});
    let request = json!({"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": vec![field; 70]});
    let info = json!({"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "CONTENT_TYPE_NOT_SUPPORTED",
        "domain": "a2a-protocol.org", "metadata": {"contentType": long}});
    let most = 1_200;
    for (code, data, most) in [
        (-32_602, json!([]), most),
        (-32_602, json!([request]), 64 * 2 * most),
        (-32_004, json!([]), most),
        (-32_005, json!([info]), most),
    ] {
        let mut failed = error(code, &long);
        failed["data"] = data;
        let upstream = Upstream::start(false, move |_, _, _| Answer::Error(failed.clone())).await;
        let config = UpstreamConfig { max_answer_bytes: 4 << 20, ..config(&upstream.url) };
        match Bench::with(config).await.say("t").await.result.unwrap_err() {
            AgentError::Refused(error) => {
                let text = error.to_string();
                assert!(text.contains("éé…") && text.len() <= most, "{code}: {} bytes", text.len());
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn other_faults_are_told_by_their_kind_and_without_a_word_of_the_upstream() {
    let large = "secret".repeat(30_000);
    let cases: [(AnswerFunction, &str); 5] = [
        (|_| Answer::Error(error(-32_603, "secret")), "The agent behind this server answered with an error."),
        (|_| Answer::Error(error(-32_001, "secret")), "The agent behind this server answered with an error."),
        (
            |_| Answer::Status(502, "<html>secret</html>".to_owned()),
            "The agent behind this server answered with the HTTP status 502 Bad Gateway.",
        ),
        (|_| Answer::Result(json!({"secret": {}})), "The agent behind this server answered something else than A2A."),
        (|large| Answer::Status(200, large.to_owned()), "The answer of the agent behind this server is too large."),
    ];
    for (answer, expected) in cases {
        let large = large.clone();
        let upstream = Upstream::start(false, move |_, _, _| answer(&large)).await;
        let turn = Bench::new(&upstream).await.say("t").await;
        assert!(matches!(turn.result, Err(AgentError::Broken { .. })), "{turn:?}");
        assert_eq!(turn.failure(), expected);
    }
}

#[tokio::test]
async fn an_http_status_is_told_as_what_it_says() {
    for streaming in [false, true] {
        for (status, expected) in [
            (401, "does not accept the credentials"),
            (403, "does not accept the credentials"),
            (307, "answered with a redirect (307)"),
            (404, "the HTTP status 404 Not Found"),
        ] {
            let answer = move |_: usize, _: &str, _: &Value| Answer::Status(status, "secret".to_owned());
            let failure = Bench::new(&Upstream::start(streaming, answer).await).await.say("t").await.failure();
            assert!(failure.contains(expected) && !failure.contains("secret"), "{status}: {failure}");
        }
    }
}

#[tokio::test]
async fn an_upstream_that_takes_no_message_now_refuses_it_and_says_when_it_may_come_again() {
    let details = |reason: &str| json!([{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason}]);
    let unavailable = json!({"code": -32_000, "message": "secret", "data": details("OVERLOADED")});
    let cases: [(Answer, &str); 3] = [
        (Answer::Later(503, "30"), "in 30 s"),
        (Answer::Later(429, "soon"), "accepts no messages now"),
        (Answer::Error(unavailable), "accepts no messages now"),
    ];
    for (answer, expected) in cases {
        let upstream = Upstream::start(true, move |_, _, _| answer.clone()).await;
        match Bench::new(&upstream).await.say("t").await.result.unwrap_err() {
            AgentError::Refused(error @ A2aError::Unavailable { .. }) => {
                assert!(error.to_string().contains(expected) && !error.to_string().contains("secret"), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_task_that_takes_no_message_any_more_goes_on_waiting() {
    let upstream = Upstream::start(false, |number, _, _| match number {
        0 => Answer::Result(json!({"task": task(0, "INPUT_REQUIRED")})),
        _ => Answer::Error(error(-32_004, "it has ended")),
    })
    .await;
    let bench = Bench::new(&upstream).await;
    bench.say("t").await.result.unwrap();
    match bench.say("t").await.result.unwrap_err() {
        AgentError::Refused(A2aError::UnsupportedOperation { reason }) => assert_eq!(reason, "it has ended"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_conversation_or_a_task_that_the_upstream_has_lost_is_told_apart() {
    for (state, expected) in
        [("COMPLETED", "does not know this conversation"), ("INPUT_REQUIRED", "does not know the task")]
    {
        let upstream = Upstream::start(false, move |number, _, _| match number {
            0 => Answer::Result(json!({"task": task(0, state)})),
            _ => Answer::Error(error(-32_001, "not found")),
        })
        .await;
        let bench = Bench::new(&upstream).await;
        bench.say("t").await.result.unwrap();
        let next = if state == "COMPLETED" { "t-2" } else { "t" };
        let failure = bench.say(next).await.failure();
        assert!(failure.contains(expected), "{failure}");
    }
}

#[tokio::test]
async fn a_lost_conversation_begins_anew_where_the_config_wants_it() {
    let upstream = Upstream::start(false, |number, _, params| match params["message"]["contextId"].as_str() {
        Some(_) => Answer::Error(error(-32_001, "not found")),
        None => {
            let mut done = task(number, "COMPLETED");
            done["contextId"] = format!("theirs-{number}").into();
            Answer::Result(json!({"task": done}))
        }
    })
    .await;
    let on_lost_context = LostContext::Restart;
    let bench = Bench::with(UpstreamConfig { on_lost_context, ..config(&upstream.url) }).await;
    bench.say("t-1").await.result.unwrap();
    bench.say("t-2").await.result.unwrap();
    assert_eq!(bench.ids().context.as_deref(), Some(r#"{"context":"theirs-2"}"#), "the one of the second attempt");
}

#[tokio::test]
async fn an_answer_of_another_task_fails_the_turn_and_nobody_hears_it() {
    let upstream = Upstream::start(true, |_, _, _| {
        let mut other = task(1, "WORKING");
        other["artifacts"] = json!([{"artifactId": "a", "parts": [{"text": "not for you"}]}]);
        Answer::Stream(vec![json!({"task": task(0, "WORKING")}), json!({"task": other})])
    })
    .await;
    let turn = Bench::new(&upstream).await.say("t").await;
    assert_eq!(turn.failure(), "The agent behind this server answered something else than A2A.");
    assert!(turn.events.iter().all(|event| !event.to_string().contains("not for you")), "{turn:?}");
    // The client of the first task has gone.
    let last = upstream.asked().pop().unwrap();
    assert_eq!((last.method.as_str(), &last.params["id"]), ("CancelTask", &json!("task-0")));
}
