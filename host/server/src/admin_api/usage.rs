//! Answers about the usage of tenants. A figure that a quota limits has the same name as the quota's config key.

use serde::{Deserialize, Serialize};

/// The current usage of one tenant.
#[derive(Debug, Deserialize, Serialize)]
pub struct TenantUsage<Text = String> {
    /// The name of the tenant.
    pub tenant: Text,
    /// The number of processes that share the limits. For requests and CPU time, each process allows the limit divided
    /// by this number.
    pub processes: usize,
    /// The number of requests in the last second.
    pub requests_per_second: Figure,
    /// The CPU time of extensions and the agent in the last second, in milliseconds.
    pub cpu_ms_per_second: Figure,
    /// The number of running turns.
    pub turns: Figure,
    /// The number of stored sessions.
    pub sessions: Figure,
    /// The size of the state of all sessions, in bytes.
    pub state_bytes: Figure,
    /// The number of stored tasks, including finished tasks. Above the limit, the oldest finished tasks are deleted.
    pub tasks: Figure,
    /// The number of stored keys of all extensions.
    pub keys: Figure,
    /// The number of tokens that models have counted since midnight UTC.
    pub tokens_per_day: Figure,
    /// The usage of the last 24 hours, over all processes.
    pub last_day: PeriodUsage,
}

impl<Text> TenantUsage<Text> {
    /// The figures that a quota can limit, each with its name in texts.
    #[must_use]
    pub fn figures(&self) -> [(&'static str, &Figure); 8] {
        [
            ("requests a second", &self.requests_per_second),
            ("CPU ms a second", &self.cpu_ms_per_second),
            ("turns", &self.turns),
            ("sessions", &self.sessions),
            ("bytes of state", &self.state_bytes),
            ("tasks", &self.tasks),
            ("keys", &self.keys),
            ("tokens today", &self.tokens_per_day),
        ]
    }
}

/// One figure and its limit.
#[derive(Debug, Deserialize, Serialize)]
pub struct Figure {
    /// The current value.
    pub used: u64,
    /// The limit over all processes together. Absent: no quota is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The processes whose usage is in `used`.
    pub counted_in: CountedIn,
}

/// The processes that a figure covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CountedIn {
    /// Only the answering process.
    Process,
    /// All processes that share the stores.
    All,
}

/// The usage in a period, over all processes. Usage of other processes appears up to five seconds late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct PeriodUsage {
    /// The number of all requests, including refused requests.
    pub requests: u64,
    /// The number of requests that a quota refused.
    pub refused: u64,
    /// The CPU time of extensions and the agent, in milliseconds.
    pub cpu_ms: u64,
    /// The number of tokens that models have counted.
    pub tokens: u64,
}

/// The usage of all tenants, the costliest first.
#[derive(Debug, Deserialize, Serialize)]
pub struct Costliest<Text = String> {
    /// The number of hours that are summed up, including the current hour.
    pub hours: u64,
    /// The tenants by CPU time, then by requests, the largest first. Tenants without requests are missing.
    pub tenants: Vec<UsedBy<Text>>,
}

/// The usage of one tenant in the list.
#[derive(Debug, Deserialize, Serialize)]
pub struct UsedBy<Text = String> {
    /// The name of the tenant. The tenant may have been removed since.
    pub tenant: Text,
    /// The usage of the tenant.
    #[serde(flatten)]
    pub used: PeriodUsage,
}
