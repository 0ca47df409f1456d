//! The course of a task: the client is asked to pay, its payment is verified and settled, and the agent runs.

use annex_sdk::{Entry, Interruption, Waiting, clock, json, log};
use serde_json::Value;

use crate::facilitator::Receipt;
use crate::failure::{Code, Failure};
use crate::parameters::{Parameters, Settle};
use crate::record::{Offer, Pending, Record, Status};
use crate::submission::{Authorization, Payment, Signed, Submission};
use crate::{facilitator, nonces, submission};

/// The maximum number of failed payments of a task. Each one is in the receipts, which all later statuses contain.
const MAX_FAILURES: usize = 8;

/// The largest accepted difference between the clocks of the client and of this server, in seconds.
const SKEW_SECONDS: u64 = 60;

/// The time for which a transaction that only the facilitator can read is recorded, in seconds. Networks with such
/// transactions refuse them after minutes.
const TRANSACTION_SECONDS: u64 = 86_400;

/// Decides whether the agent may run now.
///
/// # Errors
/// The store is not available. The request is then refused.
pub fn begin(
    parameters: &Parameters,
    record: &mut Record,
    task_id: &str,
    submission: &Submission,
) -> Result<Entry, String> {
    match record.status {
        Status::Completed => return Ok(Entry::Proceed),
        Status::Verified if is_valid_for_long_enough(parameters, pending_until(record), clock::now_seconds()) => {
            return Ok(Entry::Proceed);
        }
        Status::Verified => {
            record.pending = None;
            let failure = Failure::new(Code::ExpiredPayment, "the verified payment expires before it can be settled");
            return after_failure(parameters, record, task_id, &failure);
        }
        Status::Settling => {
            let failure = Failure::unknown("the settlement was interrupted, and its outcome is unknown");
            return after_failure(parameters, record, task_id, &failure);
        }
        Status::Rejected => return Ok(Entry::Veto("The payment was rejected.".to_owned())),
        Status::Failed if record.is_over => {
            return Ok(Entry::Veto("The payment of this task failed, and the task takes no other.".to_owned()));
        }
        Status::Required | Status::Failed => {}
    }
    match submission {
        Submission::None => {
            record.status = Status::Required;
            offer(parameters, record, task_id);
            record.save()?;
            interrupt(record, parameters.text.clone())
        }
        Submission::Rejected => {
            record.status = Status::Rejected;
            record.save()?;
            Ok(Entry::Veto("The client rejects the payment.".to_owned()))
        }
        Submission::Payment(payment) => match pay(parameters, record, payment) {
            Ok(()) => Ok(Entry::Proceed),
            Err(failure) => {
                // A facilitator that does not answer is no attempt to pay.
                if failure.code != Code::FacilitatorFailed {
                    record.receipts.push(facilitator::failed(payment, &failure));
                }
                after_failure(parameters, record, task_id, &failure)
            }
        },
    }
}

/// Settles a verified payment. A payment that is settled already stays so.
///
/// # Errors
/// The payment is not settled, so nothing that it pays for may go out. The record has the failure.
pub fn settle_pending(parameters: &Parameters, record: &mut Record) -> Result<(), String> {
    let Some(pending) = record.pending.take().filter(|_| record.status == Status::Verified) else {
        return if record.status == Status::Completed { Ok(()) } else { Err(said("the task is not paid")) };
    };
    let settled = payment_of(&pending).and_then(|payment| {
        settle(parameters, record, &payment, &pending.requirement).inspect_err(|failure| {
            record.receipts.push(facilitator::failed(&payment, failure));
        })
    });
    settled.map_err(|failure| {
        note(record, &failure);
        record.is_over = true;
        if let Err(error) = record.save() {
            log::error(&format!("the failed payment cannot be stored: {error}"));
        }
        said(&failure.reason)
    })
}

