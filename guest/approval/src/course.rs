//! The course of a call and of a result: they wait, people decide, and they are released once.

use annex_sdk::keyvalue::Keys;
use annex_sdk::{
    Json, Outcome, Presence, ReadyAnswer, Rejection, StateChange, ToolCall, Violation, caller, clock, json, log, tasks,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::decisions::{self, Choice, Decision, State};
use crate::digest;
use crate::parameters::Parameters;
use crate::record::{self, Action, Record};
use crate::wire::{self, Subject};

/// The method for a decision.
pub const DECIDE: &str = "approval.decide";

/// JSON Schema of the method's parameters.
pub const PARAMS: &str = r#"{
  "type": "object",
  "properties": {
    "task": {"type": "string", "minLength": 1, "maxLength": 500, "description": "The task that waits."},
    "call": {"type": "string", "minLength": 1, "maxLength": 500, "description": "The call, as the task shows it."},
    "digest": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "The digest, as the task shows it."},
    "decision": {"enum": ["approve", "reject"]}
  },
  "required": ["task", "digest", "decision"],
  "additionalProperties": false
}"#;

/// JSON Schema of the method's result.
pub const RESULT: &str = r#"{
  "type": "object",
  "properties": {
    "task": {"type": "string"},
    "call": {"type": "string"},
    "approved": {"type": "integer", "description": "The approvals so far."},
    "quorum": {"type": "integer", "description": "The approvals that are needed."},
    "resumed": {"type": "boolean", "description": "Whether the task goes on now."}
  },
  "required": ["task", "call", "approved", "quorum", "resumed"],
  "additionalProperties": false
}"#;

/// The key in the bucket of the task that counts its results.
const RESULTS: &str = "results";
/// The key in the bucket of the task that has the id of the result that waits.
const WAITING_RESULT: &str = "waiting-result";

/// Why nothing more can wait for an approval.
pub const FULL: &str = "too many requests for an approval are stored now";

/// The outcome for a call of a tool.
pub enum Fate {
    /// The call is made.
    Made,
    /// The call is not made. The model gets the text.
    Denied(String),
    /// The task waits: the text and the metadata for the client.
    Waits(String, Vec<(String, Json)>),
}

/// Decides about a call of a tool. `is_first` is true if no call of the turn waits so far. The client sees only the first
/// call that waits, so only the first one gets a request. The host asks about the others again in a later turn.
///
/// # Errors
/// The store is not available. The turn fails, and the call is not made.
pub fn before_call(parameters: &Parameters, task: &str, call: &ToolCall, is_first: bool) -> Result<Fate, String> {
    match course_of(parameters, task, call, is_first) {
        // An error would count against the extension, and one client could have it switched off for all.
        Err(error) if record::is_full(&error) => {
            log::info(&format!("a call is denied: {error}"));
            Ok(denied(FULL))
        }
        fate => fate,
    }
}

fn denied(reason: &str) -> Fate {
    Fate::Denied(format!("The call was not made: {reason}."))
}

fn course_of(parameters: &Parameters, task: &str, call: &ToolCall, is_first: bool) -> Result<Fate, String> {
    let denied = |reason: &str| Ok(denied(reason));
    if !digest::keeps_numbers(&call.arguments) {
        return denied("its arguments have a number that cannot be shown as it is. Use fewer digits");
    }
    let input: Value =
        serde_json::from_str(&call.arguments).map_err(|error| format!("arguments cannot be read: {error}"))?;
    let digest = digest::of_call(&call.name, &input);
    let record = if call.has_waited {
        let Some(record) = Record::load(task, &call.id)? else {
            return denied("the request for its approval is no longer stored");
        };
        if record.digest != digest {
            return denied("its arguments are not those that were shown");
        }
        record
    } else {
        let mut record = new(parameters, task, call.id.clone(), Action::ToolCall, digest)?;
        if is_first {
            record.open(clock::now_seconds())?;
        }
        record
    };
    let state = if call.has_waited { decisions::release(parameters, &record)? } else { State::Open };
    if state != State::Open {
        record.close()?;
    }
    match state {
        State::Open => {
            if is_first && call.has_waited {
                record.wait()?;
            }
            let subject = Subject::Call { name: &call.name, origin: &call.origin, input: &input };
            let (text, metadata) = wire::request(parameters, &record, &subject)?;
            Ok(Fate::Waits(text, metadata))
        }
        State::Released => Ok(Fate::Made),
        State::Rejected => denied("it was rejected"),
        State::Expired => denied("its approval has expired"),
        State::Used => denied("its approval was used before"),
    }
}

fn new(parameters: &Parameters, task: &str, call: String, action: Action, digest: String) -> Result<Record, String> {
    let caller = caller::current()?;
    if caller.presence == Presence::Authenticated && caller.principal.is_none() {
        return Err("an approval needs the caller's principal: grant caller = { principal = true }".to_owned());
    }
    let until = clock::now_seconds().saturating_add(parameters.seconds);
    Ok(Record {
        task: task.to_owned(),
        call,
        action,
        digest,
        until,
        owner: caller.principal,
        parts: None,
        replaced: None,
    })
}

