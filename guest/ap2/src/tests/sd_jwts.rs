//! Mandates of v0.2. `sd_jwts/vectors.json` has mandates of the published SDK; `sd_jwts/make.py` writes this file.

mod attacks;

use annex_sdk::testing::{self, Bucket, Host};
use annex_sdk::{Entry, Event, EventKind, Request};
use p256::ecdsa::SigningKey;
use serde_json::{Value, json};

use super::samples::{
    NOW_SECONDS, host_with, issuer, jwk, key, merchant, message, parameters, refused, send, show, token, with,
};
use crate::{Ap2, jws};

const CHECKOUT: &str = "ap2.mandates.CheckoutMandateSdJwt";
const PAYMENT: &str = "ap2.mandates.PaymentMandateSdJwt";

fn parameters_of_v0_2() -> Value {
    let parameters = with(with(parameters(), "/version", json!("0.2")), "/allow_unattended", json!(true));
    with(parameters, "/nonces", json!(["{checkout_hash}"]))
}

fn host() -> Host {
    host_with(&parameters_of_v0_2())
}

fn vectors(set: &str) -> Value {
    let all: Value = serde_json::from_str(include_str!("sd_jwts/vectors.json")).unwrap();
    all[set].clone()
}

fn vector(set: &str, name: &str) -> String {
    vectors(set)[name].as_str().unwrap().to_owned()
}

fn both(checkout: &str, payment: &str) -> Value {
    json!({PAYMENT: payment, CHECKOUT: checkout})
}

/// The reason for refusing a checkout mandate.
fn refused_checkout(host: &Host, mandate: &str) -> String {
    let found = refused(host, &json!({CHECKOUT: mandate}));
    found.strip_prefix("CheckoutMandateSdJwt ").unwrap_or(&found).to_owned()
}

fn disclosure(content: &Value) -> String {
    jws::encode(content.to_string().as_bytes())
}

/// An SD-JWT of the wallet with these claims, and with these texts behind it.
fn signed(claims: &Value, disclosures: &[&str]) -> String {
    let jwt = token(&issuer(), &json!({"alg": "ES256", "kid": "w-1"}), claims);
    let parts: String = disclosures.iter().map(|text| format!("{text}~")).collect();
    format!("{jwt}~{parts}")
}

/// A closed mandate for the checkout of a token.
fn closed(jwt: &str) -> Value {
    json!({"vct": "mandate.checkout.1", "checkout_hash": jws::hash(jwt), "checkout_jwt": jwt, "exp": NOW_SECONDS + 60})
}

fn claims_of(mandate: &Value) -> Value {
    json!({"delegate_payload": [mandate], "_sd_alg": "sha-256"})
}

fn checkout_jwt() -> String {
    vector("direct", "checkout_jwt")
}

#[test]
fn mandates_that_the_published_sdk_signs_for_a_user_are_taken_once() {
    let host = host();
    let data = both(&vector("direct", "checkout"), &vector("direct", "payment"));
    assert_eq!(send(&host, &data), Ok(()));
    let again = send(&host, &data).unwrap_err();
    let expected = [CHECKOUT, PAYMENT].map(|name| format!("/message/parts/0/data/{name} was used before"));
    assert_eq!(again, expected);
}

#[test]
fn mandates_that_an_agent_closes_within_the_users_constraints_are_taken() {
    let checkout = vector("delegated", "checkout");
    for name in ["payment", "payment_of_issuer_jwt_hash"] {
        assert_eq!(send(&host(), &both(&checkout, &vector("delegated", name))), Ok(()), "{name}");
    }
    let alone = host_with(&with(parameters_of_v0_2(), "/allow_unattended", json!(false)));
    let reason = "is closed by an agent without the user's confirmation, which is not accepted here";
    assert_eq!(refused_checkout(&alone, &checkout), format!("invalid_mandate: {reason}"));
}

#[test]
fn an_open_mandate_is_used_up_by_the_first_closed_one() {
    let host = host();
    let (checkout, payment) = (vector("delegated", "checkout"), vector("delegated", "payment"));
    assert_eq!(send(&host, &both(&checkout, &payment)), Ok(()));
    host.begin::<Ap2>(testing::request(), testing::beginning()).unwrap();
    let other = refused(&host, &json!({PAYMENT: vector("delegated", "payment_of_issuer_jwt_hash")}));
    assert_eq!(other, "PaymentMandateSdJwt was used before");
}

