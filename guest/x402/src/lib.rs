//! Payments by x402, versions 0.1 and 0.2 of the extension: a task waits until it is paid, and then the agent runs.
//!
//! This file has the hooks. The course of a task is in [`course`], the client's part is in [`submission`], and requests
//! to the facilitator are in [`facilitator`]. [`record`] stores the payment of a task, and [`nonces`] the payments that
//! were submitted before. [`solana`] finds what is signed in a transaction of Solana.

pub mod course;
pub mod facilitator;
pub mod failure;
pub mod keys;
pub mod nonces;
pub mod parameters;
pub mod record;
pub mod solana;
pub mod submission;

#[cfg(test)]
mod tests;

use std::cell::RefCell;

use annex_sdk::members::Members;
use annex_sdk::{
    Beginning, Content, Descriptor, Entry, Event, EventKind, EventKinds, Extension, Json, Message, Output, Patch,
    Place, Rejection, Request, Response, Rewrite, Ruling, StateChange, Transition, Verdict, json, log, task_metadata,
};
use serde_json::value::RawValue;

use crate::parameters::{PARAMETER_SCHEMA, Parameters, Settle};
use crate::record::{Record, Status};
use crate::submission::Submission;

/// The states after which a task does not continue.
const FINAL: [&str; 4] = ["TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED"];

/// The extension. The type has no data: each hook gets the parameters as an argument.
#[derive(Debug)]
pub struct X402;

/// The data that the hooks of one turn share. An instance serves one turn.
#[derive(Default)]
struct Turn {
    /// The client's part of the payment.
    submission: Submission,
    /// The parts of a message without a payment, a JSON array.
    request: Option<String>,
    /// The payment of the task.
    record: Option<Record>,
    /// The state that the metadata of the task has.
    told: Option<Status>,
}

thread_local! {
    static TURN: RefCell<Turn> = RefCell::default();
}

impl Extension for X402 {
    type Parameters = Parameters;
    const PARAMETER_SCHEMA: Option<&'static str> = Some(PARAMETER_SCHEMA);

    fn descriptor(parameters: &Parameters) -> Result<Descriptor, String> {
        parameters.check()?;
        let content = match parameters.settle {
            Settle::Before => EventKinds::empty(),
            Settle::After => EventKinds::ARTIFACT,
        };
        Ok(Descriptor {
            name: "x402".to_owned(),
            metadata_keys: keys::ALL.map(str::to_owned).to_vec(),
            grants: vec!["rewrite-message".to_owned()],
            events: EventKinds::MESSAGE | EventKinds::STATUS | content,
            ..Descriptor::new(parameters.uri(), "Lets tasks wait for a payment by x402.")
        })
    }
}

impl Message for X402 {
    fn check(_: &Parameters, _request: Request, message: Json) -> Result<Vec<Rewrite>, Rejection> {
        let submission = submission::read(&message)?;
        let parts = Members::of(&message).and_then(|message| message.get("parts")).unwrap_or("[]").to_owned();
        // The agent runs in the turn with the payment, and the request is in an earlier message.
        let rewrites = match submission {
            Submission::Payment(_) => repeated(&parts),
            Submission::None | Submission::Rejected => Vec::new(),
        };
        TURN.with_borrow_mut(|turn| {
            turn.request = Some(parts).filter(|_| submission == Submission::None);
            turn.submission = submission;
        });
        Ok(rewrites)
    }
}

impl Transition for X402 {
    fn begin(parameters: &Parameters, _request: Request, beginning: Beginning) -> Result<Entry, String> {
        TURN.with_borrow_mut(|turn| {
            let mut record = Record::load()?.unwrap_or_default();
            let entry = course::begin(parameters, &mut record, &beginning.task_id, &turn.submission);
            if let (Ok(Entry::Interrupt(_)), Some(parts)) = (&entry, &turn.request)
                && !record::keep_request(parts)?
            {
                log::info("the request is too large to be kept: the message with the payment must repeat it");
            }
            turn.record = Some(record);
            entry
        })
    }

    fn change(parameters: &Parameters, change: StateChange) -> Result<Ruling, String> {
        // An agent that answers without content is settled here.
        let settles = parameters.settle == Settle::After && change.next == "TASK_STATE_COMPLETED";
        match if settles { settle(parameters)? } else { Ok(()) } {
            Ok(()) => Ok(Ruling::Pass),
            Err(reason) => Ok(Ruling::Veto(reason)),
        }
    }
}