/// Checks and verifies a payment, and settles it unless it is settled later.
fn pay(parameters: &Parameters, record: &mut Record, payment: &Payment) -> Result<(), Failure> {
    let now = clock::now_seconds();
    let requirement = chosen(record.offer.as_ref(), payment, now)?;
    let until = check(parameters, payment, &requirement, now)?;
    facilitator::verify(parameters, payment, &requirement).inspect_err(log_failure)?;
    let unavailable =
        |reason: String| Failure::new(Code::FacilitatorFailed, format!("the payment cannot be recorded now: {reason}"));
    if !nonces::claim(payment, until, now).map_err(unavailable)? {
        return Err(Failure::new(Code::DuplicateNonce, "the payment was submitted before"));
    }
    match parameters.settle {
        Settle::Before => settle(parameters, record, payment, &requirement),
        Settle::After => {
            record.status = Status::Verified;
            record.error = None;
            record.pending = Some(Pending { payload: payment.payload.clone(), requirement, until });
            record.save().map_err(unavailable)
        }
    }
}

fn settle(parameters: &Parameters, record: &mut Record, payment: &Payment, requirement: &Value) -> Result<(), Failure> {
    record.status = Status::Settling;
    // Stored before the facilitator is asked: a process that ends in between must not ask for a second payment.
    record.save().map_err(|reason| {
        record.status = Status::Failed;
        Failure::new(Code::FacilitatorFailed, format!("the payment cannot be recorded now: {reason}"))
    })?;
    let receipt = facilitator::settle(parameters, payment, requirement).and_then(|receipt| once(payment, receipt));
    record.status = if receipt.is_ok() { Status::Completed } else { Status::Failed };
    record.receipts.push(receipt.inspect_err(|failure| log_settlement(failure, payment))?);
    record.error = None;
    record.pending = None;
    if let Err(error) = record.save() {
        // The client has paid, so the agent runs in this turn. A later turn finds an unknown outcome.
        log::error(&format!("the settled payment cannot be stored: {error}"));
    }
    Ok(())
}

/// Accepts a settled transaction of Solana once. The facilitator adds a signature, so the network knows the transaction
/// by an identifier that only the receipt has.
fn once(payment: &Payment, receipt: Receipt) -> Result<Receipt, Failure> {
    if matches!(payment.signed, Signed::Authorization(_)) {
        return Ok(receipt);
    }
    match nonces::claim_settled(&receipt, clock::now_seconds().saturating_add(TRANSACTION_SECONDS)) {
        Ok(true) => Ok(receipt),
        Ok(false) => Err(Failure::new(Code::DuplicateNonce, "the transaction has paid for another task")),
        Err(reason) => Err(Failure::unknown(format!("the settled transaction cannot be recorded: {reason}"))),
    }
}

/// Notes the failure, and asks the client to pay again where that is safe.
fn after_failure(
    parameters: &Parameters,
    record: &mut Record,
    task_id: &str,
    failure: &Failure,
) -> Result<Entry, String> {
    note(record, failure);
    record.is_over = !failure.may_pay_again || record.receipts.len() >= MAX_FAILURES;
    if !record.is_over {
        offer(parameters, record, task_id);
    }
    record.save()?;
    let text = said(&failure.reason);
    if record.is_over { Ok(Entry::Veto(text)) } else { interrupt(record, text) }
}

fn note(record: &mut Record, failure: &Failure) {
    record.status = Status::Failed;
    record.error = Some(failure.code.name().to_owned());
    record.pending = None;
}

fn said(reason: &str) -> String {
    format!("Payment failed: {reason}.")
}

fn log_failure(failure: &Failure) {
    if failure.code == Code::FacilitatorFailed {
        log::error(&failure.reason);
    }
}

/// Logs a settlement whose outcome is unknown. The operator can look the settlement up on the network.
fn log_settlement(failure: &Failure, payment: &Payment) {
    if failure.may_pay_again {
        return;
    }
    let network = json::string(&payment.network);
    let which = match &payment.signed {
        Signed::Authorization(signed) => format!("the nonce {} of {}", signed.nonce, signed.from),
        Signed::Transaction { text, .. } => format!("the transaction {text}"),
    };
    log::error(&format!("{}; look on {network} for {which}", failure.reason));
}

fn interrupt(record: &Record, text: String) -> Result<Entry, String> {
    let mut metadata = record.entries()?;
    metadata.extend(record.required()?);
    Ok(Entry::Interrupt(Interruption { waiting: Waiting::Input, text, metadata }))
}

