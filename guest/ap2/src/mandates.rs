//! Finds the mandates in the parts of a message or an artifact, and checks each mandate of v0.1.

use annex_sdk::members::Members;
use annex_sdk::{Rejection, Request, Violation, clock, pointer};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::memory::{self, Cart, SingleUse};
use crate::parameters::Parameters;
use crate::{cart, payment, schemas};

/// The maximum number of violations in one answer. The client sees further violations when it sends the corrected
/// message.
const MAX_VIOLATIONS: usize = 64;

/// The maximum number of mandates in one message or artifact. AP2 v0.1 defines three kinds of mandates.
const MAX_MANDATES: usize = 64;

/// The prefix of a mandate's key.
const PREFIX: &str = "ap2.mandates.";

/// A mandate in a message.
pub(crate) struct Mandate<'a> {
    /// The key without the prefix.
    pub(crate) name: String,
    /// The JSON pointer to the mandate in the request.
    pub(crate) pointer: String,
    pub(crate) value: &'a str,
}

/// Checks the mandates of a message to this agent. Returns the carts of the message, which are stored when the turn
/// begins.
///
/// # Errors
/// The message must be refused. The rejection has the reason.
pub fn check(parameters: &Parameters, request: &Request, message: &str) -> Result<Vec<Cart>, Rejection> {
    let mut incoming = MandateCheck { parameters, request, carts: Vec::new() };
    check_each(message, |mandate| incoming.take(mandate))?;
    Ok(incoming.carts)
}

/// Checks each mandate of a message by `take`, which returns the ids and tokens that may be used only once. Payments come
/// last, because a payment may be in the same message as its cart or checkout, in any order.
///
/// # Errors
/// The message must be refused. The rejection has the reason.
pub(crate) fn check_each(
    message: &str,
    mut take: impl FnMut(&Mandate<'_>) -> Result<Vec<SingleUse>, Rejection>,
) -> Result<(), Rejection> {
    let mut violations = Vec::new();
    let found = find(message, "/message/parts", PREFIX, &mut violations);
    let (payments, others): (Vec<_>, Vec<_>) =
        found.iter().partition(|mandate| mandate.name.starts_with("PaymentMandate"));
    let mut once = Vec::new();
    for mandate in others.into_iter().chain(payments) {
        match take(mandate) {
            Ok(more) => once.extend(more),
            Err(Rejection::Violations(more)) => violations.extend(more),
            Err(error @ Rejection::Error(_)) => return Err(error),
        }
    }
    if violations.is_empty() {
        // Recorded last, because a refused mandate must not be used up.
        let used = memory::used_before(&once)?;
        violations.extend(used.iter().map(|once| Violation::new(once.pointer.clone(), "was used before")));
    }
    if violations.is_empty() {
        return Ok(());
    }
    violations.truncate(MAX_VIOLATIONS);
    Err(Rejection::Violations(violations))
}

/// Checks the carts in an artifact that this agent sends, and returns these carts.
///
/// # Errors
/// A cart has faults. Each violation names one fault.
pub fn own_carts(parameters: &Parameters, artifact: &str) -> Result<Vec<Cart>, Vec<Violation>> {
    let mut violations = Vec::new();
    let found = find(artifact, "/artifact/parts", PREFIX, &mut violations);
    let mut carts = Vec::new();
    for mandate in found.iter().filter(|mandate| mandate.name == "CartMandate") {
        match cart::check(parameters, &mandate.pointer, mandate.value, true) {
            Ok(checked) => carts.push(checked.cart),
            Err(more) => violations.extend(more),
        }
    }
    if violations.is_empty() { Ok(carts) } else { Err(violations) }
}

/// Finds the mandates, whose keys have a prefix, in an object with parts. A repeated key is a violation, because readers
/// would choose different values.
pub(crate) fn find<'a>(whole: &'a str, parts: &str, prefix: &str, violations: &mut Vec<Violation>) -> Vec<Mandate<'a>> {
    let members = Members::of(whole).unwrap_or_default();
    let all: Vec<&RawValue> =
        members.get("parts").and_then(|parts| serde_json::from_str(parts).ok()).unwrap_or_default();
    let mut found: Vec<Mandate<'a>> = Vec::new();
    for (number, part) in all.into_iter().enumerate() {
        let data = Members::of(part.get()).and_then(|part| part.get("data")).and_then(Members::of);
        for (key, value) in data.iter().flat_map(Members::iter) {
            let Some(name) = key.strip_prefix(prefix) else { continue };
            let pointer = pointer::child(&format!("{parts}/{number}/data"), key);
            // Thousands of keys fit into a message, and each would be compared with all before it.
            if found.len() + violations.len() == MAX_MANDATES {
                violations.push(Violation::new(pointer, format!("exceeds the limit of {MAX_MANDATES} mandates")));
                return found;
            }
            if found.iter().any(|mandate| mandate.name == name) {
                violations.push(Violation::new(pointer, "is there twice"));
            } else {
                found.push(Mandate { name: name.to_owned(), pointer, value });
            }
        }
    }
    found
}