#[test]
fn a_checkout_that_breaks_a_rule_is_refused_with_the_error_code_of_ap2() {
    let allowed = "unresolved_constraint: does not meet the constraint";
    let cases = [
        (
            "other_merchant",
            "invalid_mandate: has a `checkout_jwt` that is of a merchant that is not known here".to_owned(),
        ),
        ("expired", "invalid_credential: is over: `exp`".to_owned()),
        ("future", "invalid_credential: is from the future: `iat`".to_owned()),
        ("undated", "invalid_credential: has neither `exp` nor `iat`".to_owned()),
        ("by_agent", "invalid_credential: cannot be verified: no key of its issuer is known here".to_owned()),
        ("audience", "invalid_credential: is not for this agent: `aud`".to_owned()),
        ("nonce", "invalid_credential: has a nonce that is not accepted here: `nonce`".to_owned()),
        ("hidden_merchant", format!("{allowed} `checkout.allowed_merchants`: the merchant is not allowed")),
        ("not_allowed_merchant", format!("{allowed} `checkout.allowed_merchants`: the merchant is not allowed")),
        ("no_socks", format!("{allowed} `checkout.line_items`: has other items than the user allowed")),
    ];
    for (name, expected) in cases {
        assert_eq!(refused_checkout(&host(), &vector("refused", name)), expected, "{name}");
    }
}

#[test]
fn a_payment_must_agree_with_its_checkout_and_the_users_constraints() {
    let checkout = vector("refused", "checkout");
    let constraint = "unresolved_constraint: does not meet the constraint";
    let cases = [
        (
            "amount",
            "invalid_mandate: has another amount than the total of the checkout: `payment_amount.amount`".to_owned(),
        ),
        ("currency", "invalid_mandate: has another currency than the checkout: `payment_amount.currency`".to_owned()),
        ("payee", "invalid_mandate: pays another merchant than that of the checkout: `payee`".to_owned()),
        ("too_much", format!("{constraint} `payment.amount_range`: the amount or its currency is not allowed")),
        ("not_allowed_payee", format!("{constraint} `payment.allowed_payees`: the payee is not allowed")),
        (
            "not_allowed_instrument",
            format!("{constraint} `payment.allowed_payment_instruments`: the payment instrument is not allowed"),
        ),
        (
            "not_allowed_pisp",
            format!("{constraint} `payment.allowed_pisps`: the payment initiation service provider is not allowed"),
        ),
        ("too_late", format!("{constraint} `payment.execution_date`: the date is not allowed")),
        (
            "other_reference",
            format!("{constraint} `payment.reference`: the checkout is not known as one of that open mandate"),
        ),
        ("budget", format!("{constraint} `payment.budget`: it is not evaluated here")),
        ("fixed_amount", "invalid_mandate: differs from its open mandate: `payment_amount`".to_owned()),
    ];
    for (name, expected) in cases {
        let found = refused(&host(), &both(&checkout, &vector("refused", name)));
        assert_eq!(found, format!("PaymentMandateSdJwt {expected}"), "{name}");
    }
}

#[test]
fn a_checkout_is_known_for_the_rest_of_its_conversation() {
    let host = host();
    let payment = json!({PAYMENT: vector("direct", "payment")});
    let unknown =
        "PaymentMandateSdJwt invalid_mandate: names no checkout of this message or conversation: `transaction_id`";
    assert_eq!(refused(&host, &payment), unknown);
    assert_eq!(send(&host, &json!({CHECKOUT: vector("direct", "checkout")})), Ok(()));
    host.begin::<Ap2>(testing::request(), testing::beginning()).unwrap();
    let elsewhere = Request { context_id: None, ..testing::request() };
    assert_eq!(
        show(host.check::<Ap2>(elsewhere, message(&payment))).unwrap_err(),
        [format!("/message/parts/0/data/ap2.mandates.{unknown}")]
    );
    let later = host.clock("2026-11-23T12:31:00Z");
    let over = "PaymentMandateSdJwt invalid_mandate: names a checkout that is over: `transaction_id`";
    assert_eq!(refused(&later, &payment), over);
    assert_eq!(send(&later.clock("2026-11-23T12:00:00Z"), &payment), Ok(()));
    let without = host_with(&with(parameters_of_v0_2(), "/require_cart", json!(false)));
    assert_eq!(send(&without, &payment), Ok(()));
}

