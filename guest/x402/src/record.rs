//! The payment of a task, as it is stored with the task.

use annex_sdk::keyvalue::Keys;
use annex_sdk::{Json, json};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::facilitator::Receipt;
use crate::keys;
use crate::submission::X402_VERSION;

/// The key of the record in the bucket of the task.
const RECORD: &str = "payment";
/// The key of the client's request in the bucket of the task.
const REQUEST: &str = "request";

/// The state of a task's payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum Status {
    /// The client has a request for a payment.
    #[default]
    #[serde(rename = "payment-required")]
    Required,
    /// The client does not pay.
    #[serde(rename = "payment-rejected")]
    Rejected,
    /// The payment is verified, and is settled later.
    #[serde(rename = "payment-verified")]
    Verified,
    /// The settlement has begun. If a later turn finds this state, nobody knows whether the payment is settled.
    #[serde(rename = "settling")]
    Settling,
    /// The payment is settled.
    #[serde(rename = "payment-completed")]
    Completed,
    /// A payment failed.
    #[serde(rename = "payment-failed")]
    Failed,
}

impl Status {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Required => "payment-required",
            Self::Rejected => keys::REJECTED,
            // The specification has no state for a payment that is being settled.
            Self::Verified | Self::Settling => "payment-verified",
            Self::Completed => "payment-completed",
            Self::Failed => "payment-failed",
        }
    }
}

/// The offer to the client.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// The `PaymentRequirements`, one for each way to pay.
    pub accepts: Vec<Value>,
    /// The time until which the offer is valid, in seconds.
    pub until: u64,
}

/// A verified payment that is settled later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    /// The client's `PaymentPayload`.
    pub payload: Value,
    /// The requirement that the payment meets.
    pub requirement: Value,
    /// The time at which the payment expires, in seconds.
    pub until: u64,
}

/// The payment of a task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Record {
    /// The state.
    pub status: Status,
    /// The latest offer.
    pub offer: Option<Offer>,
    /// The verified payment.
    pub pending: Option<Pending>,
    /// The receipts of all attempts.
    pub receipts: Vec<Receipt>,
    /// The error code of the latest failure.
    pub error: Option<String>,
    /// True if the client is not asked to pay again.
    pub is_over: bool,
}

impl Record {
    /// The record of the turn's task. `None` if the task has none.
    ///
    /// # Errors
    /// The store is not available, or the record cannot be read.
    pub fn load() -> Result<Option<Self>, String> {
        let Some(bytes) = Keys::of_task()?.get(RECORD)? else { return Ok(None) };
        let read = serde_json::from_slice(&bytes);
        read.map(Some).map_err(|error| format!("the stored payment of the task cannot be read: {error}"))
    }

    /// Stores the record.
    ///
    /// # Errors
    /// The store is not available.
    pub fn save(&self) -> Result<(), String> {
        Keys::of_task()?.set(RECORD, json::text(self)?.as_bytes())
    }

    /// The entries for the metadata of a status message.
    ///
    /// # Errors
    /// An entry cannot be written.
    pub fn entries(&self) -> Result<Vec<(String, Json)>, String> {
        let mut entries = vec![
            (keys::STATUS.to_owned(), json::string(self.status.name())),
            (keys::RECEIPTS.to_owned(), json::text(&self.receipts)?),
        ];
        if let (Status::Failed, Some(error)) = (self.status, &self.error) {
            entries.push((keys::ERROR.to_owned(), json::string(error)));
        }
        Ok(entries)
    }

    /// The entry with the offer. `None` if the client is not asked to pay.
    ///
    /// # Errors
    /// The offer cannot be written.
    pub fn required(&self) -> Result<Option<(String, Json)>, String> {
        let Some(offer) = &self.offer else { return Ok(None) };
        let accepts = json::text(&offer.accepts)?;
        let required = format!(r#"{{"x402Version":{X402_VERSION},"accepts":{accepts}}}"#);
        Ok(Some((keys::REQUIRED.to_owned(), required)))
    }
}

/// Stores the parts of the client's request, a JSON array. Returns false if the parts are too large for the store.
///
/// # Errors
/// The store is not available.
pub fn keep_request(parts: &str) -> Result<bool, String> {
    let keys = Keys::of_task()?;
    if keys.set(REQUEST, parts.as_bytes()).is_ok() {
        return Ok(true);
    }
    // An older request must not run in place of this one.
    keys.delete(REQUEST)?;
    Ok(false)
}

/// The parts of the client's request, a JSON array. `None` if the task has none.
///
/// # Errors
/// The store is not available.
pub fn request() -> Result<Option<String>, String> {
    let Ok(keys) = Keys::of_task() else { return Ok(None) };
    Ok(keys.get(REQUEST)?.and_then(|bytes| String::from_utf8(bytes).ok()))
}
