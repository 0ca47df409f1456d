//! Compares a task with a search.

use annex_sdk::{Json, clock, json};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// A task from ListTasks. Fields that are not searched are not parsed.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Task<'a> {
    id: String,
    #[serde(default)]
    context_id: String,
    #[serde(borrow)]
    status: &'a RawValue,
    #[serde(borrow)]
    history: Option<&'a RawValue>,
    #[serde(borrow)]
    artifacts: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct Status<'a> {
    state: String,
    timestamp: Option<String>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct Message {
    #[serde(default)]
    parts: Vec<Part>,
}

#[derive(Debug, Deserialize)]
struct Artifact {
    name: Option<String>,
    #[serde(default)]
    parts: Vec<Part>,
}

#[derive(Debug, Deserialize)]
struct Part {
    text: Option<String>,
}

/// The conditions of a search. A missing condition is always met.
#[derive(Debug, Default)]
pub struct SearchConditions {
    /// The searched text, in lower case.
    pub query: Option<String>,
    /// The name of the state that the task must have, such as `TASK_STATE_COMPLETED`.
    pub state: Option<String>,
    /// The earliest time that the status may have, in milliseconds since 1970-01-01T00:00:00Z.
    pub from: Option<u64>,
    /// The status must have a time before this one, in milliseconds since 1970-01-01T00:00:00Z.
    pub to: Option<u64>,
}

/// The result of comparing a task with a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// The task meets all conditions.
    Yes,
    /// The task does not meet all conditions.
    No,
    /// The task is too old, and so are all following tasks.
    TooOld,
}

impl SearchConditions {
    /// Compares a task with the conditions.
    pub fn fit(&self, task: &Task<'_>) -> Fit {
        let Ok(status) = serde_json::from_str::<Status<'_>>(task.status.get()) else { return Fit::No };
        let time = status.timestamp.as_deref().and_then(clock::parse);
        // ListTasks gives the task first whose status changed last (A2A 1.0, section 3.1.4), so all that follow are
        // older.
        if let (Some(from), Some(time)) = (self.from, time)
            && time < from
        {
            return Fit::TooOld;
        }
        // A status without a time lies in no range.
        let in_time =
            self.to.is_none_or(|to| time.is_some_and(|time| time < to)) && self.from.is_none_or(|_| time.is_some());
        let in_state = self.state.as_ref().is_none_or(|state| *state == status.state);
        // The text is compared last, because this alone needs history and artifacts to be parsed.
        let fits = in_time && in_state && self.query.as_ref().is_none_or(|query| mentions(task, &status, query));
        if fits { Fit::Yes } else { Fit::No }
    }
}

/// True if the text of the status or of the history, or a name or text of an artifact, contains the query.
fn mentions(task: &Task<'_>, status: &Status<'_>, query: &str) -> bool {
    let has = |text: &String| text.to_lowercase().contains(query);
    let in_parts = |parts: &[Part]| parts.iter().any(|part| part.text.as_ref().is_some_and(has));
    let in_message = |message: &Message| in_parts(&message.parts);
    let in_artifact = |artifact: &Artifact| artifact.name.as_ref().is_some_and(has) || in_parts(&artifact.parts);
    parsed::<Message>(status.message).is_some_and(|message| in_message(&message))
        || parsed::<Vec<Message>>(task.history).is_some_and(|history| history.iter().any(in_message))
        || parsed::<Vec<Artifact>>(task.artifacts).is_some_and(|artifacts| artifacts.iter().any(in_artifact))
}

fn parsed<T: DeserializeOwned>(value: Option<&RawValue>) -> Option<T> {
    // A value that cannot be parsed is not found. It must not end the search for other tasks.
    serde_json::from_str(value?.get()).ok()
}

impl Task<'_> {
    /// The task in the form of the answer: id, context and status. A client gets the other fields with GetTask.
    pub fn summary(&self) -> Json {
        let id = json::string(&self.id);
        let context = json::string(&self.context_id);
        // The status text unchanged, so that its numbers are preserved.
        let status = self.status.get();
        format!(r#"{{"id":{id},"contextId":{context},"status":{status}}}"#)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: &str = r#"{
        "id": "t-1", "contextId": "c-1",
        "status": {"state": "TASK_STATE_COMPLETED", "timestamp": "2026-11-20T09:41:07.250Z", "n": 1.0,
                   "message": {"parts": [{"text": "Done, Ada"}]}},
        "history": [{"role": "ROLE_USER", "parts": [{"data": {"x": 1}}, {"text": "Book a FLIGHT to Zürich"}]}],
        "artifacts": [{"artifactId": "a", "name": "Ticket", "parts": [{"text": "Seat 7A"}]}]
    }"#;
    const TIME: u64 = 1_795_167_667_250;

    fn fit(wanted: &SearchConditions) -> Fit {
        wanted.fit(&serde_json::from_str(TASK).unwrap())
    }

    #[test]
    fn text_is_found_in_status_history_and_artifacts_in_whatever_case() {
        for query in ["done", "flight to zürich", "seat 7a", "ticket"] {
            assert_eq!(
                fit(&SearchConditions { query: Some(query.to_owned()), ..SearchConditions::default() }),
                Fit::Yes,
                "{query}"
            );
        }
        assert_eq!(fit(&SearchConditions { query: Some("hotel".to_owned()), ..SearchConditions::default() }), Fit::No);
    }

    #[test]
    fn content_is_parsed_as_far_as_it_is_searched() {
        let task = TASK.replace(r#"[{"role""#, r#"[7, {"role""#);
        let fit = |query: Option<&str>| {
            let wanted = SearchConditions { query: query.map(ToOwned::to_owned), ..SearchConditions::default() };
            wanted.fit(&serde_json::from_str(&task).unwrap())
        };
        assert_eq!(fit(None), Fit::Yes);
        assert_eq!(fit(Some("done")), Fit::Yes, "the status comes first");
        assert_eq!(fit(Some("flight")), Fit::No, "the history cannot be parsed");
    }

    #[test]
    fn the_state_is_compared_by_name() {
        let state = |name: &str| {
            fit(&SearchConditions { state: Some(format!("TASK_STATE_{name}")), ..SearchConditions::default() })
        };
        assert_eq!(state("COMPLETED"), Fit::Yes);
        assert_eq!(state("FAILED"), Fit::No);
    }

    #[test]
    fn a_range_of_time_begins_with_its_first_moment_and_ends_before_its_last() {
        let range = |from, to| fit(&SearchConditions { from, to, ..SearchConditions::default() });
        assert_eq!(range(Some(TIME), Some(TIME + 1)), Fit::Yes);
        assert_eq!(range(None, Some(TIME)), Fit::No);
        assert_eq!(range(Some(TIME + 1), None), Fit::TooOld);
    }

    #[test]
    fn the_summary_has_the_status_as_it_was() {
        let task: Task<'_> = serde_json::from_str(TASK).unwrap();
        let summary = task.summary();
        assert!(summary.starts_with(r#"{"id":"t-1","contextId":"c-1","status":{"state""#), "{summary}");
        assert!(summary.contains(r#""n": 1.0"#) && !summary.contains("FLIGHT"), "{summary}");
    }
}