#[test]
fn a_task_may_repeat_its_mandates_and_another_task_may_not() {
    let host = host();
    let data = both(&vector("direct", "checkout"), &vector("direct", "payment"));
    assert_eq!(send(&host, &data), Ok(()));
    host.begin::<Ap2>(testing::request(), testing::beginning()).unwrap();
    let same = Request { task_id: Some("task-1".to_owned()), ..testing::request() };
    assert_eq!(show(host.check::<Ap2>(same, message(&data))), Ok(()));
    assert!(send(&host, &data).is_err());
}

#[test]
fn a_task_does_not_close_an_open_mandate_twice() {
    let host = host();
    let (checkout, payment) = (vector("delegated", "checkout"), vector("delegated", "payment"));
    assert_eq!(send(&host, &both(&checkout, &payment)), Ok(()));
    host.begin::<Ap2>(testing::request(), testing::beginning()).unwrap();
    let same = || Request { task_id: Some("task-1".to_owned()), ..testing::request() };
    let other = json!({PAYMENT: vector("delegated", "payment_of_issuer_jwt_hash")});
    let refused = show(host.check::<Ap2>(same(), message(&other))).unwrap_err();
    assert_eq!(refused, [format!("/message/parts/0/data/{PAYMENT} was used before")]);
    assert_eq!(show(host.check::<Ap2>(same(), message(&both(&checkout, &payment)))), Ok(()));
}

#[test]
fn a_key_binding_must_be_by_the_key_of_the_mandate_and_for_this_agent() {
    assert_eq!(send(&host(), &json!({CHECKOUT: vector("bound", "checkout")})), Ok(()));
    let cases = [
        ("audience", "is not for this agent: `aud`"),
        ("nonce", "has a nonce that is not accepted here: `nonce`"),
        ("other_key", "has a key binding whose signature does not verify"),
        ("unbound", "lacks the key binding of its `cnf.jwk`"),
    ];
    for (name, reason) in cases {
        let found = refused_checkout(&host(), &vector("bound", name));
        assert_eq!(found, format!("invalid_credential: {reason}"), "{name}");
    }
    // The binding of a mandate of which one disclosure was taken away.
    let whole = vector("bound", "checkout");
    let mut parts: Vec<&str> = whole.split('~').collect();
    parts.remove(2);
    let reason = "invalid_credential: has a key binding of another mandate: `sd_hash`";
    assert_eq!(refused_checkout(&host(), &parts.join("~")), reason);
    // 65 seconds before the binding was made, and 35 before the mandate was.
    let early = host().clock("2026-11-23T11:58:55Z");
    let reason = "invalid_credential: has a key binding that is too old or from the future: `iat`";
    assert_eq!(refused_checkout(&early, &whole), reason);
}

#[test]
fn the_key_of_a_credential_signs_a_mandate() {
    let chain = vector("credential", "checkout");
    assert_eq!(send(&host(), &json!({CHECKOUT: chain})), Ok(()));
    // The credential shows less than the user's signature is for, or is that of another user.
    let (credential, mandate) = chain.split_once("~~").unwrap();
    let jwt = credential.split('~').next().unwrap();
    let reason = "delegates another token than the one before it: `sd_hash` or `issuer_jwt_hash`";
    let found = refused_checkout(&host(), &format!("{jwt}~~{mandate}"));
    assert_eq!(found, format!("invalid_credential: {reason}"));
    let claims = json!({"iss": "https://wallet.example", "cnf": {"jwk": jwk(&key(9), "u")}});
    let other = signed(&claims, &[]);
    let found = refused_checkout(&host(), &format!("{other}~{mandate}"));
    assert_eq!(found, "invalid_credential: has a delegation whose signature does not verify");
}

