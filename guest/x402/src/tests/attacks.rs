//! Clients and facilitators that lie. Each gets an error of its own, and the agent never runs without a payment.

use annex_sdk::Entry;
use annex_sdk::http::{Error, ErrorCode, Response};
use annex_sdk::testing::{Bucket, Host, SentRequest};
use serde_json::{Value, json};

use super::samples::{
    answers, error, facilitator, host, interruption, object, other_task, pay, payment, plain, refused, settlement,
    status, turn, veto, with,
};
use crate::keys;

const AUTHORIZATION: &str = "/payload/authorization";

/// A host with a task that waits for its payment.
fn waiting() -> Host {
    let host = host();
    interruption(turn(&host, &plain()));
    host
}

fn changed(name: &str, value: &str) -> Value {
    with(payment(), &format!("{AUTHORIZATION}/{name}"), json!(value))
}

#[test]
fn a_payment_that_is_not_the_offered_one_has_its_own_code_and_never_reaches_the_facilitator() {
    let nobody = format!("0x{}", "0".repeat(40));
    for (wrong, code, reason) in [
        (with(payment(), "/network", json!("base-sepolia")), "NETWORK_MISMATCH", "a network that was not offered"),
        (with(payment(), "/scheme", json!("upto")), "INVALID_PAYMENT", "a scheme that was not offered"),
        (changed("to", &nobody), "INVALID_PAYMENT", "another address"),
        (changed("value", "1"), "INVALID_AMOUNT", "another amount"),
        (changed("value", "48240001"), "INVALID_AMOUNT", "another amount"),
        (changed("validBefore", "1767225600"), "EXPIRED_PAYMENT", "the payment has expired"),
        (changed("validAfter", "1767225700"), "INVALID_PAYMENT", "not valid yet"),
        (changed("validBefore", &"9".repeat(78)), "INVALID_PAYMENT", "longer than the offer allows"),
    ] {
        let host = waiting();
        let asked = interruption(pay(&host, &wrong));
        assert!(asked.text.contains(reason), "{}", asked.text);
        let metadata = object(&asked.metadata);
        assert_eq!((&metadata[keys::STATUS], &metadata[keys::ERROR]), (&json!("payment-failed"), &json!(code)));
        assert_eq!(metadata[keys::RECEIPTS][0]["success"], false);
        assert!(host.sent().is_empty() && host.keys(Bucket::Lasting).is_empty(), "{code}");
        assert_eq!(pay(&host, &payment()), Ok(Entry::Proceed), "the right payment is taken afterwards");
        let paid = status(&host, "TASK_STATE_WORKING");
        let all: Vec<&Value> = paid[keys::RECEIPTS].as_array().unwrap().iter().map(|one| &one["success"]).collect();
        assert_eq!(all, [false, true], "the receipts of all attempts");
        let cleared = (keys::ERROR.to_owned(), "null".to_owned());
        assert!(host.task_metadata().contains(&cleared), "{:?}", host.task_metadata());
    }
}

#[test]
fn a_payment_is_taken_once_however_it_is_written() {
    let mut host = waiting();
    assert_eq!(pay(&host, &payment()), Ok(Entry::Proceed));
    for again in [
        payment(),
        with(payment(), "/payload/signature", json!(format!("0x{}", "cd".repeat(65)))),
        changed("from", &super::samples::FROM.to_ascii_lowercase()),
        changed("validBefore", "1767226100"),
    ] {
        host = other_task(host);
        turn(&host, &plain()).unwrap();
        assert_eq!(error(pay(&host, &again)), "DUPLICATE_NONCE");
        let settlements = host.sent().iter().filter(|sent| sent.url.ends_with("/settle")).count();
        assert_eq!(settlements, 1, "only the first payment is settled");
    }
}

#[test]
fn a_payment_before_it_was_asked_for_or_after_the_offer_has_expired_is_refused() {
    let host = host();
    assert_eq!(error(pay(&host, &payment())), "INVALID_PAYMENT");
    assert_eq!(pay(&host, &payment()), Ok(Entry::Proceed), "the refusal has an offer, so the payment is now asked for");
    let host = waiting();
    host.advance(std::time::Duration::from_secs(600));
    let late = changed("validBefore", "1767226800");
    assert_eq!(error(pay(&host, &late)), "EXPIRED_PAYMENT");
    assert!(host.sent().is_empty());
}

#[test]
fn a_task_takes_a_bounded_number_of_wrong_payments() {
    let host = waiting();
    for _ in 0..7 {
        assert_eq!(error(pay(&host, &changed("value", "1"))), "INVALID_AMOUNT");
    }
    veto(pay(&host, &changed("value", "1")));
    assert_eq!(status(&host, "TASK_STATE_REJECTED")[keys::RECEIPTS].as_array().unwrap().len(), 8);
    veto(pay(&host, &payment()));
    assert!(host.sent().is_empty());
}

