//! A circuit breaker for extensions that keep failing.
//!
//! After [`FAULTS`] consecutive failed turns an extension is quarantined: it is not called, and turns are refused or
//! continue without the extension. After the quarantine, [`TRIALS`] turns try the extension. The first success ends the
//! quarantine. If all trials fail, the next quarantine is twice as long.
//!
//! A client whose messages make the extension fail cannot easily block the extension for other clients. To do so, it
//! would have to send every one of the trial turns, in each round.
//!
//! The operator can also revoke an extension. A revoked extension is never admitted and gets no trials, until the
//! operator reinstates it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annex_protocol::ExtensionUri;
use tokio::time::Instant;

use crate::error::Fault;

/// Number of consecutive failed turns after which a quarantine begins. A successful turn resets the count.
const FAULTS: u32 = 5;
/// Number of turns that try a quarantined extension in each round.
const TRIALS: u32 = 5;
/// Length of the first quarantine. Each failed round doubles it.
const FIRST: Duration = Duration::from_secs(1);
/// Maximum length of a quarantine.
const LONGEST: Duration = Duration::from_secs(60);
/// Random share by which a quarantine is shortened, so that extensions that failed together are not tried together.
const JITTER: f64 = 0.1;

/// The health of an extension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Time until the next trials, if the extension is quarantined.
    pub quarantined: Option<Duration>,
    /// Number of failed turns since the last successful turn.
    pub failures_in_a_row: u32,
    /// Number of failed turns since the extension was loaded.
    pub failures: u64,
    /// Number of quarantines since the extension was loaded. Failed trials extend a quarantine and do not count as a
    /// new quarantine.
    pub quarantines: u64,
    /// The reason why the operator has taken the extension out of service, if so.
    pub revoked: Option<Arc<str>>,
}

/// Why an extension may not run in a turn.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoAdmission {
    /// The extension is quarantined.
    Quarantined {
        /// Time until the next trial.
        next_trial: Duration,
    },
    /// The extension is revoked.
    Revoked {
        /// The reason of the operator.
        reason: Arc<str>,
    },
}

impl NoAdmission {
    /// The fault of a turn with the extension `uri`.
    pub(crate) fn fault(self, uri: &ExtensionUri) -> Fault {
        let uri = uri.clone();
        match self {
            Self::Quarantined { next_trial } => Fault::Quarantined { uri, next_trial },
            Self::Revoked { reason } => Fault::Revoked { uri, reason },
        }
    }
}

/// Permission to run an extension in one turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Admission {
    /// The round in which this turn is a trial; `None` outside of a quarantine.
    trial: Option<u64>,
}

/// The circuit breaker of one extension.
pub(crate) struct Breaker {
    uri: ExtensionUri,
    /// If false, failures are counted but start no quarantine.
    opens: bool,
    /// True if `record` has failures or a revocation. Turns of other extensions read only this flag.
    troubled: AtomicBool,
    record: Mutex<Record>,
}

#[derive(Default)]
struct Record {
    failures_in_a_row: u32,
    failures: u64,
    quarantines: u64,
    /// Number of quarantines and failed rounds so far. Identifies the current round.
    rounds: u64,
    quarantine: Option<Quarantine>,
    /// The reason of the revocation.
    revoked: Option<Arc<str>>,
}

impl Record {
    fn is_troubled(&self) -> bool {
        self.failures_in_a_row > 0 || self.quarantine.is_some() || self.revoked.is_some()
    }
}

struct Quarantine {
    length: Duration,
    until: Instant,
    round: u64,
    /// Number of trials that may still begin in this round.
    trials_left: u32,
    failed_trials: u32,
}

impl Breaker {
    pub(crate) fn new(uri: ExtensionUri, opens: bool) -> Self {
        Self { uri, opens, troubled: AtomicBool::new(false), record: Mutex::default() }
    }

