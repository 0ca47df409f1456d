//! Receipts of turns: signatures, digests of contents, and chains.

use annex_auth::Jwks;
use annex_auth::receipt::{
    AnswerDigests, ContentDigest, InputError, Issuer, Link, Receipt, ReceiptError, ReceiptExtension, Verdict, check,
    metadata_key, verify,
};
use annex_auth::signature::Signer;
use serde_json::{Value, json};

use crate::support::fixture;

fn signer(key: &str) -> Signer {
    Signer::from_pem(&fixture(&format!("{key}.pem")), key, None).unwrap()
}

fn keys() -> Jwks {
    Jwks::parse(&fixture("jwks.json")).unwrap()
}

fn hello() -> Value {
    json!({"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "Hello"}]})
}

fn artifact() -> Value {
    json!({"artifactId": "a-1", "parts": [{"text": "one"}, {"data": {"n": 1.0}}]})
}

fn said() -> Value {
    json!({"messageId": "s-1", "role": "ROLE_AGENT", "parts": [{"text": "done"}]})
}

/// The receipt of a turn of the task `t-NUMBER` after `last`, with the contents above.
fn receipt_after(last: Option<Link>) -> Receipt {
    let (number, prev) = Receipt::after(last);
    Receipt {
        version: 1,
        issuer: Issuer { url: "http://localhost".to_owned(), name: "agent".to_owned(), tenant: None },
        context_id: "c-1".to_owned(),
        task_id: format!("t-{number}"),
        number,
        prev,
        time: "2026-01-01T00:00:00.000Z".to_owned(),
        extensions: vec![ReceiptExtension {
            uri: "urn:x".to_owned(),
            digest: "sha256:00".to_owned(),
            outcome: "active".to_owned(),
        }],
        message: ContentDigest::of("m-1", &hello()),
        state: Some("TASK_STATE_COMPLETED".to_owned()),
        answer: AnswerDigests {
            artifacts: vec![ContentDigest::of("a-1", &artifact())],
            message: Some(ContentDigest::of("s-1", &said())),
        },
    }
}

/// The task of a receipt.
fn task(receipt: &Receipt, jws: &str) -> Value {
    json!({
        "id": receipt.task_id,
        "contextId": receipt.context_id,
        "status": {"state": "TASK_STATE_COMPLETED", "message": said()},
        "history": [hello()],
        "artifacts": [artifact()],
        "metadata": {metadata_key(receipt.number): jws, "other": 1},
    })
}

/// Tasks of one conversation.
fn tasks(count: usize) -> Vec<Value> {
    let signer = signer("ed25519");
    let mut last = None;
    let mut tasks = Vec::new();
    for _ in 0..count {
        let receipt = receipt_after(last.take());
        let signed = receipt.sign(&signer).unwrap();
        tasks.push(task(&receipt, &signed.jws));
        last = Some(signed.link);
    }
    tasks
}

fn checked(tasks: &[Value]) -> Verdict {
    let inputs: Vec<String> = tasks.iter().map(Value::to_string).collect();
    check(&inputs, &keys()).unwrap()
}

#[test]
fn a_receipt_verifies_with_the_key_of_its_signer_only() {
    for key in ["ed25519", "p256", "rsa"] {
        let receipt = receipt_after(None);
        let jws = receipt.sign(&signer(key)).unwrap().jws;
        assert_eq!(verify(&jws, &keys()).unwrap(), receipt);
        let other = Jwks::from_pem(&fixture("other-p256.pub.pem")).unwrap();
        let refused = verify(&jws, &other).unwrap_err();
        assert!(matches!(refused, ReceiptError::UnknownKey { .. } | ReceiptError::Invalid), "{refused}");
        let (head, _) = jws.rsplit_once('.').unwrap();
        let other_signature = receipt_after(Some(Link { number: 1, digest: "d".to_owned() }));
        let other_jws = other_signature.sign(&signer(key)).unwrap().jws;
        let (_, signature) = other_jws.rsplit_once('.').unwrap();
        assert!(matches!(verify(&format!("{head}.{signature}"), &keys()), Err(ReceiptError::Invalid)));
    }
    for text in ["", "a.b", "a.b.c", "{}"] {
        assert!(matches!(verify(text, &keys()), Err(ReceiptError::NotAReceipt)), "{text}");
    }
}

#[test]
fn the_position_of_a_receipt_is_read_from_its_text() {
    let link = receipt_after(None).sign(&signer("ed25519")).unwrap().link;
    assert_eq!(Link::read(&link.to_text()), Some(link));
    assert_eq!(Link::read("x"), None);
}

#[test]
fn unchanged_tasks_of_a_conversation_are_as_their_receipts_say() {
    let tasks = tasks(3);
    let verdict = checked(&tasks);
    assert_eq!((verdict.receipts.len(), verdict.differences, verdict.notes), (3, Vec::new(), Vec::new()));
    // Another form of the same JSON, and the objects around a task in responses.
    let spaced =
        serde_json::to_string_pretty(&json!({"jsonrpc": "2.0", "id": 1, "result": {"task": tasks[0]}})).unwrap();
    let listed = json!({"tasks": tasks}).to_string();
    let verdict = check(&[spaced, listed], &keys()).unwrap();
    assert_eq!((verdict.receipts.len(), verdict.differences), (4, Vec::new()));
}

type Change = fn(&mut Value);

#[test]
fn each_change_of_a_task_is_noticed() {
    let changes: [(&str, Change); 11] = [
        ("the message m-1 is not that of receipt 1", |task| task["history"][0]["parts"][0]["text"] = "Bye".into()),
        ("the artifact a-1 is not that of receipt 1", |task| task["artifacts"][0]["parts"][0]["text"] = "two".into()),
        ("the artifact a-1 of receipt 1 is missing", |task| task["artifacts"] = json!([])),
        ("it has artifacts that receipt 1 does not have", |task| {
            task["artifacts"] = json!([artifact(), {"artifactId": "a-2", "parts": [{"text": "more"}]}]);
        }),
        ("the answer s-1 is not that of receipt 1", |task| task["status"]["message"]["parts"][0]["text"] = "no".into()),
        ("the message of its status is missing", |task| task["status"] = json!({"state": "TASK_STATE_COMPLETED"})),
        ("its state is TASK_STATE_FAILED", |task| task["status"]["state"] = "TASK_STATE_FAILED".into()),
        ("receipt 1 is of another task or context", |task| task["id"] = "t-9".into()),
        ("it has no receipt", |task| task["metadata"] = json!({})),
        ("the receipt has the number 1", |task| {
            task["metadata"] = json!({"annex/receipt/7": task["metadata"]["annex/receipt/1"]});
        }),
        ("it is not a receipt", |task| task["metadata"]["annex/receipt/1"] = 1.into()),
    ];
    for (expected, change) in changes {
        let mut changed = tasks(1);
        change(&mut changed[0]);
        let verdict = checked(&changed);
        assert!(verdict.differences.iter().any(|text| text.contains(expected)), "{expected}: {verdict:?}");
    }
}

#[test]
fn a_changed_digest_in_a_receipt_is_noticed() {
    let receipt = receipt_after(None);
    let jws = receipt.sign(&signer("p256")).unwrap().jws;
    let mut forged = receipt.clone();
    forged.extensions[0].digest = "sha256:11".to_owned();
    let forged_jws = forged.sign(&signer("p256")).unwrap().jws;
    let payload = forged_jws.split('.').nth(1).unwrap();
    let parts: Vec<&str> = jws.split('.').collect();
    let mixed = format!("{}.{payload}.{}", parts[0], parts[2]);
    let verdict = checked(&[task(&forged, &mixed)]);
    assert!(verdict.differences[0].contains("the signature of the receipt is not valid"), "{verdict:?}");
}

#[test]
fn a_missing_receipt_and_a_receipt_out_of_the_chain_are_noticed() {
    let mut three = tasks(3);
    three.remove(1);
    let verdict = checked(&three);
    assert_eq!(verdict.differences, ["context c-1: the receipts between 1 and 3 are missing"]);
    let verdict = checked(&tasks(3)[1..]);
    assert_eq!(verdict.differences, Vec::<String>::new());
    assert_eq!(verdict.notes, ["context c-1: the receipts before 2 are not given"]);
    // The second receipt of another chain of the same conversation.
    let strange = receipt_after(Some(Link { number: 1, digest: "0".repeat(64) }));
    let jws = strange.sign(&signer("ed25519")).unwrap().jws;
    let verdict = checked(&[tasks(1).remove(0), task(&strange, &jws)]);
    assert_eq!(verdict.differences, ["context c-1: receipt 2 does not follow receipt 1"]);
}

#[test]
fn content_that_cannot_be_compared_is_noted() {
    let mut changed = tasks(1);
    changed[0]["history"] = json!([]);
    let verdict = checked(&changed);
    assert_eq!(verdict.differences, Vec::<String>::new());
    assert!(verdict.notes[0].contains("m-1 of receipt 1 is not in the history"), "{verdict:?}");
    // An integer that doubles cannot represent has no canonical form.
    assert_eq!(ContentDigest::of("m", &json!({"n": 9_007_199_254_740_993_u64})).sha256, None);
    let mut old = tasks(1);
    old[0]["kind"] = "task".into();
    old[0]["status"]["state"] = "completed".into();
    let verdict = checked(&old);
    assert!(verdict.differences.is_empty() && verdict.notes[0].contains("0.3"), "{verdict:?}");
}

#[test]
fn the_digest_does_not_depend_on_the_order_of_keys_and_is_none_for_repeated_keys() {
    let one = ContentDigest::of("m", &json!({"a": 1, "b": [true, null, 1.5]}));
    let text = serde_json::value::RawValue::from_string(r#"{ "b" : [true,null,1.50], "a":1.0 }"#.to_owned()).unwrap();
    assert_eq!(ContentDigest::of("m", &text), one);
    // `printf '{"a":1,"b":[true,null,1.5]}' | sha256sum`
    let expected = "01c48d5956ef5821b99379e2d2873ebaa0d7106d992021eec26ca09a8fc29aec";
    assert_eq!(one.sha256.as_deref(), Some(expected));
    let twice = serde_json::value::RawValue::from_string(r#"{"a":1,"a":2}"#.to_owned()).unwrap();
    assert_eq!(ContentDigest::of("m", &twice).sha256, None);
}

#[test]
fn a_message_that_is_the_answer_has_its_receipt_with_it() {
    let answer = json!({"messageId": "s-1", "contextId": "c-1", "role": "ROLE_AGENT", "parts": [{"text": "done"}]});
    let mut receipt = receipt_after(None);
    receipt.state = None;
    receipt.answer = AnswerDigests { artifacts: Vec::new(), message: Some(ContentDigest::of("s-1", &answer)) };
    let jws = receipt.sign(&signer("ed25519")).unwrap().jws;
    let mut sent = answer.clone();
    sent["metadata"] = json!({metadata_key(1): jws});
    assert_eq!(checked(&[json!({"message": sent})]).differences, Vec::<String>::new());
    sent["parts"][0]["text"] = "other".into();
    assert_eq!(checked(&[sent]).differences, ["message s-1: the answer s-1 is not that of receipt 1"]);
}

#[test]
fn an_input_without_anything_to_check_is_refused() {
    for (text, expected) in [("{}", "it has no task"), ("[]", "it has no task"), ("{", "neither JSON nor a receipt")] {
        let refused: InputError = check(&[text.to_owned()], &keys()).unwrap_err();
        assert!(refused.to_string().contains(expected), "{text}: {refused}");
    }
    let jws = receipt_after(None).sign(&signer("ed25519")).unwrap().jws;
    let verdict = check(&[format!("{jws}\n")], &keys()).unwrap();
    assert_eq!((verdict.receipts.len(), verdict.differences.len()), (1, 0));
}
