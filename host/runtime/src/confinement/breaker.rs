//! Keeps an extension that fails again and again from being tried at every request.
//!
//! After [`FAULTS`] failed turns in a row it is quarantined: turns are refused, or go on without it, and nothing of it
//! runs. Then [`TRIALS`] turns try it: the first success ends the quarantine, and only when all have failed is the next
//! one twice as long. So a client whose messages make it fail must come before all others in each round to keep it from
//! them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annex_protocol::ExtensionUri;
use tokio::time::Instant;

use crate::error::Fault;

/// Failed turns in a row that open a quarantine. One good turn in between starts the count again.
const FAULTS: u32 = 5;
/// Turns that try a quarantined extension before it is left alone again.
const TRIALS: u32 = 5;
/// The first quarantine; each round of failed trials doubles it.
const FIRST: Duration = Duration::from_secs(1);
/// The longest quarantine.
const LONGEST: Duration = Duration::from_secs(60);
/// Quarantines end up to this share early, so that extensions that fail together are not tried together.
const JITTER: f64 = 0.1;

/// The health of an extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// The time to the next trials, while the extension is quarantined; `None` when it serves.
    pub quarantined: Option<Duration>,
    /// Turns that it failed since the last one that went well.
    pub failures_in_a_row: u32,
    /// Turns that it failed since it was loaded.
    pub failures: u64,
    /// Quarantines since it was loaded. Failed trials make one longer and begin none.
    pub quarantines: u64,
}

/// Leave to run an extension in one turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Admission {
    /// The number of the quarantine's round that this turn is a trial of; `None` outside of a quarantine.
    trial: Option<u64>,
}

/// The state of one extension.
pub(crate) struct Breaker {
    uri: ExtensionUri,
    /// False when failures are only counted.
    opens: bool,
    /// True when there is anything to look up or to forget. While all goes well it is all that a turn reads.
    troubled: AtomicBool,
    record: Mutex<Record>,
}

#[derive(Default)]
struct Record {
    failures_in_a_row: u32,
    failures: u64,
    quarantines: u64,
    /// Rounds of trials that failed and quarantines that began, over all quarantines.
    rounds: u64,
    quarantine: Option<Quarantine>,
}

struct Quarantine {
    length: Duration,
    until: Instant,
    round: u64,
    /// Trials of this round that may still begin.
    trials_left: u32,
    failed_trials: u32,
}

impl Breaker {
    pub(crate) fn new(uri: ExtensionUri, opens: bool) -> Self {
        Self { uri, opens, troubled: AtomicBool::new(false), record: Mutex::default() }
    }

    /// Asks for leave to run the extension. The time to the next trial when there is none.
    pub(crate) fn admit(&self) -> Result<Admission, Duration> {
        // Relaxed is enough: the flag guards no data, and whoever sees it set reads the record under its lock. A turn
        // that reads the value of a moment ago is admitted as if it had come then.
        if !self.troubled.load(Ordering::Relaxed) {
            return Ok(Admission::default());
        }
        let mut record = self.lock();
        let Some(quarantine) = &mut record.quarantine else { return Ok(Admission::default()) };
        let now = Instant::now();
        if now < quarantine.until {
            return Err(quarantine.until - now);
        }
        // Counted when a trial begins and not when it ends, so that no crowd comes in while the first one still runs.
        quarantine.trials_left = quarantine.trials_left.saturating_sub(1);
        if quarantine.trials_left == 0 {
            // These trials may take long, or be broken off and tell nothing, so others may begin after the same time.
            quarantine.until = now + quarantine.length;
            quarantine.trials_left = TRIALS;
        }
        Ok(Admission { trial: Some(quarantine.round) })
    }

    /// The extension failed in a turn.
    pub(crate) fn failed(&self, admission: Admission, fault: &Fault) {
        let mut guard = self.lock();
        let record = &mut *guard;
        // Written only while the lock is held, here and in `succeeded`, so that the flag never contradicts the record.
        self.troubled.store(true, Ordering::Relaxed);
        record.failures = record.failures.saturating_add(1);
        record.failures_in_a_row = record.failures_in_a_row.saturating_add(1);
        let length = match &mut record.quarantine {
            None if record.failures_in_a_row < FAULTS || !self.opens => return,
            None => {
                record.quarantines = record.quarantines.saturating_add(1);
                FIRST
            }
            // One failed trial prolongs nothing: a client that makes the extension fail has to come before all others.
            Some(quarantine) if admission.trial == Some(quarantine.round) => {
                quarantine.failed_trials = quarantine.failed_trials.saturating_add(1);
                if quarantine.failed_trials < TRIALS {
                    return;
                }
                (quarantine.length * 2).min(LONGEST)
            }
            // The turn began before this round and tells nothing new.
            Some(_) => return,
        };
        record.rounds = record.rounds.saturating_add(1);
        let until = Instant::now() + length.mul_f64(1.0 - JITTER * fastrand::f64());
        let round = record.rounds;
        record.quarantine = Some(Quarantine { length, until, round, trials_left: TRIALS, failed_trials: 0 });
        let extension = &self.uri;
        let failures = record.failures_in_a_row;
        let seconds = length.as_secs();
        let ids = annex_telemetry::ids();
        // Those of the turn that failed last.
        let (tenant, context, task) = ids.all();
        tracing::warn!(
            %extension,
            failures,
            seconds,
            tenant,
            context,
            task,
            "quarantined after failures in a row: {}",
            fault.text()
        );
    }

    /// The extension did its part of a turn.
    pub(crate) fn succeeded(&self, admission: Admission) {
        if !self.troubled.load(Ordering::Relaxed) {
            return;
        }
        let mut record = self.lock();
        match &record.quarantine {
            // The turn began before this round and tells nothing new.
            Some(quarantine) if admission.trial != Some(quarantine.round) => return,
            Some(_) => {
                let ids = annex_telemetry::ids();
                tracing::info!(extension = %self.uri, tenant = ids.tenant(), "out of quarantine: a trial went well");
            }
            None => {}
        }
        record.quarantine = None;
        record.failures_in_a_row = 0;
        self.troubled.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.troubled.load(Ordering::Relaxed) && self.lock().quarantine.is_some()
    }

    pub(crate) fn health(&self) -> Health {
        let record = self.lock();
        let quarantine = record.quarantine.as_ref();
        Health {
            quarantined: quarantine.map(|quarantine| quarantine.until.saturating_duration_since(Instant::now())),
            failures_in_a_row: record.failures_in_a_row,
            failures: record.failures,
            quarantines: record.quarantines,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        // The record is plain numbers, so one that a panic left behind can still be used.
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
