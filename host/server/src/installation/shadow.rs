//! A shadow: a candidate version of an extension that gets copies of real turns and has no effect.
//!
//! A turn is recorded while the installed version processes it. After the end of the turn, the recording is replayed to
//! the shadow, one turn at a time and outside of any request. A shadow that is slow, fails or loops delays only its own
//! turns. Turns that do not fit into the queue are dropped and counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_protocol::{Json, Timestamp};
use annex_runtime::{Attention, Comparison, Extension, Hide, RecordedTurn, TurnObserver, replay};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::AbortHandle;
use tracing::Instrument;

use crate::config::ExtensionConfig;
use crate::installation::hiding::RecordingRedactor;
use crate::redaction::Redaction;

/// The maximum number of turns that are being recorded at the same time. It is also the maximum number of recorded
/// turns that wait for the replay. Each turn has at most a mebibyte.
const MAX_WAITING: usize = 16;

/// The shadow of one installed version.
pub(crate) struct Shadow {
    pub(crate) candidate: Arc<Extension>,
    pub(crate) settings: ExtensionConfig,
    pub(crate) component: Vec<u8>,
    /// The TOML of the settings in the request. `None` if the shadow uses the settings of the installed version.
    pub(crate) settings_text: Option<String>,
    pub(crate) since: Timestamp,
    observer: Arc<Observer>,
    player: AbortHandle,
    /// The installed version that the shadow observes.
    of: Arc<Extension>,
}

/// A component to be run as a shadow.
pub(crate) struct Candidate {
    pub(crate) extension: Arc<Extension>,
    pub(crate) settings: ExtensionConfig,
    pub(crate) component: Vec<u8>,
    pub(crate) settings_text: Option<String>,
}

/// The results of a shadow so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) comparison: Comparison,
    /// The number of turns that were too large or did not fit into the queue.
    pub(crate) left_out: u64,
    /// The number of turns that were not replayed, because the shadow was quarantined or busy.
    pub(crate) not_run: u64,
}

impl Shadow {
    /// Starts replaying `share` percent of the turns of `of` to the candidate. `None` if `of` is observed already.
    pub(crate) fn begin(of: &Arc<Extension>, candidate: Candidate, share: u8, redaction: Redaction) -> Option<Self> {
        let (turns, waiting) = channel(MAX_WAITING);
        let observer = Arc::new(Observer {
            attention: candidate.extension.attention(),
            share: share.into(),
            seen: AtomicU64::new(0),
            noted: AtomicU64::new(0),
            turns,
            report: Arc::default(),
            left_out: AtomicU64::new(0),
            not_run: AtomicU64::new(0),
        });
        if !of.observe(Arc::clone(&observer) as _) {
            return None;
        }
        let extensions = vec![Arc::clone(of), Arc::clone(&candidate.extension)];
        let hiding = Arc::new(RecordingRedactor { redaction, extensions });
        // The span distinguishes the candidate's log lines from those of the installed version.
        let span = tracing::info_span!("shadow", digest = %candidate.extension.digest());
        let playing = play(waiting, Arc::clone(&candidate.extension), Arc::clone(&observer), hiding).instrument(span);
        let player = tokio::spawn(playing).abort_handle();
        let Candidate { extension, settings, component, settings_text } = candidate;
        let since = Timestamp::now();
        Some(Self {
            candidate: extension,
            settings,
            component,
            settings_text,
            since,
            observer,
            player,
            of: Arc::clone(of),
        })
    }

    /// The percentage of turns that are replayed.
    pub(crate) fn share(&self) -> u64 {
        self.observer.share
    }

    /// True if this is the shadow of `extension`.
    pub(crate) fn is_of(&self, extension: &Arc<Extension>) -> bool {
        Arc::ptr_eq(&self.of, extension)
    }

    pub(crate) fn report(&self) -> Report {
        Report {
            comparison: lock(&self.observer.report).clone(),
            left_out: self.observer.left_out.load(Ordering::Relaxed),
            not_run: self.observer.not_run.load(Ordering::Relaxed),
        }
    }
}

/// Dropping a shadow also aborts the replay that is running.
impl Drop for Shadow {
    fn drop(&mut self) {
        self.of.end_observation();
        self.player.abort();
    }
}

struct Observer {
    attention: Attention,
    share: u64,
    /// The number of turns of the installed version since the shadow began.
    seen: AtomicU64,
    /// The number of turns that are being recorded.
    noted: AtomicU64,
    turns: Sender<RecordedTurn>,
    report: Arc<Mutex<Comparison>>,
    /// The number of turns that were too large or did not fit into the queue.
    left_out: AtomicU64,
    /// The number of turns that were not replayed.
    not_run: AtomicU64,
}

impl TurnObserver for Observer {
    fn wants(&self) -> bool {
        let turn = self.seen.fetch_add(1, Ordering::Relaxed);
        // The turns are spread evenly: of any 100 consecutive turns, as many are recorded as the share says.
        let taken = |turn: u64| turn.saturating_mul(self.share) / 100;
        if taken(turn) == taken(turn + 1) {
            return false;
        }
        let room = |noted: u64| (noted < MAX_WAITING as u64).then_some(noted + 1);
        let has_room = self.noted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok();
        if !has_room {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
        has_room
    }

    fn beside(&self) -> Option<&Attention> {
        Some(&self.attention)
    }

    fn ended(&self, turn: RecordedTurn) {
        self.noted.fetch_sub(1, Ordering::Relaxed);
        if self.turns.try_send(turn).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn left_out(&self) {
        self.noted.fetch_sub(1, Ordering::Relaxed);
        self.left_out.fetch_add(1, Ordering::Relaxed);
    }
}

/// Replays recorded turns to the candidate, one at a time.
async fn play(
    mut turns: Receiver<RecordedTurn>,
    candidate: Arc<Extension>,
    observer: Arc<Observer>,
    hiding: Arc<RecordingRedactor>,
) {
    while let Some(turn) = turns.recv().await {
        // The candidate reads keys from the store that the installed version did not touch. The replay writes nothing
        // to it.
        let keys = Some(Arc::clone(candidate.key_store()));
        match replay(&candidate, &turn, keys).await {
            Ok(replayed) => {
                let hiding = Arc::clone(&hiding);
                // Comparing two turns of up to a mebibyte would block a thread that serves requests.
                let compared = tokio::task::spawn_blocking(move || {
                    let mut compared = Comparison::default();
                    let unanswered = replayed.unanswered.iter().map(|question| hiding.text(question)).collect();
                    compared.add_shown(&turn, &replayed.turn, unanswered, &|value| shown(value, &hiding));
                    compared
                });
                if let Ok(compared) = compared.await {
                    lock(&observer.report).merge(compared);
                }
            }
            Err(fault) => {
                observer.not_run.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(extension = %candidate.uri(), "a turn was not replayed to the shadow: {fault}");
            }
        }
    }
}

/// Encodes one side of a difference as JSON for operators, with hidden values replaced.
fn shown(value: &serde_json::Value, hiding: &RecordingRedactor) -> String {
    match Json::parse(value.to_string()) {
        Ok(json) => hiding.json(&json).get().to_owned(),
        Err(_) => "[hidden]".to_owned(),
    }
}

fn lock(report: &Mutex<Comparison>) -> MutexGuard<'_, Comparison> {
    report.lock().unwrap_or_else(PoisonError::into_inner)
}
