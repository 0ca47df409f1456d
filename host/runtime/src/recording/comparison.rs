//! Compares the results of two versions of an extension for the same turns.

use std::collections::BTreeMap;

use annex_protocol::{TaskState, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::RecordedTurn;
use super::host_call::HostCall;
use super::step::{StepInput, StepResult};
use crate::chain::steering::SteeringVerdict;

mod hidden;

/// Maximum number of turns that are kept as examples.
const MAX_EXAMPLES: usize = 10;
/// Maximum number of differences in one example.
const MAX_DIFFERENCES: usize = 20;
/// Maximum length of each of the two values in a difference, in bytes of text.
const MAX_SIDE: usize = 2 << 10;

/// A difference between two versions in one turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// The kind: `verdict`, `delta`, `parts`, `metadata`, `text`, `result`, `call`, `remark`, `keys`, `task_metadata`,
    /// `requests`, `resumptions`, or `steps` if the numbers of steps differ.
    pub what: String,
    /// Number and name of the step, such as `step 1, request`. Absent if the difference concerns the whole turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Value of the first version, as JSON.
    pub was: String,
    /// Value of the second version, as JSON.
    pub is: String,
}

/// A turn in which the versions differ.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Example {
    /// Time of the turn.
    pub at: Timestamp,
    /// Id of the conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_id: Option<String>,
    /// The differences in this turn.
    pub differences: Vec<Difference>,
    /// True if values in the input were hidden. The hidden values may be the cause of the difference.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
    /// The calls of the second version that the recording cannot answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<String>,
}

/// Cost of one hook over all turns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookCost {
    /// Number of calls of the first version.
    pub calls_before: u64,
    /// Thread time of these calls, in microseconds.
    pub micros_before: u64,
    /// Number of calls of the second version.
    pub calls: u64,
    /// Thread time of these calls, in microseconds.
    pub micros: u64,
}

/// The comparison of two versions over a number of turns.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Comparison {
    /// Number of compared turns.
    pub turns: u64,
    /// Number of turns without differences.
    pub agreed: u64,
    /// Number of turns with differences in which input values were hidden from the second version.
    #[serde(default)]
    pub differ_hidden: u64,
    /// Number of values that are hidden in results of the first version and were not compared.
    #[serde(default)]
    pub not_compared: u64,
    /// Number of turns in which only the second version failed.
    pub failed: u64,
    /// Number of turns with calls that the recording cannot answer.
    pub unanswered: u64,
    /// Number of turns with differences, by kind of difference.
    pub differ: BTreeMap<String, u64>,
    /// Costs by hook.
    pub costs: BTreeMap<String, HookCost>,
    /// The first turns with differences.
    pub examples: Vec<Example>,
}

impl Comparison {
    /// Adds one turn: the recorded run and the replayed run. Returns true if the two runs do not differ.
    pub fn add(&mut self, was: &RecordedTurn, is: &RecordedTurn, unanswered: Vec<String>) -> bool {
        self.add_shown(was, is, unanswered, &Value::to_string)
    }

    /// Like [`add`](Self::add). `show` formats the values in examples, for example without hidden data.
    pub fn add_shown(
        &mut self,
        was: &RecordedTurn,
        is: &RecordedTurn,
        unanswered: Vec<String>,
        show: &dyn Fn(&Value) -> String,
    ) -> bool {
        self.turns += 1;
        self.add_costs(was, is);
        self.unanswered += u64::from(!unanswered.is_empty());
        let (differences, not_compared) = differences(was, is, show);
        self.not_compared += not_compared;
        if differences.is_empty() {
            self.agreed += 1;
            return true;
        }
        let hidden = was.hides_what_was_given();
        self.differ_hidden += u64::from(hidden);
        let fails =
            |turn: &RecordedTurn| turn.steps.iter().any(|step| matches!(step.result, StepResult::Failed { .. }));
        self.failed += u64::from(fails(is) && !fails(was));
        let mut kinds: Vec<&str> = differences.iter().map(|difference| difference.what.as_str()).collect();
        kinds.sort_unstable();
        kinds.dedup();
        for kind in kinds {
            *self.differ.entry(kind.to_owned()).or_default() += 1;
        }
        if self.examples.len() < MAX_EXAMPLES {
            let context_id = was.ids.context_id.clone();
            let differences = differences.into_iter().take(MAX_DIFFERENCES).collect();
            self.examples.push(Example { at: was.at, context_id, differences, hidden, unanswered });
        }
        false
    }

