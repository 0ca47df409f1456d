//! Reads the client's part of a payment from the metadata of its message.

use annex_sdk::members::Members;
use annex_sdk::{Location, Rejection, Violation, pointer};
use serde::Deserialize;
use serde_json::Value;

use crate::keys;

/// The version of the x402 protocol in both versions of the extension.
pub const X402_VERSION: u64 = 1;

/// The maximum length of a client's values. The longest ordinary one is a transaction of Solana in base64, which has at
/// most 1,644 characters; a signature of a smart wallet may be longer.
const MAX_VALUE_BYTES: usize = 8_192;

/// The client's part of a payment in a message.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Submission {
    /// Nothing.
    #[default]
    None,
    /// The client does not pay.
    Rejected,
    /// The client submits a payment.
    Payment(Box<Payment>),
}

/// A `PaymentPayload`.
#[derive(Debug, Clone, PartialEq)]
pub struct Payment {
    /// The whole payload. The facilitator gets it as it was read here, so both read the same.
    pub payload: Value,
    /// The scheme.
    pub scheme: String,
    /// The network.
    pub network: String,
    /// The signed content.
    pub signed: Signed,
}

/// The signed content of a payment of the scheme `exact`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Signed {
    /// An authorization of EIP-3009, for networks of Ethereum.
    Authorization(Authorization),
    /// A partly signed transaction, as Solana has it. Only the facilitator can read it.
    Transaction(String),
}

/// An authorization of EIP-3009.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Authorization {
    /// The address that pays.
    pub from: String,
    /// The address that is paid.
    pub to: String,
    /// The amount, in decimal digits.
    pub value: String,
    /// The time from which the authorization is valid, in seconds.
    pub valid_after: String,
    /// The time before which the authorization is valid, in seconds.
    pub valid_before: String,
    /// The nonce, 32 bytes in hexadecimal.
    pub nonce: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Payload {
    /// Clients with protobuf types send `1.0`.
    x402_version: f64,
    scheme: String,
    network: String,
    payload: Value,
}

#[derive(Deserialize)]
struct EvmPayload {
    signature: String,
    authorization: Authorization,
}

/// Reads the metadata of a message (JSON).
///
/// # Errors
/// The metadata contradicts the specification. The violations name the places.
pub fn read(message: &str) -> Result<Submission, Rejection> {
    let message = Members::of(message).unwrap_or_default();
    let metadata = message.get("metadata").and_then(Members::of).unwrap_or_default();
    let refuse = |key: &str, text: &str| Err(Violation::new(pointer::metadata(Location::Message, key), text).into());
    let status = metadata.get(keys::STATUS).map(serde_json::from_str::<String>);
    let payload = metadata.get(keys::PAYLOAD);
    match (status, payload) {
        (None, None) => Ok(Submission::None),
        (None, Some(_)) => refuse(keys::STATUS, "is required beside a payment: payment-submitted"),
        (Some(Ok(status)), Some(payload)) if status == keys::SUBMITTED => payment(payload),
        (Some(Ok(status)), None) if status == keys::SUBMITTED => {
            refuse(keys::PAYLOAD, "is required with payment-submitted")
        }
        (Some(Ok(status)), _) if status == keys::REJECTED => Ok(Submission::Rejected),
        _ => refuse(keys::STATUS, "must be payment-submitted or payment-rejected in a message to the agent"),
    }
}

fn payment(text: &str) -> Result<Submission, Rejection> {
    let refuse = |place: &str, text: String| {
        let parent = pointer::metadata(Location::Message, keys::PAYLOAD);
        Rejection::from(Violation::new(format!("{parent}{place}"), text))
    };
    let value = serde_json::from_str(text).map_err(|error| refuse("", format!("cannot be read: {error}")))?;
    let payment = of_payload(value).map_err(|(place, text)| refuse(place, text))?;
    Ok(Submission::Payment(Box::new(payment)))
}

/// Reads a `PaymentPayload`.
///
/// # Errors
/// The value is no `PaymentPayload`. The error has the place in the payload, and a text.
pub fn of_payload(mut value: Value) -> Result<Payment, (&'static str, String)> {
    let payload = Payload::deserialize(&value).map_err(|error| ("", format!("is no PaymentPayload: {error}")))?;
    if payload.x402_version != 1.0 {
        return Err(("/x402Version", format!("must be {X402_VERSION}")));
    }
    if let Some(members) = value.as_object_mut() {
        members.insert("x402Version".to_owned(), X402_VERSION.into());
    }
    let signed = signed(&payload.payload)?;
    let Payload { scheme, network, .. } = payload;
    Ok(Payment { payload: value, scheme, network, signed })
}

/// Reads the signed content. The error has the place in the payload, and a text.
fn signed(payload: &Value) -> Result<Signed, (&'static str, String)> {
    if let Some(transaction) = payload.get("transaction") {
        let is_usable = |text: &&str| {
            let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
            !text.is_empty() && text.len() <= MAX_VALUE_BYTES && text.bytes().all(is_base64)
        };
        return match transaction.as_str().filter(is_usable) {
            Some(text) => Ok(Signed::Transaction(text.to_owned())),
            None => Err((
                "/payload/transaction",
                format!("must be a transaction in base64 of up to {MAX_VALUE_BYTES} bytes"),
            )),
        };
    }
    let read = EvmPayload::deserialize(payload).map_err(|error| {
        ("/payload", format!("must have `signature` and `authorization`, or `transaction`: {error}"))
    })?;
    let EvmPayload { signature, authorization } = read;
    if !is_hex(&signature) || signature.len() > MAX_VALUE_BYTES {
        return Err((
            "/payload/signature",
            format!("must be bytes in hexadecimal, up to {MAX_VALUE_BYTES} characters"),
        ));
    }
    for (place, address) in
        [("/payload/authorization/from", &authorization.from), ("/payload/authorization/to", &authorization.to)]
    {
        if !is_hex(address) || address.len() != 42 {
            return Err((place, "must be an address of 20 bytes in hexadecimal".to_owned()));
        }
    }
    if !is_hex(&authorization.nonce) || authorization.nonce.len() != 66 {
        return Err(("/payload/authorization/nonce", "must be 32 bytes in hexadecimal".to_owned()));
    }
    for (place, number) in [
        ("/payload/authorization/value", &authorization.value),
        ("/payload/authorization/validAfter", &authorization.valid_after),
        ("/payload/authorization/validBefore", &authorization.valid_before),
    ] {
        // 78 digits are enough for 256 bits.
        let is_number = (1..=78).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number {
            return Err((place, "must be a text of decimal digits".to_owned()));
        }
    }
    Ok(Signed::Authorization(authorization))
}

/// True for `0x` and hexadecimal digits.
fn is_hex(text: &str) -> bool {
    text.strip_prefix("0x")
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}
