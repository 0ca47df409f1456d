//! Tests the extension as a host calls it, with generated keys.

mod samples;
mod sd_jwts;

use annex_sdk::testing::{self, Bucket};
use annex_sdk::{Entry, Request, Violation};
use p256::ecdsa::signature::Signer as _;
use p256::ecdsa::{Signature, SigningKey};
use serde_json::{Value, json};

use self::samples::{
    NOW_SECONDS, PARTS, artifact, binding_claims, both, cart, cart_contents, cart_of, hash, host, host_with, jwk, key,
    merchant, merchant_claims, message, parameters, payment_by, payment_contents, payment_of, refused, send, show,
    token, user, with,
};
use crate::{Ap2, jws};

#[test]
fn the_card_has_the_roles() {
    let roles = with(parameters(), "/roles", json!(["merchant", "credentials-provider"]));
    let declaration = host_with(&roles).declare::<Ap2>().unwrap();
    assert_eq!(declaration.params.as_deref(), Some(r#"{"roles":["merchant","credentials-provider"]}"#));
}

#[test]
fn a_key_that_cannot_be_used_or_is_private_stops_the_load() {
    host().descriptor::<Ap2>().unwrap();
    let at = "/merchants/0/keys/0";
    for (name, value) in [("x", json!("AA")), ("crv", json!("P-384")), ("d", json!("AA")), ("alg", json!("ES384"))] {
        let wrong = with(parameters(), &format!("{at}/{name}"), value);
        let error = host_with(&wrong).descriptor::<Ap2>().unwrap_err();
        assert!(error.starts_with("a key of \"https://shop.example\" cannot be used"), "{error}");
    }
    let off_the_curve = with(parameters(), &format!("{at}/y"), jwk(&user(), "u")["y"].clone());
    assert!(host_with(&off_the_curve).descriptor::<Ap2>().is_err());
}

#[test]
fn a_message_without_mandates_is_taken_and_costs_no_key() {
    let host = host().failing(Bucket::Lasting, "down").failing(Bucket::Context, "down");
    assert_eq!(send(&host, &json!({"risk_data": {"any": 1}})), Ok(()));
}

#[test]
fn a_signed_payment_with_its_signed_cart_is_taken_once() {
    let host = host();
    assert_eq!(send(&host, &both(&cart(), &payment_of(&payment_contents()))), Ok(()));
    let again = send(&host, &both(&cart(), &payment_of(&payment_contents()))).unwrap_err();
    let expected = [
        format!("{PARTS}CartMandate/merchant_authorization was used before"),
        format!("{PARTS}PaymentMandate/payment_mandate_contents/payment_mandate_id was used before"),
    ];
    assert_eq!(again, expected);
}

#[test]
fn what_is_refused_uses_nothing_up() {
    let host = host();
    assert_eq!(send(&host, &both(&cart(), &payment_of(&payment_contents()))), Ok(()));
    let fresh = with(merchant_claims(&cart_contents()), "/jti", json!("j-2"));
    let fresh = cart_of(&cart_contents(), &fresh);
    let place = "PaymentMandate/payment_mandate_contents/payment_mandate_id was used before";
    assert_eq!(refused(&host, &both(&fresh, &payment_of(&payment_contents()))), place);
    assert_eq!(send(&host, &json!({"ap2.mandates.CartMandate": fresh})), Ok(()));
}

#[test]
fn what_is_used_is_forgotten_when_it_would_be_refused_anyhow() {
    let host = host();
    assert_eq!(send(&host, &json!({"ap2.mandates.CartMandate": cart()})), Ok(()));
    let first = host.keys(Bucket::Lasting);
    let later = host.clock("2026-11-23T12:20:00Z");
    let claims = merchant_claims(&cart_contents());
    let claims = with(with(claims, "/iat", json!(NOW_SECONDS + 1_190)), "/exp", json!(NOW_SECONDS + 1_500));
    assert_eq!(send(&later, &json!({"ap2.mandates.CartMandate": cart_of(&cart_contents(), &claims)})), Ok(()));
    let second = later.keys(Bucket::Lasting);
    assert_eq!(second.len(), 1);
    assert_ne!(first, second);
}

#[test]
fn a_cart_is_known_for_the_rest_of_its_conversation() {
    let host = host();
    let payment = json!({"ap2.mandates.PaymentMandate": payment_of(&payment_contents())});
    let unknown = "PaymentMandate/payment_mandate_contents/payment_details_id names no cart of this conversation";
    assert_eq!(refused(&host, &payment), unknown);
    assert_eq!(send(&host, &json!({"ap2.mandates.CartMandate": cart()})), Ok(()));
    host.begin::<Ap2>(testing::request(), testing::beginning()).unwrap();
    assert_eq!(send(&host, &payment), Ok(()));
    let host = host.clock("2026-11-23T12:31:00Z");
    let late = with(payment_contents(), "/timestamp", json!("2026-11-23T12:30:30Z"));
    let over = "PaymentMandate/payment_mandate_contents/payment_details_id names an expired cart";
    let late = json!({"ap2.mandates.PaymentMandate": payment_of(&late)});
    assert_eq!(refused(&host, &late), over);
    let elsewhere = Request { context_id: None, ..testing::request() };
    let nowhere = show(host.check::<Ap2>(elsewhere, message(&payment))).unwrap_err();
    assert_eq!(nowhere, [format!("{PARTS}{unknown}")]);
}

#[test]
fn a_merchants_signature_must_be_on_this_cart_by_its_key_and_for_now() {
    let claims = merchant_claims(&cart_contents());
    let cases = [
        ("/cart_hash", json!("x"), "signs another cart: `cart_hash` is not that of `contents`"),
        ("/iat", json!(NOW_SECONDS + 90), "is from the future: `iat`"),
        ("/exp", json!(NOW_SECONDS - 61), "is over: `exp`"),
        ("/nbf", json!(NOW_SECONDS + 61), "is not valid yet: `nbf`"),
        ("/exp", json!(NOW_SECONDS + 1_000), "lasts longer than is allowed here: from `iat` to `exp`"),
        ("/aud", json!("https://other.example"), "is not for this agent: `aud`"),
        ("/jti", json!(""), "has an empty `jti`"),
        ("/jti", json!(7), "lacks claims, or has some of the wrong type"),
        ("/iss", json!("https://other.example"), "cannot be verified: its issuer is not known here"),
    ];
    for (place, value, message) in cases {
        let cart = cart_of(&cart_contents(), &with(claims.clone(), place, value));
        let found = refused(&host(), &json!({"ap2.mandates.CartMandate": cart}));
        assert_eq!(found, format!("CartMandate/merchant_authorization {message}"));
    }
    let several = with(claims, "/aud", json!(["https://other.example", "https://processor.example"]));
    assert_eq!(send(&host(), &json!({"ap2.mandates.CartMandate": cart_of(&cart_contents(), &several)})), Ok(()));
}

#[test]
fn only_es256_by_a_key_of_the_merchant_verifies() {
    let claims = merchant_claims(&cart_contents());
    let by = |key: &SigningKey, header: Value| {
        let authorization = token(key, &header, &claims);
        json!({"ap2.mandates.CartMandate": {"contents": cart_contents(), "merchant_authorization": authorization}})
    };
    let cases = [
        (by(&merchant(), json!({"alg": "none"})), "has another algorithm than ES256"),
        (by(&merchant(), json!({"alg": "HS256", "kid": "m-1"})), "has another algorithm than ES256"),
        (by(&merchant(), json!({"alg": "ES256", "kid": "other"})), "has a signature that does not verify"),
        (by(&user(), json!({"alg": "ES256", "jwk": jwk(&user(), "m-1")})), "has a signature that does not verify"),
        (
            by(&merchant(), json!({"alg": "ES256", "crit": ["x"], "x": 1})),
            "has critical headers, of which none is known here",
        ),
    ];
    for (data, message) in cases {
        assert_eq!(refused(&host(), &data), format!("CartMandate/merchant_authorization {message}"));
    }
    let mut data = by(&merchant(), json!({"alg": "ES256"}));
    let authorization = data.pointer_mut("/ap2.mandates.CartMandate/merchant_authorization").unwrap();
    // One more layer of base64url, as some read v0.1.
    *authorization = json!(jws::encode(authorization.as_str().unwrap().as_bytes()));
    assert_eq!(send(&host(), &data), Ok(()));
}

#[test]
fn a_token_that_names_a_claim_twice_is_refused() {
    let claims = merchant_claims(&cart_contents()).to_string();
    let twice = claims.replacen('{', r#"{"cart_hash":"x","#, 1);
    let part = |text: &str| jws::encode(text.as_bytes());
    let signed = format!("{}.{}", part(r#"{"alg":"ES256"}"#), part(&twice));
    let signature: Signature = merchant().sign(signed.as_bytes());
    let authorization = format!("{signed}.{}", jws::encode(&signature.to_bytes()));
    let cart = json!({"contents": cart_contents(), "merchant_authorization": authorization});
    let found = refused(&host(), &json!({"ap2.mandates.CartMandate": cart}));
    assert_eq!(found, "CartMandate/merchant_authorization cannot be verified: its issuer is not known here");
}

#[test]
fn a_cart_that_was_changed_or_is_over_is_refused_where_it_is_wrong() {
    let claims = merchant_claims(&cart_contents());
    let place = "/payment_request/details/total/amount/value";
    let cheaper = cart_of(&with(cart_contents(), place, json!(1.0)), &claims);
    let message = "signs another cart: `cart_hash` is not that of `contents`";
    assert_eq!(
        refused(&host(), &json!({"ap2.mandates.CartMandate": cheaper})),
        format!("CartMandate/merchant_authorization {message}")
    );
    let cases = [("2026-11-23T11:00:00Z", "is over"), ("tomorrow", "is not an ISO 8601 time with an offset")];
    for (expiry, message) in cases {
        let contents = with(cart_contents(), "/cart_expiry", json!(expiry));
        let cart = cart_of(&contents, &merchant_claims(&contents));
        let found = refused(&host(), &json!({"ap2.mandates.CartMandate": cart}));
        assert_eq!(found, format!("CartMandate/contents/cart_expiry {message}"));
    }
    let contents = with(cart_contents(), "/merchant_name", json!("Shop of another"));
    let cart = cart_of(&contents, &merchant_claims(&contents));
    let found = refused(&host(), &json!({"ap2.mandates.CartMandate": cart}));
    assert_eq!(found, "CartMandate/merchant_authorization is of another merchant than `merchant_name`");
}

#[test]
fn a_payment_must_agree_with_its_cart() {
    let cases = [
        ("/payment_details_total/amount/value", json!(160), "differs from that of the cart's total"),
        ("/payment_details_total/amount/currency", json!("EUR"), "differs from that of the cart's total"),
        ("/payment_response/method_name", json!("CASH"), "is not a method of the cart"),
        ("/payment_response/request_id", json!("order-2"), "differs from `payment_details_id`"),
        ("/merchant_agent", json!("other-agent"), "differs from the cart's"),
        ("/timestamp", json!("2026-11-23T12:02:00Z"), "is in the future"),
        ("/timestamp", json!("2026-11-23T10:58:00Z"), "is too old"),
        ("/timestamp", json!("2026-11-23T12:00:00"), "is not an ISO 8601 time with an offset"),
        ("/timestamp", Value::Null, "is required"),
        // The method has a total of its own.
        ("/payment_response/method_name", json!("COIN"), "differs from that of the cart's total"),
    ];
    for (place, value, message) in cases {
        let payment = payment_of(&with(payment_contents(), place, value.clone()));
        let place = if value == "COIN" { "/payment_details_total/amount/value" } else { place };
        let found = refused(&host(), &both(&cart(), &payment));
        assert_eq!(found, format!("PaymentMandate/payment_mandate_contents{place} {message}"));
    }
    let place = "/payment_details_total/amount/value";
    let coins = with(with(payment_contents(), place, json!(118.5)), "/payment_response/method_name", json!("COIN"));
    assert_eq!(send(&host(), &both(&cart(), &payment_of(&coins))), Ok(()));
}

#[test]
fn a_user_authorizes_this_payment_of_this_cart_to_this_agent() {
    let contents = payment_contents();
    let claims = binding_claims(&contents);
    let cart_only = json!([hash(&cart_contents())]);
    let payment_only = json!([hash(&contents)]);
    let cases = [
        ("/transaction_data", cart_only, "authorizes another payment: `transaction_data` lacks its hash"),
        ("/transaction_data", payment_only, "authorizes another cart: `transaction_data` lacks its hash"),
        ("/sd_hash", json!("x"), "has a key binding of another credential: `sd_hash`"),
        ("/aud", json!("https://other.example"), "is not for this agent: `aud`"),
        ("/iat", json!(NOW_SECONDS + 61), "is from the future: `iat`"),
        ("/iat", json!(NOW_SECONDS - 3_661), "is too old: `iat`"),
        ("/nonce", json!(""), "has an empty `nonce`"),
        ("/exp", json!(NOW_SECONDS - 60), "has a key binding that is not valid now"),
        ("/nbf", json!(NOW_SECONDS + 61), "has a key binding that is not valid now"),
    ];
    for (place, value, message) in cases {
        let payment = payment_by(&user(), "kb+jwt", &contents, &with(claims.clone(), place, value));
        assert_eq!(refused(&host(), &both(&cart(), &payment)), format!("PaymentMandate/user_authorization {message}"));
    }
    let other = payment_by(&key(9), "kb+jwt", &contents, &claims);
    let message = "PaymentMandate/user_authorization has a key binding whose signature does not verify";
    assert_eq!(refused(&host(), &both(&cart(), &other)), message);
    let untyped = payment_by(&user(), "jwt", &contents, &claims);
    let message = "PaymentMandate/user_authorization has a key binding of another type than kb+jwt";
    assert_eq!(refused(&host(), &both(&cart(), &untyped)), message);
    let whole = with(claims, "/transaction_data", json!([hash(&contents), hash(&cart())]));
    assert_eq!(send(&host(), &both(&cart(), &payment_by(&user(), "kb+jwt", &contents, &whole))), Ok(()));
}

#[test]
fn what_cannot_be_verified_is_refused_unless_the_operator_lets_it_pass() {
    let unsigned_cart = json!({"contents": cart_contents(), "merchant_authorization": null});
    // The samples of AP2 write an authorization like this one.
    let sample = json!({"payment_mandate_contents": payment_contents(), "user_authorization": "fake_hash_fake_hash"});
    let data = both(&unsigned_cart, &sample);
    let all = send(&host(), &data).unwrap_err();
    assert_eq!(all[0], format!("{PARTS}CartMandate/merchant_authorization is required"));
    let form = "cannot be verified: it is not an SD-JWT with key binding";
    assert!(all.contains(&format!("{PARTS}PaymentMandate/user_authorization {form}")));
    let lenient = with(parameters(), "/require_signatures", json!(false));
    assert_eq!(send(&host_with(&lenient), &data), Ok(()));
    // A wrong signature of a known issuer is always refused.
    let wrong = with(cart(), "/contents/id", json!("cart-2"));
    assert!(send(&host_with(&lenient), &both(&wrong, &sample)).is_err());
    let later = json!({"ap2.mandates.PaymentMandateSdJwt": "eyJ"});
    let message = "PaymentMandateSdJwt is not a mandate of AP2 v0.1, and cannot be verified here";
    assert_eq!(refused(&host(), &later), message);
    assert_eq!(send(&host_with(&lenient), &later), Ok(()));
}

#[test]
fn an_intent_must_last_and_leave_the_cart_to_the_user() {
    let intent = json!({"natural_language_description": "red shoes", "intent_expiry": "2026-12-31T00:00:00Z"});
    let show = |place: &str, value: Value| {
        let data = json!({"ap2.mandates.IntentMandate": with(intent.clone(), place, value)});
        send(&host(), &data).map_err(|all| all[0].clone())
    };
    let at = |text: &str| Err(format!("{PARTS}IntentMandate{text}"));
    assert_eq!(show("/user_cart_confirmation_required", json!(true)), Ok(()));
    assert_eq!(show("/intent_expiry", json!("2025-09-16T15:00:00Z")), at("/intent_expiry is over"));
    let unsigned = "must be true: the user has not signed the intent";
    let place = "/user_cart_confirmation_required";
    assert_eq!(show(place, json!(false)), at(&format!("{place} {unsigned}")));
    let alone = with(parameters(), "/allow_unattended", json!(true));
    let data = json!({"ap2.mandates.IntentMandate": with(intent.clone(), place, json!(false))});
    assert_eq!(send(&host_with(&alone), &data), Ok(()));
}

#[test]
fn a_schemas_violations_point_into_the_message_and_a_mandate_is_there_once() {
    let host = host().schema(|_, _| Ok(vec![Violation::new("/contents", "is required")]));
    let found = refused(&host, &json!({"ap2.mandates.CartMandate": {}}));
    assert_eq!(found, "CartMandate/contents is required");
    let intent = json!({"natural_language_description": "x", "intent_expiry": "2026-12-31T00:00:00Z"});
    let part = json!({"data": {"ap2.mandates.IntentMandate": intent}});
    let message = json!({"parts": [{"text": "Hi"}, part, part]}).to_string();
    let twice = show(self::host().check::<Ap2>(testing::request(), message)).unwrap_err();
    assert_eq!(twice, ["/message/parts/2/data/ap2.mandates.IntentMandate is there twice"]);
}

#[test]
fn thousands_of_mandates_cost_no_more_than_a_few() {
    let many: Value = (0..10_000).map(|number| (format!("ap2.mandates.M{number}"), json!(0))).collect();
    let lenient = with(parameters(), "/require_signatures", json!(false));
    let found = refused(&host_with(&lenient), &many);
    assert!(found.ends_with(" exceeds the limit of 64 mandates"), "{found}");
    assert_eq!(send(&host(), &many).unwrap_err().len(), 64);
}

#[test]
fn a_cart_that_cannot_be_kept_ends_its_task() {
    let host = host().failing(Bucket::Context, "the store is full");
    let other = Request { context_id: None, ..testing::request() };
    assert_eq!(show(host.check::<Ap2>(other, message(&json!({"ap2.mandates.CartMandate": cart()})))), Ok(()));
    let entry = host.begin::<Ap2>(testing::request(), testing::beginning());
    assert_eq!(entry, Ok(Entry::Veto("the cart cannot be kept now: the store is full".to_owned())));
}

#[test]
fn a_shopper_takes_no_payments() {
    let shopper = host_with(&with(parameters(), "/roles", json!(["shopper"])));
    let found = refused(&shopper, &both(&cart(), &payment_of(&payment_contents())));
    assert_eq!(found, "PaymentMandate is not for an agent whose only role is shopper");
}

#[test]
fn a_merchants_own_cart_is_known_and_no_other_takes_its_place() {
    let lenient = with(parameters(), "/require_signatures", json!(false));
    let host = host_with(&with(lenient, "/roles", json!(["merchant"])));
    // Its token is for the processor, and is not used up by being sent.
    assert_eq!(host.respond::<Ap2>(artifact(&cart())), Ok(None));
    assert!(host.keys(Bucket::Lasting).is_empty());
    let place = "/payment_request/details/total/amount/value";
    let forged = json!({"contents": with(cart_contents(), place, json!(1))});
    let cheap = with(payment_contents(), "/payment_details_total/amount/value", json!(1));
    let cheap = json!({"payment_mandate_contents": cheap});
    let found = refused(&host, &both(&forged, &cheap));
    let at = "PaymentMandate/payment_mandate_contents/payment_details_total/amount/value";
    assert_eq!(found, format!("{at} differs from that of the cart's total"));
    assert_eq!(send(&host, &json!({"ap2.mandates.CartMandate": forged})), Ok(()));
    host.begin::<Ap2>(testing::request(), testing::beginning()).unwrap();
    assert!(send(&host, &json!({"ap2.mandates.PaymentMandate": cheap})).is_err());
    assert_eq!(send(&host, &json!({"ap2.mandates.PaymentMandate": payment_of(&payment_contents())})), Ok(()));
}

#[test]
fn a_merchant_sends_no_cart_that_cannot_be_paid() {
    let host = host_with(&with(parameters(), "/roles", json!(["merchant"])));
    let unsigned = json!({"contents": cart_contents()});
    let error = host.respond::<Ap2>(artifact(&unsigned)).unwrap_err();
    let at = "/artifact/parts/0/data/ap2.mandates.CartMandate/merchant_authorization";
    assert_eq!(error, format!("the agent sends a cart that cannot be paid: {at} is required"));
}

#[test]
fn nothing_is_taken_when_what_was_used_cannot_be_noted() {
    let host = host().failing(Bucket::Lasting, "the store is full");
    let refused = send(&host, &json!({"ap2.mandates.CartMandate": cart()})).unwrap_err();
    assert_eq!(refused, ["the payment cannot be checked now: the store is full"]);
}
