//! The JSON of the admin API about the processes on one database.

use serde::{Deserialize, Serialize};

/// The processes, the oldest first; where no others can be, the one that answers.
#[derive(Debug, Deserialize, Serialize)]
pub struct List<Text = String> {
    /// The processes.
    pub replicas: Vec<Replica<Text>>,
}

/// A process.
#[derive(Debug, Deserialize, Serialize)]
pub struct Replica<Text = String> {
    /// Its id, another one for each lease; absent where no others can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Text>,
    /// Its `replica.name`; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Text>,
    /// True for the process that answers.
    pub answers: bool,
    /// Since when it has its lease, or runs where no others can be; absent for a version that does not say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Text>,
    /// Its version; absent for one that does not say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<Text>,
    /// Where clients reach it; absent for a version that does not say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<Text>,
    /// What it does: `starting`, `ready` or `draining`; absent for a version that does not say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Text>,
    /// Milliseconds that are left of its lease. It is over where they are not positive: the process is gone, or stands still.
    /// Absent where no others can be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_left_ms: Option<i64>,
}
