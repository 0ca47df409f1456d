//! The course of a task: it waits, a verifier decides, it goes on or ends.
//!
//! A decision is kept among the extension's own keys until the task is taken up, because a method has no task of its own.
//! From then on the task's own keys say that it is authorized.

use annex_sdk::{Entry, Interruption, Json, Rejection, Violation, Waiting, json};
use serde::Deserialize;

use crate::parameters::{PLACEHOLDER, Parameters};
use crate::{decisions, state};

/// The method by which a verifier says what it has decided.
pub const APPROVE: &str = "in-task-authorization/approve";

/// The key of a task that may run.
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

/// A decision is this, or the other and the reason.
const APPROVED: &str = "+";
const REFUSED: &str = "-";
const DEFAULT_REASON: &str = "The authorization was refused.";

/// The functions of the host that the decisions need.
pub trait Host {
    /// A secret by its name.
    fn secret(&self, name: &str) -> Result<Option<String>, String>;
    /// True if the turn's task has been authorized before.
    fn is_authorized(&self) -> Result<bool, String>;
    /// Remembers that the turn's task is authorized.
    fn authorize(&self) -> Result<(), String>;
    /// All keys that outlive tasks, in the order of their bytes.
    fn keys(&self) -> Result<Vec<String>, String>;
    /// The value of such a key.
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, String>;
    /// Sets such a key.
    fn set(&self, key: &str, value: &[u8]) -> Result<(), String>;
    /// Removes such a key, if it is there.
    fn delete(&self, key: &str) -> Result<(), String>;
    /// Adds one to such a key, which begins at 0, and returns what it is then.
    fn increment(&self, key: &str) -> Result<u64, String>;
    /// Takes up a task that waits.
    fn resume(&self, task_id: &str) -> Result<(), String>;
}

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

/// Decides whether a task may run now. A message to a task that waits changes nothing.
///
/// # Errors
/// The host's stores do not work now.
pub fn begin(parameters: &Parameters, task_id: &str, host: &impl Host) -> Result<Entry, String> {
    // A task that was authorized once runs over all its turns, and its decision is gone by then.
    if host.is_authorized()? {
        return Ok(Entry::Proceed);
    }
    let Some(decision) = decisions::of_task(task_id, host)? else {
        return Ok(Entry::Interrupt(wait(parameters, &state::of_task(&parameters.secret(host)?, task_id))));
    };
    let entry = if let Some(reason) = decision.strip_prefix(REFUSED) {
        Entry::Veto(reason.to_owned())
    } else {
        // The decision is forgotten only after this, so that a failure in between does not lose it.
        host.authorize()?;
        Entry::Proceed
    };
    decisions::forget(task_id, host)?;
    Ok(entry)
}

