//! The constraints of open mandates. A constraint that is not known here is not met, as AP2 demands.

use annex_sdk::clock;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::v0_2::chain::OpenMandate;
use crate::v0_2::checkout::Checkout;
use crate::v0_2::line_items::{self, Entry, LineItem};
use crate::v0_2::merchant::Merchant;
use crate::v0_2::payment::Payment;
use crate::v0_2::refusal::Refusal;

/// The maximum number of constraints of an open mandate.
const MAX_CONSTRAINTS: usize = 32;

/// The members of an open mandate that its closed mandate need not have. A closed mandate has all others, unchanged.
const OWN_MEMBERS: [&str; 7] = ["vct", "constraints", "cnf", "iat", "nbf", "exp", "risk_data"];

#[derive(Deserialize)]
struct AllowList<T> {
    allowed: Vec<T>,
}

#[derive(Deserialize)]
struct LineItems {
    items: Vec<Entry>,
}

#[derive(Deserialize)]
struct AmountRange {
    currency: String,
    max: u64,
    min: Option<u64>,
}

#[derive(Deserialize)]
struct Reference {
    conditional_transaction_id: String,
}

#[derive(Deserialize)]
struct ExecutionDate {
    not_before: Option<String>,
    not_after: Option<String>,
}

#[derive(Deserialize)]
struct Instrument {
    id: String,
}

/// Checks a checkout and its closed mandate against an open mandate.
///
/// # Errors
/// The user did not allow this checkout.
pub(super) fn check_checkout(
    open: &OpenMandate,
    closed: &Map<String, Value>,
    checkout: &Checkout,
    items: &[LineItem],
) -> Result<(), Refusal> {
    check_members(open, closed)?;
    each_constraint(open, |name, constraint| match name {
        "checkout.allowed_merchants" => {
            let is_met =
                read::<AllowList<Merchant>>(constraint)?.allowed.iter().any(|one| one.is_same(&checkout.merchant));
            met(is_met, "the merchant is not allowed")
        }
        "checkout.line_items" => line_items::check(&read::<LineItems>(constraint)?.items, items),
        _ => Err("it is not evaluated here".to_owned()),
    })
}

/// Checks a payment against an open mandate. `checkout` is the checkout of the payment, if known.
///
/// # Errors
/// The user did not allow this payment.
pub(super) fn check_payment(
    open: &OpenMandate,
    closed: &Map<String, Value>,
    payment: &Payment,
    checkout: Option<&Checkout>,
) -> Result<(), Refusal> {
    check_members(open, closed)?;
    each_constraint(open, |name, constraint| match name {
        "payment.allowed_payees" => {
            let is_met = read::<AllowList<Merchant>>(constraint)?.allowed.iter().any(|one| one.is_same(&payment.payee));
            met(is_met, "the payee is not allowed")
        }
        "payment.allowed_payment_instruments" => {
            let id = instrument_of(closed);
            let is_met = read::<AllowList<Instrument>>(constraint)?.allowed.iter().any(|one| Some(&*one.id) == id);
            met(is_met, "the payment instrument is not allowed")
        }
        "payment.allowed_pisps" => {
            let is_met =
                read::<AllowList<Value>>(constraint)?.allowed.iter().any(|one| Some(one) == closed.get("pisp"));
            met(is_met, "the payment initiation service provider is not allowed")
        }
        "payment.amount_range" => {
            let AmountRange { currency, max, min } = read(constraint)?;
            let amount = &payment.payment_amount;
            let is_met =
                amount.currency == currency && amount.amount <= max && amount.amount >= min.unwrap_or_default();
            met(is_met, "the amount or its currency is not allowed")
        }
        "payment.execution_date" => check_execution_date(&read(constraint)?, payment.execution_date.as_deref()),
        "payment.reference" => {
            let wanted = read::<Reference>(constraint)?.conditional_transaction_id;
            let is_met = checkout.is_some_and(|checkout| checkout.open_mandates.contains(&wanted));
            met(is_met, "the checkout is not known as one of that open mandate")
        }
        _ => Err("it is not evaluated here".to_owned()),
    })
}

/// The members that the user has fixed in an open mandate.
fn check_members(open: &OpenMandate, closed: &Map<String, Value>) -> Result<(), Refusal> {
    let mut fixed = open.content.iter().filter(|(name, _)| !OWN_MEMBERS.contains(&name.as_str()));
    match fixed.find(|(name, value)| closed.get(*name) != Some(*value)) {
        None => Ok(()),
        Some((name, _)) => Err(Refusal::InvalidMandate(format!("differs from its open mandate: `{name}`"))),
    }
}

fn each_constraint(open: &OpenMandate, check: impl Fn(&str, &Value) -> Result<(), String>) -> Result<(), Refusal> {
    let unresolved = Refusal::UnresolvedConstraint;
    let constraints = open.content.get("constraints").and_then(Value::as_array);
    let constraints = constraints.ok_or_else(|| unresolved("has an open mandate without `constraints`".to_owned()))?;
    if constraints.len() > MAX_CONSTRAINTS {
        return Err(unresolved(format!("has an open mandate with more than {MAX_CONSTRAINTS} constraints")));
    }
    for constraint in constraints {
        let name = constraint.get("type").and_then(Value::as_str).unwrap_or_default();
        check(name, constraint)
            .map_err(|reason| unresolved(format!("does not meet the constraint `{name}`: {reason}")))?;
    }
    Ok(())
}

fn met(is_met: bool, otherwise: &str) -> Result<(), String> {
    if is_met { Ok(()) } else { Err(otherwise.to_owned()) }
}

fn read<T: DeserializeOwned>(constraint: &Value) -> Result<T, String> {
    serde_json::from_value(constraint.clone()).map_err(|error| format!("it cannot be read: {error}"))
}

fn instrument_of(closed: &Map<String, Value>) -> Option<&str> {
    closed.get("payment_instrument")?.get("id")?.as_str()
}

/// A payment without a date is executed now.
fn check_execution_date(constraint: &ExecutionDate, date: Option<&str>) -> Result<(), String> {
    const START: &str = "T00:00:00Z";
    const END: &str = "T23:59:59.999Z";
    let date = date.map_or_else(|| Ok(clock::now_millis()), |date| moment(date, START))?;
    let is_late_enough = match &constraint.not_before {
        Some(not_before) => date >= moment(not_before, START)?,
        None => true,
    };
    let is_early_enough = match &constraint.not_after {
        Some(not_after) => date <= moment(not_after, END)?,
        None => true,
    };
    met(is_late_enough && is_early_enough, "the date is not allowed")
}

/// A time, or a date together with a time of the day, in milliseconds since 1970.
fn moment(text: &str, time_of_day: &str) -> Result<u64, String> {
    let is_date = text.len() == 10;
    let time = if is_date { clock::parse(&format!("{text}{time_of_day}")) } else { clock::parse(text) };
    time.ok_or_else(|| format!("{text:?} is no date of ISO 8601"))
}