    /// Returns the permission to run the extension. Fails if the extension is quarantined or revoked.
    pub(crate) fn admit(&self) -> Result<Admission, NoAdmission> {
        // Relaxed: the flag guards no data, and the record is read under its lock. A turn that reads a stale value is
        // admitted as if it had come a moment earlier.
        if !self.troubled.load(Ordering::Relaxed) {
            return Ok(Admission::default());
        }
        let mut record = self.lock();
        if let Some(reason) = &record.revoked {
            return Err(NoAdmission::Revoked { reason: Arc::clone(reason) });
        }
        let Some(quarantine) = &mut record.quarantine else { return Ok(Admission::default()) };
        let now = Instant::now();
        if now < quarantine.until {
            return Err(NoAdmission::Quarantined { next_trial: quarantine.until - now });
        }
        // Counted when a trial begins, so that no further turns enter while the first trials run.
        quarantine.trials_left = quarantine.trials_left.saturating_sub(1);
        if quarantine.trials_left == 0 {
            // These trials may take long or be cancelled without a result, so another round may begin after the same
            // time.
            quarantine.until = now + quarantine.length;
            quarantine.trials_left = TRIALS;
        }
        Ok(Admission { trial: Some(quarantine.round) })
    }

    /// Records a failed turn.
    pub(crate) fn failed(&self, admission: Admission, fault: &Fault) {
        let mut guard = self.lock();
        let record = &mut *guard;
        // Written only while the lock is held, here and below, so that the flag matches the record.
        self.troubled.store(true, Ordering::Relaxed);
        record.failures = record.failures.saturating_add(1);
        record.failures_in_a_row = record.failures_in_a_row.saturating_add(1);
        let length = match &mut record.quarantine {
            None if record.failures_in_a_row < FAULTS || !self.opens => return,
            None => {
                record.quarantines = record.quarantines.saturating_add(1);
                FIRST
            }
            // One failed trial does not extend the quarantine: a client that makes the extension fail would have to
            // win all trials.
            Some(quarantine) if admission.trial == Some(quarantine.round) => {
                quarantine.failed_trials = quarantine.failed_trials.saturating_add(1);
                if quarantine.failed_trials < TRIALS {
                    return;
                }
                (quarantine.length * 2).min(LONGEST)
            }
            // The turn began before this round, so its result is outdated.
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
        // Ids of the turn that failed last.
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

    /// Records a successful turn.
    pub(crate) fn succeeded(&self, admission: Admission) {
        if !self.troubled.load(Ordering::Relaxed) {
            return;
        }
        let mut record = self.lock();
        match &record.quarantine {
            // The turn began before this round, so its result is outdated.
            Some(quarantine) if admission.trial != Some(quarantine.round) => return,
            Some(_) => {
                let ids = annex_telemetry::ids();
                tracing::info!(extension = %self.uri, tenant = ids.tenant(), "out of quarantine: a trial succeeded");
            }
            None => {}
        }
        record.quarantine = None;
        record.failures_in_a_row = 0;
        self.troubled.store(record.is_troubled(), Ordering::Relaxed);
    }

    /// Revokes the extension. A revocation has no end of its own, and applies also if `opens` is false. Returns false if
    /// the extension is revoked for this reason already.
    pub(crate) fn revoke(&self, reason: &str) -> bool {
        let mut record = self.lock();
        if record.revoked.as_deref() == Some(reason) {
            return false;
        }
        record.revoked = Some(Arc::from(reason));
        self.troubled.store(true, Ordering::Relaxed);
        true
    }

    /// Ends the revocation. A quarantine stays as it is. Returns false if the extension is not revoked.
    pub(crate) fn reinstate(&self) -> bool {
        let mut record = self.lock();
        let was_revoked = record.revoked.take().is_some();
        self.troubled.store(record.is_troubled(), Ordering::Relaxed);
        was_revoked
    }

    /// The reason of the revocation. `None` if the extension is not revoked.
    pub(crate) fn revocation(&self) -> Option<Arc<str>> {
        if self.troubled.load(Ordering::Relaxed) { self.lock().revoked.clone() } else { None }
    }

    /// True if the extension is quarantined or revoked.
    pub(crate) fn is_open(&self) -> bool {
        if !self.troubled.load(Ordering::Relaxed) {
            return false;
        }
        let record = self.lock();
        record.quarantine.is_some() || record.revoked.is_some()
    }

    pub(crate) fn health(&self) -> Health {
        let record = self.lock();
        let quarantine = record.quarantine.as_ref();
        Health {
            quarantined: quarantine.map(|quarantine| quarantine.until.saturating_duration_since(Instant::now())),
            failures_in_a_row: record.failures_in_a_row,
            failures: record.failures,
            quarantines: record.quarantines,
            revoked: record.revoked.clone(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        // The record consists of numbers and a text, so it is usable after a panic.
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
