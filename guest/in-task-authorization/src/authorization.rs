//! The course of a task: it waits, a verifier decides, and the task continues or ends.
//!
//! A call of a method belongs to no task, so it cannot use a task's keys. A decision is therefore stored among the
//! extension's own keys until its task resumes. Afterwards the task's own keys record the authorization.

use annex_sdk::keyvalue::Keys;
use annex_sdk::{Entry, Interruption, Json, Rejection, Violation, Waiting, json, tasks};
use serde::Deserialize;

use crate::parameters::{PLACEHOLDER, Parameters};
use crate::{decisions, state};

/// The method for a verifier's decision.
pub const APPROVE: &str = "in-task-authorization/approve";

/// The key that marks a task as authorized to run.
pub const AUTHORIZED: &str = "authorized";

/// JSON Schema of the method's parameters.
pub const PARAMS: &str = r#"{
  "type": "object",
  "properties": {
    "state": {"type": "string", "minLength": 1, "maxLength": 500, "description": "The state from the `request_uri`."},
    "token": {"type": "string", "minLength": 1, "maxLength": 500, "description": "The secret that only the verifier knows."},
    "approved": {"type": "boolean", "description": "Whether the task may go on; true."},
    "reason": {"type": "string", "minLength": 1, "maxLength": 500, "description": "Why not, for the client."}
  },
  "required": ["state", "token"],
  "additionalProperties": false
}"#;

/// JSON Schema of the method's result.
pub const RESULT: &str = r#"{
  "type": "object",
  "properties": {"taskId": {"type": "string"}},
  "required": ["taskId"],
  "additionalProperties": false
}"#;

/// The first byte of a stored decision that approves. A decision that refuses begins with `REFUSED`, followed by the
/// reason.
const APPROVED: &str = "+";
const REFUSED: &str = "-";
const DEFAULT_REASON: &str = "The authorization was refused.";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Verdict {
    state: String,
    token: String,
    #[serde(default = "yes")]
    approved: bool,
    reason: Option<String>,
}

fn yes() -> bool {
    true
}

/// Decides whether a task may run now. A task without a decision waits, even if the client sends a further message.
///
/// # Errors
/// The host's store is not available.
pub fn begin(parameters: &Parameters, task_id: &str) -> Result<Entry, String> {
    // An authorized task runs in all its turns, and its decision is already removed.
    if Keys::of_task()?.get(AUTHORIZED)?.is_some() {
        return Ok(Entry::Proceed);
    }
    let Some(decision) = decisions::of_task(task_id)? else {
        return Ok(Entry::Interrupt(wait(parameters, &state::of_task(&parameters.secret()?, task_id))));
    };
    let entry = if let Some(reason) = decision.strip_prefix(REFUSED) {
        Entry::Veto(reason.to_owned())
    } else {
        // The decision is forgotten only after this, so that a failure in between does not lose it.
        Keys::of_task()?.set(AUTHORIZED, b"1")?;
        Entry::Proceed
    };
    decisions::forget(task_id)?;
    Ok(entry)
}