#[test]
fn metadata_that_contradicts_the_specification_is_refused_by_its_place() {
    let submitted = |payload: Value| json!({keys::STATUS: "payment-submitted", keys::PAYLOAD: payload});
    for (metadata, expected) in [
        (json!({keys::STATUS: "payment-completed"}), "/message/metadata/x402.payment.status must be"),
        (json!({keys::STATUS: true}), "/message/metadata/x402.payment.status must be"),
        (json!({keys::PAYLOAD: payment()}), "/message/metadata/x402.payment.status is required"),
        (json!({keys::STATUS: "payment-submitted"}), "/message/metadata/x402.payment.payload is required"),
        (submitted(json!("paid")), "/message/metadata/x402.payment.payload is no PaymentPayload"),
        (
            submitted(with(payment(), "/x402Version", json!(2))),
            "/message/metadata/x402.payment.payload/x402Version must be 1",
        ),
        (submitted(with(payment(), "/payload", json!({}))), "/message/metadata/x402.payment.payload/payload must have"),
        (submitted(changed("nonce", "0x12")), "/payload/authorization/nonce must be 32 bytes"),
        (submitted(changed("from", "me")), "/payload/authorization/from must be an address"),
        (submitted(changed("value", "-1")), "/payload/authorization/value must be a text of decimal digits"),
        (submitted(with(payment(), "/payload/signature", json!("abc"))), "/payload/signature must be bytes"),
        (
            submitted(json!({
                "x402Version": 1, "scheme": "exact", "network": "solana", "payload": {"transaction": "a b"},
            })),
            "/payload/transaction must be a transaction",
        ),
    ] {
        let found = refused(&host(), metadata);
        assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
    }
}

#[test]
fn a_payload_with_two_signed_contents_is_refused() {
    let authorization = payment()["payload"]["authorization"].clone();
    let signature = payment()["payload"]["signature"].clone();
    for (network, payload, expected) in [
        ("base", json!({"authorization": authorization, "signature": signature}), "cannot be beside"),
        ("solana", json!({"authorization": authorization}), "cannot be beside"),
        ("solana", json!({"signature": signature}), "cannot be beside"),
        ("base", json!({}), "only on networks that begin with `solana`"),
    ] {
        let payload = with(json!({"payload": payload}), "/payload/transaction", json!("AAEC"))["payload"].take();
        let both = with(with(payment(), "/network", json!(network)), "/payload", payload);
        let found = refused(&waiting(), json!({keys::STATUS: "payment-submitted", keys::PAYLOAD: both}));
        let place = "/message/metadata/x402.payment.payload/payload/transaction";
        assert!(found.len() == 1 && found[0].starts_with(place) && found[0].contains(expected), "{found:?}");
    }
}

#[test]
fn the_facilitator_gets_only_the_members_that_were_read() {
    let host = waiting();
    let mut more = payment();
    for (pointer, value) in [
        ("/paymentPayload", payment()),
        ("/payload/permit2Authorization", json!({"nonce": "1"})),
        ("/payload/authorization/valid_before", json!("9999999999")),
    ] {
        more = with(more, pointer, value);
    }
    assert_eq!(pay(&host, &more), Ok(Entry::Proceed));
    for sent in host.sent() {
        let body: Value = serde_json::from_slice(&sent.body).unwrap();
        assert_eq!(body["paymentPayload"], payment());
    }
}

type Answer = Box<dyn Fn(&SentRequest) -> Result<Response, Error>>;

fn body(status: u16, body: &str) -> Answer {
    let body = body.as_bytes().to_vec();
    Box::new(move |_| Ok(Response { status, fields: Vec::new(), body: body.clone() }))
}

fn failure(code: impl Fn() -> ErrorCode + 'static) -> Answer {
    Box::new(move |_| Err(Error::Failed(code())))
}

