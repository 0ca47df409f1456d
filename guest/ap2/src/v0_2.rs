//! AP2 v0.2: mandates for checkouts and payments, each a chain of SD-JWTs.
//!
//! [`chain`] verifies signatures and delegations, over [`sd_jwt`]; [`checkout`] and [`payment`] check the content of each
//! kind, with the user's [`constraints`]; [`checkouts`] stores checkouts between turns.

mod chain;
mod checkout;
mod checkouts;
mod constraints;
mod line_items;
mod merchant;
mod payment;
mod refusal;
mod sd_jwt;

use annex_sdk::{Rejection, Request, Violation};
use serde::Deserialize;
use serde_json::Value;

use self::chain::{Kind, Presentation};
pub(crate) use self::checkout::Checkout;
pub(crate) use self::checkouts::keep;
use self::payment::Payment;
use self::refusal::Refusal;
use crate::jws::Trust;
use crate::mandates::{self, Mandate};
use crate::memory::{self, SingleUse};
use crate::parameters::{Parameters, Role};

/// The content of a message to store when its turn begins.
#[derive(Debug, Default)]
pub(crate) struct AcceptedMandates {
    /// The checkouts of the message.
    pub(crate) checkouts: Vec<Checkout>,
    /// The tokens of the message, which may come again within its task.
    pub(crate) tokens: Vec<SingleUse>,
}

/// Checks the mandates of a message to this agent.
///
/// # Errors
/// The message must be refused. The rejection has the reason.
pub(crate) fn check(parameters: &Parameters, request: &Request, message: &str) -> Result<AcceptedMandates, Rejection> {
    let mut check = MandateCheck { parameters, request, accepted: AcceptedMandates::default() };
    mandates::check_each(message, |mandate| check.take(mandate))?;
    Ok(check.accepted)
}

/// The mandates of one message during their check.
struct MandateCheck<'a> {
    parameters: &'a Parameters,
    request: &'a Request,
    accepted: AcceptedMandates,
}

impl MandateCheck<'_> {
    /// Checks a mandate. Returns the tokens that may be used only once.
    fn take(&mut self, mandate: &Mandate<'_>) -> Result<Vec<SingleUse>, Rejection> {
        let refuse = |message: &str| Rejection::from(Violation::new(&mandate.pointer, message));
        let kind = match mandate.name.as_str() {
            "CheckoutMandateSdJwt" => Kind::Checkout,
            "PaymentMandateSdJwt" => Kind::Payment,
            _ if self.parameters.require_signatures => {
                return Err(refuse("is not a mandate of AP2 v0.2, and cannot be verified here"));
            }
            _ => return Ok(Vec::new()),
        };
        if kind == Kind::Payment && self.parameters.roles.iter().all(|role| *role == Role::Shopper) {
            return Err(refuse("is not for an agent whose only role is shopper"));
        }
        let text: String = serde_json::from_str(mandate.value).map_err(|_| refuse("must be a string"))?;
        let because = |refusal: Refusal| refuse(&refusal.to_string());
        let trust = chain::verify(self.parameters, kind, &text);
        let presentation = match trust.map_err(|message| because(Refusal::InvalidCredential(message)))? {
            Trust::Verified(presentation) => presentation,
            Trust::Unverified(why) if self.parameters.require_signatures => {
                return Err(because(Refusal::InvalidCredential(why.to_owned())));
            }
            Trust::Unverified(_) => return Ok(Vec::new()),
        };
        self.check_presentation(kind, &presentation).map_err(because)?;
        match kind {
            Kind::Checkout => self.take_checkout(&presentation, &because)?,
            Kind::Payment => self.take_payment(&presentation, &because)?,
        }
        self.tokens(mandate, kind, &presentation)
    }

    fn check_presentation(&self, kind: Kind, presentation: &Presentation) -> Result<(), Refusal> {
        if !presentation.open.is_empty() && !self.parameters.allow_unattended {
            let message = "is closed by an agent without the user's confirmation, which is not accepted here";
            return Err(Refusal::InvalidMandate(message.to_owned()));
        }
        let hash = presentation.closed.get(kind.hash_name()).and_then(Value::as_str).unwrap_or_default();
        if presentation.nonce.as_ref().is_some_and(|nonce| !self.parameters.is_nonce(nonce, hash)) {
            return Err(Refusal::InvalidCredential("has a nonce that is not accepted here: `nonce`".to_owned()));
        }
        Ok(())
    }

    fn take_checkout(
        &mut self,
        presentation: &Presentation,
        because: &impl Fn(Refusal) -> Rejection,
    ) -> Result<(), Rejection> {
        let checkout = checkout::check(self.parameters, &presentation.closed, &presentation.open).map_err(because)?;
        let Some(checkout) = checkout else { return Ok(()) };
        if self.request.context_id.is_some() && checkouts::is_replaced(&checkout)? {
            let message = "is for an earlier version of the checkout: `checkout_hash`";
            return Err(because(Refusal::InvalidMandate(message.to_owned())));
        }
        self.accepted.checkouts.push(checkout);
        Ok(())
    }

    fn take_payment(
        &self,
        presentation: &Presentation,
        because: &impl Fn(Refusal) -> Rejection,
    ) -> Result<(), Rejection> {
        let payment = Payment::read(&presentation.closed).map_err(because)?;
        let checkout = self.checkout(&payment.transaction_id)?;
        payment.check(self.parameters, &presentation.closed, &presentation.open, checkout.as_ref()).map_err(because)
    }

    /// The checkout with this hash, from this message or the conversation.
    fn checkout(&self, hash: &str) -> Result<Option<Checkout>, Rejection> {
        let here = self.accepted.checkouts.iter().find(|checkout| checkout.hash == hash);
        match here {
            Some(checkout) => Ok(Some(checkout.clone())),
            // Without a conversation there are no stored checkouts.
            None if self.request.context_id.is_some() => checkouts::known(hash),
            None => Ok(None),
        }
    }

    /// The tokens of a mandate that may be used only once. A task may repeat its own mandate, for instance when its client
    /// answers a challenge. With another closed mandate, the open ones would be used a second time.
    fn tokens(
        &mut self,
        mandate: &Mandate<'_>,
        kind: Kind,
        presentation: &Presentation,
    ) -> Result<Vec<SingleUse>, Rejection> {
        let mut tokens = Vec::new();
        // The first token has the closed mandate.
        let mut is_repeated = self.request.task_id.is_some();
        for token in &presentation.once {
            let once = SingleUse::new(mandate.pointer.clone(), token.until, [kind.hash_name(), "", &token.id]);
            is_repeated = is_repeated && memory::is_of_task(&once)?;
            if !is_repeated {
                self.accepted.tokens.push(once.clone());
                tokens.push(once);
            }
        }
        Ok(tokens)
    }
}

