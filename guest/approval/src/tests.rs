//! Tests the extension as a host calls it.

use annex_sdk::testing::{self, Bucket, Host};
use annex_sdk::{Entry, Identity, Outcome, Rejection, Request, Ruling, ToolCall, ToolVerdict};
use serde_json::{Value, json};
use std::time::Duration;

use crate::parameters::{AGENTSTACK_URI, URI};
use crate::{Approval, course, digest};

const ARGUMENTS: &str = r#"{"to":"bob","amount":5}"#;

fn host(parameters: &Value) -> Host {
    Host::new().parameters(parameters.to_string()).clock("2026-01-01T00:00:00Z").caller(testing::identity("ada"))
}

fn call(has_waited: bool) -> ToolCall {
    ToolCall { arguments: ARGUMENTS.to_owned(), has_waited, ..testing::tool_call("pay") }
}

fn second_call(has_waited: bool) -> ToolCall {
    ToolCall { id: "call-2".to_owned(), arguments: "{}".to_owned(), ..call(has_waited) }
}

fn request() -> Request {
    Request { task_id: Some("task-1".to_owned()), ..testing::request() }
}

/// A turn of a task with a message, up to the question about the call.
fn ask(host: &Host, metadata: &Value, call: ToolCall) -> Result<ToolVerdict, Rejection> {
    let message = json!({"messageId": "m", "role": "ROLE_USER", "taskId": "task-1", "parts": [], "metadata": metadata});
    host.check::<Approval>(request(), message.to_string())?;
    assert_eq!(host.begin::<Approval>(request(), testing::beginning()), Ok(Entry::Proceed));
    Ok(host.before_tool::<Approval>(call).unwrap().0)
}

/// The metadata with which a call waits.
fn shown(verdict: ToolVerdict) -> Value {
    let ToolVerdict::Wait(pause) = verdict else { panic!("{verdict:?}") };
    serde_json::from_str(&pause.metadata[0].1).unwrap()
}

fn wait(host: &Host) -> Value {
    shown(ask(host, &json!({}), call(false)).unwrap())
}

fn decision(shown: &Value, decision: &str) -> Value {
    json!({URI: {"call": shown["call"], "digest": shown["digest"], "decision": decision}})
}

fn decide(host: &Host, shown: &Value, changes: &[(&str, Value)]) -> Result<Value, (String, String)> {
    let mut params = json!({"task": "task-1", "call": shown["call"], "digest": shown["digest"], "decision": "approve"});
    for (member, value) in changes {
        params[*member] = value.clone();
    }
    match host.call::<Approval>(testing::request(), course::DECIDE, params.to_string()) {
        Ok(annex_sdk::Answer::Value(value)) => Ok(serde_json::from_str(&value).unwrap()),
        Err(Rejection::Violations(violations)) => Err((violations[0].pointer.clone(), violations[0].message.clone())),
        other => panic!("{other:?}"),
    }
}

fn pointer_and_reason(refused: Result<ToolVerdict, Rejection>) -> (String, String) {
    match refused {
        Err(Rejection::Violations(violations)) => (violations[0].pointer.clone(), violations[0].message.clone()),
        other => panic!("{other:?}"),
    }
}