#[test]
fn a_facilitator_that_cannot_verify_leaves_the_payment_unused() {
    let other_payer = json!({"isValid": true, "payer": "0x0000000000000000000000000000000000000001"}).to_string();
    let cases: Vec<(Answer, &str)> = vec![
        (body(302, ""), "redirects (status 302)"),
        (body(500, "{}"), "answers with the status 500"),
        (body(200, "<html>"), "answer to /verify cannot be read"),
        (body(200, "{}"), "answer to /verify cannot be read"),
        (body(200, r#"{"isValid":"yes"}"#), "answer to /verify cannot be read"),
        (body(200, &other_payer), "names another payer"),
        (failure(|| ErrorCode::HttpResponseTimeout), "does not answer in time"),
        (failure(|| ErrorCode::HttpResponseBodySize(None)), "is larger than the grant"),
        (failure(|| ErrorCode::HttpRequestDenied), "does not allow a request"),
        (failure(|| ErrorCode::DestinationIpProhibited), "has an address that"),
        (failure(|| ErrorCode::ConnectionRefused), "request to the facilitator fails"),
    ];
    for (answer, reason) in cases {
        let host = waiting().http(answer);
        let asked = interruption(pay(&host, &payment()));
        assert!(asked.text.contains(reason), "{}", asked.text);
        let metadata = object(&asked.metadata);
        assert_eq!((&metadata[keys::ERROR], &metadata[keys::RECEIPTS]), (&json!("FACILITATOR_FAILED"), &json!([])));
        assert!(host.log()[0].contains(reason), "the operator learns of it: {:?}", host.log());
        assert!(host.keys(Bucket::Lasting).is_empty());
        let host = host.http(answers(&facilitator(), &settlement()));
        assert_eq!(pay(&host, &payment()), Ok(Entry::Proceed), "the same payment is taken once the facilitator works");
    }
}

#[test]
fn a_payment_that_the_facilitator_refuses_has_the_code_of_the_reason() {
    for (reason, code) in [
        ("invalid_exact_evm_payload_signature", "INVALID_SIGNATURE"),
        ("insufficient_funds", "INSUFFICIENT_FUNDS"),
        ("invalid_exact_evm_nonce_already_used", "DUPLICATE_NONCE"),
        ("invalid_exact_evm_payload_authorization_valid_before", "EXPIRED_PAYMENT"),
        ("invalid_network", "NETWORK_MISMATCH"),
        ("invalid_exact_evm_payload_authorization_value_mismatch", "INVALID_AMOUNT"),
        ("something else\nand more", "INVALID_PAYMENT"),
    ] {
        let verify = json!({"isValid": false, "invalidReason": reason});
        let host = waiting().http(answers(&verify, &settlement()));
        let asked = interruption(pay(&host, &payment()));
        assert_eq!(object(&asked.metadata)[keys::ERROR], code);
        assert!(!asked.text.contains('\n'), "{}", asked.text);
        assert_eq!(host.sent().len(), 1, "nothing is settled");
    }
}

#[test]
fn a_settlement_that_fails_may_be_tried_again_with_another_payment() {
    let settle = json!({"success": false, "errorReason": "transaction_failed", "network": "base", "transaction": ""});
    let host = waiting().http(answers(&facilitator(), &settle));
    assert_eq!(error(pay(&host, &payment())), "SETTLEMENT_FAILED");
    let host = host.http(answers(&facilitator(), &settlement()));
    assert_eq!(error(pay(&host, &payment())), "DUPLICATE_NONCE");
    let fresh = changed("nonce", &format!("0x{}", "2".repeat(64)));
    assert_eq!(pay(&host, &fresh), Ok(Entry::Proceed));
}

#[test]
fn a_settlement_with_an_unknown_outcome_ends_the_task_and_asks_for_no_second_payment() {
    let told = |name: &str, value: Value| with(settlement(), &format!("/{name}"), value).to_string();
    let cases: Vec<(Answer, &str)> = vec![
        (body(302, ""), "redirects (status 302)"),
        (body(200, &"x".repeat(100_000)), "answer to /settle cannot be read"),
        (body(200, &told("network", json!("base-sepolia"))), "names another network"),
        (body(200, &told("network", Value::Null)), "names another network"),
        (body(200, &told("transaction", json!(""))), "names no transaction"),
        (body(200, &told("transaction", json!("0x".repeat(10_000)))), "names no transaction"),
        (body(200, &told("amount", json!("1"))), "names another amount"),
        (body(200, &told("payer", json!("0x0000000000000000000000000000000000000001"))), "names another payer"),
        (failure(|| ErrorCode::HttpResponseTimeout), "does not answer in time"),
    ];
    for (settle, reason) in cases {
        let verify = answers(&facilitator(), &settlement());
        let host = waiting().http(move |sent| if sent.url.ends_with("/verify") { verify(sent) } else { settle(sent) });
        let text = veto(pay(&host, &payment()));
        assert!(text.contains("unknown outcome") && text.contains(reason), "{text}");
        let ended = status(&host, "TASK_STATE_REJECTED");
        assert_eq!(
            (&ended[keys::STATUS], &ended[keys::ERROR]),
            (&json!("payment-failed"), &json!("SETTLEMENT_FAILED"))
        );
        assert_eq!(ended.get(keys::REQUIRED), None);
        assert!(host.log()[0].contains(reason), "{:?}", host.log());
        veto(pay(&host, &payment()));
    }
}

#[test]
fn a_process_that_ends_while_it_settles_asks_for_no_second_payment() {
    let host = waiting();
    let record = String::from_utf8(host.value(Bucket::Task, "payment").unwrap()).unwrap();
    let host = host.key(Bucket::Task, "payment", record.replacen("payment-required", "settling", 1));
    let text = veto(turn(&host, &plain()));
    assert!(text.contains("the settlement was interrupted"), "{text}");
    veto(pay(&host, &payment()));
    assert!(host.sent().is_empty());
}

#[test]
fn nothing_is_settled_while_the_store_does_not_work() {
    let host = waiting().failing(Bucket::Lasting, "full");
    assert_eq!(error(pay(&host, &payment())), "FACILITATOR_FAILED");
    assert_eq!(host.sent().len(), 1, "verified only");
    let host = host.failing(Bucket::Task, "down");
    assert_eq!(pay(&host, &payment()), Err("down".to_owned()));
}
