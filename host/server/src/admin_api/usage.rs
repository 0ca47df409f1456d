//! The answers about what tenants have used. The figures of a quota are named like the keys of the config.

use serde::{Deserialize, Serialize};

/// The present use of a tenant.
#[derive(Debug, Deserialize, Serialize)]
pub struct TenantUsage<Text = String> {
    /// The tenant.
    pub tenant: Text,
    /// The processes that share the limits, each of which lets its part of requests and CPU time through.
    pub processes: usize,
    /// Requests in the last second.
    pub requests_per_second: Figure,
    /// Milliseconds of CPU time in extensions and in the agent in the last second.
    pub cpu_ms_per_second: Figure,
    /// Turns that run.
    pub turns: Figure,
    /// Sessions.
    pub sessions: Figure,
    /// Bytes of the state of all sessions.
    pub state_bytes: Figure,
    /// Tasks. The limit is that of finished ones, of which the oldest go.
    pub tasks: Figure,
    /// Keys of all extensions.
    pub keys: Figure,
    /// Tokens of models, in this day of UTC.
    pub tokens_per_day: Figure,
    /// The use of the last 24 hours, over all processes.
    pub last_day: Used,
}

/// One number.
#[derive(Debug, Deserialize, Serialize)]
pub struct Figure {
    /// The amount that is in use, or was used.
    pub used: u64,
    /// The amount that there may be, in all processes together. Absent: no quota is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Where `used` was counted.
    pub counted_in: CountedIn,
}

/// Where something is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CountedIn {
    /// In the process that answers.
    Process,
    /// In all that share the stores.
    All,
}

/// What was used in some time, over all processes. What another process has used comes up to five seconds late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Used {
    /// Requests, those that were refused included.
    pub requests: u64,
    /// Requests that were refused because of a quota.
    pub refused: u64,
    /// Milliseconds of CPU time in extensions and in the agent.
    pub cpu_ms: u64,
    /// Tokens of models.
    pub tokens: u64,
}

/// The use of all tenants, the costliest first.
#[derive(Debug, Deserialize, Serialize)]
pub struct Costliest<Text = String> {
    /// The hours that count: this one, which is not over, and those before it.
    pub hours: u64,
    /// Those with most CPU time first, and among equals those with most requests. A tenant that was asked for nothing is not there.
    pub tenants: Vec<UsedBy<Text>>,
}

/// The use of one of several tenants.
#[derive(Debug, Deserialize, Serialize)]
pub struct UsedBy<Text = String> {
    /// The tenant, which may be gone by now.
    pub tenant: Text,
    /// What it has used.
    #[serde(flatten)]
    pub used: Used,
}