fn denied(verdict: Result<ToolVerdict, Rejection>) -> String {
    match verdict {
        Ok(ToolVerdict::Deny(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_call_waits_and_is_made_once_its_owner_approves() {
    let host = host(&json!({}));
    let asked = wait(&host);
    let expected = digest::of_call("pay", &serde_json::from_str(ARGUMENTS).unwrap());
    let metadata = json!({
        "action": "tool-call", "name": "pay", "origin": "tools", "input": {"to": "bob", "amount": 5},
        "call": "call-1", "digest": expected, "expires": "2026-01-01T01:00:00.000Z", "quorum": 1, "approved": 0,
    });
    assert_eq!(asked, metadata);
    assert_eq!(shown(ask(&host, &json!({}), call(true)).unwrap()), metadata, "a message alone lets it wait on");
    assert_eq!(ask(&host, &decision(&asked, "approve"), call(true)), Ok(ToolVerdict::Pass));
    assert!(denied(ask(&host, &json!({}), call(true))).contains("was used before"));
}

#[test]
fn the_card_shows_how_approvals_are_made() {
    let params = host(&json!({"acceptance": true, "seconds": 60})).declare::<Approval>().unwrap().params.unwrap();
    assert_eq!(params, r#"{"quorum":1,"seconds":60,"acceptance":true}"#);
}

#[test]
fn a_tool_that_no_pattern_names_is_called_at_once() {
    let host = host(&json!({"tools": ["refund", "delete*"]}));
    assert_eq!(ask(&host, &json!({}), call(false)), Ok(ToolVerdict::Pass));
    assert!(host.keys(Bucket::Lasting).is_empty());
}

#[test]
fn a_rejected_call_is_not_made() {
    let host = host(&json!({}));
    let asked = wait(&host);
    assert!(denied(ask(&host, &decision(&asked, "reject"), call(true))).contains("was rejected"));
    assert_eq!(decide(&host, &asked, &[]).unwrap_err().1, "was rejected before");
}

#[test]
fn only_approvers_decide() {
    let host = host(&json!({"approvers": ["principal:eve", "claim:role=boss"]}));
    let asked = wait(&host);
    let (place, reason) = pointer_and_reason(ask(&host, &decision(&asked, "approve"), call(true)));
    assert_eq!(place, format!("/message/metadata/{}", URI.replace('/', "~1")));
    assert!(reason.contains("may not decide"), "{reason}");
    let stranger = Identity { claims: r#"{"role":"clerk"}"#.to_owned(), ..testing::identity("bob") };
    for caller in [stranger, Identity { principal: None, ..testing::identity("") }] {
        let host = Host::new().caller(caller.clone());
        let refused = host.parameters(json!({"approvers": ["principal:eve"]}).to_string());
        assert!(decide(&refused, &asked, &[]).unwrap_err().1.contains("may not decide"), "{caller:?}");
    }
    let boss = Identity { claims: r#"{"role":["boss"]}"#.to_owned(), ..testing::identity("bob") };
    let host = host.caller(boss).waiting(["task-1"]);
    assert_eq!(decide(&host, &asked, &[]).unwrap()["resumed"], true);
    assert_eq!(host.resumed(), ["task-1"]);
}

#[test]
fn without_approvers_nobody_decides_but_the_owner() {
    let host = host(&json!({}));
    let asked = wait(&host);
    let anonymous = Identity { presence: annex_sdk::Presence::Anonymous, principal: None, ..testing::identity("") };
    let hidden = Identity { principal: None, ..testing::identity("") };
    let earlier = Identity { presence: annex_sdk::Presence::Earlier, ..testing::identity("ada") };
    let mut host = host;
    for caller in [testing::identity("bob"), anonymous, hidden.clone(), earlier] {
        host = host.caller(caller.clone());
        let refused = decide(&host, &asked, &[]).unwrap_err();
        // The same as for a task that does not wait: who does not own the task must not learn that it does.
        assert_eq!(refused, decide(&host, &asked, &[("task", json!("task-9"))]).unwrap_err(), "{caller:?}");
        assert_eq!(refused.1, "has nothing that waits for a decision of this caller");
    }
    let host = host.caller(hidden);
    let error = host.before_tool::<Approval>(call(false)).unwrap_err();
    assert!(error.contains("principal = true"), "{error}");
}

#[test]
fn a_decision_counts_once() {
    let parameters = json!({"approvers": ["principal:ada", "principal:eve"], "quorum": 2});
    let host = host(&parameters).waiting(["task-1"]);
    let asked = wait(&host);
    let once = decide(&host, &asked, &[]).unwrap();
    assert_eq!((once["approved"].clone(), once["resumed"].clone()), (json!(1), json!(false)));
    assert!(decide(&host, &asked, &[]).unwrap_err().1.contains("decides once"));
    let by_message = pointer_and_reason(ask(&host, &decision(&asked, "reject"), call(true)));
    assert!(by_message.1.contains("decides once"), "{by_message:?}");
    assert_eq!(shown(ask(&host, &json!({}), call(true)).unwrap())["approved"], 1);
    let host = host.caller(testing::identity("eve"));
    assert_eq!(decide(&host, &asked, &[]).unwrap()["approved"], 2);
    let host = host.caller(testing::identity("ada"));
    assert_eq!(ask(&host, &json!({}), call(true)), Ok(ToolVerdict::Pass));
}

#[test]
fn an_approval_is_for_the_arguments_that_were_shown() {
    let host = host(&json!({}));
    let asked = wait(&host);
    let other = digest::of_call("pay", &json!({"to": "eve", "amount": 500}));
    assert_eq!(decide(&host, &asked, &[("digest", json!(other))]).unwrap_err().0, "/digest");
    decide(&host, &asked, &[]).unwrap();
    let changed = ToolCall { arguments: r#"{"to":"eve","amount":500}"#.to_owned(), ..call(true) };
    assert!(denied(ask(&host, &json!({}), changed)).contains("not those that were shown"));
}

#[test]
fn an_approval_expires_before_the_decision_and_before_the_release() {
    let host = host(&json!({"seconds": 60})).waiting(["task-1"]);
    let asked = wait(&host);
    decide(&host, &asked, &[]).unwrap();
    host.advance(Duration::from_secs(60));
    assert!(denied(ask(&host, &json!({}), call(true))).contains("has expired"));
    let host = self::host(&json!({"seconds": 60}));
    let asked = wait(&host);
    host.advance(Duration::from_secs(60));
    let (_, reason) = decide(&host, &asked, &[]).unwrap_err();
    assert_eq!(reason, "is too late: the request expired at 2026-01-01T00:01:00.000Z");
}

#[test]
fn a_decision_is_for_one_task_and_one_call() {
    let host = host(&json!({}));
    let asked = wait(&host);
    let refused = decide(&host, &asked, &[("task", json!("task-2"))]).unwrap_err();
    assert_eq!(refused, ("/task".to_owned(), "has nothing that waits for a decision of this caller".to_owned()));
    assert_eq!(decide(&host, &asked, &[("call", json!("call-9"))]).unwrap_err().0, "/call");
    // A later turn shows another call of the task. The digest of the first is not for it.
    let second = shown(ask(&host, &json!({}), second_call(false)).unwrap());
    assert_eq!(decide(&host, &second, &[("digest", asked["digest"].clone())]).unwrap_err().0, "/digest");
    assert_eq!(decide(&host, &asked, &[]).unwrap_err().1, "is not what the task waits for now");
    // A turn that shows the first call again lets the task wait for it again.
    assert_eq!(shown(ask(&host, &json!({}), call(true)).unwrap()), asked);
    assert_eq!(decide(&host, &second, &[]).unwrap_err().1, "is not what the task waits for now");
    decide(&host, &asked, &[]).unwrap();
}

#[test]
fn of_two_calls_in_one_turn_the_first_is_decided_about_first() {
    for (wire, uri) in [("own", URI), ("agentstack", AGENTSTACK_URI)] {
        let host = host(&json!({"wire": wire}));
        let decided = |asked: &Value| match wire {
            "own" => decision(asked, "approve"),
            _ => json!({ uri: {"decision": "approve"} }),
        };
        let first = shown(ask(&host, &json!({ uri: {} }), call(false)).unwrap());
        // The host shows the wait of the first call alone.
        shown(host.before_tool::<Approval>(second_call(false)).unwrap().0);
        // A message without a decision changes nothing.
        assert_eq!(shown(ask(&host, &json!({ uri: {} }), call(true)).unwrap()), first);
        shown(host.before_tool::<Approval>(second_call(false)).unwrap().0);
        assert_eq!(ask(&host, &decided(&first), call(true)), Ok(ToolVerdict::Pass), "{wire}");
        // The decision about the first call is none about the second.
        let second = shown(host.before_tool::<Approval>(second_call(false)).unwrap().0);
        assert_eq!(second["input"], json!({}));
        assert_eq!(ask(&host, &decided(&second), second_call(true)), Ok(ToolVerdict::Pass), "{wire}");
    }
}

#[test]
fn a_released_call_is_not_decided_about_again() {
    let host = host(&json!({"approvers": ["principal:ada", "principal:eve"]}));
    let asked = wait(&host);
    assert_eq!(ask(&host, &decision(&asked, "approve"), call(true)), Ok(ToolVerdict::Pass));
    let host = host.caller(testing::identity("eve"));
    assert_eq!(
        decide(&host, &asked, &[]).unwrap_err(),
        ("/call".to_owned(), "was approved and released before".to_owned())
    );
}

#[test]
fn a_message_with_a_malformed_decision_is_refused() {
    let host = host(&json!({}));
    let asked = wait(&host);
    for wrong in [
        json!(true),
        json!({"decision": "approve"}),
        json!({"call": "call-1", "digest": asked["digest"], "decision": "yes"}),
    ] {
        assert!(pointer_and_reason(ask(&host, &json!({ URI: wrong }), call(true))).1.contains("is no decision"));
    }
    let message = json!({"parts": [], "metadata": decision(&asked, "approve")}).to_string();
    let Err(Rejection::Violations(refused)) = host.check::<Approval>(testing::request(), message) else { panic!() };
    assert_eq!(refused[0].pointer, "/message/taskId");
}

#[test]
fn agentstacks_wire_has_its_own_uri_and_fields() {
    let host = host(&json!({"wire": "agentstack"}));
    assert_eq!(host.descriptor::<Approval>().unwrap().uri, AGENTSTACK_URI);
    assert_eq!(host.declare::<Approval>().unwrap().params.as_deref(), Some("{}"));
    let asked = shown(ask(&host, &json!({AGENTSTACK_URI: {}}), call(false)).unwrap());
    let expected = json!({
        "action": "tool-call", "title": null, "description": null, "name": "pay",
        "input": {"to": "bob", "amount": 5}, "server": null,
    });
    assert_eq!(asked, expected);
    let approved = json!({AGENTSTACK_URI: {"decision": "approve"}});
    assert_eq!(ask(&host, &approved, call(true)), Ok(ToolVerdict::Pass));
    let (place, reason) = pointer_and_reason(ask(&host, &approved, call(true)));
    assert_eq!(
        (place.as_str(), reason.as_str()),
        ("/message/taskId", "has nothing that waits for a decision of this caller")
    );
}

#[test]
fn a_task_completes_once_its_result_is_accepted() {
    let host = host(&json!({"acceptance": true, "tools": []}));
    let turn = |metadata: Value| {
        let message = json!({"parts": [], "metadata": metadata}).to_string();
        host.check::<Approval>(request(), message.clone()).unwrap();
        host.begin::<Approval>(request(), testing::beginning()).unwrap();
        let answer = host.before_agent::<Approval>(request(), message).unwrap();
        (answer, host.change::<Approval>(testing::change("TASK_STATE_COMPLETED")).unwrap())
    };
    let asked = |ruling: Ruling| -> Value {
        let Ruling::Interrupt(interruption) = ruling else { panic!("{ruling:?}") };
        serde_json::from_str(&interruption.metadata[0].1).unwrap()
    };
    let (answer, ruling) = turn(json!({}));
    assert_eq!(answer, None);
    let first = asked(ruling);
    assert_eq!((&first["action"], &first["call"]), (&json!("acceptance"), &json!("result-1")));
    // A message without a decision is for the agent, and its new result is asked about.
    let (answer, ruling) = turn(json!({}));
    assert_eq!(answer, None);
    let second = asked(ruling);
    assert_eq!(second["call"], "result-2");
    assert_eq!(decide(&host, &first, &[]).unwrap_err().1, "is not what the task waits for now");
    let (answer, ruling) = turn(decision(&second, "approve"));
    assert_eq!(answer.unwrap().outcome, Outcome::Completed);
    assert_eq!(ruling, Ruling::Pass);
}

#[test]
fn a_task_whose_result_is_rejected_ends() {
    let host = host(&json!({"acceptance": true}));
    host.begin::<Approval>(request(), testing::beginning()).unwrap();
    let Ok(Ruling::Interrupt(asked)) = host.change::<Approval>(testing::change("TASK_STATE_COMPLETED")) else {
        panic!()
    };
    let asked: Value = serde_json::from_str(&asked.metadata[0].1).unwrap();
    decide(&host, &asked, &[("decision", json!("reject"))]).unwrap();
    let answer = host.before_agent::<Approval>(request(), "{}").unwrap();
    assert_eq!(answer.unwrap().outcome, Outcome::Rejected);
}

#[test]
fn expired_requests_make_room_and_others_stay() {
    let host = host(&json!({"seconds": 60}));
    let asked = wait(&host);
    decide(&host, &asked, &[]).unwrap();
    let before = host.keys(Bucket::Lasting).len();
    host.advance(Duration::from_secs(600));
    let other = ToolCall { id: "call-2".to_owned(), ..call(false) };
    ask(&host, &json!({}), other).unwrap();
    assert!(host.keys(Bucket::Lasting).len() > before, "a late decision gets a clear error for ten minutes");
    host.advance(Duration::from_secs(61));
    let third = ToolCall { id: "call-3".to_owned(), ..call(false) };
    ask(&host, &json!({}), third).unwrap();
    assert_eq!(decide(&host, &asked, &[]).unwrap_err().0, "/call");
    // Two requests of two keys each, and the key of the task.
    assert_eq!(host.keys(Bucket::Lasting).len(), 5, "{:?}", host.keys(Bucket::Lasting));
}

#[test]
fn nothing_is_called_while_the_store_does_not_work() {
    let host = host(&json!({}));
    let asked = wait(&host);
    let host = host.failing(Bucket::Lasting, "out of reach");
    assert_eq!(host.before_tool::<Approval>(call(true)), Err("out of reach".to_owned()));
    assert_eq!(host.before_tool::<Approval>(call(false)), Err("out of reach".to_owned()));
    assert!(decide(&host, &asked, &[]).unwrap_err().1.contains("out of reach"));
}

#[test]
fn a_task_that_ends_leaves_no_request_that_waits() {
    for end in ["TASK_STATE_CANCELED", "TASK_STATE_FAILED", "TASK_STATE_COMPLETED", "TASK_STATE_REJECTED"] {
        let host = host(&json!({"approvers": ["principal:ada", "principal:eve"], "quorum": 2}));
        let asked = wait(&host);
        decide(&host, &asked, &[]).unwrap();
        assert_eq!(host.change::<Approval>(testing::change("TASK_STATE_WORKING")), Ok(Ruling::Pass));
        assert!(!host.keys(Bucket::Lasting).is_empty());
        assert_eq!(host.change::<Approval>(testing::change(end)), Ok(Ruling::Pass));
        assert!(host.keys(Bucket::Lasting).is_empty(), "{end}: {:?}", host.keys(Bucket::Lasting));
        assert_eq!(decide(&host, &asked, &[]).unwrap_err().0, "/task");
    }
}

#[test]
fn nothing_more_waits_once_the_keys_are_full() {
    for full in ["there are 9 keys, and no more are allowed", "keys and values would be larger than 9 bytes together"] {
        let host = host(&json!({"acceptance": true})).failing(Bucket::Lasting, full);
        assert!(denied(Ok(host.before_tool::<Approval>(call(false)).unwrap().0)).contains("too many requests"));
        let ruling = host.change::<Approval>(testing::change("TASK_STATE_COMPLETED"));
        assert!(matches!(&ruling, Ok(Ruling::Veto(reason)) if reason.contains("too many requests")), "{ruling:?}");
    }
}

#[test]
fn a_call_that_is_asked_about_again_at_once_starts_without_votes() {
    let host = host(&json!({"approvers": ["principal:ada", "principal:eve"], "quorum": 2}));
    let asked = wait(&host);
    let keys = host.keys(Bucket::Lasting).len();
    assert_eq!(decide(&host, &asked, &[]).unwrap()["approved"], 1);
    for _ in 0..2 {
        assert_eq!(wait(&host)["approved"], 0);
        assert_eq!(host.keys(Bucket::Lasting).len(), keys, "{:?}", host.keys(Bucket::Lasting));
        assert_eq!(decide(&host, &asked, &[]).unwrap()["approved"], 1);
    }
}

#[test]
fn the_text_repeats_integers_that_a_client_in_javascript_would_change() {
    for wire in ["own", "agentstack"] {
        let host = host(&json!({"wire": wire}));
        let call = ToolCall { arguments: r#"{"to":"bob","amount":9007199254740993}"#.to_owned(), ..call(false) };
        let ToolVerdict::Wait(pause) = ask(&host, &json!({}), call).unwrap() else { panic!("the call does not wait") };
        assert!(pause.text.contains("the tool pay, with /amount = 9007199254740993. "), "{}", pause.text);
    }
}

#[test]
fn the_name_of_an_argument_does_not_speak_to_the_approver() {
    let text = |name: &str| {
        let arguments = json!({name: 9_007_199_254_740_993_u64}).to_string();
        let asked = ask(&host(&json!({})), &json!({}), ToolCall { arguments, ..call(false) });
        let Ok(ToolVerdict::Wait(pause)) = asked else { panic!("the call does not wait") };
        pause.text
    };
    let shown = text("a = 1. It \"costs\" nothing");
    assert!(shown.contains(r#"the tool pay, with "/a = 1. It \"costs\" nothing" = 9007199254740993. "#), "{shown}");
    let shown = text(&"x".repeat(10_000));
    assert!(shown.contains(&format!("with \"/{}\" = 9007199254740993. ", "x".repeat(63))), "{shown}");
}

#[test]
fn a_call_with_a_number_that_cannot_be_shown_is_not_made() {
    let host = host(&json!({}));
    for amount in ["12345678901234567890123", "0.10000000000000000001", "1e400"] {
        let call = ToolCall { arguments: format!(r#"{{"to":"bob","amount":{amount}}}"#), ..call(false) };
        assert!(denied(ask(&host, &json!({}), call)).contains("cannot be shown"), "{amount}");
    }
    assert!(host.keys(Bucket::Lasting).is_empty());
}