#[test]
fn a_checkout_must_be_signed_by_its_merchant_and_for_now() {
    let claims = json!({
        "id": "order-9", "merchant": {"id": "https://shop.example", "name": "Shop"}, "currency": "USD",
        "totals": [{"type": "subtotal", "amount": 90}, {"type": "total", "amount": 100}], "exp": NOW_SECONDS + 600,
    });
    let show = |key: &SigningKey, claims: &Value| {
        let jwt = token(key, &json!({"alg": "ES256", "kid": "m-1"}), claims);
        send(&host(), &json!({CHECKOUT: signed(&claims_of(&closed(&jwt)), &[])})).map_err(|all| all[0].clone())
    };
    assert_eq!(show(&merchant(), &claims), Ok(()));
    let by_issuer = json!({"id": "1", "iss": "https://shop.example", "currency": "USD", "totals": [{"type": "total", "amount": 1}],
        "expires_at": "2026-11-23T12:10:00Z", "merchant": {"name": "Shop"}});
    assert_eq!(show(&merchant(), &by_issuer), Ok(()));
    let refuse = |reason: &str| {
        Err(format!("/message/parts/0/data/{CHECKOUT} invalid_mandate: has a `checkout_jwt` that {reason}"))
    };
    assert_eq!(show(&key(9), &claims), refuse("has a signature that does not verify"));
    let total = json!([{"type": "total", "amount": 1}, {"type": "total", "amount": 2}]);
    let cases = [
        ("/merchant", json!({"id": "https://shop.example", "name": "Other"}), "has another merchant's `name`"),
        ("/merchant", Value::Null, "names no merchant: neither `merchant.id` nor `iss`"),
        ("/exp", json!(NOW_SECONDS), "is over: `exp` or `expires_at`"),
        ("/exp", json!(NOW_SECONDS + 3_661), "lasts longer than is allowed here: `exp` or `expires_at`"),
        ("/exp", Value::Null, "has neither `exp` nor `expires_at`"),
        ("/expires_at", json!("tomorrow"), "has an `expires_at` that is not an ISO 8601 time with an offset"),
        ("/iat", json!(NOW_SECONDS + 61), "is from the future: `iat` or `nbf`"),
        ("/totals", total, "must have exactly one total of the type `total`"),
        ("/totals", json!([{"type": "total", "amount": -1}]), "has a negative total"),
        ("/totals", json!("free"), "lacks claims, or has some of the wrong type"),
    ];
    for (place, value, reason) in cases {
        assert_eq!(show(&merchant(), &with(claims.clone(), place, value)), refuse(reason));
    }
    let other = with(closed(&checkout_jwt()), "/checkout_hash", json!("x"));
    let found = refused_checkout(&host(), &signed(&claims_of(&other), &[]));
    assert_eq!(found, "invalid_mandate: is for another checkout: `checkout_hash` is not that of `checkout_jwt`");
}

#[test]
fn only_mandates_of_this_version_are_taken() {
    let cases = [
        (
            json!({"ap2.mandates.CartMandate": {}}),
            "CartMandate is not a mandate of AP2 v0.2, and cannot be verified here",
        ),
        (json!({CHECKOUT: {"jwt": "x"}}), "CheckoutMandateSdJwt must be a string"),
        (
            json!({CHECKOUT: vector("direct", "payment")}),
            "CheckoutMandateSdJwt invalid_credential: ends with another mandate than mandate.checkout.1",
        ),
        (
            json!({CHECKOUT: format!("{}~", vector("delegated", "checkout").split_once("~~").unwrap().0)}),
            "CheckoutMandateSdJwt invalid_credential: ends with another mandate than mandate.checkout.1",
        ),
    ];
    for (data, expected) in cases {
        assert_eq!(refused(&host(), &data), expected);
    }
    let shopper = host_with(&with(parameters_of_v0_2(), "/roles", json!(["shopper"])));
    let found = refused(&shopper, &json!({PAYMENT: vector("direct", "payment")}));
    assert_eq!(found, "PaymentMandateSdJwt is not for an agent whose only role is shopper");
    let first = refused(&host_with(&parameters()), &json!({CHECKOUT: vector("direct", "checkout")}));
    assert_eq!(first, "CheckoutMandateSdJwt is not a mandate of AP2 v0.1, and cannot be verified here");
}

