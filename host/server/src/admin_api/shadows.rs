//! Answers about shadows: versions that are played the turns of the one in force.

use serde::{Deserialize, Serialize};

use super::extensions::{FailedCall, Quarantine};

/// A shadow, and what came of it so far. Turns are those that it followed.
#[derive(Debug, Deserialize, Serialize)]
pub struct Shadow<Text = String> {
    /// The digest of its component.
    pub digest: Text,
    /// The version that the component gives.
    #[serde(default)]
    pub component_version: Text,
    /// The time at which it began.
    pub since: Text,
    /// The turns that it follows, of 100.
    pub share: u64,
    /// The turns that both versions served.
    pub turns: u64,
    /// Those in which nothing differs.
    pub agreed: u64,
    /// Those in which it failed and the version in force did not.
    pub failed: u64,
    /// Those in which it asked the host what the version in force did not ask.
    pub unanswered: u64,
    /// Turns that were too large, or for which there was no room.
    pub left_out: u64,
    /// Turns that it was not played, because it was quarantined or there was no instance for it.
    pub not_run: u64,
    /// The turns by what differs.
    pub differ: Vec<Differ<Text>>,
    /// The costs by hook.
    pub costs: Vec<Cost<Text>>,
    /// The most linear memory of an instance, in bytes.
    pub memory_peak: usize,
    /// The first turns that differ.
    pub examples: Vec<Example<Text>>,
    /// Its last call that failed.
    pub last_failure: Option<FailedCall<Text>>,
    /// Its own health.
    pub quarantine: Quarantine,
}

/// The turns in which something differs.
#[derive(Debug, Deserialize, Serialize)]
pub struct Differ<Text = String> {
    /// What: `verdict`, `delta`, `parts`, `metadata`, `text`, `result`, `keys`, `requests`, `resumptions`.
    pub what: Text,
    /// In how many turns.
    pub turns: u64,
}

/// The cost of one hook in both versions, over the same turns.
#[derive(Debug, Deserialize, Serialize)]
pub struct Cost<Text = String> {
    /// The hook.
    pub hook: Text,
    /// Calls of the version in force.
    pub calls_in_force: u64,
    /// Their mean time on a thread in microseconds; absent while there are none.
    pub mean_us_in_force: Option<f64>,
    /// Calls of the shadow.
    pub calls: u64,
    /// Their mean time on a thread in microseconds; absent while there are none.
    pub mean_us: Option<f64>,
}

/// A turn that differs.
#[derive(Debug, Deserialize, Serialize)]
pub struct Example<Text = String> {
    /// The time of the turn.
    pub at: Text,
    /// Its conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_id: Option<Text>,
    /// Its differences.
    pub differences: Vec<Difference<Text>>,
    /// The questions to the host that have no answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<Text>,
}

/// One difference. Both sides are JSON, cut where they are long, without what `sessions.hide` hides.
#[derive(Debug, Deserialize, Serialize)]
pub struct Difference<Text = String> {
    /// The kind of difference.
    pub what: Text,
    /// The step of the turn; absent where it is the whole turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Text>,
    /// The part of the version in force.
    pub was: Text,
    /// The shadow's part.
    pub is: Text,
}