fn wait(parameters: &Parameters, state: &str) -> Interruption {
    // The state follows from the task's id, so a task that waits on is told the same request.
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

/// Keeps the decision of a verifier, and takes the task up again.
///
/// # Errors
/// The token or the state is wrong, or no task waits.
pub fn approve(parameters: &Parameters, params: &str, host: &impl Host) -> Result<Json, Rejection> {
    let refusal = |pointer: &str, message: String| Rejection::from(Violation::new(pointer, message));
    let verdict: Verdict =
        serde_json::from_str(params).map_err(|error| refusal("", format!("cannot be read: {error}")))?;
    let secret = parameters.secret(host).map_err(|error| refusal("", error))?;
    // The token comes first: a caller without it learns nothing of states.
    if !state::is_secret(&secret, &verdict.token) {
        return Err(refusal("/token", "is not the verifier's".to_owned()));
    }
    let Some(task_id) = state::task_of(&secret, &verdict.state) else {
        return Err(refusal("/state", "stands for no task".to_owned()));
    };
    let reason = verdict.reason.unwrap_or_else(|| DEFAULT_REASON.to_owned());
    let decision = if verdict.approved { APPROVED.to_owned() } else { format!("{REFUSED}{reason}") };
    // Kept before the task is taken up, because its turn looks for the decision.
    let kept =
        decisions::keep(task_id, &decision, host).map_err(|error| refusal("", format!("cannot be kept: {error}")))?;
    if let Err(error) = host.resume(task_id) {
        // A later turn of the task must not find a decision that the verifier was told does not count.
        let _ = host.delete(&kept);
        return Err(refusal("/state", format!("stands for no task that waits: {error}")));
    }
    Ok(format!(r#"{{"taskId":{}}}"#, json::string(task_id)))
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeMap;

    use super::*;
    use crate::decisions::MAX_KEPT;

    const SECRET: &str = "0123456789abcdef";

    /// A host with one task, `t-1`, whose keys are within the grant's usual bounds.
    #[derive(Default)]
    struct FakeHost {
        authorized: Cell<bool>,
        keys: RefCell<BTreeMap<String, Vec<u8>>>,
        resumed: RefCell<Vec<String>>,
        waits: Cell<bool>,
    }

    impl Host for FakeHost {
        fn secret(&self, name: &str) -> Result<Option<String>, String> {
            Ok((name == "VERIFIER_SECRET").then(|| SECRET.to_owned()))
        }

        fn is_authorized(&self) -> Result<bool, String> {
            Ok(self.authorized.get())
        }

        fn authorize(&self) -> Result<(), String> {
            self.authorized.set(true);
            Ok(())
        }

        fn keys(&self) -> Result<Vec<String>, String> {
            Ok(self.keys.borrow().keys().cloned().collect())
        }

        fn get(&self, key: &str) -> Result<Option<Vec<u8>>, String> {
            Ok(self.keys.borrow().get(key).cloned())
        }

        fn set(&self, key: &str, value: &[u8]) -> Result<(), String> {
            let mut keys = self.keys.borrow_mut();
            keys.insert(key.to_owned(), value.to_vec());
            let bytes: usize = keys.iter().map(|(key, value)| key.len() + value.len()).sum();
            if keys.len() > 1_000 || bytes > 1 << 20 { Err("the keys are used up".to_owned()) } else { Ok(()) }
        }

        fn delete(&self, key: &str) -> Result<(), String> {
            self.keys.borrow_mut().remove(key);
            Ok(())
        }

        fn increment(&self, key: &str) -> Result<u64, String> {
            let number = self.get(key)?.map_or(0, |text| String::from_utf8(text).unwrap().parse().unwrap()) + 1;
            self.set(key, number.to_string().as_bytes())?;
            Ok(number)
        }

        fn resume(&self, task_id: &str) -> Result<(), String> {
            if !self.waits.replace(false) {
                return Err("there is no such task".to_owned());
            }
            self.resumed.borrow_mut().push(task_id.to_owned());
            Ok(())
        }
    }

    fn parameters() -> Parameters {
        serde_json::from_str(r#"{"client_id": "v", "request_uri": "https://v.example/r?state={state}"}"#).unwrap()
    }

    /// The state that the client of a new task is told.
    fn interrupted(host: &FakeHost) -> String {
        let Ok(Entry::Interrupt(interruption)) = begin(&parameters(), "t-1", host) else { panic!("no interruption") };
        assert_eq!(interruption.waiting, Waiting::Authorization);
        let (key, value) = &interruption.metadata[0];
        assert_eq!(key, crate::parameters::DEFAULT_URI);
        let value: serde_json::Value = serde_json::from_str(value).unwrap();
        assert_eq!(value["authorizationRequest"]["client_id"], "v");
        host.waits.set(true);
        value["authorizationRequest"]["request_uri"].as_str().unwrap().rsplit_once('=').unwrap().1.to_owned()
    }

    /// The number of decisions that are kept.
    fn decided(host: &FakeHost) -> usize {
        host.keys.borrow().keys().filter(|key| key.contains(' ')).count()
    }

    fn verdict(state: &str, more: &str) -> String {
        format!(r#"{{"state": "{state}", "token": "{SECRET}"{more}}}"#)
    }

    fn refused(host: &FakeHost, params: &str) -> String {
        match approve(&parameters(), params, host) {
            Err(Rejection::Violations(violations)) => violations[0].pointer.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_task_waits_until_it_is_approved_and_runs_from_then_on() {
        let host = FakeHost::default();
        let state = interrupted(&host);
        assert_eq!(interrupted(&host), state, "a message alone lets it wait on");
        assert_eq!(approve(&parameters(), &verdict(&state, ""), &host), Ok(r#"{"taskId":"t-1"}"#.to_owned()));
        assert_eq!(*host.resumed.borrow(), ["t-1"]);
        for _ in 0..2 {
            assert_eq!(begin(&parameters(), "t-1", &host), Ok(Entry::Proceed));
        }
        assert_eq!(decided(&host), 0);
    }

    #[test]
    fn decisions_on_tasks_that_are_never_taken_up_do_not_use_up_the_keys() {
        let host = FakeHost::default();
        let more = format!(r#", "approved": false, "reason": "{}""#, "é".repeat(500));
        for number in 0..5 * MAX_KEPT {
            host.waits.set(true);
            let state = state::of_task(SECRET, &format!("t-{number}"));
            approve(&parameters(), &verdict(&state, &more), &host).unwrap();
            assert!(decided(&host) <= MAX_KEPT);
        }
        let is_kept = |number: usize| decisions::of_task(&format!("t-{number}"), &host).unwrap().is_some();
        assert!(is_kept(4 * MAX_KEPT) && is_kept(5 * MAX_KEPT - 1), "the latest are kept");
        assert!(!is_kept(4 * MAX_KEPT - 1), "older ones make room");
    }

    #[test]
    fn a_second_verdict_on_a_task_that_goes_on_leaves_the_first() {
        let host = FakeHost::default();
        let state = interrupted(&host);
        approve(&parameters(), &verdict(&state, ""), &host).unwrap();
        assert_eq!(refused(&host, &verdict(&state, r#", "approved": false"#)), "/state");
        assert_eq!(begin(&parameters(), "t-1", &host), Ok(Entry::Proceed));
    }

    #[test]
    fn a_task_that_is_refused_ends_with_the_reason() {
        for (more, reason) in [
            (r#", "approved": false, "reason": "Too young.""#, "Too young."),
            (r#", "approved": false"#, DEFAULT_REASON),
        ] {
            let host = FakeHost::default();
            let state = interrupted(&host);
            approve(&parameters(), &verdict(&state, more), &host).unwrap();
            assert_eq!(begin(&parameters(), "t-1", &host), Ok(Entry::Veto(reason.to_owned())));
        }
    }

    #[test]
    fn nobody_but_the_verifier_decides_and_only_on_tasks_that_wait() {
        let host = FakeHost::default();
        let state = interrupted(&host);
        assert_eq!(refused(&host, &verdict(&state, "").replace(SECRET, "guess")), "/token");
        assert_eq!(refused(&host, &verdict("t-1.AAAA", "")), "/state");
        host.waits.set(false);
        assert_eq!(refused(&host, &verdict(&state, "")), "/state");
        assert!(decided(&host) == 0 && host.resumed.borrow().is_empty());
    }
}
