//! What is kept: the carts of a conversation, and for a while what may be there only once.

use annex_sdk::keyvalue::Keys;
use annex_sdk::{ExtensionError, Rejection, json};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::jws;

/// The code of an error of the store. It lies outside of the ranges of JSON-RPC and A2A.
const STORE_FAILED: i32 = 1;

/// An amount of money. The value is as RFC 8785 writes numbers, so that equal texts are equal values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Money {
    /// The currency.
    pub currency: String,
    /// The value.
    pub value: String,
}

/// A way to pay a cart, and what it then costs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Method {
    /// Its name.
    pub name: String,
    /// The total.
    pub total: Money,
}

/// What is over and is removed in one turn: each is a host call, of which a turn has so many.
const MAX_REMOVALS: usize = 64;

/// How much a cart is relied on. A cart never takes the place of one that is relied on more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Origin {
    /// It came in without a signature that could be verified.
    Unverified,
    /// It came in with a merchant's signature.
    Verified,
    /// This agent made it.
    Own,
}

/// What is known of a cart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cart {
    /// The id of its payment request.
    pub details_id: String,
    /// The hashes of its contents and of the whole mandate.
    pub hashes: [String; 2],
    /// How it may be paid.
    pub methods: Vec<Method>,
    /// When it ends, in milliseconds.
    pub expiry: u64,
    /// The agent that payments must name.
    pub merchant_agent: Option<String>,
    /// How much it is relied on.
    pub origin: Origin,
}

impl Cart {
    fn key(details_id: &str) -> String {
        // Hashed, because a client chooses the id, and keys are bounded.
        format!("cart/{}", jws::hash(details_id))
    }
}

/// The cart of this id that the conversation knows.
///
/// # Errors
/// The store does not work.
pub fn known(details_id: &str) -> Result<Option<Cart>, Rejection> {
    let found =
        Keys::of_context().and_then(|keys| keys.get(&Cart::key(details_id))).map_err(|reason| failed(&reason))?;
    Ok(found.and_then(|bytes| read(&bytes)))
}

/// Keeps a cart for the conversation, unless it knows one of this id that is relied on more.
///
/// # Errors
/// The store does not work.
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

/// Something that may be there only once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Once {
    /// The place of it in the request.
    pub pointer: String,
    /// The time from which on it is refused anyhow, in seconds.
    pub until: u64,
    hash: String,
}

impl Once {
    /// Something of this kind by somebody.
    pub fn new(pointer: String, until: u64, of: [&str; 3]) -> Self {
        // As JSON, so that no two triples are one text.
        let hash = jws::hash(&json::text(&of).unwrap_or_default());
        Self { pointer, until, hash }
    }

    /// `once/<until>/<hash>`: whether it is over can be told without reading a value.
    fn key(&self) -> String {
        format!("once/{:012}/{}", self.until, self.hash)
    }
}

/// Notes each of these. Returns those that were there before.
///
/// # Errors
/// The store does not work or is full. Then nothing may be taken, or it could be taken twice.
pub fn used_before(all: &[Once], now_seconds: u64) -> Result<Vec<&Once>, Rejection> {
    if all.is_empty() {
        return Ok(Vec::new());
    }
    note(all, now_seconds).map_err(|reason| failed(&reason))
}

fn note(all: &[Once], now_seconds: u64) -> Result<Vec<&Once>, String> {
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
    // All are looked for before the first is noted, because what is refused uses nothing up.
    let mut before: Vec<&Once> = all.iter().filter(|once| known.contains(&once.hash)).collect();
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

fn failed(reason: &str) -> Rejection {
    ExtensionError { code: STORE_FAILED, message: format!("the payment cannot be checked now: {reason}"), data: None }
        .into()
}
