use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{
    BUNDLE_MEDIA_TYPE, MAX_BUNDLE_BYTES, PAYLOAD_TYPE, PREDICATE_TYPE, STATEMENT_TYPE, signed_bytes, signing_keys,
};
use crate::key::PrivateKey;

/// A bundle whose payload has a valid signature.
fn bundle(key: &PrivateKey, payload: &[u8]) -> Vec<u8> {
    let signature = key.sign(&signed_bytes(PAYLOAD_TYPE, payload)).expect("a signature");
    let envelope = json!({
        "payload": STANDARD.encode(payload),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [{ "sig": STANDARD.encode(signature) }],
    });
    json!({ "mediaType": BUNDLE_MEDIA_TYPE, "dsseEnvelope": envelope }).to_string().into_bytes()
}

fn hex(digit: &str) -> String {
    digit.repeat(64)
}

fn statement(subjects: &Value) -> Value {
    json!({ "_type": STATEMENT_TYPE, "subject": subjects, "predicateType": PREDICATE_TYPE, "predicate": {} })
}

#[test]
fn the_signed_bytes_are_those_of_the_dsse_specification() {
    let signed = signed_bytes("http://example.com/HelloWorld", b"hello world");
    assert_eq!(signed, b"DSSEv1 29 http://example.com/HelloWorld 11 hello world");
}

#[test]
fn a_valid_signature_of_anything_but_an_approval_of_the_manifest_does_not_count() {
    let (key, _) = PrivateKey::generate().expect("a key");
    let public = key.public();
    let wanted = json!({ "digest": { "sha256": hex("1") } });
    let other = json!({ "digest": { "sha256": hex("2") } });
    let changed = |name: &str, value: Value| {
        let mut statement = statement(&json!([wanted]));
        statement[name] = value;
        statement.to_string()
    };
    let twice = statement(&json!([wanted])).to_string().replacen('{', "{\"subject\":[],", 1);
    for (payload, expected) in [
        (statement(&json!([wanted])).to_string(), ""),
        (statement(&json!([other, wanted])).to_string(), ""),
        (statement(&json!([other])).to_string(), "it signs another manifest"),
        (statement(&json!([])).to_string(), "it signs another manifest"),
        (statement(&json!([{ "digest": {} }])).to_string(), "it signs another manifest"),
        (statement(&json!([{ "digest": { "sha512": hex("1") } }])).to_string(), "it signs another manifest"),
        (statement(&json!([{ "digest": { "sha256": "" } }])).to_string(), "it signs another manifest"),
        // The name of a subject is no digest.
        (
            statement(&json!([{ "name": hex("1"), "digest": { "sha256": hex("2") } }])).to_string(),
            "it signs another manifest",
        ),
        (changed("_type", json!("https://in-toto.io/Statement/v0.1")), "approve nothing"),
        (changed("predicateType", json!("https://spdx.dev/Document")), "approve nothing"),
        (changed("predicateType", Value::Null), "its payload is not an in-toto statement"),
        (changed("subject", json!("x")), "its payload is not an in-toto statement"),
        (twice, "its payload is not an in-toto statement"),
        ("sha256:1".to_owned(), "its payload is not an in-toto statement"),
        (String::new(), "its payload is not an in-toto statement"),
        ("[".repeat(1_000), "its payload is not an in-toto statement"),
    ] {
        let found = signing_keys(&bundle(&key, payload.as_bytes()), &format!("sha256:{}", hex("1")), &[&public]);
        match found {
            Ok(keys) => assert!(expected.is_empty() && keys == [&public], "{payload}"),
            Err(error) => assert!(!expected.is_empty() && error.to_string().contains(expected), "{payload}: {error}"),
        }
    }
}

#[test]
fn the_payload_of_a_stranger_is_not_parsed() {
    let (key, _) = PrivateKey::generate().expect("a key");
    let (stranger, _) = PrivateKey::generate().expect("a key");
    let bundle = bundle(&stranger, b"no JSON");
    let error = signing_keys(&bundle, &format!("sha256:{}", hex("1")), &[&key.public()]).expect_err("a stranger");
    assert_eq!(error.to_string(), "no key of the policy has signed it");
}

#[test]
fn the_largest_bundle_is_read_and_a_larger_one_is_not() {
    let (key, _) = PrivateKey::generate().expect("a key");
    let digest = format!("sha256:{}", hex("1"));
    let statement = statement(&json!([{ "digest": { "sha256": hex("1") } }])).to_string();
    let mut bundle = bundle(&key, statement.as_bytes());
    bundle.resize(MAX_BUNDLE_BYTES, b' ');
    assert!(signing_keys(&bundle, &digest, &[&key.public()]).is_ok());
    bundle.push(b' ');
    let error = signing_keys(&bundle, &digest, &[&key.public()]).expect_err("too large");
    assert_eq!(error.to_string(), "it has 65537 bytes; at most 65536 are read");
}