/// A checkout that a merchant offers, as the published samples send it.
#[derive(Deserialize)]
struct Offer {
    checkout_jwt: String,
    checkout_hash: Option<String>,
}

/// Checks and stores the checkouts in an artifact that this agent sends.
///
/// # Errors
/// A checkout has a fault, or the store is not available.
pub(crate) fn keep_own(parameters: &Parameters, artifact: &str) -> Result<(), String> {
    let mut violations = Vec::new();
    let found = mandates::find(artifact, "/artifact/parts", "ap2.", &mut violations);
    for part in found.iter().filter(|part| part.name == "checkout") {
        match read_offer(parameters, part.value) {
            Ok(Some(checkout)) => checkouts::keep_own(&checkout)?,
            Ok(None) => {}
            Err(message) => violations.push(Violation::new(&part.pointer, message)),
        }
    }
    let all: Vec<String> = violations.iter().map(|one| format!("{} {}", one.pointer, one.message)).collect();
    if all.is_empty() {
        Ok(())
    } else {
        Err(format!("the agent sends a checkout that cannot be paid: {}", all.join("; ")))
    }
}

/// The checkout of an offer. `None` if its merchant is not known here, and that is accepted.
fn read_offer(parameters: &Parameters, offer: &str) -> Result<Option<Checkout>, String> {
    let offer = serde_json::from_str::<Value>(offer).and_then(serde_json::from_value::<Offer>);
    let Offer { checkout_jwt, checkout_hash } = offer.map_err(|error| format!("cannot be read: {error}"))?;
    match checkout::verify(parameters, &checkout_jwt)
        .map_err(|message| format!("has a `checkout_jwt` that {message}"))?
    {
        Trust::Verified(signed) if checkout_hash.as_ref().is_none_or(|hash| *hash == signed.checkout.hash) => {
            Ok(Some(signed.checkout))
        }
        Trust::Verified(_) => Err("has a `checkout_hash` that is not that of `checkout_jwt`".to_owned()),
        Trust::Unverified(why) if parameters.require_signatures => Err(format!("has a `checkout_jwt` that {why}")),
        Trust::Unverified(_) => Ok(None),
    }
}