/// The mandates of one message during their check.
struct MandateCheck<'a> {
    parameters: &'a Parameters,
    request: &'a Request,
    carts: Vec<Cart>,
}

impl MandateCheck<'_> {
    /// Checks a mandate. Returns the ids and tokens that may be used only once.
    fn take(&mut self, mandate: &Mandate<'_>) -> Result<Vec<SingleUse>, Rejection> {
        let Mandate { name, pointer, value } = mandate;
        match name.as_str() {
            "IntentMandate" => {
                check_intent(self.parameters, pointer, value).map_err(Rejection::Violations)?;
                Ok(Vec::new())
            }
            "CartMandate" => {
                let checked = cart::check(self.parameters, pointer, value, false).map_err(Rejection::Violations)?;
                self.carts.push(checked.cart);
                Ok(checked.token.into_iter().collect())
            }
            "PaymentMandate" => payment::check(self.parameters, pointer, value, |id| self.cart(id)),
            _ if self.parameters.require_signatures => {
                Err(Violation::new(pointer, "is not a mandate of AP2 v0.1, and cannot be verified here").into())
            }
            _ => Ok(Vec::new()),
        }
    }

    /// The cart with this id, from this message or the conversation.
    fn cart(&self, details_id: &str) -> Result<Option<Cart>, Rejection> {
        let here = self.carts.iter().find(|cart| cart.details_id == details_id).cloned();
        // Without a conversation there are no stored carts.
        let before = if self.request.context_id.is_some() { memory::known(details_id)? } else { None };
        Ok(match (here, before) {
            (Some(here), Some(before)) if before.origin > here.origin => Some(before),
            (here, before) => here.or(before),
        })
    }
}

#[derive(Deserialize)]
struct Intent {
    #[serde(default = "yes")]
    user_cart_confirmation_required: bool,
    intent_expiry: String,
}

fn yes() -> bool {
    true
}

fn check_intent(parameters: &Parameters, pointer: &str, mandate: &str) -> Result<(), Vec<Violation>> {
    cart::fits(schemas::INTENT, pointer, mandate)?;
    let intent: Intent = serde_json::from_str::<Value>(mandate)
        .and_then(serde_json::from_value::<Intent>)
        .map_err(|error| vec![Violation::new(pointer, format!("cannot be read: {error}"))])?;
    let mut violations = Vec::new();
    let mut refuse = |place: &str, message| violations.push(Violation::new(format!("{pointer}{place}"), message));
    match clock::parse(&intent.intent_expiry) {
        None => refuse("/intent_expiry", "is not an ISO 8601 time with an offset"),
        Some(expiry) if expiry <= clock::now_millis() => refuse("/intent_expiry", "is over"),
        Some(_) => {}
    }
    // An intent without confirmation must be signed by the user, and v0.1 has no place for that signature.
    if !intent.user_cart_confirmation_required && !parameters.allow_unattended {
        refuse("/user_cart_confirmation_required", "must be true: the user has not signed the intent");
    }
    if violations.is_empty() { Ok(()) } else { Err(violations) }
}
