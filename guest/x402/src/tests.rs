//! Tests the extension as a host calls it, with a facilitator in memory.

mod attacks;
mod samples;
mod transactions;

use annex_sdk::testing::{self, Bucket};
use annex_sdk::{Content, Entry, EventKind, EventKinds, Place, Ruling, StateChange, Verdict};
use serde_json::{Value, json};

use self::samples::{
    FACILITATOR, answers, facilitator, host, host_with, interruption, message, parameters, pay, payment, plain, status,
    turn, veto, with,
};
use crate::{X402, keys};

#[test]
fn the_version_decides_about_the_uri() {
    let uri = |version: &str| {
        let host = host_with(&with(parameters(), "/version", json!(version)));
        host.descriptor::<X402>().unwrap().uri
    };
    assert_eq!(uri("0.1"), "https://github.com/google-a2a/a2a-x402/v0.1");
    assert_eq!(uri("0.2"), "https://github.com/google-agentic-commerce/a2a-x402/blob/main/spec/v0.2");
    let other = with(parameters(), "/uri", json!("https://a.example/x402"));
    assert_eq!(host_with(&other).descriptor::<X402>().unwrap().uri, "https://a.example/x402");
}

#[test]
fn parameters_that_cannot_work_stop_the_load() {
    let accept = parameters()["accepts"][0].clone();
    for (pointer, value, expected) in [
        ("/facilitator", json!("facilitator.example"), "begins with https://"),
        ("/facilitator", json!("https://f.example/?key=1"), "without a query"),
        ("/accepts", json!([]), "1 to 10"),
        ("/accepts", json!([accept, accept]), "change the amount"),
        ("/accepts/0/amount", json!("1.5"), "whole number"),
        ("/accepts/0/amount", json!("010"), "whole number"),
        ("/accepts/0/scheme", json!("upto"), "only \"exact\""),
        ("/accepts/0/max_timeout_seconds", json!(0), "between 1 and"),
        ("/accepts/0/max_timeout_seconds", json!(5), "not above `min_valid_seconds` (5)"),
        ("/authorization", json!("MISSING"), "there is no secret"),
    ] {
        let parameters = with(parameters(), "/min_valid_seconds", json!(5));
        let error = host_with(&with(parameters, pointer, value)).descriptor::<X402>().unwrap_err();
        assert!(error.contains(expected), "{pointer}: {error}");
    }
    let host = host_with(&with(parameters(), "/facilitator", json!("http://f.example")));
    host.descriptor::<X402>().unwrap();
    assert!(host.log()[0].contains("can be forged"), "{:?}", host.log());
}

#[test]
fn a_task_waits_until_it_is_paid_and_runs_from_then_on() {
    let host = host();
    let asked = interruption(turn(&host, &plain()));
    assert_eq!(asked.text, "Payment is required.");
    let required = json!({
        "x402Version": 1,
        "accepts": [{
            "scheme": "exact",
            "network": "base",
            "maxAmountRequired": "48240000",
            "resource": "urn:a2a:task:task-1",
            "description": "Payment for this task",
            "mimeType": "application/json",
            "payTo": samples::PAY_TO,
            "maxTimeoutSeconds": 600,
            "asset": samples::ASSET,
            "extra": {"name": "USD Coin", "version": "2"},
        }],
    });
    let expected = json!({keys::STATUS: "payment-required", keys::RECEIPTS: [], keys::REQUIRED: required});
    assert_eq!(samples::object(&asked.metadata), expected);
    assert!(host.sent().is_empty(), "nothing is asked of the facilitator before the client pays");

    // Clients with protobuf types send each number as a float. Facilitators get an integer.
    assert_eq!(pay(&host, &with(payment(), "/x402Version", json!(1.0))), Ok(Entry::Proceed));
    let urls: Vec<String> = host.sent().into_iter().map(|sent| sent.url).collect();
    assert_eq!(urls, [format!("{FACILITATOR}/verify"), format!("{FACILITATOR}/settle")]);
    for sent in host.sent() {
        let body: Value = serde_json::from_slice(&sent.body).unwrap();
        let expected = json!({
            "x402Version": 1, "paymentPayload": payment(), "paymentRequirements": required["accepts"][0],
        });
        assert_eq!(body, expected);
    }
    let receipt = json!({"success": true, "transaction": "0xabc123", "network": "base", "payer": samples::FROM.to_ascii_lowercase()});
    let paid = json!({keys::STATUS: "payment-completed", keys::RECEIPTS: [receipt]});
    assert_eq!(status(&host, "TASK_STATE_WORKING"), paid);
    assert_eq!(samples::object(&host.task_metadata()), paid, "the task has the receipts too");

    samples::new_turn();
    assert_eq!(turn(&host, &plain()), Ok(Entry::Proceed), "a later turn of the task is paid");
    assert_eq!(host.sent().len(), 2);
    assert_eq!(status(&host, "TASK_STATE_COMPLETED"), paid, "the final status has all receipts");
}

