//! How the calls of an extension went, as JSON.

use std::time::Duration;

use annex_runtime::{ExtensionMetrics, HookMetrics, LastFailure};
use serde::Serialize;

use super::view::shown_time;

/// Over all versions of the URI that followed each other, since the first was installed.
#[derive(Serialize)]
pub(super) struct Calls {
    calls: u64,
    failures: u64,
    last_failure: Option<FailedCall>,
    timings: Vec<Timing>,
}

#[derive(Serialize)]
struct FailedCall {
    at: String,
    hook: &'static str,
    outcome: &'static str,
    reason: String,
}

/// Times in milliseconds, absent while there are no calls.
#[derive(Serialize)]
struct Timing {
    hook: &'static str,
    calls: u64,
    failures: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    mean_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_ms: Option<f64>,
}

impl From<ExtensionMetrics> for Calls {
    fn from(metrics: ExtensionMetrics) -> Self {
        Self {
            calls: metrics.hooks.iter().map(|hook| hook.calls).sum(),
            failures: metrics.hooks.iter().map(HookMetrics::failures).sum(),
            timings: metrics.hooks.iter().map(Timing::from).collect(),
            last_failure: metrics.last_failure.map(FailedCall::from),
        }
    }
}

impl From<LastFailure> for FailedCall {
    fn from(failure: LastFailure) -> Self {
        let LastFailure { at, hook, outcome, reason } = failure;
        Self { at: shown_time(at), hook: hook.name(), outcome: outcome.name(), reason }
    }
}

impl From<&HookMetrics> for Timing {
    fn from(metrics: &HookMetrics) -> Self {
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        let mean = metrics.mean();
        Self {
            hook: metrics.hook.name(),
            calls: metrics.calls,
            failures: metrics.failures(),
            mean_ms: mean.map(millis),
            max_ms: mean.map(|_| millis(metrics.longest)),
        }
    }
}
