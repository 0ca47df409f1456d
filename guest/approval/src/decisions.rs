//! Checks and counts the decisions of approvers.

use annex_sdk::{Identity, clock};
use serde::Deserialize;

use crate::parameters::Parameters;
use crate::record::Record;

/// The choice of an approver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    /// Yes.
    Approve,
    /// No.
    Reject,
}

/// A decision about a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The id of the call, and the digest that the approver saw. `None` with the wire of agentstack: its decisions name no
    /// call, and apply to the request for which the task waits.
    pub about: Option<(String, String)>,
    /// The choice.
    pub choice: Choice,
}

/// The reason for which a decision does not count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The member that is wrong: `call`, `digest` or `task`. None for the whole decision.
    pub member: Option<&'static str>,
    /// A fragment of a sentence.
    pub reason: String,
}

impl Fault {
    fn of(member: &'static str, reason: impl Into<String>) -> Self {
        Self { member: Some(member), reason: reason.into() }
    }

    fn whole(reason: impl Into<String>) -> Self {
        Self { member: None, reason: reason.into() }
    }
}

/// Checks a decision about a task. Returns the request to which the decision applies.
///
/// # Errors
/// The outer error says that the store is not available. The inner error says why the decision does not count.
pub fn check(
    parameters: &Parameters,
    caller: &Identity,
    task: &str,
    decision: &Decision,
) -> Result<Result<Record, Fault>, String> {
    // Before anything is looked up, so that a stranger learns nothing about tasks.
    if parameters.refuses(caller) {
        return Ok(Err(stranger()));
    }
    let waiting = Record::waiting(task)?;
    let record = match &decision.about {
        Some((call, _)) => Record::load(task, call)?,
        None => waiting.clone(),
    };
    let Some(record) = record else {
        return Ok(Err(match (&waiting, &decision.about) {
            (Some(waiting), Some(_)) if parameters.allows(caller, waiting.owner.as_deref()) => {
                Fault::of("call", "is not a call of this task that waits for an approval")
            }
            _ => nothing_waits(),
        }));
    };
    // Whoever does not own the task must not learn that it waits.
    if !parameters.allows(caller, record.owner.as_deref()) {
        return Ok(Err(nothing_waits()));
    }
    let is_waiting = waiting.is_some_and(|waiting| waiting.call == record.call);
    Ok(match fault(&record, decision, caller, is_waiting)? {
        Some(fault) => Err(fault),
        None => Ok(record),
    })
}

fn nothing_waits() -> Fault {
    Fault::of("task", "has nothing that waits for a decision of this caller")
}

fn stranger() -> Fault {
    Fault::whole("comes from a caller who may not decide about this task")
}

fn fault(record: &Record, decision: &Decision, caller: &Identity, is_waiting: bool) -> Result<Option<Fault>, String> {
    if decision.about.as_ref().is_some_and(|(_, digest)| *digest != record.digest) {
        return Ok(Some(Fault::of("digest", "is not the digest of this call: decide about what the task shows")));
    }
    if record.is_released()? {
        return Ok(Some(released()));
    }
    if record.is_rejected()? {
        return Ok(Some(Fault::of("call", "was rejected before")));
    }
    if record.is_expired(clock::now_seconds()) {
        let until = clock::text(record.until.saturating_mul(1_000));
        return Ok(Some(Fault::whole(format!("is too late: the request expired at {until}"))));
    }
    if record.has_vote(caller.principal.as_deref())? {
        return Ok(Some(already()));
    }
    if !is_waiting {
        return Ok(Some(Fault::of("call", "is not what the task waits for now")));
    }
    Ok(None)
}

fn released() -> Fault {
    Fault::of("call", "was approved and released before")
}

fn already() -> Fault {
    Fault::whole("is the second one of this caller: each approver decides once")
}

/// Checks a decision and counts it. Returns the request and the number of approvals.
///
/// # Errors
/// As for [`check`].
pub fn cast(
    parameters: &Parameters,
    caller: &Identity,
    task: &str,
    decision: &Decision,
) -> Result<Result<(Record, u64), Fault>, String> {
    let record = match check(parameters, caller, task, decision)? {
        Ok(record) => record,
        Err(fault) => return Ok(Err(fault)),
    };
    let Some(approvals) = record.cast(caller.principal.as_deref(), decision.choice == Choice::Approve)? else {
        return Ok(Err(already()));
    };
    // Between the check and here, others may have approved and the call may have been released without this decision.
    let is_needed = decision.choice == Choice::Approve && approvals <= parameters.quorum;
    if !is_needed && record.is_released()? {
        return Ok(Err(released()));
    }
    Ok(Ok((record, approvals)))
}

/// The state of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Too few have decided.
    Open,
    /// An approver has rejected the request.
    Rejected,
    /// The time for the decision, and for the use of the approval, is over.
    Expired,
    /// Enough approvers have approved the request. The caller that gets this value uses the approval.
    Released,
    /// The approval was used before.
    Used,
}

/// Uses the approval of a request, if there is one.
///
/// # Errors
/// The store is not available. The call must not be made.
pub fn release(parameters: &Parameters, record: &Record) -> Result<State, String> {
    if record.is_rejected()? {
        return Ok(State::Rejected);
    }
    if record.is_expired(clock::now_seconds()) {
        return Ok(State::Expired);
    }
    if record.approvals()? < parameters.quorum {
        return Ok(State::Open);
    }
    if !record.release()? {
        return Ok(State::Used);
    }
    // A rejection is counted first and looks for the release then. Here the order is the other one, so that of a
    // rejection and a release at once at least one sees the other.
    Ok(if record.is_rejected()? { State::Rejected } else { State::Released })
}
