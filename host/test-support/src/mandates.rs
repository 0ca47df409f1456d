//! Signed mandates of agent payments (AP2) for the agent of `examples/catalogue`. The mandates are valid at the time at
//! which [`signed`] or [`signed_v0_2`] is called.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use p256::ecdsa::signature::Signer as _;
use p256::ecdsa::{Signature, SigningKey};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The private key that the example uses, from RFC 7515, appendix A.3.
const SIGNER: [u8; 32] = [
    142, 155, 16, 158, 113, 144, 152, 191, 152, 4, 135, 223, 31, 93, 119, 233, 203, 41, 96, 110, 190, 210, 38, 59, 95,
    87, 194, 19, 223, 132, 244, 178,
];
const USER: [u8; 32] = [3; 32];

const PROCESSOR: &str = "https://processor.example.com";
const SHOP: &str = "https://shop.example.com";
const WALLET: &str = "https://wallet.example.com";

/// The `data` of a part with two mandates for the order with the id `order`. The merchant has signed the cart mandate,
/// and the user has signed the payment mandate.
///
/// # Panics
/// The mandates have no canonical form, which would be a bug in this file.
#[must_use]
pub fn signed(order: &str) -> Value {
    let now = jiff::Timestamp::now().as_second();
    let cart = cart(order, now);
    let payment = payment(order, now);
    json!({
        "ap2.mandates.CartMandate": {
            "contents": cart,
            "merchant_authorization": merchant_authorization(order, &cart, now),
        },
        "ap2.mandates.PaymentMandate": {
            "payment_mandate_contents": payment,
            "user_authorization": user_authorization(&cart, &payment, now),
        },
    })
}

/// The `data` of a part with two mandates of AP2 v0.2 for the checkout with the id `order`. The merchant has signed the
/// checkout, and the wallet has signed both mandates.
#[must_use]
pub fn signed_v0_2(order: &str) -> Value {
    let now = jiff::Timestamp::now().as_second();
    let shop = json!({"id": SHOP, "name": "Shop"});
    let checkout = json!({
        "id": order, "merchant": shop, "currency": "USD", "totals": [{"type": "total", "amount": 12_000}],
        "exp": now + 600,
    });
    let checkout = token(&key(&SIGNER), &json!({"alg": "ES256"}), &checkout);
    let hash = hash(&checkout);
    let payment = json!({
        "vct": "mandate.payment.1", "transaction_id": hash, "payee": shop,
        "payment_amount": {"amount": 12_000, "currency": "USD"},
        "payment_instrument": {"id": "card-1", "type": "card"},
    });
    let checkout = json!({"vct": "mandate.checkout.1", "checkout_jwt": checkout, "checkout_hash": hash});
    json!({
        "ap2.mandates.CheckoutMandateSdJwt": sd_jwt(&checkout, now),
        "ap2.mandates.PaymentMandateSdJwt": sd_jwt(&payment, now),
    })
}

/// A mandate of the wallet, without disclosures.
fn sd_jwt(mandate: &Value, now: i64) -> String {
    let claims = json!({"iss": WALLET, "iat": now, "exp": now + 600, "delegate_payload": [mandate]});
    format!("{}~", token(&key(&SIGNER), &json!({"alg": "ES256", "typ": "dc+sd-jwt"}), &claims))
}

fn cart(order: &str, now: i64) -> Value {
    let shoes = json!({"label": "Shoes", "amount": {"currency": "USD", "value": 120}});
    json!({
        "id": order, "user_cart_confirmation_required": true, "cart_expiry": time(now + 600), "merchant_name": "Shop",
        "payment_request": {
            "method_data": [{"supported_methods": "CARD"}],
            "details": {"id": order, "display_items": [shoes], "total": shoes},
        },
    })
}

fn payment(order: &str, now: i64) -> Value {
    json!({
        "payment_mandate_id": order, "payment_details_id": order, "merchant_agent": "shop-agent",
        "payment_details_total": {"label": "Total", "amount": {"currency": "USD", "value": 120}},
        "payment_response": {"request_id": order, "method_name": "CARD"},
        "timestamp": time(now),
    })
}

fn merchant_authorization(order: &str, cart: &Value, now: i64) -> String {
    let claims = json!({
        "iss": SHOP, "aud": PROCESSOR, "iat": now, "exp": now + 600, "jti": order, "cart_hash": canonical_hash(cart),
    });
    token(&key(&SIGNER), &json!({"alg": "ES256"}), &claims)
}

/// The user's signature: an SD-JWT with a key binding over the hashes of both mandates.
fn user_authorization(cart: &Value, payment: &Value, now: i64) -> String {
    let user = key(&USER);
    let point = user.verifying_key().to_sec1_point(false);
    let coordinates = point.as_bytes().get(1..).unwrap_or_default();
    let (x, y) = coordinates.split_at(coordinates.len() / 2);
    let jwk = json!({"kty": "EC", "crv": "P-256", "x": encode(x), "y": encode(y)});
    let claims = json!({"iss": WALLET, "exp": now + 600, "cnf": {"jwk": jwk}});
    let credential = token(&key(&SIGNER), &json!({"alg": "ES256", "typ": "dc+sd-jwt"}), &claims);
    let claims = json!({
        "iat": now, "aud": PROCESSOR, "nonce": "n", "sd_hash": hash(&format!("{credential}~")),
        "transaction_data": [canonical_hash(cart), canonical_hash(payment)],
    });
    let binding = token(&user, &json!({"alg": "ES256", "typ": "kb+jwt"}), &claims);
    format!("{credential}~{binding}")
}

fn key(secret: &[u8; 32]) -> SigningKey {
    SigningKey::from_slice(secret).expect("a key of P-256")
}

fn token(key: &SigningKey, header: &Value, claims: &Value) -> String {
    let part = |value: &Value| encode(value.to_string().as_bytes());
    let signed = format!("{}.{}", part(header), part(claims));
    let signature: Signature = key.sign(signed.as_bytes());
    format!("{signed}.{}", encode(&signature.to_bytes()))
}

fn canonical_hash(value: &Value) -> String {
    hash(&serde_json_canonicalizer::to_string(value).expect("a canonical form"))
}

fn hash(text: &str) -> String {
    encode(&Sha256::digest(text))
}

fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn time(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map(|time| time.to_string()).unwrap_or_default()
}