fn offer(parameters: &Parameters, record: &mut Record, task_id: &str) {
    let (accepts, seconds) = parameters.requirements(task_id);
    record.offer = Some(Offer { accepts, until: clock::now_seconds().saturating_add(seconds) });
}

/// The requirement that the client has chosen from the stored offer.
fn chosen(offer: Option<&Offer>, payment: &Payment, now: u64) -> Result<Value, Failure> {
    let Some(offer) = offer else {
        return Err(Failure::new(Code::InvalidPayment, "no payment was requested for this task before"));
    };
    if offer.until <= now {
        return Err(Failure::new(Code::ExpiredPayment, "the offer has expired"));
    }
    let has = |requirement: &&Value, name: &str, value: &str| {
        requirement.get(name).and_then(Value::as_str).is_some_and(|offered| offered == value)
    };
    let on_network: Vec<&Value> =
        offer.accepts.iter().filter(|requirement| has(requirement, "network", &payment.network)).collect();
    if on_network.is_empty() {
        return Err(Failure::new(Code::NetworkMismatch, "the payment is for a network that was not offered"));
    }
    let of_scheme: Vec<&Value> =
        on_network.into_iter().filter(|requirement| has(requirement, "scheme", &payment.scheme)).collect();
    let [first, ..] = of_scheme.as_slice() else {
        return Err(Failure::new(Code::InvalidPayment, "the payment has a scheme that was not offered"));
    };
    let Signed::Authorization(signed) = &payment.signed else { return Ok((*first).clone()) };
    let to_payee: Vec<&Value> = of_scheme
        .into_iter()
        .filter(|requirement| text(requirement, "payTo").eq_ignore_ascii_case(&signed.to))
        .collect();
    if to_payee.is_empty() {
        return Err(Failure::new(Code::InvalidPayment, "the payment is to another address than the offer's"));
    }
    let value = signed.value.trim_start_matches('0');
    let found = to_payee.into_iter().find(|requirement| facilitator::amount_of(requirement) == Some(value));
    found.cloned().ok_or_else(|| Failure::new(Code::InvalidAmount, "the payment has another amount than the offer"))
}

/// Checks the times of a payment. Returns the time at which it expires, in seconds.
fn check(parameters: &Parameters, payment: &Payment, requirement: &Value, now: u64) -> Result<u64, Failure> {
    let Signed::Authorization(Authorization { valid_after, valid_before, .. }) = &payment.signed else {
        return Ok(now.saturating_add(TRANSACTION_SECONDS));
    };
    let seconds = |text: &str| text.parse::<u64>().unwrap_or(u64::MAX);
    let (after, before) = (seconds(valid_after), seconds(valid_before));
    if before <= now {
        return Err(Failure::new(Code::ExpiredPayment, "the payment has expired"));
    }
    if !is_valid_for_long_enough(parameters, before, now) {
        let seconds = parameters.min_valid_seconds();
        let reason = format!("the payment expires too soon: it must be valid for more than {seconds} seconds from now");
        return Err(Failure::new(Code::ExpiredPayment, reason));
    }
    if after > now.saturating_add(SKEW_SECONDS) {
        return Err(Failure::new(Code::InvalidPayment, "the payment is not valid yet"));
    }
    let longest = requirement.get("maxTimeoutSeconds").and_then(Value::as_u64).unwrap_or_default();
    if before > now.saturating_add(longest).saturating_add(SKEW_SECONDS) {
        return Err(Failure::new(Code::InvalidPayment, "the payment is valid for longer than the offer allows"));
    }
    Ok(before)
}

/// True if the time until the payment expires is enough for the agent to begin.
fn is_valid_for_long_enough(parameters: &Parameters, until: u64, now: u64) -> bool {
    until > now.saturating_add(parameters.min_valid_seconds())
}

fn payment_of(pending: &Pending) -> Result<Payment, Failure> {
    submission::of_payload(&pending.payload)
        .map_err(|(_, reason)| Failure::new(Code::InvalidPayment, format!("the stored payment {reason}")))
}

fn pending_until(record: &Record) -> u64 {
    record.pending.as_ref().map(|pending| pending.until).unwrap_or_default()
}

fn text<'a>(requirement: &'a Value, name: &str) -> &'a str {
    requirement.get(name).and_then(Value::as_str).unwrap_or_default()
}
