//! Valid mandates, and messages with them.

use annex_sdk::testing::{self, Host};
use annex_sdk::{Event, EventKind, Rejection, Violation};
use p256::ecdsa::signature::Signer as _;
use p256::ecdsa::{Signature, SigningKey};
use serde_json::{Value, json};

use crate::{Ap2, jws};

pub(super) const NOW: &str = "2026-11-23T12:00:00Z";
pub(super) const NOW_SECONDS: u64 = 1_795_435_200;
pub(super) const PARTS: &str = "/message/parts/0/data/ap2.mandates.";

pub(super) fn key(seed: u8) -> SigningKey {
    SigningKey::from_slice(&[seed; 32]).unwrap()
}

pub(super) fn merchant() -> SigningKey {
    key(1)
}

pub(super) fn issuer() -> SigningKey {
    key(2)
}

pub(super) fn user() -> SigningKey {
    key(3)
}

pub(super) fn jwk(key: &SigningKey, kid: &str) -> Value {
    let point = key.verifying_key().to_sec1_point(false);
    let bytes = point.as_bytes();
    let (x, y) = (jws::encode(&bytes[1..33]), jws::encode(&bytes[33..]));
    json!({"kty": "EC", "crv": "P-256", "kid": kid, "x": x, "y": y})
}

pub(super) fn parameters() -> Value {
    json!({
        "roles": ["payment-processor"],
        "audience": ["https://processor.example"],
        "merchants": [{"iss": "https://shop.example", "name": "Shop", "agent": "shop-agent", "keys": [jwk(&merchant(), "m-1")]}],
        "issuers": [{"iss": "https://wallet.example", "keys": [jwk(&issuer(), "w-1")]}],
    })
}

/// Replaces the value at the JSON pointer `place`.
pub(super) fn with(mut whole: Value, place: &str, value: Value) -> Value {
    let (parent, name) = place.rsplit_once('/').unwrap();
    whole.pointer_mut(parent).unwrap()[name] = value;
    whole
}

pub(super) fn host_with(parameters: &Value) -> Host {
    // Schemas are the host's: `host/server/tests` has those tests. Here everything fits.
    Host::new().parameters(parameters.to_string()).clock(NOW).schema(|_, _| Ok(Vec::new()))
}

pub(super) fn host() -> Host {
    host_with(&parameters())
}

pub(super) fn token(key: &SigningKey, header: &Value, claims: &Value) -> String {
    let part = |value: &Value| jws::encode(value.to_string().as_bytes());
    let signed = format!("{}.{}", part(header), part(claims));
    let signature: Signature = key.sign(signed.as_bytes());
    format!("{signed}.{}", jws::encode(&signature.to_bytes()))
}

pub(super) fn hash(value: &Value) -> String {
    jws::canonical_hash(value).unwrap()
}

pub(super) fn cart_contents() -> Value {
    let shoes = json!({"label": "Shoes", "amount": {"currency": "USD", "value": 120.0}});
    json!({
        "id": "cart-1", "user_cart_confirmation_required": true, "cart_expiry": "2026-11-23T12:30:00Z", "merchant_name": "Shop",
        "payment_request": {
            "method_data": [{"supported_methods": "CARD"}, {"supported_methods": "COIN"}],
            "details": {
                "id": "order-1", "display_items": [shoes], "total": shoes,
                "modifiers": [{"supported_methods": "COIN", "total": {"label": "T", "amount": {"currency": "USD", "value": 118.5}}}]
            }
        }
    })
}

pub(super) fn merchant_claims(contents: &Value) -> Value {
    json!({
        "iss": "https://shop.example", "sub": "https://shop.example", "aud": "https://processor.example",
        "iat": NOW_SECONDS - 10, "exp": NOW_SECONDS + 600, "jti": "j-1", "cart_hash": hash(contents),
    })
}

pub(super) fn cart_of(contents: &Value, claims: &Value) -> Value {
    let header = json!({"alg": "ES256", "kid": "m-1"});
    json!({"contents": contents, "merchant_authorization": token(&merchant(), &header, claims)})
}

pub(super) fn cart() -> Value {
    cart_of(&cart_contents(), &merchant_claims(&cart_contents()))
}

pub(super) fn payment_contents() -> Value {
    json!({
        "payment_mandate_id": "pm-1", "payment_details_id": "order-1", "merchant_agent": "shop-agent",
        "payment_details_total": {"label": "Total", "amount": {"currency": "USD", "value": 120}},
        "payment_response": {"request_id": "order-1", "method_name": "CARD", "details": {"token": "t"}},
        "timestamp": "2026-11-23T11:59:00Z",
    })
}

pub(super) fn credential() -> String {
    let claims = json!({"iss": "https://wallet.example", "vct": "card", "exp": NOW_SECONDS + 9_000, "cnf": {"jwk": jwk(&user(), "u")}});
    token(&issuer(), &json!({"alg": "ES256", "kid": "w-1", "typ": "dc+sd-jwt"}), &claims)
}

pub(super) fn binding_claims(contents: &Value) -> Value {
    json!({
        "iat": NOW_SECONDS - 5, "aud": "https://processor.example", "nonce": "n",
        "sd_hash": jws::hash(&format!("{}~WyJzIiwgIm4iLCAidiJd~", credential())),
        "transaction_data": [hash(&cart_contents()), hash(contents)],
    })
}

pub(super) fn payment_by(key: &SigningKey, typ: &str, contents: &Value, claims: &Value) -> Value {
    let binding = token(key, &json!({"alg": "ES256", "typ": typ}), claims);
    let presented = format!("{}~WyJzIiwgIm4iLCAidiJd~{binding}", credential());
    json!({"payment_mandate_contents": contents, "user_authorization": presented})
}

pub(super) fn payment_of(contents: &Value) -> Value {
    payment_by(&user(), "kb+jwt", contents, &binding_claims(contents))
}

pub(super) fn message(data: &Value) -> String {
    json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"data": data}]}).to_string()
}

pub(super) fn show(result: Result<Vec<annex_sdk::Rewrite>, Rejection>) -> Result<(), Vec<String>> {
    match result {
        Ok(rewrites) => {
            assert_eq!(rewrites, []);
            Ok(())
        }
        Err(Rejection::Violations(all)) => {
            Err(all.into_iter().map(|Violation { pointer, message }| format!("{pointer} {message}")).collect())
        }
        Err(Rejection::Error(error)) => Err(vec![error.message]),
    }
}

pub(super) fn send(host: &Host, data: &Value) -> Result<(), Vec<String>> {
    show(host.check::<Ap2>(testing::request(), message(data)))
}

/// The only violation, without the common prefix of its pointer.
pub(super) fn refused(host: &Host, data: &Value) -> String {
    let all = send(host, data).unwrap_err();
    let [only] = all.as_slice() else { panic!("{all:?}") };
    only.strip_prefix(PARTS).unwrap_or(only).to_owned()
}

pub(super) fn both(cart: &Value, payment: &Value) -> Value {
    json!({"ap2.mandates.PaymentMandate": payment, "ap2.mandates.CartMandate": cart})
}

pub(super) fn artifact(cart: &Value) -> Event {
    let artifact = json!({"artifactId": "a", "parts": [{"data": {"ap2.mandates.CartMandate": cart}}]});
    let payload = json!({"artifactUpdate": {"taskId": "task-1", "contextId": "context-1", "artifact": artifact}});
    Event { payload: Some(payload.to_string()), ..testing::event(EventKind::Artifact) }
}
