//! Two versions of an extension, compared by what they made of the same turns.

use std::collections::BTreeMap;

use annex_protocol::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{HostCall, RecordedTurn, StepInput, StepResult};

mod hidden;

/// Differences that are kept as examples.
const MAX_EXAMPLES: usize = 10;
/// Differences of one example.
const MAX_DIFFERENCES: usize = 20;
/// Bytes of each side of an example.
const MAX_SIDE: usize = 2 << 10;

/// A difference between two versions in one turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// The kind: `verdict`, `delta`, `parts`, `metadata`, `text`, `result`, `keys`, `requests`, `resumptions`, or `steps` where
    /// one version has steps that the other has not.
    pub what: String,
    /// The place: the step by its number, from 1, and its name. Absent where it is the whole turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The first version's part, as JSON.
    pub was: String,
    /// The second version's part.
    pub is: String,
}

/// The first turns in which the versions differ.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Example {
    /// The time of the turn.
    pub at: Timestamp,
    /// Its conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_id: Option<String>,
    /// Its differences.
    pub differences: Vec<Difference>,
    /// True if something is hidden in what the recording says that the extension was given: the difference may come of that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hidden: bool,
    /// Questions of the second version to which the first had no answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<String>,
}

/// The cost of one hook over all turns, in microseconds on a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookCost {
    /// Calls of the first version.
    pub calls_before: u64,
    /// Their time.
    pub micros_before: u64,
    /// Calls of the second version.
    pub calls: u64,
    /// Their time.
    pub micros: u64,
}

/// Two versions over any number of turns.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Comparison {
    /// Turns that both versions served.
    pub turns: u64,
    /// Those in which nothing differs.
    pub agreed: u64,
    /// Those that differ, and in which something was hidden from the second version.
    #[serde(default)]
    pub differ_hidden: u64,
    /// Values that are hidden in what the first version made of the turns, and could not be compared.
    #[serde(default)]
    pub not_compared: u64,
    /// Those in which the second version failed and the first did not.
    pub failed: u64,
    /// Those in which the second version asked what the first did not.
    pub unanswered: u64,
    /// Turns by the kind of their differences.
    pub differ: BTreeMap<String, u64>,
    /// The costs by hook.
    pub costs: BTreeMap<String, HookCost>,
    /// The first turns that differ.
    pub examples: Vec<Example>,
}

impl Comparison {
    /// Adds one turn: as it was, and as the second version played it. Returns true when nothing differs.
    pub fn add(&mut self, was: &RecordedTurn, is: &RecordedTurn, unanswered: Vec<String>) -> bool {
        self.add_shown(was, is, unanswered, &Value::to_string)
    }

    /// The same with examples in the form that `show` gives them: without what is hidden, say.
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

    /// Adds what came of further turns.
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

/// The differences between two plays of one turn, and the number of values that are hidden in the first one.
fn differences(was: &RecordedTurn, is: &RecordedTurn, show: &dyn Fn(&Value) -> String) -> (Vec<Difference>, u64) {
    let mut found = Found { differences: Vec::new(), hidden: 0, show };
    // The second play ends early where the extension is out; its last step says why.
    for (number, (was, is)) in was.steps.iter().zip(&is.steps).enumerate() {
        let place = format!("step {}, {}", number + 1, was.input.name());
        step_differences(&was.result, &is.result, &place, &mut found);
    }
    // A version that is out has said so by a verdict. Steps that are missing without one were too many to be noted.
    let has_verdict = found.differences.iter().any(|difference| difference.what == "verdict");
    if was.steps.len() != is.steps.len() && !has_verdict {
        found.push("steps", None, &was.steps.len().into(), &is.steps.len().into());
    }
    let effects =
        [("keys", written_keys as fn(&RecordedTurn) -> Value), ("requests", requests), ("resumptions", resumptions)];
    for (what, effect) in effects {
        found.push(what, None, &effect(was), &effect(is));
    }
    (found.differences, found.hidden)
}

fn step_differences(was: &StepResult, is: &StepResult, place: &str, found: &mut Found<'_>) {
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

/// The verdict, and what else counts of the result.
fn facets(result: &StepResult) -> (String, Vec<(&'static str, Value)>) {
    match result {
        StepResult::Inactive => ("inactive".to_owned(), Vec::new()),
        StepResult::Active { delta, parts } => {
            ("active".to_owned(), vec![("delta", value(delta)), ("parts", value(parts))])
        }
        StepResult::Refused { code, message, data } => {
            (format!("refused {code}"), vec![("text", value(message)), ("text", value(data))])
        }
        // The reason has the guest's stack, which differs between any two builds.
        StepResult::Failed { kind, .. } => (format!("failed {kind}"), Vec::new()),
        StepResult::Agrees { metadata } => ("agrees".to_owned(), vec![("metadata", value(metadata))]),
        StepResult::Interrupts { state, text, metadata } => {
            (format!("interrupts {}", state.name()), vec![("text", value(text)), ("metadata", value(metadata))])
        }
        StepResult::Vetoes { reason } => ("vetoes".to_owned(), vec![("text", value(reason))]),
        StepResult::Adds(metadata) => ("adds".to_owned(), vec![("metadata", value(metadata))]),
        StepResult::Value(result) => ("value".to_owned(), vec![("result", value(result))]),
        StepResult::Streams => ("streams".to_owned(), Vec::new()),
        StepResult::Ends => ("ends".to_owned(), Vec::new()),
    }
}

/// The keys as the turn left them, those alone that it wrote.
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

/// The differences of one turn.
struct Found<'a> {
    differences: Vec<Difference>,
    /// Values that were not compared.
    hidden: u64,
    show: &'a dyn Fn(&Value) -> String,
}

impl Found<'_> {
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
    /// The name of the step.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Request { .. } => "request",
            Self::Begin { .. } => "begin",
            Self::Change { .. } => "change",
            Self::Event(_) => "event",
            Self::Call { .. } => "call",
            Self::Next => "next",
        }
    }
}

#[cfg(test)]
mod tests;
