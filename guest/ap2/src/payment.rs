//! Checks the content of PaymentMandates, and that each PaymentMandate agrees with its cart.

use annex_sdk::{Rejection, Violation, clock};
use serde::Deserialize;
use serde_json::Value;

use crate::cart::{Item, fits};
use crate::jws::{self, Trust};
use crate::memory::{Cart, SingleUse};
use crate::parameters::{Parameters, Role};
use crate::{presentation, schemas};

#[derive(Deserialize)]
struct Mandate {
    payment_mandate_contents: Contents,
    user_authorization: Option<String>,
}

#[derive(Deserialize)]
struct Contents {
    payment_mandate_id: String,
    payment_details_id: String,
    payment_details_total: Item,
    payment_response: Response,
    merchant_agent: String,
    timestamp: Option<String>,
}

#[derive(Deserialize)]
struct Response {
    request_id: String,
    method_name: String,
}

/// A payment and its JSON pointer in the request.
struct Payment<'a> {
    parameters: &'a Parameters,
    pointer: &'a str,
    contents: Contents,
    violations: Vec<Violation>,
}

/// Checks a PaymentMandate at `pointer`. `known` finds a cart by its id. Returns the ids that may be used only once.
///
/// # Errors
/// The mandate has faults or cannot be checked. The rejection names the faults or the reason.
pub fn check(
    parameters: &Parameters,
    pointer: &str,
    mandate: &str,
    known: impl FnOnce(&str) -> Result<Option<Cart>, Rejection>,
) -> Result<Vec<SingleUse>, Rejection> {
    if parameters.roles.iter().all(|role| *role == Role::Shopper) {
        return Err(Violation::new(pointer, "is not for an agent whose only role is shopper").into());
    }
    fits(schemas::PAYMENT, pointer, mandate).map_err(Rejection::Violations)?;
    let unread = |error: serde_json::Error| Violation::new(pointer, format!("cannot be read: {error}"));
    let value: Value = serde_json::from_str(mandate).map_err(unread)?;
    let hash = jws::canonical_hash(value.get("payment_mandate_contents").unwrap_or(&Value::Null))
        .map_err(|message| Violation::new(pointer, message))?;
    let Mandate { payment_mandate_contents: contents, user_authorization } =
        serde_json::from_value(value).map_err(unread)?;
    let mut payment = Payment { parameters, pointer, contents, violations: Vec::new() };
    let until = payment.check_time();
    if payment.contents.payment_response.request_id != payment.contents.payment_details_id {
        payment.refuse_contents("/payment_response/request_id", "differs from `payment_details_id`");
    }
    let cart = known(&payment.contents.payment_details_id)?;
    payment.check_cart(cart.as_ref());
    payment.check_authorization(user_authorization.as_deref(), &hash, cart.as_ref());
    if !payment.violations.is_empty() {
        return Err(Rejection::Violations(payment.violations));
    }
    let place = format!("{pointer}/payment_mandate_contents/payment_mandate_id");
    Ok(vec![SingleUse::new(place, until, ["payment", "", &payment.contents.payment_mandate_id])])
}

impl Payment<'_> {
    fn refuse_contents(&mut self, place: &str, message: &str) {
        let pointer = format!("{}/payment_mandate_contents{place}", self.pointer);
        self.violations.push(Violation::new(pointer, message));
    }

    /// Checks the timestamp. Returns the time in seconds from which a payment with this timestamp is refused.
    fn check_time(&mut self) -> u64 {
        let now = clock::now_millis() / 1_000;
        let skew = self.parameters.clock_skew_seconds;
        let lasts = self.parameters.max_payment_seconds.saturating_add(skew);
        // Without a time nothing says when a payment is too old to be shown again.
        let Some(timestamp) = &self.contents.timestamp else {
            if self.parameters.require_signatures {
                self.refuse_contents("/timestamp", "is required");
            }
            return now.saturating_add(lasts);
        };
        let Some(time) = clock::parse(timestamp).map(|millis| millis / 1_000) else {
            self.refuse_contents("/timestamp", "is not an ISO 8601 time with an offset");
            return now;
        };
        let end = time.saturating_add(lasts);
        if time > now + skew {
            self.refuse_contents("/timestamp", "is in the future");
        } else if end < now {
            self.refuse_contents("/timestamp", "is too old");
        }
        end
    }

    fn check_cart(&mut self, cart: Option<&Cart>) {
        let Some(cart) = cart else {
            if self.parameters.require_cart {
                self.refuse_contents("/payment_details_id", "names no cart of this conversation");
            }
            return;
        };
        if cart.expiry <= clock::now_millis() {
            self.refuse_contents("/payment_details_id", "names an expired cart");
        }
        if cart.merchant_agent.as_ref().is_some_and(|agent| *agent != self.contents.merchant_agent) {
            self.refuse_contents("/merchant_agent", "differs from the cart's");
        }
        let name = &self.contents.payment_response.method_name;
        let Some(method) = cart.methods.iter().find(|method| method.name == *name) else {
            self.refuse_contents("/payment_response/method_name", "is not a method of the cart");
            return;
        };
        let paid = self.contents.payment_details_total.money();
        if paid.currency != method.total.currency {
            self.refuse_contents("/payment_details_total/amount/currency", "differs from that of the cart's total");
        }
        if paid.value != method.total.value {
            self.refuse_contents("/payment_details_total/amount/value", "differs from that of the cart's total");
        }
    }

    fn check_authorization(&mut self, authorization: Option<&str>, payment_hash: &str, cart: Option<&Cart>) {
        let message = match presentation::verify(self.parameters, authorization, payment_hash, cart) {
            Ok(Trust::Verified(())) => return,
            Ok(Trust::Unverified(_)) if !self.parameters.require_signatures => return,
            Ok(Trust::Unverified(why)) => why.to_owned(),
            Err(message) => message,
        };
        self.violations.push(Violation::new(format!("{}/user_authorization", self.pointer), message));
    }
}