#[test]
fn mandates_of_unknown_issuers_pass_if_the_operator_lets_them_and_forged_ones_do_not() {
    let lenient = with(parameters_of_v0_2(), "/require_signatures", json!(false));
    let unknown = both(&vector("refused", "by_agent"), &vector("refused", "amount"));
    let found = refused(&host_with(&lenient), &unknown);
    assert!(found.starts_with("PaymentMandateSdJwt invalid_mandate: names no checkout"), "{found}");
    assert_eq!(send(&host_with(&lenient), &json!({CHECKOUT: vector("refused", "by_agent")})), Ok(()));
    assert_eq!(send(&host_with(&lenient), &json!({CHECKOUT: vector("refused", "other_merchant")})), Ok(()));
    let mandate = vector("direct", "checkout");
    let forged = mandate.replacen('~', "x~", 1);
    assert!(send(&host_with(&lenient), &json!({CHECKOUT: forged})).is_err());
}

fn offer(jwt: &str, hash: &str) -> Event {
    let data = json!({"ap2.checkout": {"checkout_jwt": jwt, "checkout_hash": hash, "cart_id": "order-1"}});
    let artifact = json!({"artifactId": "a", "parts": [{"data": data}]});
    let payload = json!({"artifactUpdate": {"taskId": "task-1", "contextId": "context-1", "artifact": artifact}});
    Event { payload: Some(payload.to_string()), ..testing::event(EventKind::Artifact) }
}

#[test]
fn a_merchant_takes_mandates_for_the_last_version_of_its_checkout() {
    let merchants = with(parameters_of_v0_2(), "/roles", json!(["merchant"]));
    let host = host_with(&merchants);
    let (jwt, later) = (checkout_jwt(), vector("direct", "later_checkout_jwt"));
    assert_eq!(host.respond::<Ap2>(offer(&jwt, &jws::hash(&jwt))), Ok(None));
    assert_eq!(send(&host, &json!({PAYMENT: vector("direct", "payment")})), Ok(()));
    assert_eq!(host.respond::<Ap2>(offer(&later, &jws::hash(&later))), Ok(None));
    let found = refused_checkout(&host, &vector("direct", "checkout"));
    assert_eq!(found, "invalid_mandate: is for an earlier version of the checkout: `checkout_hash`");
    let error = host.respond::<Ap2>(offer(&jwt, "x")).unwrap_err();
    let place = "/artifact/parts/0/data/ap2.checkout";
    let reason = "has a `checkout_hash` that is not that of `checkout_jwt`";
    assert_eq!(error, format!("the agent sends a checkout that cannot be paid: {place} {reason}"));
}

#[test]
fn a_checkout_that_cannot_be_kept_ends_its_task_and_a_failing_store_takes_nothing() {
    let host = host().failing(Bucket::Context, "the store is full");
    let other = Request { context_id: None, ..testing::request() };
    let data = json!({CHECKOUT: vector("direct", "checkout")});
    assert_eq!(show(host.check::<Ap2>(other, message(&data))), Ok(()));
    let entry = host.begin::<Ap2>(testing::request(), testing::beginning());
    assert_eq!(entry, Ok(Entry::Veto("the checkout cannot be kept now: the store is full".to_owned())));
    let full = self::host().failing(Bucket::Lasting, "the store is full");
    assert_eq!(send(&full, &data).unwrap_err(), ["the payment cannot be checked now: the store is full"]);
}

#[test]
fn each_version_has_its_uri() {
    for (version, uri) in [("0.1", "tree/v0.1"), ("0.2", "v1")] {
        let host = host_with(&with(parameters(), "/version", json!(version)));
        let expected = format!("https://github.com/google-agentic-commerce/ap2/{uri}");
        assert_eq!(host.descriptor::<Ap2>().unwrap().uri, expected);
        assert_eq!(host.declare::<Ap2>().unwrap().params.as_deref(), Some(r#"{"roles":["payment-processor"]}"#));
    }
}