#[test]
fn the_final_status_has_a_message_for_the_receipts() {
    let host = host();
    turn(&host, &plain()).unwrap();
    pay(&host, &payment()).unwrap();
    let content = |state: &str, parts: &str| Content {
        place: Place::Status(state.to_owned()),
        parts: parts.to_owned(),
        ..testing::content()
    };
    let added = host.revise::<X402>(content("TASK_STATE_COMPLETED", "[]")).unwrap();
    let Verdict::Replace(added) = added else { panic!("{added:?}") };
    assert_eq!((added[0].part, added[0].parts.as_slice()), (0, &[r#"{"text":"Payment successful."}"#.to_owned()][..]));
    for (state, parts) in [("TASK_STATE_COMPLETED", r#"[{"text":"Here."}]"#), ("TASK_STATE_WORKING", "[]")] {
        assert_eq!(host.revise::<X402>(content(state, parts)), Ok(Verdict::Leave), "{state} {parts}");
    }
}

#[test]
fn the_agent_gets_the_request_that_was_made_before_the_payment() {
    let host = host();
    turn(&host, &message(json!([{"text": "Draw a cat."}, {"data": {"size": 1.0}}]), json!({}))).unwrap();
    samples::new_turn();
    let metadata = json!({keys::STATUS: "payment-submitted", keys::PAYLOAD: payment()});
    let paying = message(json!([{"text": "Here is the payment."}, {"text": "Thanks."}]), metadata);
    let rewrites = host.check::<X402>(testing::request(), paying.to_string()).unwrap();
    let [first, second] = rewrites.as_slice() else { panic!("{rewrites:?}") };
    assert_eq!(first.replacement, [r#"{"text":"Draw a cat."}"#, r#"{"data":{"size":1.0}}"#]);
    assert!((first.part, second.part) == (0, 1) && second.replacement.is_empty());
}

#[test]
fn a_client_that_rejects_the_payment_ends_the_task() {
    let host = host();
    turn(&host, &plain()).unwrap();
    samples::new_turn();
    let rejected = message(json!([{"text": "No."}]), json!({keys::STATUS: "payment-rejected"}));
    assert_eq!(veto(turn(&host, &rejected)), "The client rejects the payment.");
    let expected = json!({keys::STATUS: "payment-rejected", keys::RECEIPTS: []});
    assert_eq!(status(&host, "TASK_STATE_REJECTED"), expected);
    assert!(host.sent().is_empty());
}

#[test]
fn a_payment_is_settled_after_the_agent_has_begun_to_answer_if_the_operator_says_so() {
    let host = host_with(&with(parameters(), "/settle", json!("after")));
    assert!(host.descriptor::<X402>().unwrap().events.contains(EventKinds::ARTIFACT));
    turn(&host, &plain()).unwrap();
    assert_eq!(pay(&host, &payment()), Ok(Entry::Proceed));
    assert_eq!(status(&host, "TASK_STATE_WORKING")[keys::STATUS], "payment-verified");
    assert_eq!(host.sent().len(), 1, "only verified");
    for _ in 0..2 {
        assert_eq!(host.revise::<X402>(testing::content()), Ok(Verdict::Leave));
    }
    assert_eq!(host.sent().len(), 2, "settled once");
    assert_eq!(status(&host, "TASK_STATE_COMPLETED")[keys::STATUS], "payment-completed");
}

#[test]
fn an_agent_without_content_is_settled_before_its_task_completes() {
    let host = host_with(&with(parameters(), "/settle", json!("after")));
    turn(&host, &plain()).unwrap();
    pay(&host, &payment()).unwrap();
    let change = |next: &str| host.change::<X402>(StateChange { next: next.to_owned(), ..testing::change("x") });
    assert_eq!(change("TASK_STATE_INPUT_REQUIRED"), Ok(Ruling::Pass));
    assert_eq!(host.sent().len(), 1);
    assert_eq!(change("TASK_STATE_COMPLETED"), Ok(Ruling::Pass));
    assert_eq!(host.sent().len(), 2);
}

#[test]
fn nothing_goes_out_if_the_settlement_fails_after_the_agent_has_begun_to_answer() {
    let settle = json!({"success": false, "errorReason": "invalid_exact_evm_insufficient_balance", "network": "base"});
    for content in [testing::content(), Content { place: Place::Message, ..testing::content() }] {
        let host = host_with(&with(parameters(), "/settle", json!("after")));
        let host = host.http(answers(&facilitator(), &settle));
        samples::new_turn();
        turn(&host, &plain()).unwrap();
        assert_eq!(pay(&host, &payment()), Ok(Entry::Proceed));
        let reason = "Payment failed: the payment was not settled: invalid_exact_evm_insufficient_balance.";
        assert_eq!(host.revise::<X402>(content.clone()), Ok(Verdict::Refuse(reason.to_owned())));
        let failed = status(&host, "TASK_STATE_FAILED");
        assert_eq!(
            (&failed[keys::STATUS], &failed[keys::ERROR]),
            (&json!("payment-failed"), &json!("INSUFFICIENT_FUNDS"))
        );
        assert_eq!(failed[keys::RECEIPTS][0]["success"], false);
        // What the agent still sends does not get through either.
        assert!(matches!(host.revise::<X402>(content), Ok(Verdict::Refuse(_))));
        let completed = StateChange { next: "TASK_STATE_COMPLETED".to_owned(), ..testing::change("x") };
        assert!(matches!(host.change::<X402>(completed), Ok(Ruling::Veto(_))));
    }
}

#[test]
fn a_verified_payment_that_expires_before_it_is_settled_is_asked_for_again() {
    let host = host_with(&with(parameters(), "/settle", json!("after")));
    turn(&host, &plain()).unwrap();
    pay(&host, &payment()).unwrap();
    samples::new_turn();
    assert_eq!(turn(&host, &plain()), Ok(Entry::Proceed), "the agent has asked something, and the payment is valid");
    samples::new_turn();
    host.advance(std::time::Duration::from_secs(601));
    let asked = interruption(turn(&host, &plain()));
    assert_eq!(samples::object(&asked.metadata)[keys::ERROR], "EXPIRED_PAYMENT");
}

#[test]
fn an_agent_that_runs_before_the_settlement_needs_a_payment_that_lasts() {
    let until = |seconds: u64| {
        with(payment(), "/payload/authorization/validBefore", json!((samples::NOW + seconds).to_string()))
    };
    let after = with(parameters(), "/settle", json!("after"));
    for (parameters, least) in [
        (parameters(), 1),
        (after.clone(), 61),
        (with(after.clone(), "/min_valid_seconds", json!(300)), 301),
        (with(after, "/min_valid_seconds", json!(0)), 1),
    ] {
        let host = host_with(&parameters);
        turn(&host, &plain()).unwrap();
        assert_eq!(samples::error(pay(&host, &until(least - 1))), "EXPIRED_PAYMENT", "{least}");
        assert!(host.sent().is_empty(), "nothing is verified");
        assert_eq!(pay(&host, &until(least)), Ok(Entry::Proceed), "{least}");
    }
}

#[test]
fn an_agent_that_continues_before_the_settlement_needs_a_payment_that_lasts() {
    let host = host_with(&with(parameters(), "/settle", json!("after")));
    turn(&host, &plain()).unwrap();
    pay(&host, &payment()).unwrap();
    host.advance(std::time::Duration::from_secs(539));
    assert_eq!(turn(&host, &plain()), Ok(Entry::Proceed), "61 seconds are left");
    host.advance(std::time::Duration::from_secs(1));
    assert_eq!(samples::error(turn(&host, &plain())), "EXPIRED_PAYMENT");
    assert_eq!(host.sent().len(), 1, "not settled");
}

#[test]
fn the_facilitator_gets_the_secret() {
    let host = host_with(&with(parameters(), "/authorization", json!("KEY"))).secret("KEY", "Bearer of-the-operator");
    turn(&host, &plain()).unwrap();
    pay(&host, &payment()).unwrap();
    let field = ("authorization".to_owned(), b"Bearer of-the-operator".to_vec());
    assert!(host.sent().iter().all(|sent| sent.fields.contains(&field)));
}

#[test]
fn expired_nonces_make_room() {
    let host = host();
    turn(&host, &plain()).unwrap();
    pay(&host, &payment()).unwrap();
    let before = host.keys(Bucket::Lasting);
    assert_eq!(before.len(), 2, "{before:?}");
    host.advance(std::time::Duration::from_secs(1_000));
    let host = samples::other_task(host);
    turn(&host, &plain()).unwrap();
    let authorization = "/payload/authorization";
    let later = with(payment(), &format!("{authorization}/validBefore"), json!((samples::NOW + 1_500).to_string()));
    let later = with(later, &format!("{authorization}/nonce"), json!(format!("0x{}", "2".repeat(64))));
    assert_eq!(pay(&host, &later), Ok(Entry::Proceed));
    let after = host.keys(Bucket::Lasting);
    assert!(after.len() == 2 && after.iter().all(|key| !before.contains(key)), "{after:?}");
}

#[test]
fn other_events_and_tasks_without_a_payment_stay_as_they_are() {
    let host = host();
    samples::new_turn();
    assert_eq!(host.respond::<X402>(testing::event(EventKind::Status)), Ok(None));
    turn(&host, &plain()).unwrap();
    assert_eq!(host.respond::<X402>(testing::event(EventKind::Artifact)), Ok(None));
}
