//! Stored data: the carts of a conversation, and the ids and tokens that may be used only once.

use annex_sdk::keyvalue::Keys;
use annex_sdk::{ExtensionError, Rejection, clock, json};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::jws;

/// The error code for a failure of the store, outside of the ranges of JSON-RPC and A2A.
const STORE_FAILED: i32 = 1;

/// An amount of money. The value has the number format of RFC 8785, so that equal amounts have equal texts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Money {
    /// The code of the currency, such as `USD`.
    pub currency: String,
    /// The amount, such as `19.99`.
    pub value: String,
}

/// A payment method of a cart, with the cart's total for that method.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Method {
    /// The name of the method.
    pub name: String,
    /// The amount to pay by this method.
    pub total: Money,
}

/// The maximum number of expired records of ids and tokens that are removed in one turn. Each removal is a host call,
/// and the calls of a turn are limited.
const MAX_REMOVALS: usize = 64;

/// The trust in a cart. A received cart never replaces a stored cart with more trust.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Origin {
    /// A received cart without a verified signature.
    Unverified,
    /// A received cart with a merchant's verified signature.
    Verified,
    /// A cart of this agent.
    Own,
}

/// The stored facts about a cart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cart {
    /// The id of the cart's payment request.
    pub details_id: String,
    /// The hashes of the cart's contents and of the whole mandate.
    pub hashes: [String; 2],
    /// The payment methods.
    pub methods: Vec<Method>,
    /// The time of expiry, in milliseconds.
    pub expiry: u64,
    /// The agent that payments must name.
    pub merchant_agent: Option<String>,
    /// The trust in the cart.
    pub origin: Origin,
}

impl Cart {
    fn key(details_id: &str) -> String {
        // Hashed, because a client chooses the id, and keys are bounded.
        format!("cart/{}", jws::hash(details_id))
    }
}

/// The cart with this id in the conversation.
///
/// # Errors
/// The store is not available.
pub fn known(details_id: &str) -> Result<Option<Cart>, Rejection> {
    let found =
        Keys::of_context().and_then(|keys| keys.get(&Cart::key(details_id))).map_err(|reason| failed(&reason))?;
    Ok(found.and_then(|bytes| read(&bytes)))
}

/// Stores a cart for the conversation, unless a cart with the same id and more trust is stored.
///
/// # Errors
/// The store is not available.
pub fn keep(cart: &Cart) -> Result<(), String> {
    let keys = Keys::of_context()?;
    let key = Cart::key(&cart.details_id);
    let before = keys.get(&key)?.and_then(|bytes| read(&bytes));
    if before.is_some_and(|before| before.origin > cart.origin) {
        return Ok(());
    }
    keys.set(&key, json::text(cart)?.as_bytes())
}

fn read(bytes: &[u8]) -> Option<Cart> {
    let value: Value = serde_json::from_str(std::str::from_utf8(bytes).ok()?).ok()?;
    serde_json::from_value(value).ok()
}

/// An id or token that may be used only once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SingleUse {
    /// The JSON pointer to the id or token in the request.
    pub pointer: String,
    /// The time in seconds since 1970 from which a request with this id or token is too old to be accepted. The record
    /// of the id or token can be removed at that time.
    pub until: u64,
    hash: String,
}

impl SingleUse {
    /// Creates a record that is not stored yet. `of` is the kind of the id or token, its issuer, and the id or token
    /// itself.
    pub fn new(pointer: String, until: u64, of: [&str; 3]) -> Self {
        // Encoded as JSON, so that different triples have different texts.
        let hash = jws::hash(&json::text(&of).unwrap_or_default());
        Self { pointer, until, hash }
    }

    /// The key under which the id or token is recorded: `once/<until>/<hash>`. The key shows when the record expires,
    /// so the value need not be read.
    fn key(&self) -> String {
        format!("once/{:012}/{}", self.until, self.hash)
    }
}

/// Records all these ids and tokens. If some were recorded earlier, returns those, and records nothing.
///
/// # Errors
/// The store is not available or is full. The request must then be refused, because it could be accepted twice.
pub fn used_before(all: &[SingleUse]) -> Result<Vec<&SingleUse>, Rejection> {
    if all.is_empty() {
        return Ok(Vec::new());
    }
    note(all, clock::now_seconds()).map_err(|reason| failed(&reason))
}

fn note(all: &[SingleUse], now_seconds: u64) -> Result<Vec<&SingleUse>, String> {
    let keys = Keys::open()?;
    let mut known = Vec::new();
    let mut removals = 0;
    for key in keys.list()? {
        let Some((until, hash)) = key.strip_prefix("once/").and_then(|rest| rest.split_once('/')) else { continue };
        let is_over = until.parse::<u64>().is_ok_and(|until| until < now_seconds);
        if !is_over {
            known.push(hash.to_owned());
        } else if removals < MAX_REMOVALS {
            removals += 1;
            keys.delete(&key)?;
        }
    }
    // All are looked up before the first is recorded, because a refused message must use up nothing.
    let mut before: Vec<&SingleUse> = all.iter().filter(|once| known.contains(&once.hash)).collect();
    if !before.is_empty() {
        return Ok(before);
    }
    let mut noted = Vec::new();
    let noting: Result<(), String> = all.iter().try_for_each(|once| {
        // The counter decides between two requests at the same moment.
        if keys.increment(&once.key(), 1)? == 1 {
            noted.push(once);
        } else {
            before.push(once);
        }
        Ok(())
    });
    if noting.is_err() || !before.is_empty() {
        noted.into_iter().try_for_each(|once| keys.delete(&once.key()))?;
    }
    noting.map(|()| before)
}

/// True if an accepted message of the request's task had this id or token.
///
/// # Errors
/// The store is not available.
pub fn is_of_task(once: &SingleUse) -> Result<bool, Rejection> {
    let found = Keys::of_task().and_then(|keys| keys.get(&once.key())).map_err(|reason| failed(&reason))?;
    Ok(found.is_some())
}

/// Records the ids and tokens of a message that its task has accepted.
///
/// # Errors
/// The store is not available.
pub fn keep_for_task(all: &[SingleUse]) -> Result<(), String> {
    if all.is_empty() {
        return Ok(());
    }
    let keys = Keys::of_task()?;
    all.iter().try_for_each(|once| keys.set(&once.key(), &[]))
}

pub(crate) fn failed(reason: &str) -> Rejection {
    ExtensionError { code: STORE_FAILED, message: format!("the payment cannot be checked now: {reason}"), data: None }
        .into()
}