impl Output for X402 {
    fn revise(parameters: &Parameters, content: Content) -> Result<Verdict, String> {
        let Place::Status(state) = &content.place else {
            return match if parameters.settle == Settle::After { settle(parameters)? } else { Ok(()) } {
                Ok(()) => Ok(Verdict::Leave),
                Err(reason) => Ok(Verdict::Refuse(reason)),
            };
        };
        // The receipts are metadata of the final message, so there must be one.
        let is_silent = content.parts.trim() == "[]" && FINAL.contains(&state.as_str());
        let text = with_record(|record| match record.status {
            Status::Completed => "Payment successful.",
            Status::Required | Status::Rejected => "The task was not paid.",
            Status::Verified | Status::Settling => "The payment was not settled.",
            Status::Failed => "Payment failed.",
        })?;
        match text.filter(|_| is_silent) {
            Some(text) => Verdict::add(&content, vec![format!(r#"{{"text":{}}}"#, json::string(text))]),
            None => Ok(Verdict::Leave),
        }
    }
}

impl Response for X402 {
    fn respond(_: &Parameters, event: Event) -> Result<Option<Patch>, String> {
        if event.kind == EventKind::Artifact {
            return Ok(None);
        }
        let Some(entries) = with_record(Record::entries)? else { return Ok(None) };
        let entries = entries?;
        if event.kind == EventKind::Status {
            tell_task(&entries);
        }
        Ok(Some(Patch { metadata: entries }))
    }
}

/// Replaces the parts of a message by those of the request that was stored before.
fn repeated(parts: &str) -> Vec<Rewrite> {
    let request = record::request().unwrap_or_else(|error| {
        log::warn(&format!("the request cannot be read: {error}"));
        None
    });
    let list = |text: &str| serde_json::from_str::<Vec<Box<RawValue>>>(text).unwrap_or_default();
    let request: Vec<Json> =
        list(request.as_deref().unwrap_or("[]")).iter().map(|part| part.get().to_owned()).collect();
    if request.is_empty() {
        return Vec::new();
    }
    let mut rewrites: Vec<Rewrite> =
        (0..).zip(list(parts)).map(|(part, _)| Rewrite { part, replacement: Vec::new() }).collect();
    if let Some(first) = rewrites.first_mut() {
        first.replacement = request;
    }
    rewrites
}

/// Settles the payment of the task. The inner error is the reason for the client.
fn settle(parameters: &Parameters) -> Result<Result<(), String>, String> {
    load()?;
    Ok(TURN.with_borrow_mut(|turn| course::settle_pending(parameters, turn.record.get_or_insert_default())))
}

/// Calls `use_it` with the payment of the task. `None` if the task has no payment.
fn with_record<T>(use_it: impl FnOnce(&Record) -> T) -> Result<Option<T>, String> {
    load()?;
    Ok(TURN.with_borrow(|turn| turn.record.as_ref().map(use_it)))
}

/// Loads the payment of the task, unless the turn has it. A call of `CancelTask` has no `begin` before it.
fn load() -> Result<(), String> {
    TURN.with_borrow_mut(|turn| {
        if turn.record.is_none() {
            turn.record = Record::load()?;
        }
        Ok(())
    })
}

/// Sets the metadata of the task, if the state of its payment has changed.
fn tell_task(entries: &[(String, Json)]) {
    TURN.with_borrow_mut(|turn| {
        let status = turn.record.as_ref().map(|record| record.status);
        if turn.told == status {
            return;
        }
        turn.told = status;
        // An entry of the task stays, so the error of an earlier attempt is replaced.
        let has_error = entries.iter().any(|(key, _)| key == keys::ERROR);
        let has_failed = turn.record.as_ref().is_some_and(|record| record.receipts.iter().any(|one| !one.success));
        let cleared = (keys::ERROR.to_owned(), "null".to_owned());
        let cleared = Some(&cleared).filter(|_| has_failed && !has_error).into_iter();
        for (key, value) in entries.iter().chain(cleared) {
            if let Err(error) = task_metadata::set(key, value) {
                log::warn(&format!("the metadata of the task cannot be set: {error}"));
            }
        }
    });
}

annex_sdk::export!(X402: message, transition, output, response);
