//! Measures and traces one hook call.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use annex_telemetry::timeline::{Part, Timeline, Work};
use annex_telemetry::traces::{self, SpanKind};
use annex_telemetry::{Charge, Stage, StageGuard, enter_at, in_span, with};
use tracing::Span;
use tracing::field::Empty;

use super::{CallOutcome, LastFailure};
use crate::confinement::profile::Profile;
use crate::error::{Fault, HookError};
use crate::extension::Extension;
use crate::hook::Hook;

/// The verdict on a call, after the host has checked its result.
pub(crate) enum CallVerdict<'a> {
    Passed,
    Refused,
    Failed(&'a Fault),
}

impl<'a> From<&'a Fault> for CallVerdict<'a> {
    fn from(fault: &'a Fault) -> Self {
        Self::Failed(fault)
    }
}

impl<'a> From<&'a HookError> for CallVerdict<'a> {
    fn from(error: &'a HookError) -> Self {
        match error {
            HookError::Refused(_) => Self::Refused,
            HookError::Fault(fault) => Self::Failed(fault),
        }
    }
}

/// The measurement of one hook call. Dropping it counts the call. Without a verdict the call counts as abandoned.
pub(crate) struct Watch {
    profile: Arc<Profile>,
    hook: Hook,
    span: Span,
    /// The span of the call in the trace of the request.
    traced: traces::Span,
    outcome: CallOutcome,
    /// Beginning of the first poll and end of the last one; `None` before the first.
    polled: Option<(Instant, Instant)>,
    busy: Duration,
    /// Charges the call to the caller of the request. Kept from the first poll on, because a call that is cancelled ends
    /// outside of its request.
    charge: Option<Charge>,
    /// The timeline of the request, kept for the same reason.
    timeline: Option<Arc<Timeline>>,
    /// The stage of the request, from the first poll until the call returns or is cancelled.
    stage: Option<StageGuard>,
}

impl Watch {
    pub(crate) fn new(extension: &Extension, hook: Hook) -> Self {
        let span = tracing::debug_span!(
            "hook",
            extension = %extension.uri(),
            digest = %extension.digest,
            %hook,
            verdict = Empty,
            micros = Empty
        );
        let mut traced = annex_telemetry::span(SpanKind::Internal, "hook");
        if traced.is_recording() {
            traced.extend_name(hook.name());
            traced.set("annex.hook", hook.name());
            traced.set_text("annex.extension.uri", extension.uri().as_str());
            traced.set_text("annex.extension.digest", &extension.digest.to_string());
        }
        let profile = Arc::clone(&extension.profile);
        let (outcome, polled, busy) = (CallOutcome::Abandoned, None, Duration::ZERO);
        Self { profile, hook, span, traced, outcome, polled, busy, charge: None, timeline: None, stage: None }
    }

    /// Runs the call in its span. Reads the clock twice per poll; most calls are polled once.
    pub(crate) async fn run<T>(&mut self, mut call: Pin<&mut impl Future<Output = T>>) -> T {
        poll_fn(|context| {
            let began = Instant::now();
            if self.polled.is_none() {
                self.stage = Some(enter_at(Stage::Hooks, began));
                with(|request| {
                    self.charge = request.charged.get().cloned();
                    self.timeline = request.timeline().cloned();
                });
            }
            // Entered for each poll: a span held across a wait would also cover other tasks on the thread.
            let _entered = self.span.enter();
            let polled = in_span(&self.traced, || call.as_mut().poll(context));
            let ended = Instant::now();
            self.busy += ended - began;
            let first = self.polled.map_or(began, |(first, _)| first);
            self.polled = Some((first, ended));
            if polled.is_ready()
                && let Some(stage) = self.stage.take()
            {
                stage.leave_at(ended);
            }
            polled
        })
        .await
    }

    pub(crate) fn end(mut self, verdict: &CallVerdict<'_>) {
        self.outcome = match verdict {
            CallVerdict::Passed => CallOutcome::Ok,
            CallVerdict::Refused => {
                with(|request| request.blame(self.profile.uri.as_str()));
                CallOutcome::Refused
            }
            CallVerdict::Failed(fault) => {
                let at = SystemTime::now();
                let hook = self.hook;
                let outcome = CallOutcome::from(*fault);
                self.profile.meters.failed(LastFailure { at, hook, outcome, reason: fault.text() });
                outcome
            }
        };
    }

    /// Thread time of the call.
    pub(crate) fn busy(&self) -> Duration {
        self.busy
    }

    fn took(&self) -> Duration {
        match self.polled {
            // A cancelled call has waited since its last poll.
            Some((first, _)) if self.outcome == CallOutcome::Abandoned => first.elapsed(),
            Some((first, last)) => last - first,
            None => Duration::ZERO,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let took = self.took();
        self.profile.meters.call_ended(self.hook, self.outcome, took, self.busy);
        if let Some(charge) = &self.charge {
            charge(self.busy);
        }
        if let (Some(timeline), Some((began, _))) = (&self.timeline, self.polled) {
            let part = Part::new(Work::Hook, self.hook.name(), began, took);
            let part = Part { verdict: self.outcome.name(), cpu: self.busy, ..part };
            timeline.add(self.profile.uri.as_str(), &part);
        }
        if self.traced.is_recording() {
            self.traced.set("annex.verdict", self.outcome.name());
            self.traced.set_number("annex.cpu_us", self.busy.as_micros());
            if self.outcome.is_failure() {
                self.traced.fail(self.outcome.name());
            }
        }
        if !self.span.is_disabled() {
            self.span.record("verdict", self.outcome.name());
            self.span.record("micros", u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
            tracing::debug!(parent: &self.span, "the hook has ended");
        }
    }
}