fn wait(parameters: &Parameters, state: &str) -> Interruption {
    // The state is computed from the task's id, so a task that keeps waiting has the same request.
    let request_uri = parameters.request_uri.replace(PLACEHOLDER, state);
    let client_id = json::string(&parameters.client_id);
    let request_uri = json::string(&request_uri);
    let request = format!(r#"{{"authorizationRequest":{{"client_id":{client_id},"request_uri":{request_uri}}}}}"#);
    Interruption {
        waiting: Waiting::Authorization,
        text: parameters.text.clone(),
        metadata: vec![(parameters.uri.clone(), request)],
    }
}

/// Stores the decision of a verifier, and resumes the task.
///
/// # Errors
/// The token or the state is wrong, or the task does not wait.
pub fn approve(parameters: &Parameters, params: &str) -> Result<Json, Rejection> {
    let refusal = |pointer: &str, message: String| Rejection::from(Violation::new(pointer, message));
    let verdict: Verdict =
        serde_json::from_str(params).map_err(|error| refusal("", format!("cannot be read: {error}")))?;
    let secret = parameters.secret().map_err(|error| refusal("", error))?;
    // The token is checked first, so that a caller without the token learns nothing about states.
    if !state::is_secret(&secret, &verdict.token) {
        return Err(refusal("/token", "is not the verifier's token".to_owned()));
    }
    let Some(task_id) = state::task_of(&secret, &verdict.state) else {
        return Err(refusal("/state", "does not belong to a task".to_owned()));
    };
    let reason = verdict.reason.unwrap_or_else(|| DEFAULT_REASON.to_owned());
    let decision = if verdict.approved { APPROVED.to_owned() } else { format!("{REFUSED}{reason}") };
    // Stored before the task resumes, because its turn reads the decision.
    let kept = decisions::keep(task_id, &decision).map_err(|error| refusal("", format!("cannot be kept: {error}")))?;
    if let Err(error) = tasks::resume(task_id) {
        // A later turn of the task must not find a decision that was refused to the verifier.
        let _ = Keys::open().and_then(|keys| keys.delete(&kept));
        return Err(refusal("/state", format!("does not belong to a waiting task: {error}")));
    }
    Ok(format!(r#"{{"taskId":{}}}"#, json::string(task_id)))
}

#[cfg(test)]
mod tests {
    use annex_sdk::testing::{self, Bucket, Host};
    use annex_sdk::{Answer, Beginning};

    use super::*;
    use crate::InTaskAuthorization;
    use crate::decisions::MAX_KEPT;
    use crate::parameters::DEFAULT_URI;

    const SECRET: &str = "0123456789abcdef";

    /// A host with one waiting task, `t-1`.
    fn host() -> Host {
        Host::new()
            .parameters(r#"{"client_id": "v", "request_uri": "https://v.example/r?state={state}"}"#)
            .secret("VERIFIER_SECRET", SECRET)
            .waiting(["t-1"])
    }

    /// Begins a turn of the task `t-1`.
    fn begin(host: &Host) -> Result<Entry, String> {
        let beginning = Beginning { task_id: "t-1".to_owned(), ..testing::beginning() };
        host.begin::<InTaskAuthorization>(testing::request(), beginning)
    }

    fn approve(host: &Host, params: &str) -> Result<Answer, Rejection> {
        host.call::<InTaskAuthorization>(testing::request(), APPROVE, params)
    }

    /// Begins a turn that must interrupt the task. Returns the state in the message to the client.
    fn interrupted(host: &Host) -> String {
        let Ok(Entry::Interrupt(interruption)) = begin(host) else { panic!("no interruption") };
        assert_eq!(interruption.waiting, Waiting::Authorization);
        let (key, value) = &interruption.metadata[0];
        assert_eq!(key, DEFAULT_URI);
        let value: serde_json::Value = serde_json::from_str(value).unwrap();
        assert_eq!(value["authorizationRequest"]["client_id"], "v");
        value["authorizationRequest"]["request_uri"].as_str().unwrap().rsplit_once('=').unwrap().1.to_owned()
    }

    /// The keys of the stored decisions.
    fn decided(host: &Host) -> Vec<String> {
        let mut keys = host.keys(Bucket::Lasting);
        keys.retain(|key| key.contains(' '));
        keys
    }

    fn verdict(state: &str, more: &str) -> String {
        format!(r#"{{"state": "{state}", "token": "{SECRET}"{more}}}"#)
    }

    fn refused(host: &Host, params: &str) -> String {
        match approve(host, params) {
            Err(Rejection::Violations(violations)) => violations[0].pointer.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_task_waits_until_it_is_approved_and_runs_from_then_on() {
        let host = host();
        let state = interrupted(&host);
        assert_eq!(interrupted(&host), state, "a message alone lets it wait on");
        assert_eq!(approve(&host, &verdict(&state, "")), Ok(Answer::Value(r#"{"taskId":"t-1"}"#.to_owned())));
        assert_eq!(host.resumed(), ["t-1"]);
        for _ in 0..2 {
            assert_eq!(begin(&host), Ok(Entry::Proceed));
        }
        assert!(decided(&host).is_empty());
    }

    #[test]
    fn decisions_on_tasks_that_are_never_taken_up_do_not_use_up_the_keys() {
        let ids: Vec<String> = (0..5 * MAX_KEPT).map(|number| format!("t-{number}")).collect();
        let host = host().waiting(&ids);
        let more = format!(r#", "approved": false, "reason": "{}""#, "é".repeat(500));
        for id in &ids {
            approve(&host, &verdict(&state::of_task(SECRET, id), &more)).unwrap();
            assert!(decided(&host).len() <= MAX_KEPT);
        }
        let bytes = |key: &String| key.len() + host.value(Bucket::Lasting, key).unwrap().len();
        assert!(decided(&host).iter().map(bytes).sum::<usize>() <= 1 << 19, "half of what the grant usually allows");
        let is_kept = |number: usize| host.run(|| decisions::of_task(&ids[number])).unwrap().is_some();
        assert!(is_kept(4 * MAX_KEPT) && is_kept(5 * MAX_KEPT - 1), "the latest are kept");
        assert!(!is_kept(4 * MAX_KEPT - 1), "older ones make room");
    }

    #[test]
    fn a_second_verdict_on_a_task_that_goes_on_leaves_the_first() {
        let host = host();
        let state = interrupted(&host);
        approve(&host, &verdict(&state, "")).unwrap();
        assert_eq!(refused(&host, &verdict(&state, r#", "approved": false"#)), "/state");
        assert_eq!(begin(&host), Ok(Entry::Proceed));
    }

    #[test]
    fn a_task_that_is_refused_ends_with_the_reason() {
        for (more, reason) in [
            (r#", "approved": false, "reason": "Too young.""#, "Too young."),
            (r#", "approved": false"#, DEFAULT_REASON),
        ] {
            let host = host();
            let state = interrupted(&host);
            approve(&host, &verdict(&state, more)).unwrap();
            assert_eq!(begin(&host), Ok(Entry::Veto(reason.to_owned())));
        }
    }

    #[test]
    fn nobody_but_the_verifier_decides_and_only_on_tasks_that_wait() {
        let host = host();
        let state = interrupted(&host);
        assert_eq!(refused(&host, &verdict(&state, "").replace(SECRET, "guess")), "/token");
        assert_eq!(refused(&host, &verdict("t-1.AAAA", "")), "/state");
        let host = host.waiting(["t-2"]);
        assert_eq!(refused(&host, &verdict(&state, "")), "/state");
        assert!(decided(&host).is_empty() && host.resumed().is_empty());
    }

    #[test]
    fn nothing_is_decided_while_the_store_does_not_work() {
        let host = host().failing(Bucket::Lasting, "out of reach");
        assert_eq!(begin(&host), Err("out of reach".to_owned()));
        assert_eq!(refused(&host, &verdict(&state::of_task(SECRET, "t-1"), "")), "");
        assert!(host.resumed().is_empty());
    }

    #[test]
    fn a_secret_that_is_missing_or_short_stops_the_load() {
        assert!(host().descriptor::<InTaskAuthorization>().is_ok());
        let error = host().secret("VERIFIER_SECRET", "tiny").descriptor::<InTaskAuthorization>().unwrap_err();
        assert!(error.contains("16 bytes") && !error.contains("tiny"), "{error}");
    }
}
