//! Checks the mandates for payments, and that each payment agrees with its checkout.

use annex_sdk::clock;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::parameters::Parameters;
use crate::v0_2::chain::OpenMandate;
use crate::v0_2::checkout::Checkout;
use crate::v0_2::constraints;
use crate::v0_2::merchant::Merchant;
use crate::v0_2::refusal::Refusal;

/// The content of a closed mandate for a payment.
#[derive(Deserialize)]
pub(super) struct Payment {
    /// The hash of the checkout.
    pub(super) transaction_id: String,
    pub(super) payee: Merchant,
    pub(super) payment_amount: Amount,
    pub(super) execution_date: Option<String>,
    /// Read only to require it. Constraints compare the id in the content of the mandate.
    #[serde(rename = "payment_instrument")]
    _payment_instrument: Instrument,
}

/// An amount in minor units: 1999 of `USD` are 19.99 dollars.
#[derive(Deserialize)]
pub(super) struct Amount {
    pub(super) amount: u64,
    pub(super) currency: String,
}

#[derive(Deserialize)]
struct Instrument {
    #[serde(rename = "id")]
    _id: String,
    #[serde(rename = "type")]
    _kind: String,
}

impl Payment {
    /// Reads the content of a closed mandate.
    ///
    /// # Errors
    /// A member is missing or has the wrong type.
    pub(super) fn read(closed: &Map<String, Value>) -> Result<Self, Refusal> {
        serde_json::from_value(Value::Object(closed.clone()))
            .map_err(|error| Refusal::InvalidMandate(format!("cannot be read: {error}")))
    }

    /// Checks the payment against its checkout and the user's open mandates.
    ///
    /// # Errors
    /// The mandate does not authorize the payment.
    pub(super) fn check(
        &self,
        parameters: &Parameters,
        closed: &Map<String, Value>,
        open: &[OpenMandate],
        checkout: Option<&Checkout>,
    ) -> Result<(), Refusal> {
        if let Some(fault) = self.fault(parameters, checkout) {
            return Err(Refusal::InvalidMandate(fault.to_owned()));
        }
        open.iter().try_for_each(|open| constraints::check_payment(open, closed, self, checkout))
    }

    fn fault(&self, parameters: &Parameters, checkout: Option<&Checkout>) -> Option<&'static str> {
        let Some(checkout) = checkout else {
            let unknown = "names no checkout of this message or conversation: `transaction_id`";
            return parameters.require_cart.then_some(unknown);
        };
        if checkout.expiry <= clock::now_millis() {
            Some("names a checkout that is over: `transaction_id`")
        } else if self.payment_amount.currency != checkout.currency {
            Some("has another currency than the checkout: `payment_amount.currency`")
        } else if self.payment_amount.amount != checkout.total {
            Some("has another amount than the total of the checkout: `payment_amount.amount`")
        } else if !self.payee.is_same(&checkout.merchant) {
            Some("pays another merchant than that of the checkout: `payee`")
        } else {
            None
        }
    }
}
