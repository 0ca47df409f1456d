//! Answers about shadows: candidate versions to which turns of the installed version are replayed.

use serde::{Deserialize, Serialize};

use super::extensions::{FailedCall, Quarantine};

/// A shadow and its results so far. The counts of turns cover only the turns that `share` selects.
#[derive(Debug, Deserialize, Serialize)]
pub struct Shadow<Text = String> {
    /// The digest of the shadow's component.
    pub digest: Text,
    /// The version that the component gives.
    #[serde(default)]
    pub component_version: Text,
    /// The time at which the shadow began.
    pub since: Text,
    /// The percentage of turns that are replayed to the shadow.
    pub share: u64,
    /// The number of turns that both versions processed.
    pub turns: u64,
    /// The number of turns in which both versions gave the same results.
    pub agreed: u64,
    /// The number of turns in which the shadow failed and the installed version did not.
    pub failed: u64,
    /// The number of turns in which the shadow made a host call that the installed version had not made. The recording
    /// of the turn has no answer to such a call.
    pub unanswered: u64,
    /// The number of turns that were not recorded, because they were too large or the queue was full.
    pub left_out: u64,
    /// The number of turns that were not replayed, because the shadow was quarantined or had no free instance.
    pub not_run: u64,
    /// The number of turns with each kind of difference.
    pub differ: Vec<Differ<Text>>,
    /// The costs by hook.
    pub costs: Vec<Cost<Text>>,
    /// The largest linear memory of an instance, in bytes.
    pub memory_peak: usize,
    /// The first turns with differences.
    pub examples: Vec<Example<Text>>,
    /// The last failed call of the shadow.
    pub last_failure: Option<FailedCall<Text>>,
    /// The shadow's own health.
    pub quarantine: Quarantine<Text>,
}

/// The number of turns with one kind of difference.
#[derive(Debug, Deserialize, Serialize)]
pub struct Differ<Text = String> {
    /// The kind of difference: `verdict`, `delta`, `parts`, `metadata`, `text`, `result`, `keys`, `requests` or
    /// `resumptions`.
    pub what: Text,
    /// The number of turns.
    pub turns: u64,
}

/// The cost of one hook in both versions, over the same turns.
#[derive(Debug, Deserialize, Serialize)]
pub struct Cost<Text = String> {
    /// The name of the hook.
    pub hook: Text,
    /// The number of calls of the hook in the installed version.
    pub calls_in_force: u64,
    /// Mean thread time of a call of the installed version, in microseconds. Absent before the first such call.
    pub mean_us_in_force: Option<f64>,
    /// The number of calls of the hook in the shadow.
    pub calls: u64,
    /// Mean thread time of a call of the shadow, in microseconds. Absent before the first such call.
    pub mean_us: Option<f64>,
}

/// One turn with differences.
#[derive(Debug, Deserialize, Serialize)]
pub struct Example<Text = String> {
    /// The time of the turn.
    pub at: Text,
    /// The conversation of the turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_id: Option<Text>,
    /// The differences of the turn.
    pub differences: Vec<Difference<Text>>,
    /// The host calls of the shadow that had no recorded answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<Text>,
}

/// One difference. Both sides are JSON. Long values are cut, and values that `sessions.hide` names are hidden.
#[derive(Debug, Deserialize, Serialize)]
pub struct Difference<Text = String> {
    /// The kind of difference.
    pub what: Text,
    /// The step of the turn at which the versions differ. Absent if the difference concerns the whole turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Text>,
    /// The value of the installed version.
    pub was: Text,
    /// The value of the shadow.
    pub is: Text,
}
