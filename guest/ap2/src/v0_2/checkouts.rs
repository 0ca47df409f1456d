//! Stored checkouts: those of a conversation, by their hashes, and the last version that this agent has sent.

use annex_sdk::keyvalue::Keys;
use annex_sdk::{Rejection, json};
use serde_json::Value;

use crate::jws;
use crate::memory;
use crate::v0_2::checkout::Checkout;

/// The key of a checkout. Hashed, because a client chooses the text, and keys are bounded.
fn key(hash: &str) -> String {
    format!("checkout/{}", jws::hash(hash))
}

/// The key of the last version of a checkout with this id.
fn version_key(id: &str) -> String {
    format!("version/{}", jws::hash(id))
}

/// The checkout with this hash in the conversation.
///
/// # Errors
/// The store is not available.
pub(super) fn known(hash: &str) -> Result<Option<Checkout>, Rejection> {
    let found = Keys::of_context().and_then(|keys| keys.get(&key(hash))).map_err(|reason| memory::failed(&reason))?;
    let value: Option<Value> = found.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    Ok(value.and_then(|value| serde_json::from_value(value).ok()))
}

/// True if this agent has sent another version of the checkout since.
///
/// # Errors
/// The store is not available.
pub(super) fn is_replaced(checkout: &Checkout) -> Result<bool, Rejection> {
    let last = Keys::of_context()
        .and_then(|keys| keys.get(&version_key(&checkout.id)))
        .map_err(|reason| memory::failed(&reason))?;
    Ok(last.is_some_and(|last| last != checkout.hash.as_bytes()))
}

/// Stores a checkout for the conversation.
///
/// # Errors
/// The store is not available.
pub(crate) fn keep(checkout: &Checkout) -> Result<(), String> {
    Keys::of_context()?.set(&key(&checkout.hash), json::text(checkout)?.as_bytes())
}

/// Stores a checkout that this agent sends. Mandates for earlier versions are refused afterwards.
///
/// # Errors
/// The store is not available.
pub(super) fn keep_own(checkout: &Checkout) -> Result<(), String> {
    keep(checkout)?;
    Keys::of_context()?.set(&version_key(&checkout.id), checkout.hash.as_bytes())
}
