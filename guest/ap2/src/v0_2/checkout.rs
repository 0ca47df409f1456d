//! Checks the checkouts that merchants sign, and the mandates for checkouts.

use annex_sdk::clock;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::dates::{duration, seconds, seconds_now};
use crate::jws::{self, Token, Trust};
use crate::parameters::Parameters;
use crate::v0_2::chain::OpenMandate;
use crate::v0_2::constraints;
use crate::v0_2::line_items::LineItem;
use crate::v0_2::merchant::Merchant;
use crate::v0_2::refusal::Refusal;

/// The stored facts about a checkout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Checkout {
    /// The hash of the merchant's token, which mandates contain.
    pub(crate) hash: String,
    /// The id of the checkout, which its later versions share.
    pub(crate) id: String,
    /// The merchant. It has an id.
    pub(super) merchant: Merchant,
    /// The amount to pay, in minor units.
    pub(super) total: u64,
    pub(super) currency: String,
    /// The time of expiry, in milliseconds.
    pub(super) expiry: u64,
    /// The hashes of the open mandates that lead to a mandate for the checkout.
    pub(super) open_mandates: Vec<String>,
}

/// The claims of the merchant's token: a checkout of the Universal Commerce Protocol.
#[derive(Deserialize)]
struct Claims {
    id: String,
    merchant: Option<Merchant>,
    currency: String,
    totals: Vec<Total>,
    #[serde(default)]
    line_items: Vec<LineItem>,
    expires_at: Option<String>,
    iss: Option<String>,
    iat: Option<f64>,
    nbf: Option<f64>,
    exp: Option<f64>,
}

#[derive(Deserialize)]
struct Total {
    #[serde(rename = "type")]
    kind: String,
    amount: i64,
}

/// A checkout whose token was parsed, with the items that constraints are about.
pub(super) struct SignedCheckout {
    pub(super) checkout: Checkout,
    pub(super) items: Vec<LineItem>,
}

/// The content of a closed mandate for a checkout.
#[derive(Deserialize)]
struct Mandate {
    checkout_jwt: String,
    checkout_hash: String,
}

/// Checks the token of a checkout. Its signature must be by the merchant that the checkout names.
///
/// # Errors
/// The token or the checkout has a fault. The error names it, as a lower-case fragment.
pub(super) fn verify(parameters: &Parameters, jwt: &str) -> Result<Trust<SignedCheckout>, String> {
    let token: Token<Claims> = Token::parse(jwt)?;
    let merchant = merchant_of(&token.claims).ok_or("names no merchant: neither `merchant.id` nor `iss`")?;
    let Some(known) = parameters.merchants.iter().find(|known| Some(&known.iss) == merchant.id.as_ref()) else {
        return Ok(Trust::Unverified("is of a merchant that is not known here"));
    };
    if !token.is_signed_by_one_of(&known.keys) {
        return Err("has a signature that does not verify".to_owned());
    }
    if known.name.is_some() && known.name != merchant.name {
        return Err("has another merchant's `name`".to_owned());
    }
    let expiry = check_dates(parameters, &token.claims)?;
    let Claims { id, currency, totals, line_items, .. } = token.claims;
    let mut amounts = totals.iter().filter(|total| total.kind == "total").map(|total| total.amount);
    let (Some(total), None) = (amounts.next(), amounts.next()) else {
        return Err("must have exactly one total of the type `total`".to_owned());
    };
    let total = u64::try_from(total).map_err(|_| "has a negative total")?;
    let checkout = Checkout { hash: jws::hash(jwt), id, merchant, total, currency, expiry, open_mandates: Vec::new() };
    Ok(Trust::Verified(SignedCheckout { checkout, items: line_items }))
}

/// The merchant, whose id is `iss` if the checkout does not name it otherwise.
fn merchant_of(claims: &Claims) -> Option<Merchant> {
    let named = claims.merchant.clone().unwrap_or(Merchant { id: None, name: None, website: None });
    let id = named.id.or_else(|| claims.iss.clone())?;
    Some(Merchant { id: Some(id), ..named })
}

/// Checks the dates, and returns the time of expiry in milliseconds.
fn check_dates(parameters: &Parameters, claims: &Claims) -> Result<u64, String> {
    let now = seconds_now();
    let skew = duration(parameters.clock_skew_seconds);
    if [claims.iat, claims.nbf].into_iter().flatten().any(|date| date > now + skew) {
        return Err("is from the future: `iat` or `nbf`".to_owned());
    }
    let expires_at = match &claims.expires_at {
        Some(text) => {
            Some(clock::parse(text).ok_or("has an `expires_at` that is not an ISO 8601 time with an offset")?)
        }
        None => None,
    };
    let dates = [claims.exp.map(|exp| seconds(exp).saturating_mul(1_000)), expires_at];
    let expiry = dates.into_iter().flatten().min().ok_or("has neither `exp` nor `expires_at`")?;
    if expiry <= clock::now_millis() {
        return Err("is over: `exp` or `expires_at`".to_owned());
    }
    let lasts = parameters.max_token_seconds().saturating_add(parameters.clock_skew_seconds).saturating_mul(1_000);
    if expiry > clock::now_millis().saturating_add(lasts) {
        return Err("lasts longer than is allowed here: `exp` or `expires_at`".to_owned());
    }
    Ok(expiry)
}

/// Checks the closed mandate for a checkout. Returns the checkout; `None` if its merchant is not known here, and that is
/// accepted.
///
/// # Errors
/// The mandate does not authorize its checkout.
pub(super) fn check(
    parameters: &Parameters,
    closed: &Map<String, Value>,
    open: &[OpenMandate],
) -> Result<Option<Checkout>, Refusal> {
    let mandate: Mandate = serde_json::from_value(Value::Object(closed.clone()))
        .map_err(|error| Refusal::InvalidMandate(format!("cannot be read: {error}")))?;
    if jws::hash(&mandate.checkout_jwt) != mandate.checkout_hash {
        let message = "is for another checkout: `checkout_hash` is not that of `checkout_jwt`";
        return Err(Refusal::InvalidMandate(message.to_owned()));
    }
    let trust = verify(parameters, &mandate.checkout_jwt)
        .map_err(|message| Refusal::InvalidMandate(format!("has a `checkout_jwt` that {message}")))?;
    let SignedCheckout { mut checkout, items } = match trust {
        Trust::Verified(signed) => signed,
        Trust::Unverified(why) if parameters.require_signatures => {
            return Err(Refusal::InvalidMandate(format!("has a `checkout_jwt` that {why}")));
        }
        Trust::Unverified(_) => return Ok(None),
    };
    for mandate in open {
        constraints::check_checkout(mandate, closed, &checkout, &items)?;
        checkout.open_mandates.push(mandate.hash.clone());
    }
    Ok(Some(checkout))
}
