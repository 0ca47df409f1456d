//! The payments that were submitted before. A payment is accepted once, by whichever task and process comes first.
//!
//! A counter `nonce/<hash>` decides: only the first increment returns 1. A second key, `until/<seconds>/<hash>`, shows
//! when the payment expires. An expired payment is refused for its age, so both keys can then be removed.

use annex_sdk::keyvalue::Keys;
use hmac_sha256::Hash;

use crate::facilitator::Receipt;
use crate::submission::{Payment, Signed};

/// The maximum number of expired payments that are removed in one turn. Each removal is two host calls, and the calls
/// of a turn are limited.
const MAX_REMOVALS: usize = 64;

const NONCE: &str = "nonce/";
const UNTIL: &str = "until/";

/// Records a payment until `until`, in seconds. Returns false if it was recorded before.
///
/// # Errors
/// The store is not available or is full. The payment must then be refused, because it could be accepted twice.
pub fn claim(payment: &Payment, until: u64, now: u64) -> Result<bool, String> {
    let keys = Keys::open()?;
    remove_expired(&keys, now)?;
    claim_identity(&keys, &identity(payment), until)
}

/// Records the transaction of a receipt until `until`, in seconds. Returns false if it was recorded before.
///
/// # Errors
/// The store is not available or is full. The transaction must then be refused, because it could be accepted twice.
pub fn claim_settled(receipt: &Receipt, until: u64) -> Result<bool, String> {
    claim_identity(&Keys::open()?, &format!("{} settled {}", receipt.network, receipt.transaction), until)
}

fn claim_identity(keys: &Keys, identity: &str, until: u64) -> Result<bool, String> {
    let hash = hash(identity.as_bytes());
    let nonce = format!("{NONCE}{hash}");
    if keys.increment(&nonce, 1)? != 1 {
        return Ok(false);
    }
    if let Err(reason) = keys.set(&format!("{UNTIL}{until:012}/{hash}"), b"") {
        // A counter without a time would be kept for ever.
        keys.delete(&nonce)?;
        return Err(reason);
    }
    Ok(true)
}

fn remove_expired(keys: &Keys, now: u64) -> Result<(), String> {
    let all = keys.list()?;
    // Keys sort by their bytes, so the first to expire comes first.
    let expiries = all.iter().filter_map(|key| key.strip_prefix(UNTIL)?.split_once('/').map(|rest| (key, rest)));
    let expired = expiries.filter(|(_, (until, _))| until.parse::<u64>().is_ok_and(|until| until < now));
    for (key, (_, hash)) in expired.take(MAX_REMOVALS) {
        // The counter is removed first: a failure in between leaves the key that leads to it.
        keys.delete(&format!("{NONCE}{hash}"))?;
        keys.delete(key)?;
    }
    Ok(())
}

/// What makes a payment unique on its network. Signatures are left out: one authorization can have several valid
/// signatures, and the first signature of a transaction is the facilitator's, so a client can send anything in its place.
fn identity(payment: &Payment) -> String {
    let network = &payment.network;
    match &payment.signed {
        Signed::Authorization(signed) => {
            format!("{network} {}", format!("{} {}", signed.from, signed.nonce).to_ascii_lowercase())
        }
        Signed::Transaction { message, .. } => format!("{network} message {}", hash(message)),
    }
}

fn hash(bytes: &[u8]) -> String {
    Hash::hash(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
