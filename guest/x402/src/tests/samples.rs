//! Payments, messages and a facilitator for tests.

use annex_sdk::http::{Error, Response};
use annex_sdk::testing::{self, Bucket, Host, SentRequest};
use annex_sdk::{Beginning, Entry, Event, EventKind, Interruption, Json, Rejection};
use serde_json::{Map, Value, json};

use crate::record::Record;
use crate::{TURN, X402, keys};

/// 2026-01-01T00:00:00Z in seconds.
pub(super) const NOW: u64 = 1_767_225_600;
pub(super) const FACILITATOR: &str = "https://facilitator.example/x402";
pub(super) const FROM: &str = "0x857b06519E91e3A54538791bDbb0E22373e36b66";
pub(super) const PAY_TO: &str = "0x209693Bc6afc0C5328bA36FaF03C514EF312287C";
pub(super) const ASSET: &str = "0x833589fCD6eDb6E08f4c7C32D4f71b54bda02913";

pub(super) fn parameters() -> Value {
    json!({
        "facilitator": format!("{FACILITATOR}/"),
        "accepts": [{
            "network": "base", "asset": ASSET, "pay_to": PAY_TO, "amount": "48240000",
            "extra": {"name": "USD Coin", "version": "2"},
        }],
    })
}

/// The value with another member at the pointer.
pub(super) fn with(mut value: Value, pointer: &str, member: Value) -> Value {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    match value.pointer_mut(parent).unwrap() {
        Value::Object(members) => _ = members.insert(name.to_owned(), member),
        Value::Array(values) => values.push(member),
        other => panic!("{other}"),
    }
    value
}

pub(super) fn host() -> Host {
    host_with(&parameters())
}

/// A host whose facilitator accepts everything.
pub(super) fn host_with(parameters: &Value) -> Host {
    let host = Host::new().parameters(parameters.to_string()).clock("2026-01-01T00:00:00Z");
    host.http(answers(&facilitator(), &settlement()))
}

pub(super) fn facilitator() -> Value {
    json!({"isValid": true, "payer": FROM})
}

pub(super) fn settlement() -> Value {
    json!({"success": true, "transaction": "0xabc123", "network": "base", "payer": FROM.to_ascii_lowercase()})
}

/// A facilitator with these answers.
pub(super) fn answers(verify: &Value, settle: &Value) -> impl Fn(&SentRequest) -> Result<Response, Error> + 'static {
    let (verify, settle) = (verify.to_string(), settle.to_string());
    move |request| {
        let body = if request.url.ends_with("/verify") { &verify } else { &settle };
        Ok(Response { status: 200, fields: Vec::new(), body: body.clone().into_bytes() })
    }
}

pub(super) fn message(parts: Value, metadata: Value) -> Value {
    let message = json!({"messageId": "m-1", "role": "ROLE_USER"});
    with(with(message, "/parts", parts), "/metadata", metadata)
}

/// A message without a payment.
pub(super) fn plain() -> Value {
    message(json!([{"text": "Draw a cat."}]), json!({}))
}

pub(super) fn payment() -> Value {
    json!({
        "x402Version": 1,
        "scheme": "exact",
        "network": "base",
        "payload": {
            "signature": format!("0x{}", "ab".repeat(65)),
            "authorization": {
                "from": FROM,
                "to": PAY_TO,
                "value": "48240000",
                "validAfter": (NOW - 600).to_string(),
                "validBefore": (NOW + 600).to_string(),
                "nonce": format!("0x{}", "1".repeat(64)),
            },
        },
    })
}

/// A component has a new instance in each turn.
pub(super) fn new_turn() {
    TURN.take();
}

/// The same host in a turn of another task.
pub(super) fn other_task(host: Host) -> Host {
    new_turn();
    host.key(Bucket::Task, "payment", serde_json::to_string(&Record::default()).unwrap())
}

/// A turn with this message, up to the beginning of the agent.
pub(super) fn turn(host: &Host, message: &Value) -> Result<Entry, String> {
    new_turn();
    host.check::<X402>(testing::request(), message.to_string()).map_err(|rejection| format!("{rejection:?}"))?;
    host.begin::<X402>(testing::request(), Beginning { task_id: "task-1".to_owned(), ..testing::beginning() })
}

/// A turn with a payment.
pub(super) fn pay(host: &Host, payload: &Value) -> Result<Entry, String> {
    let metadata = json!({keys::STATUS: "payment-submitted", keys::PAYLOAD: payload});
    turn(host, &message(json!([{"text": "Here is the payment."}]), metadata))
}

pub(super) fn interruption(entry: Result<Entry, String>) -> Interruption {
    match entry {
        Ok(Entry::Interrupt(interruption)) => interruption,
        other => panic!("{other:?}"),
    }
}

pub(super) fn veto(entry: Result<Entry, String>) -> String {
    match entry {
        Ok(Entry::Veto(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

/// The error code of a failed payment after which the client is asked to pay again.
pub(super) fn error(entry: Result<Entry, String>) -> String {
    let metadata = object(&interruption(entry).metadata);
    assert_eq!(metadata[keys::STATUS], "payment-failed");
    assert_eq!(metadata[keys::REQUIRED]["x402Version"], 1, "a new offer");
    metadata[keys::ERROR].as_str().unwrap().to_owned()
}

pub(super) fn object(entries: &[(String, Json)]) -> Value {
    let members = entries.iter().map(|(key, value)| (key.clone(), serde_json::from_str(value).unwrap()));
    Value::Object(members.collect::<Map<String, Value>>())
}

/// The metadata that the extension adds to a status.
pub(super) fn status(host: &Host, state: &str) -> Value {
    let event = Event { task_state: Some(state.to_owned()), ..testing::event(EventKind::Status) };
    object(&host.respond::<X402>(event).unwrap().unwrap().metadata)
}

/// The places at which a message is refused.
pub(super) fn refused(host: &Host, metadata: Value) -> Vec<String> {
    new_turn();
    let message = message(json!([{"text": "Pay."}]), metadata).to_string();
    match host.check::<X402>(testing::request(), message) {
        Err(Rejection::Violations(violations)) => {
            violations.into_iter().map(|violation| format!("{} {}", violation.pointer, violation.message)).collect()
        }
        other => panic!("{other:?}"),
    }
}
