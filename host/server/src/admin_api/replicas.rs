//! The JSON of the admin API about the processes that share one database.

use serde::{Deserialize, Serialize};

/// All processes, the oldest first. Without a shared database, only the answering process.
#[derive(Debug, Deserialize, Serialize)]
pub struct List<Text = String> {
    /// The processes, each as one element.
    pub replicas: Vec<Replica<Text>>,
}

/// One process.
#[derive(Debug, Deserialize, Serialize)]
pub struct Replica<Text = String> {
    /// The id of the process. A process gets a new id with each lease. Absent without a shared database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Text>,
    /// The `replica.name` of the process. Absent if the config sets none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Text>,
    /// True for the answering process.
    pub answers: bool,
    /// When the process got its lease, or when it started if there is no shared database. Absent if the version of the
    /// process does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Text>,
    /// The version of Annex. Absent if the version of the process does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<Text>,
    /// The address at which clients reach the process. Absent if the version of the process does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<Text>,
    /// The phase: `starting`, `ready` or `draining`. Absent if the version of the process does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Text>,
    /// Milliseconds until the lease ends. Zero or less if the process has ended or hangs. Absent without a shared
    /// database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_left_ms: Option<i64>,
}
