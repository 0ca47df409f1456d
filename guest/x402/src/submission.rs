//! Reads the client's part of a payment from the metadata of its message.

use annex_sdk::members::Members;
use annex_sdk::{Location, Rejection, Violation, pointer};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{keys, solana};

/// The version of the x402 protocol in both versions of the extension.
pub const X402_VERSION: u64 = 1;

/// The maximum length of a signature in hexadecimal. The signature of a smart wallet is longer than an ordinary one.
const MAX_SIGNATURE_BYTES: usize = 8_192;

/// The beginning of the names of networks whose payments are transactions: `solana`, `solana-devnet`, and names as
/// `solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp`.
const SOLANA: &str = "solana";

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
    /// The payload for the facilitator. It has only the members that were read here, so both read the same payment.
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
    /// A partly signed transaction of Solana. Only the facilitator reads what it pays.
    Transaction {
        /// The transaction in base64.
        text: String,
        /// The part that is signed.
        message: Vec<u8>,
    },
}

/// An authorization of EIP-3009.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    let value: Value = serde_json::from_str(text).map_err(|error| refuse("", format!("cannot be read: {error}")))?;
    let payment = of_payload(&value).map_err(|(place, text)| refuse(place, text))?;
    Ok(Submission::Payment(Box::new(payment)))
}

/// Reads a `PaymentPayload`.
///
/// # Errors
/// The value is no `PaymentPayload`. The error has the place in the payload, and a text.
pub fn of_payload(value: &Value) -> Result<Payment, (&'static str, String)> {
    let Payload { x402_version, scheme, network, payload } =
        Payload::deserialize(value).map_err(|error| ("", format!("is no PaymentPayload: {error}")))?;
    if x402_version != 1.0 {
        return Err(("/x402Version", format!("must be {X402_VERSION}")));
    }
    let (signed, payload) = signed(&network, &payload)?;
    let payload = json!({"x402Version": X402_VERSION, "scheme": scheme, "network": network, "payload": payload});
    Ok(Payment { payload, scheme, network, signed })
}

/// Reads the signed content. Returns it also as the facilitator gets it. The error has the place in the payload, and a
/// text.
fn signed(network: &str, payload: &Value) -> Result<(Signed, Value), (&'static str, String)> {
    let Some(transaction) = payload.get("transaction") else { return authorization(payload) };
    // A facilitator that reads one of the two would settle another payment than the one that was checked here.
    if payload.get("authorization").is_some() || payload.get("signature").is_some() {
        return Err(("/payload/transaction", "cannot be beside `signature` and `authorization`".to_owned()));
    }
    if !network.starts_with(SOLANA) {
        return Err(("/payload/transaction", format!("is possible only on networks that begin with `{SOLANA}`")));
    }
    let transaction = transaction.as_str().unwrap_or_default();
    let Some(message) = solana::message(transaction) else {
        return Err(("/payload/transaction", "must be a transaction of Solana in base64 with padding".to_owned()));
    };
    let payload = json!({"transaction": transaction});
    Ok((Signed::Transaction { text: transaction.to_owned(), message }, payload))
}

/// Reads a signed authorization.
fn authorization(payload: &Value) -> Result<(Signed, Value), (&'static str, String)> {
    let read = EvmPayload::deserialize(payload).map_err(|error| {
        ("/payload", format!("must have `signature` and `authorization`, or `transaction`: {error}"))
    })?;
    let EvmPayload { signature, authorization } = read;
    if !is_hex(&signature) || signature.len() > MAX_SIGNATURE_BYTES {
        return Err((
            "/payload/signature",
            format!("must be bytes in hexadecimal, up to {MAX_SIGNATURE_BYTES} characters"),
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
    let payload = json!({"signature": signature, "authorization": authorization});
    Ok((Signed::Authorization(authorization), payload))
}

/// True for `0x` and hexadecimal digits.
fn is_hex(text: &str) -> bool {
    text.strip_prefix("0x")
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}
