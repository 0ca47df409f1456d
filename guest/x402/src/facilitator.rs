//! Asks the facilitator to verify and to settle a payment. The operator trusts the facilitator to know the network. This
//! file checks only that each answer is about this payment.

use annex_sdk::http::{Error, ErrorCode, Request};
use annex_sdk::json;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::{Code, Failure};
use crate::parameters::Parameters;
use crate::submission::{Payment, Signed, X402_VERSION};

/// The maximum length of a facilitator's reason in an answer to the client.
const MAX_REASON_BYTES: usize = 200;

/// The maximum length of the identifier of a transaction.
const MAX_TRANSACTION_BYTES: usize = 256;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Question<'a> {
    x402_version: u64,
    payment_payload: &'a Value,
    payment_requirements: &'a Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Verified {
    is_valid: bool,
    invalid_reason: Option<String>,
    payer: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Settled {
    success: bool,
    error_reason: Option<String>,
    transaction: Option<String>,
    network: Option<String>,
    payer: Option<String>,
    amount: Option<String>,
}

/// An `x402SettleResponse`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// True if the payment is settled.
    pub success: bool,
    /// The reason for which the payment is not settled.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error_reason: Option<String>,
    /// The transaction on the network. Empty if the payment is not settled.
    pub transaction: String,
    /// The network.
    pub network: String,
    /// The address that pays.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub payer: Option<String>,
}

/// Asks whether the payment would be settled. Nothing is paid.
///
/// # Errors
/// The payment is not valid, or the facilitator gives no usable answer.
pub fn verify(parameters: &Parameters, payment: &Payment, requirement: &Value) -> Result<(), Failure> {
    let unusable =
        |reason: String| Failure::new(Code::FacilitatorFailed, format!("the payment cannot be verified now: {reason}"));
    let answer: Verified = ask(parameters, "verify", &payment.payload, requirement).map_err(unusable)?;
    if !answer.is_valid {
        let reason = answer.invalid_reason.unwrap_or_default();
        let code = Code::of_reason(&reason, Code::InvalidPayment);
        return Err(Failure::new(code, format!("the facilitator refuses the payment: {}", shown(&reason))));
    }
    check_payer(payment, answer.payer.as_deref()).map_err(unusable)
}

/// Settles the payment.
///
/// # Errors
/// The payment is not settled, or nobody knows whether it is settled.
pub fn settle(parameters: &Parameters, payment: &Payment, requirement: &Value) -> Result<Receipt, Failure> {
    let unknown = |reason: String| Failure::unknown(format!("the settlement has an unknown outcome: {reason}"));
    let answer: Settled = ask(parameters, "settle", &payment.payload, requirement).map_err(unknown)?;
    if !answer.success {
        let reason = answer.error_reason.unwrap_or_default();
        let code = Code::of_reason(&reason, Code::SettlementFailed);
        return Err(Failure::new(code, format!("the payment was not settled: {}", shown(&reason))));
    }
    if answer.network.as_deref() != Some(payment.network.as_str()) {
        return Err(unknown("the facilitator's answer names another network than the payment".to_owned()));
    }
    let is_usable = |text: &String| {
        !text.is_empty() && text.len() <= MAX_TRANSACTION_BYTES && text.bytes().all(|byte| byte.is_ascii_graphic())
    };
    let Some(transaction) = answer.transaction.filter(is_usable) else {
        return Err(unknown("the facilitator's answer names no transaction".to_owned()));
    };
    if answer.amount.is_some_and(|amount| Some(amount.as_str()) != amount_of(requirement)) {
        return Err(unknown("the facilitator's answer names another amount than the offer".to_owned()));
    }
    check_payer(payment, answer.payer.as_deref()).map_err(unknown)?;
    let payer = answer.payer.as_deref().map(shown).or_else(|| payer_of(payment).map(str::to_owned));
    Ok(Receipt { success: true, error_reason: None, transaction, network: payment.network.clone(), payer })
}

/// The receipt of a failure.
pub fn failed(payment: &Payment, failure: &Failure) -> Receipt {
    Receipt {
        success: false,
        error_reason: Some(failure.reason.clone()),
        transaction: String::new(),
        network: shown(&payment.network),
        payer: payer_of(payment).map(str::to_owned),
    }
}

fn payer_of(payment: &Payment) -> Option<&str> {
    match &payment.signed {
        Signed::Authorization(signed) => Some(&signed.from),
        Signed::Transaction { .. } => None,
    }
}

/// The amount of a requirement.
pub fn amount_of(requirement: &Value) -> Option<&str> {
    requirement.get("maxAmountRequired").and_then(Value::as_str)
}

fn check_payer(payment: &Payment, payer: Option<&str>) -> Result<(), String> {
    match (payer_of(payment), payer) {
        (Some(from), Some(payer)) if !from.eq_ignore_ascii_case(payer) => {
            Err("the facilitator's answer names another payer than the payment".to_owned())
        }
        _ => Ok(()),
    }
}

/// Sends a question. The error has the reason for which there is no usable answer.
fn ask<T: DeserializeOwned>(
    parameters: &Parameters,
    endpoint: &str,
    payload: &Value,
    requirement: &Value,
) -> Result<T, String> {
    let question = Question { x402_version: X402_VERSION, payment_payload: payload, payment_requirements: requirement };
    let mut request = Request::post(parameters.endpoint(endpoint), json::text(&question)?)
        .field("content-type", "application/json")
        .field("accept", "application/json");
    if let Some(authorization) = parameters.authorization()? {
        request = request.field("authorization", authorization);
    }
    let response = request.send().map_err(|error| reason_of(&error))?;
    match response.status {
        200 => {}
        300..=399 => return Err(format!("the facilitator redirects (status {})", response.status)),
        status => return Err(format!("the facilitator answers with the status {status}")),
    }
    serde_json::from_slice(&response.body)
        .map_err(|error| format!("the facilitator's answer to /{endpoint} cannot be read: {error}"))
}

fn reason_of(error: &Error) -> String {
    let Error::Failed(code) = error else { return "the facilitator cannot be called".to_owned() };
    let reason = match code {
        ErrorCode::DnsTimeout
        | ErrorCode::ConnectionTimeout
        | ErrorCode::ConnectionReadTimeout
        | ErrorCode::ConnectionWriteTimeout
        | ErrorCode::HttpResponseTimeout => "the facilitator does not answer in time",
        ErrorCode::HttpResponseBodySize(_) | ErrorCode::HttpResponseHeaderSectionSize(_) => {
            "the facilitator's answer is larger than the grant `http` allows"
        }
        ErrorCode::HttpRequestDenied => "the grant `http` does not allow a request to the facilitator",
        ErrorCode::DestinationIpProhibited => "the facilitator has an address that the grant `http` does not allow",
        _ => "the request to the facilitator fails",
    };
    reason.to_owned()
}

/// A foreign text as one short line.
fn shown(text: &str) -> String {
    let mut line: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    if line.len() > MAX_REASON_BYTES {
        line.truncate(line.floor_char_boundary(MAX_REASON_BYTES));
        line.push('…');
    }
    if line.trim().is_empty() { "no reason is given".to_owned() } else { line }
}
