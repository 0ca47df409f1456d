//! Signatures over Agent Cards.

use annex_auth::signature::{CanonicalError, CanonicalForm, SignError, Signer, VerifyError, verify};
use annex_auth::{Algorithm, Jwks, KeyError};
use annex_protocol::{AgentCard, AgentCardSignature};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::support::fixture;

const KEYS: [(&str, Algorithm); 3] =
    [("ed25519", Algorithm::EdDSA), ("p256", Algorithm::ES256), ("rsa", Algorithm::RS256)];

fn card() -> AgentCard {
    let mut card: AgentCard = serde_json::from_str(&fixture("python-sdk-ES256.json")).unwrap();
    card.signatures.clear();
    card
}

fn signer(key: &str) -> Signer {
    Signer::from_pem(&fixture(&format!("{key}.pem")), key, None).unwrap()
}

fn public_key(key: &str) -> Jwks {
    Jwks::from_pem(&fixture(&format!("{key}.pub.pem"))).unwrap()
}

fn key_set() -> Jwks {
    Jwks::parse(&fixture("jwks.json")).unwrap()
}

fn signed_card(key: &str) -> AgentCard {
    let mut card = card();
    card.signatures.push(signer(key).sign(&card).unwrap());
    card
}

fn json_of(card: &AgentCard) -> String {
    serde_json::to_string(card).unwrap()
}

fn protected_header(signature: &AgentCardSignature) -> Value {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(&signature.protected).unwrap()).unwrap()
}

#[test]
fn every_algorithm_signs_what_it_verifies() {
    for (key, algorithm) in KEYS {
        let card = signed_card(key);
        assert_eq!(protected_header(&card.signatures[0]), json!({"alg": algorithm.name(), "kid": key, "typ": "JOSE"}));
        for keys in [public_key(key), key_set()] {
            let verified = verify(&json_of(&card), &keys).unwrap();
            assert_eq!((verified.kid.as_str(), verified.algorithm), (key, algorithm));
            assert_eq!(verified.form, CanonicalForm::Specification);
        }
    }
}

#[test]
fn cards_of_the_official_python_sdk_verify() {
    for (key, algorithm) in KEYS {
        let card = fixture(&format!("python-sdk-{algorithm}.json"));
        for keys in [public_key(key), key_set()] {
            let verified = verify(&card, &keys).unwrap();
            assert_eq!((verified.kid.as_str(), verified.form), (key, CanonicalForm::Specification));
        }
        let tampered = card.replace("1.2.3", "1.2.4");
        assert!(matches!(verify(&tampered, &key_set()), Err(VerifyError::Invalid)));
    }
}

