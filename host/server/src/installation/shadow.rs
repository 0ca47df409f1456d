//! A shadow: a new version of an extension that is played the turns of the version in force, on real traffic and with no
//! effect on anything.
//!
//! A turn is noted while the version in force serves it, and played to the shadow when it is over, one turn after the
//! other and off the path of requests. A shadow that is slow, fails or loops costs turns of its own: those for which there is
//! no room are left out and counted.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_protocol::{Json, Timestamp};
use annex_runtime::{Attention, Comparison, Extension, Hide, RecordedTurn, TurnObserver, replay};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::AbortHandle;
use tracing::Instrument;

use crate::config::ExtensionConfig;
use crate::installation::hiding::Hiding;
use crate::redaction::Redaction;

/// Turns that are noted at once, or wait to be played. Each has at most a mebibyte.
const MAX_WAITING: usize = 16;

/// A shadow of an extension.
pub(crate) struct Shadow {
    pub(crate) candidate: Arc<Extension>,
    pub(crate) settings: ExtensionConfig,
    pub(crate) component: Vec<u8>,
    /// As they were given; `None` where those in force count.
    pub(crate) settings_text: Option<String>,
    pub(crate) since: Timestamp,
    observer: Arc<Observer>,
    player: AbortHandle,
    /// The version in force, which is observed.
    of: Arc<Extension>,
}

/// A component to be run as a shadow.
pub(crate) struct Candidate {
    pub(crate) extension: Arc<Extension>,
    pub(crate) settings: ExtensionConfig,
    pub(crate) component: Vec<u8>,
    pub(crate) settings_text: Option<String>,
}

/// The outcome of a shadow so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Report {
    pub(crate) comparison: Comparison,
    /// Turns for which there was no room.
    pub(crate) left_out: u64,
    /// Turns that the shadow was not played, because it was quarantined or busy.
    pub(crate) not_run: u64,
}

impl Shadow {
    /// Lets the candidate follow `share` of 100 turns of the version in force. `None` when that one is observed already.
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
        let hiding = Arc::new(Hiding { redaction, extensions });
        // Whatever the candidate logs is told from the lines of the version in force by this span.
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

    /// The turns that it follows, of 100.
    pub(crate) fn share(&self) -> u64 {
        self.observer.share
    }

    /// True when it is a shadow of this version.
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

/// The turn that is played ends with it.
impl Drop for Shadow {
    fn drop(&mut self) {
        self.of.end_observation();
        self.player.abort();
    }
}

struct Observer {
    attention: Attention,
    share: u64,
    /// Turns of the version in force.
    seen: AtomicU64,
    /// Turns that are being noted.
    noted: AtomicU64,
    turns: Sender<RecordedTurn>,
    report: Arc<Mutex<Comparison>>,
    /// Turns that were too large, or for which there was no room.
    left_out: AtomicU64,
    /// Turns that the candidate was not played.
    not_run: AtomicU64,
}

impl TurnObserver for Observer {
    fn wants(&self) -> bool {
        let turn = self.seen.fetch_add(1, Ordering::Relaxed);
        // Spread evenly: of 100 turns that follow each other as many are taken as the share says.
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

/// Plays the turns to the candidate as they come.
async fn play(
    mut turns: Receiver<RecordedTurn>,
    candidate: Arc<Extension>,
    observer: Arc<Observer>,
    hiding: Arc<Hiding>,
) {
    while let Some(turn) = turns.recv().await {
        // The store has the keys that the version in force did not touch. Nothing is written to it.
        let keys = Some(Arc::clone(candidate.key_store()));
        match replay(&candidate, &turn, keys).await {
            Ok(replayed) => {
                let hiding = Arc::clone(&hiding);
                // Two turns of up to a mebibyte are not compared on a thread that serves requests.
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
                tracing::debug!(extension = %candidate.uri(), "a shadow was not played a turn: {fault}");
            }
        }
    }
}

/// A side of a difference as operators may see it.
fn shown(value: &serde_json::Value, hiding: &Hiding) -> String {
    match Json::parse(value.to_string()) {
        Ok(json) => hiding.json(&json).get().to_owned(),
        Err(_) => "[hidden]".to_owned(),
    }
}

fn lock(report: &Mutex<Comparison>) -> MutexGuard<'_, Comparison> {
    report.lock().unwrap_or_else(PoisonError::into_inner)
}