/// Asks for the acceptance of a result, in place of the end of the task.
///
/// # Errors
/// The store is not available. The turn fails.
pub fn ask_for_acceptance(
    parameters: &Parameters,
    change: &StateChange,
) -> Result<(String, Vec<(String, Json)>), String> {
    let message: Value = change.message.as_deref().map_or(Ok(Value::Null), serde_json::from_str).unwrap_or_default();
    let parts = message.get("parts").cloned().unwrap_or_else(|| json!([]));
    let keys = Keys::of_task()?;
    let call = format!("result-{}", keys.increment(RESULTS, 1)?);
    let digest = digest::of_result(&change.task_id, &json!([call, parts]));
    let record = new(parameters, &change.task_id, call, Action::Acceptance, digest)?;
    let mut record = Record { parts: Some(parts), ..record };
    record.open(clock::now_seconds())?;
    keys.set(WAITING_RESULT, record.call.as_bytes())?;
    wire::request(parameters, &record, &Subject::Result)
}

/// The answer in place of the agent, if the message decides about the result for whose acceptance the task waits. Without
/// an answer the agent runs: a message without a decision is for the agent, and its next result needs an acceptance too.
///
/// # Errors
/// The store is not available. The request is refused.
pub fn answer(parameters: &Parameters, task: &str) -> Result<Option<ReadyAnswer>, String> {
    let keys = Keys::of_task()?;
    let Some(call) = keys.get(WAITING_RESULT)? else { return Ok(None) };
    let Some(record) = Record::load(task, &String::from_utf8_lossy(&call))? else { return Ok(None) };
    let state = decisions::release(parameters, &record)?;
    let plain = |outcome, text: &str| ReadyAnswer {
        outcome,
        parts: vec![format!(r#"{{"text":{}}}"#, json::string(text))],
        artifact: None,
        metadata: Vec::new(),
    };
    let answer = match state {
        State::Released => {
            let parts: Vec<Json> = match &record.parts {
                Some(Value::Array(parts)) => parts.iter().map(Value::to_string).collect(),
                _ => Vec::new(),
            };
            let answer = plain(Outcome::Completed, "The result was accepted.");
            Some(if parts.is_empty() { answer } else { ReadyAnswer { parts, ..answer } })
        }
        State::Rejected => Some(plain(Outcome::Rejected, "The result was not accepted.")),
        // Some have approved, and more must: the message is theirs and not the agent's.
        State::Open if record.approvals()? > 0 => {
            let (text, metadata) = wire::request(parameters, &record, &Subject::Result)?;
            return Ok(Some(ReadyAnswer { metadata, ..plain(Outcome::InputRequired, &text) }));
        }
        State::Open | State::Expired | State::Used => None,
    };
    record.close()?;
    keys.delete(WAITING_RESULT)?;
    Ok(answer)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Params {
    task: String,
    call: Option<String>,
    digest: String,
    decision: Choice,
}

/// Counts a decision. Resumes the task if the decision settles the request for which the task waits.
///
/// # Errors
/// The decision does not count. The violations name the places in the parameters.
pub fn decide(parameters: &Parameters, params: &str) -> Result<Json, Rejection> {
    let refuse = |pointer: &str, reason: String| Rejection::from(Violation::new(pointer, reason));
    let store = |reason: String| refuse("", format!("cannot be counted: {reason}"));
    let Params { task, call, digest, decision } =
        serde_json::from_str(params).map_err(|error| refuse("", format!("cannot be read: {error}")))?;
    let caller = caller::current().map_err(store)?;
    // Agentstack's wire shows no id of the call. The digest binds the decision all the same.
    let call = match call {
        Some(call) => call,
        None => Record::waiting(&task).map_err(store)?.map(|record| record.call).unwrap_or_default(),
    };
    let decided = Decision { about: Some((call, digest)), choice: decision };
    let (record, approved) = match decisions::cast(parameters, &caller, &task, &decided).map_err(store)? {
        Ok(counted) => counted,
        Err(fault) => {
            let pointer = fault.member.map(|member| format!("/{member}")).unwrap_or_default();
            return Err(refuse(&pointer, fault.reason));
        }
    };
    let is_settled = decision == Choice::Reject || approved >= parameters.quorum;
    // The decision counts in any case: another message may have taken the task up at this moment.
    let resumed = is_settled
        && tasks::resume(&task)
            .inspect_err(|error| log::info(&format!("a task that was decided about is not resumed: {error}")))
            .is_ok();
    log::info(&format!(
        "{} {} of task {task} at {}",
        caller.principal.as_deref().unwrap_or("an anonymous caller"),
        if decision == Choice::Approve { "approves" } else { "rejects" },
        clock::now()
    ));
    let quorum = parameters.quorum;
    let result = json!({"task": task, "call": record.call, "approved": approved, "quorum": quorum, "resumed": resumed});
    json::text(&result).map_err(store)
}