    /// Adds the results of another comparison.
    pub fn merge(&mut self, other: Self) {
        self.turns += other.turns;
        self.agreed += other.agreed;
        self.differ_hidden += other.differ_hidden;
        self.not_compared += other.not_compared;
        self.failed += other.failed;
        self.unanswered += other.unanswered;
        for (kind, turns) in other.differ {
            *self.differ.entry(kind).or_default() += turns;
        }
        for (hook, HookCost { calls_before, micros_before, calls, micros }) in other.costs {
            let cost = self.costs.entry(hook).or_default();
            cost.calls_before += calls_before;
            cost.micros_before += micros_before;
            cost.calls += calls;
            cost.micros += micros;
        }
        let room = MAX_EXAMPLES.saturating_sub(self.examples.len());
        self.examples.extend(other.examples.into_iter().take(room));
    }

    fn add_costs(&mut self, was: &RecordedTurn, is: &RecordedTurn) {
        for time in was.steps.iter().flat_map(|step| &step.times) {
            let cost = self.costs.entry(time.hook.clone()).or_default();
            cost.calls_before += 1;
            cost.micros_before += time.micros;
        }
        for time in is.steps.iter().flat_map(|step| &step.times) {
            let cost = self.costs.entry(time.hook.clone()).or_default();
            cost.calls += 1;
            cost.micros += time.micros;
        }
    }
}

/// Compares two runs of a turn. Returns the differences and the number of hidden values in the first run.
fn differences(was: &RecordedTurn, is: &RecordedTurn, show: &dyn Fn(&Value) -> String) -> (Vec<Difference>, u64) {
    let mut found = TurnDifferences { differences: Vec::new(), hidden: 0, show };
    // The second run ends early if the extension fails. The last step says why.
    for (number, (was, is)) in was.steps.iter().zip(&is.steps).enumerate() {
        let place = format!("step {}, {}", number + 1, was.input.name());
        step_differences(&was.result, &is.result, &place, &mut found);
    }
    // A verdict explains missing steps. Otherwise the second run was too large to be recorded.
    let has_verdict = found.differences.iter().any(|difference| difference.what == "verdict");
    if was.steps.len() != is.steps.len() && !has_verdict {
        found.push("steps", None, &was.steps.len().into(), &is.steps.len().into());
    }
    let effects = [
        ("keys", written_keys as fn(&RecordedTurn) -> Value),
        ("task_metadata", task_metadata),
        ("requests", requests),
        ("resumptions", resumptions),
    ];
    for (what, effect) in effects {
        found.push(what, None, &effect(was), &effect(is));
    }
    (found.differences, found.hidden)
}

fn step_differences(was: &StepResult, is: &StepResult, place: &str, found: &mut TurnDifferences<'_>) {
    let place = Some(place);
    let (verdict_was, facets_was) = facets(was);
    let (verdict_is, facets_is) = facets(is);
    if verdict_was != verdict_is {
        return found.push("verdict", place, &value(was), &value(is));
    }
    for ((what, was), (_, is)) in facets_was.into_iter().zip(facets_is) {
        found.push(what, place, &was, &is);
    }
}

/// Splits a result into its verdict and the named values that can be compared.
fn facets(result: &StepResult) -> (String, Vec<(&'static str, Value)>) {
    match result {
        StepResult::Inactive => ("inactive".to_owned(), Vec::new()),
        StepResult::Active { delta, parts } => {
            ("active".to_owned(), vec![("delta", value(delta)), ("parts", value(parts))])
        }
        StepResult::Refused { code, message, data } => {
            (format!("refused {code}"), vec![("text", value(message)), ("text", value(data))])
        }
        // The reason contains the guest's stack, which differs between builds.
        StepResult::Failed { kind, .. } => (format!("failed {kind}"), Vec::new()),
        StepResult::Agrees { metadata } => ("agrees".to_owned(), vec![("metadata", value(metadata))]),
        StepResult::Interrupts { state, text, metadata } => {
            (format!("interrupts {}", state.name()), vec![("text", value(text)), ("metadata", value(metadata))])
        }
        StepResult::Vetoes { reason } => ("vetoes".to_owned(), vec![("text", value(reason))]),
        StepResult::Answers { state, parts, artifact, metadata } => (
            format!("answers {}", state.name()),
            vec![("parts", value(parts)), ("text", value(artifact)), ("metadata", value(metadata))],
        ),
        StepResult::Steers { verdict, remark } => {
            let (name, mut values) = steering_facets(verdict);
            values.push(("remark", value(remark)));
            (name.to_owned(), values)
        }
        StepResult::Revises { parts } => ("revises".to_owned(), vec![("parts", value(parts))]),
        StepResult::Holds => ("holds".to_owned(), Vec::new()),
        StepResult::RefusesContent { reason } => ("refuses content".to_owned(), vec![("text", value(reason))]),
        StepResult::Adds(metadata) => ("adds".to_owned(), vec![("metadata", value(metadata))]),
        StepResult::Shows(decisions) => ("shows".to_owned(), vec![("result", value(decisions))]),
        StepResult::ShowsEntry(decision) => ("shows entry".to_owned(), vec![("result", value(decision))]),
        StepResult::Value(result) => ("value".to_owned(), vec![("result", value(result))]),
        StepResult::Streams => ("streams".to_owned(), Vec::new()),
        StepResult::Ends => ("ends".to_owned(), Vec::new()),
    }
}

/// Splits a verdict on a step of the agent into its name and its values.
fn steering_facets(verdict: &SteeringVerdict) -> (&'static str, Vec<(&'static str, Value)>) {
    match verdict {
        SteeringVerdict::Passes => ("passes", Vec::new()),
        SteeringVerdict::ChangesCall { model, instruction, parameters } => {
            ("changes the call", vec![("call", json!([model, instruction, parameters]))])
        }
        SteeringVerdict::Refuses { reason } => ("refuses the call", vec![("text", value(reason))]),
        SteeringVerdict::ChangesArguments(arguments) => ("changes the arguments", vec![("call", value(arguments))]),
        SteeringVerdict::Denies { text } => ("denies the call", vec![("text", value(text))]),
        SteeringVerdict::Waits { state, text, metadata } => {
            let name = if *state == TaskState::AuthRequired { "waits for authorization" } else { "waits for input" };
            (name, vec![("text", value(text)), ("metadata", value(metadata))])
        }
        SteeringVerdict::ReplacesResult(output) => ("replaces the result", vec![("result", value(output))]),
    }
}