#[test]
fn cards_of_the_official_python_sdk_with_empty_values_verify_without_them() {
    let card = fixture("python-sdk-empty-values.json");
    assert_eq!(verify(&card, &key_set()).unwrap().form, CanonicalForm::WithoutEmptyValues);
    // The SDK signs the same bytes with and without an empty description.
    let with = card.replacen('{', r#"{"description":"","#, 1);
    assert_eq!(verify(&with, &key_set()).unwrap().form, CanonicalForm::WithoutEmptyValues);
    let tampered = card.replace(r#""note": """#, r#""note": "x""#);
    assert!(matches!(verify(&tampered, &key_set()), Err(VerifyError::Invalid)));
}

#[test]
fn a_card_can_be_signed_in_both_forms() {
    let mut card = card();
    card.description.clear();
    let ours = signer("p256");
    let of_the_sdks = signer("ed25519");
    card.signatures.push(ours.sign(&card).unwrap());
    card.signatures.push(of_the_sdks.sign_in_form(&card, CanonicalForm::WithoutEmptyValues).unwrap());
    let text = json_of(&card);
    assert_eq!(verify(&text, &public_key("p256")).unwrap().form, CanonicalForm::Specification);
    assert_eq!(verify(&text, &public_key("ed25519")).unwrap().form, CanonicalForm::WithoutEmptyValues);
}

#[test]
fn the_same_card_written_in_another_way_verifies() {
    let value: Value = serde_json::to_value(signed_card("p256")).unwrap();
    let mut reversed = serde_json::Map::new();
    value.as_object().unwrap().iter().rev().for_each(|(key, value)| drop(reversed.insert(key.clone(), value.clone())));
    let pretty = serde_json::to_string_pretty(&reversed).unwrap();
    assert!(verify(&pretty, &key_set()).is_ok());
    let with_defaults = pretty.replacen('{', r#"{"securityRequirements":[],"provider":null,"#, 1);
    assert!(verify(&with_defaults, &key_set()).is_ok());
    let escaped = pretty.replace("Grüße", "Gr\\u00fc\\u00DFe");
    assert_ne!(escaped, pretty);
    assert!(verify(&escaped, &key_set()).is_ok());
}

#[test]
fn every_change_of_a_card_is_noticed() {
    let card = json_of(&signed_card("p256"));
    for (from, to) in [
        ("Grüße", "Grusse"),
        ("https://agent.example/a2a", "https://evil.example/a2a"),
        (r#""streaming":true"#, r#""streaming":false"#),
        (r#""pushNotifications":false,"#, ""),
        ("9007199254740991", "9007199254740990"),
        (r#""ratio":1e-06"#, r#""ratio":1e-05"#),
        (r#"["text/plain"]"#, r#"["text/plain","text/html"]"#),
        (r#"{"name""#, r#"{"unknownField":{"a":1},"name""#),
        (r#""b":["#, r#""b":[0,"#),
    ] {
        let tampered = card.replacen(from, to, 1);
        assert_ne!(tampered, card, "{from}");
        assert!(matches!(verify(&tampered, &key_set()), Err(VerifyError::Invalid)), "{from}");
    }
}

#[test]
fn fields_that_the_model_does_not_know_are_covered() {
    let mut card: Value = serde_json::to_value(card()).unwrap();
    card["futureField"] = json!({"nested": ["x"]});
    // The same payload as an AgentCard of a later version would have, signed with the same key.
    let signature = sign_value(&card);
    card["signatures"] = json!([signature]);
    assert!(verify(&card.to_string(), &key_set()).is_ok());
    card["futureField"]["nested"][0] = json!("y");
    assert!(matches!(verify(&card.to_string(), &key_set()), Err(VerifyError::Invalid)));
}

fn sign_value(card: &Value) -> Value {
    let header = json!({"alg": "ES256", "kid": "p256"}).to_string();
    let payload = serde_json_canonicalizer::to_string(card).unwrap();
    let token = crate::support::token::signed_text("p256", &header, &payload);
    let [protected, _, signature] = token.split('.').collect::<Vec<_>>()[..] else { panic!("three parts") };
    json!({"protected": protected, "signature": signature})
}

#[test]
fn every_change_of_a_signature_is_noticed() {
    let good = signed_card("ed25519").signatures.remove(0);
    let check_refused = |name: &str, signature: AgentCardSignature| {
        let mut card = card();
        card.signatures.push(signature);
        let result = verify(&json_of(&card), &key_set());
        assert!(matches!(result, Err(VerifyError::Invalid | VerifyError::UnknownKey)), "{name}: {result:?}");
    };
    let with_header =
        |header: Value| AgentCardSignature { protected: URL_SAFE_NO_PAD.encode(header.to_string()), ..good.clone() };
    for index in 0..good.signature.len() {
        let mut bytes = good.signature.clone().into_bytes();
        bytes[index] = if bytes[index] == b'A' { b'B' } else { b'A' };
        check_refused("signature", AgentCardSignature { signature: String::from_utf8(bytes).unwrap(), ..good.clone() });
    }
    check_refused("padding", AgentCardSignature { signature: format!("{}=", good.signature), ..good.clone() });
    check_refused("empty", AgentCardSignature { signature: String::new(), ..good.clone() });
    check_refused("no header", AgentCardSignature { protected: String::new(), ..good.clone() });
    check_refused("header in another order", with_header(json!({"kid": "ed25519", "alg": "EdDSA", "typ": "JOSE"})));
    check_refused("none", with_header(json!({"alg": "none", "kid": "ed25519"})));
    check_refused("symmetric", with_header(json!({"alg": "HS256", "kid": "ed25519"})));
    check_refused("other algorithm", with_header(json!({"alg": "ES256", "kid": "ed25519"})));
    check_refused("no kid", with_header(json!({"alg": "EdDSA"})));
}

#[test]
fn critical_long_and_unprotected_headers_do_not_count() {
    let payload = serde_json_canonicalizer::to_string(&serde_json::to_value(card()).unwrap()).unwrap();
    let sign = |header: Value| {
        let token = crate::support::token::signed_text("p256", &header.to_string(), &payload);
        let (rest, signature) = token.rsplit_once('.').unwrap();
        let mut value = serde_json::to_value(card()).unwrap();
        let protected = rest.split_once('.').unwrap().0;
        let unprotected = json!({"kid": "p256", "alg": "ES256"});
        value["signatures"] = json!([{"protected": protected, "signature": signature, "header": unprotected}]);
        value.to_string()
    };
    assert!(verify(&sign(json!({"alg": "ES256", "kid": "p256"})), &key_set()).is_ok());
    for header in [
        json!({"alg": "ES256", "kid": "p256", "crit": ["exp"], "exp": 1}),
        json!({"alg": "ES256"}),
        json!({"kid": "p256"}),
        json!({"alg": "ES256", "kid": "p256", "x": "a".repeat(4096)}),
    ] {
        assert!(matches!(verify(&sign(header), &key_set()), Err(VerifyError::UnknownKey)));
    }
}

#[test]
fn one_good_signature_among_others_is_enough() {
    let mut card = signed_card("p256");
    let mut bad = card.signatures[0].clone();
    bad.signature = "AAAA".to_owned();
    card.signatures.insert(0, bad);
    card.signatures.insert(0, AgentCardSignature::default());
    assert_eq!(verify(&json_of(&card), &key_set()).unwrap().kid, "p256");
    // Adding a signature does not invalidate the existing ones.
    let second = signer("rsa").sign(&card).unwrap();
    card.signatures.push(second);
    assert_eq!(verify(&json_of(&card), &public_key("rsa")).unwrap().kid, "rsa");
}

#[test]
fn only_the_first_eight_signatures_are_looked_at() {
    let mut card = signed_card("p256");
    card.signatures.splice(0..0, vec![AgentCardSignature::default(); 8]);
    assert!(matches!(verify(&json_of(&card), &key_set()), Err(VerifyError::UnknownKey)));
    card.signatures.remove(0);
    assert!(verify(&json_of(&card), &key_set()).is_ok());
}

#[test]
fn the_failure_says_whether_the_key_is_known() {
    assert!(matches!(verify(&json_of(&card()), &key_set()), Err(VerifyError::Unsigned)));
    let card = json_of(&signed_card("p256"));
    assert!(matches!(verify(&card, &public_key("rsa")), Err(VerifyError::UnknownKey)));
    assert!(matches!(verify(&card, &public_key("other-p256")), Err(VerifyError::Invalid)));
    for signatures in ["null", "{}", "[1]", "[]"] {
        let card = format!(r#"{{"name":"x","signatures":{signatures}}}"#);
        assert!(matches!(verify(&card, &key_set()), Err(VerifyError::Unsigned)), "{signatures}");
    }
    for text in ["", "[]", r#"{"name":1,"name":2}"#] {
        assert!(matches!(verify(text, &key_set()), Err(VerifyError::NotCanonical(_))), "{text}");
    }
}

#[test]
fn integers_that_rfc_8785_cannot_represent_are_not_signed() {
    let text = json_of(&card()).replace("9007199254740991.0", "9007199254740993");
    let card: AgentCard = serde_json::from_str(&text).unwrap();
    let refused = signer("p256").sign(&card).unwrap_err();
    let SignError::NotCanonical(CanonicalError::Integer(integer)) = refused else { panic!("{refused}") };
    assert_eq!(integer, "9007199254740993");
    assert!(matches!(verify(&text, &key_set()), Err(VerifyError::NotCanonical(CanonicalError::Integer(_)))));
}

#[test]
fn a_private_key_is_checked_when_it_is_read() {
    let pem = fixture("p256.pem");
    assert_eq!(Signer::from_pem(&pem, "k", Some(Algorithm::ES256)).unwrap().algorithm(), Algorithm::ES256);
    let error = |pem: &str, kid: &str, algorithm| Signer::from_pem(pem, kid, algorithm).err().unwrap();
    assert!(matches!(error(&pem, "k", Some(Algorithm::RS256)), KeyError::OtherAlgorithm { .. }));
    assert!(matches!(error(&pem, "", None), KeyError::EmptyKid));
    for other in ["", "not PEM", &fixture("p256.pub.pem"), &pem.replace("PRIVATE KEY", "EC PRIVATE KEY")] {
        assert!(matches!(error(other, "k", None), KeyError::NotPem { .. }), "{other}");
    }
    let damaged = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    assert!(matches!(error(damaged, "k", None), KeyError::UnsupportedKey));
}

#[test]
fn a_public_key_is_checked_when_it_is_read() {
    assert!(matches!(Jwks::from_pem(&fixture("p256.pem")), Err(KeyError::NotPem { .. })));
    let damaged = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n";
    assert!(matches!(Jwks::from_pem(damaged), Err(KeyError::UnsupportedKey)));
    assert!(matches!(Jwks::parse("{}"), Err(KeyError::NotAKeySet(_))));
}
