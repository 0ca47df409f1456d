//! The limits of tenants and of their callers, as the config has them.

use serde::{Deserialize, Serialize};

/// The limits of a tenant. A limit that is `None` allows any amount.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TenantQuota {
    /// The maximum number of requests per second, over all processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u64>,
    /// The maximum number of milliseconds of CPU time per second in extensions and in the agent, over all processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms_per_second: Option<u64>,
    /// The maximum number of turns that run or wait in the queue of their conversation, over all processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<usize>,
    /// The maximum number of stored sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u64>,
    /// The maximum number of bytes of state in all sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state_bytes: Option<u64>,
    /// The maximum number of finished tasks that are stored. Above this limit the oldest finished tasks are deleted. No request
    /// is refused because of this limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u64>,
    /// The maximum number of stored keys of all extensions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
    /// The maximum number of tokens per day (UTC), counted as models report the tokens of prompts and answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_day: Option<u64>,
    /// The limits of each caller of the tenant.
    #[serde(skip_serializing_if = "CallerQuota::is_empty")]
    pub caller: CallerQuota,
}

/// The limits of each caller of a tenant. A limit that is `None` allows any amount. All anonymous callers of a tenant are one
/// caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct CallerQuota {
    /// The maximum number of requests per second, over all processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_second: Option<u64>,
    /// The maximum number of milliseconds of CPU time per second that extensions and the agent use for the caller, over all
    /// processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms_per_second: Option<u64>,
    /// The maximum number of tokens per day (UTC), counted as models report the tokens of prompts and answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_day: Option<u64>,
}

impl CallerQuota {
    /// The names of the limits in errors: the keys below `quota`.
    pub(super) const REQUESTS: &'static str = "caller.requests_per_second";
    pub(super) const CPU: &'static str = "caller.cpu_ms_per_second";
    pub(super) const TOKENS: &'static str = "caller.tokens_per_day";

    /// True if no limit is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl TenantQuota {
    /// The names of the limits that are zero. Such a limit would refuse every request.
    #[must_use]
    pub fn zeros(&self) -> Vec<&'static str> {
        let quotas = [
            ("requests_per_second", self.requests_per_second),
            ("cpu_ms_per_second", self.cpu_ms_per_second),
            ("turns", self.turns.map(|turns| turns as u64)),
            ("sessions", self.sessions),
            ("state_bytes", self.state_bytes),
            ("tasks", self.tasks),
            ("keys", self.keys),
            ("tokens_per_day", self.tokens_per_day),
            (CallerQuota::REQUESTS, self.caller.requests_per_second),
            (CallerQuota::CPU, self.caller.cpu_ms_per_second),
            (CallerQuota::TOKENS, self.caller.tokens_per_day),
        ];
        quotas.into_iter().filter(|(_, limit)| *limit == Some(0)).map(|(key, _)| key).collect()
    }
}