/// The keys that the turn wrote, with their final values.
fn written_keys(turn: &RecordedTurn) -> Value {
    let mut written = BTreeMap::new();
    for call in turn.calls() {
        let (bucket, key, value) = match call {
            HostCall::Set { bucket, key, value } => (bucket, key, value_of(value)),
            HostCall::Delete { bucket, key } => (bucket, key, Value::Null),
            HostCall::Increment { bucket, key, value, .. } => (bucket, key, value.to_string().into()),
            _ => continue,
        };
        written.insert(format!("{bucket}/{key}"), value);
    }
    json!(written)
}

/// The entries of the task's metadata that the turn set, with their final values.
fn task_metadata(turn: &RecordedTurn) -> Value {
    let set = turn.calls().filter_map(|call| match call {
        HostCall::TaskMetadata { key, value, error: None } => Some((key.clone(), Value::from(value.as_str()))),
        _ => None,
    });
    Value::Object(set.collect())
}

fn value_of(octets: &super::Octets) -> Value {
    match octets {
        super::Octets::Text(text) => text.as_str().into(),
        hex @ super::Octets::Hex(_) => value(hex),
    }
}

fn requests(turn: &RecordedTurn) -> Value {
    let requests = turn.calls().filter_map(|call| match call {
        HostCall::Http { request, body, .. } => Some(json!([request, value_of(body)])),
        _ => None,
    });
    requests.collect()
}

fn resumptions(turn: &RecordedTurn) -> Value {
    let resumptions = turn.calls().filter_map(|call| match call {
        HostCall::Resume { task_id, .. } => Some(Value::from(task_id.as_str())),
        _ => None,
    });
    resumptions.collect()
}

struct TurnDifferences<'a> {
    differences: Vec<Difference>,
    /// Number of values that were not compared.
    hidden: u64,
    show: &'a dyn Fn(&Value) -> String,
}

impl TurnDifferences<'_> {
    fn push(&mut self, what: &str, place: Option<&str>, was: &Value, is: &Value) {
        if !hidden::agrees(was, is, &mut self.hidden) {
            let side = |value: &Value| annex_text::cut((self.show)(value), MAX_SIDE);
            let place = place.map(str::to_owned);
            self.differences.push(Difference { what: what.to_owned(), place, was: side(was), is: side(is) });
        }
    }
}

fn value(of: &impl Serialize) -> Value {
    serde_json::to_value(of).unwrap_or_default()
}

impl StepInput {
    /// Name of the step.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Request { .. } => "request",
            Self::Begin { .. } => "begin",
            Self::Change { .. } => "change",
            Self::Reply { .. } => "reply",
            Self::Model(_) => "model",
            Self::Tool(_) => "tool",
            Self::ToolResult(_) => "tool_result",
            Self::Output(_) => "output",
            Self::Event(_) => "event",
            Self::Read { .. } => "read",
            Self::ExtendedCard(_) => "extended_card",
            Self::Call { .. } => "call",
            Self::Next => "next",
        }
    }
}

#[cfg(test)]
mod tests;
