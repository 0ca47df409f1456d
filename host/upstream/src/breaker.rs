//! A circuit breaker: after several failures in a row no request is sent for a while.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The number of failures in a row that opens the circuit.
const FAILURES: u32 = 5;

/// A circuit breaker. After [`FAILURES`] failures in a row the circuit opens, and calls fail at once. When the pause
/// has passed, one call at a time may try the upstream. The first success closes the circuit.
pub(crate) struct Breaker {
    pause: Duration,
    state: Mutex<BreakerState>,
}

#[derive(Default)]
struct BreakerState {
    failures: u32,
    /// The time from which the next call may be tried. `None` while the circuit is closed.
    closed_until: Option<Instant>,
}

impl Breaker {
    pub(crate) fn new(pause: Duration) -> Self {
        Self { pause, state: Mutex::default() }
    }

    /// Asks for permission to call the upstream.
    ///
    /// # Errors
    /// The time to wait until the next call may be tried.
    pub(crate) fn enter(&self) -> Result<(), Duration> {
        let mut state = self.lock();
        let now = Instant::now();
        let Some(until) = state.closed_until else { return Ok(()) };
        if now < until {
            return Err(until - now);
        }
        // This call is the trial. Other calls wait for the same pause again, in case the trial does not report its
        // outcome.
        state.closed_until = Some(now + self.pause);
        Ok(())
    }

    /// Tells whether the circuit is open, so that calls fail at once.
    pub(crate) fn is_open(&self) -> bool {
        self.lock().closed_until.is_some_and(|until| Instant::now() < until)
    }

    /// Records an answer of the upstream, which may be an error about the request. Closes the circuit.
    pub(crate) fn succeeded(&self) {
        let was_closed = {
            let mut state = self.lock();
            let was_closed = state.closed_until.is_some();
            *state = BreakerState::default();
            was_closed
        };
        if was_closed {
            tracing::info!(tenant = annex_telemetry::ids().tenant(), "the upstream agent answers again");
        }
    }

    /// Records a failure: the upstream did not answer, or its answer breaks the protocol. Opens the circuit after
    /// [`FAILURES`] failures in a row.
    pub(crate) fn failed(&self) {
        let mut state = self.lock();
        state.failures = state.failures.saturating_add(1);
        if state.failures < FAILURES {
            return;
        }
        // Logged once for a series of failures, not with each trial that fails after the fifth.
        if state.closed_until.is_none() {
            let seconds = self.pause.as_secs_f32();
            let ids = annex_telemetry::ids();
            let (tenant, context, task) = ids.all();
            tracing::warn!(
                tenant,
                context,
                task,
                "the upstream agent failed {FAILURES} times in a row and is tried again in {seconds} s"
            );
        }
        // The pause begins anew with each failure, also with that of a trial.
        state.closed_until = Some(Instant::now() + self.pause);
    }

    fn lock(&self) -> MutexGuard<'_, BreakerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Breaker, FAILURES};

    #[test]
    fn five_failures_in_a_row_close_it_and_a_success_in_between_does_not() {
        let breaker = Breaker::new(Duration::from_secs(60));
        for _ in 1..FAILURES {
            breaker.failed();
        }
        breaker.succeeded();
        for _ in 1..FAILURES {
            breaker.failed();
            assert!(breaker.enter().is_ok());
        }
        breaker.failed();
        assert!(breaker.enter().is_err_and(|wait| wait <= Duration::from_secs(60)));
    }

    #[test]
    fn after_the_pause_one_call_is_tried_and_decides() {
        let breaker = Breaker::new(Duration::from_millis(1));
        (0..FAILURES).for_each(|_| breaker.failed());
        while breaker.enter().is_err() {}
        breaker.failed();
        while breaker.enter().is_err() {}
        breaker.succeeded();
        assert!((0..3).all(|_| breaker.enter().is_ok()));
    }
}
