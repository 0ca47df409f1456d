//! The answer about what a tenant has used of its quota. The figures are named like the keys of the config.

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
    /// Milliseconds of CPU time in extensions in the last second.
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
    /// Requests that were refused lately: since the tenant was loaded, or longer.
    pub refused: Figure,
}

/// One number.
#[derive(Debug, Deserialize, Serialize)]
pub struct Figure {
    /// The amount that is in use, or was used.
    pub used: u64,
    /// The amount that there may be, in all processes together. Absent: any.
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
