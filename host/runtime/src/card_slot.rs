//! The present entry of an extension on the Agent Card, and the time for which it holds.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use annex_protocol::AgentExtension;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::confinement::grants::Grants;

/// Size of the entry as JSON, in bytes. An entry that cannot be serialized counts as infinitely large.
pub(crate) fn entry_bytes(entry: &AgentExtension) -> usize {
    serde_json::to_vec(entry).map_or(usize::MAX, |json| json.len())
}

/// Least time between two declarations of one extension, also after a fault.
const LEAST: Duration = Duration::from_secs(1);

/// An entry on the Agent Card that the hook `live-card` has declared. Processes that share their card exchange it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveEntry {
    /// The entry.
    pub entry: AgentExtension,
    /// For how many seconds the entry holds. 0: until the next load.
    pub seconds: u32,
    /// When the extension declared the entry, in milliseconds since 1970.
    pub declared_at: u64,
    /// When the extension was asked last, in milliseconds since 1970. Later than `declared_at` after a failed call.
    pub asked_at: u64,
}

impl LiveEntry {
    /// An entry that was declared now. `before` is the time of the previous call.
    pub(crate) fn declared(entry: AgentExtension, seconds: u32, before: u64) -> Self {
        let now = asked_now(before);
        Self { entry, seconds, declared_at: now, asked_at: now }
    }

    /// This entry after a call that failed: it stays, and the extension is asked again after the same time.
    #[must_use]
    pub fn kept(self) -> Self {
        Self { asked_at: asked_now(self.asked_at), ..self }
    }
}

/// The time of a call, in milliseconds since 1970. Each call has a later time than the previous one, whichever process
/// made it and whatever its clock says.
fn asked_now(before: u64) -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX).max(before.saturating_add(1))
}

/// The last declaration of a live entry, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastDeclaration {
    /// When the extension declared the entry, in milliseconds since 1970.
    pub declared_at: u64,
    /// For how many seconds the entry holds. 0: until the next load.
    pub seconds: u32,
    /// Why a later call in this process failed, with the time in milliseconds since 1970. `None` if none failed.
    pub error: Option<(u64, String)>,
}

/// The present entry of an extension.
pub(crate) struct CardSlot {
    /// Least time for which an entry holds.
    least: Duration,
    state: Mutex<CardState>,
}

struct CardState {
    entry: Arc<AgentExtension>,
    /// Size of `entry` as JSON, in bytes.
    bytes: usize,
    /// `None` for an entry of the hook `card`.
    live: Option<LiveEntry>,
    /// True once cards have the entry. Before, it is only the entry that was declared at load.
    is_published: bool,
    /// When the extension is to declare the entry again. `None` if the entry holds until the next load.
    due: Option<Instant>,
    /// True while the entry is the one that was declared at load, without the lasting keys that the extension may use.
    needs_keys: bool,
    error: Option<(u64, String)>,
}

impl CardSlot {
    /// An entry that never changes.
    pub(crate) fn fixed(entry: AgentExtension) -> Self {
        let bytes = entry_bytes(&entry);
        let entry = Arc::new(entry);
        let state =
            CardState { entry, bytes, live: None, is_published: false, due: None, needs_keys: false, error: None };
        Self { least: LEAST, state: Mutex::new(state) }
    }

    /// A live entry.
    pub(crate) fn live(live: LiveEntry, grants: &Grants) -> Self {
        let least = grants.live_card.map_or(LEAST, |grant| Duration::from_secs(grant.at_least_seconds.into()));
        let slot = Self { least: least.max(LEAST), ..Self::fixed(live.entry.clone()) };
        let due = slot.hold(live.seconds).map(|hold| Instant::now() + hold);
        {
            let mut state = slot.lock();
            (state.live, state.due) = (Some(live), due);
        }
        slot
    }

    pub(crate) fn entry(&self) -> Arc<AgentExtension> {
        Arc::clone(&self.lock().entry)
    }

    /// Size of the entry as JSON, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// The entry with its times. `None` for an entry of the hook `card`.
    pub(crate) fn live_entry(&self) -> Option<LiveEntry> {
        self.lock().live.clone()
    }

    /// When the entry is to be declared again.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.lock().due
    }

    /// The last declaration. `None` for an entry of the hook `card`.
    pub(crate) fn last_declaration(&self) -> Option<LastDeclaration> {
        let state = self.lock();
        let LiveEntry { seconds, declared_at, .. } = *state.live.as_ref()?;
        Some(LastDeclaration { declared_at, seconds, error: state.error.clone() })
    }

    /// Replaces the entry by that of a card. Its time begins at `now`, unless the slot has this very declaration already.
    pub(crate) fn show(&self, live: &LiveEntry, now: Instant) {
        let hold = self.hold(live.seconds);
        let mut state = self.lock();
        let was_published = std::mem::replace(&mut state.is_published, true);
        if state.live.as_ref() == Some(live) {
            return;
        }
        // An edition that was proposed before the last declaration brings the entry of that time back.
        let is_older = state.live.as_ref().is_some_and(|present| live.asked_at < present.asked_at);
        let hold = if is_older && was_published { hold.map(|_| LEAST) } else { hold };
        if *state.entry != live.entry {
            state.bytes = entry_bytes(&live.entry);
            state.entry = Arc::new(live.entry.clone());
        }
        if state.live.as_ref().is_none_or(|present| present.declared_at != live.declared_at) {
            state.error = None;
        }
        state.needs_keys = false;
        state.due = hold.map(|hold| now + hold);
        state.live = Some(live.clone());
    }

    /// Notes a failed call. The entry stays. Returns true if the previous call succeeded.
    pub(crate) fn fails(&self, reason: &str, pause: Option<Duration>, now: Instant) -> bool {
        let mut state = self.lock();
        let Some(kept) = state.live.clone().map(LiveEntry::kept) else { return false };
        let hold = self.hold(kept.seconds).or(state.needs_keys.then_some(self.least));
        state.due = hold.map(|hold| now + pause.map_or(hold, |pause| pause.max(LEAST)));
        let is_first = state.error.is_none();
        state.error = Some((kept.asked_at, reason.to_owned()));
        state.live = Some(kept);
        is_first
    }

    /// Has the extension asked again as soon as possible, because it has declared its entry without its lasting keys.
    pub(crate) fn needs_lasting_keys(&self) {
        let mut state = self.lock();
        state.needs_keys = true;
        state.due = Some(Instant::now() + LEAST);
    }

    /// The time for which an entry holds. `None`: until the next load.
    fn hold(&self, seconds: u32) -> Option<Duration> {
        (seconds > 0).then(|| Duration::from_secs(seconds.into()).max(self.least))
    }

    fn lock(&self) -> MutexGuard<'_, CardState> {
        // Each change replaces whole values, so the state is usable after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use annex_protocol::{AgentExtension, JsonObject};
    use tokio::time::Instant;

    use super::{CardSlot, LiveEntry};
    use crate::confinement::grants::{Grants, LiveCardGrant};

    fn entry(number: u32) -> AgentExtension {
        let params = JsonObject::parse(&format!(r#"{{"n":{number}}}"#)).expect("an object");
        AgentExtension { params: Some(params), ..AgentExtension::default() }
    }

    fn slot(at_least_seconds: u32, live: &LiveEntry) -> CardSlot {
        let grants = Grants { live_card: Some(LiveCardGrant { at_least_seconds }), ..Grants::default() };
        CardSlot::live(live.clone(), &grants)
    }

    #[tokio::test(start_paused = true)]
    async fn an_entry_holds_its_time_and_at_least_the_time_of_the_grant() {
        let began = Instant::now();
        for (seconds, least, expected) in [(90, 60, Some(90)), (5, 60, Some(60)), (1, 1, Some(1)), (0, 60, None)] {
            let slot = slot(least, &LiveEntry::declared(entry(1), seconds, 0));
            let due = slot.lock().due.map(|due| due - began);
            assert_eq!(due, expected.map(Duration::from_secs), "{seconds} {least}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_another_declaration_begins_the_time_of_an_entry_again() {
        let first = LiveEntry::declared(entry(1), 10, 0);
        let slot = slot(1, &first);
        let began = Instant::now();
        let due = || slot.lock().due.map(|due| (due - began).as_secs());
        let shown = slot.entry();
        slot.show(&first, began + Duration::from_secs(3));
        assert_eq!(due(), Some(10), "the same declaration");
        let kept = first.clone().kept();
        slot.show(&kept, began + Duration::from_secs(3));
        assert_eq!(due(), Some(13), "another call, which left the entry as it is");
        assert!(Arc::ptr_eq(&slot.entry(), &shown));
        assert!(slot.fails("a reason", None, began + Duration::from_secs(3)));
        assert!(slot.last_declaration().is_some_and(|last| last.error.is_some()));
        let second = LiveEntry::declared(entry(2), 10, kept.asked_at + 1_000);
        slot.show(&second, began + Duration::from_secs(13));
        assert_eq!((due(), slot.entry().params.clone()), (Some(23), entry(2).params));
        assert!(slot.last_declaration().is_some_and(|last| last.error.is_none()));
        // The declaration of an edition that was proposed before.
        slot.show(&first, began + Duration::from_secs(14));
        assert_eq!((due(), slot.entry().params.clone()), (Some(15), entry(1).params));
    }

    #[tokio::test(start_paused = true)]
    async fn an_entry_without_the_lasting_keys_is_declared_again_until_a_call_succeeds() {
        let at_load = LiveEntry::declared(entry(1), 0, 0);
        let slot = slot(5, &at_load);
        let began = Instant::now();
        let due = || slot.due().map(|due| (due - began).as_secs());
        slot.needs_lasting_keys();
        slot.show(&at_load, began);
        assert_eq!(due(), Some(1), "the card shows the entry of the load");
        assert!(slot.fails("a reason", None, began + Duration::from_secs(1)));
        assert_eq!(due(), Some(6), "the call failed");
        let asked_at = slot.live_entry().map_or(0, |live| live.asked_at);
        slot.show(&LiveEntry::declared(entry(1), 0, asked_at), began + Duration::from_secs(6));
        assert_eq!(due(), None, "the entry holds until the next load");
    }

    #[tokio::test(start_paused = true)]
    async fn the_entry_of_a_card_takes_the_place_of_that_of_the_load() {
        let of_others = LiveEntry::declared(entry(1), 10, 0);
        // The process loads the extension later than the process that has made the card.
        let slot = slot(1, &LiveEntry::declared(entry(2), 10, of_others.asked_at));
        let began = Instant::now();
        slot.show(&of_others, began + Duration::from_secs(2));
        assert_eq!(slot.entry().params, entry(1).params);
        assert_eq!(slot.due().map(|due| due - began), Some(Duration::from_secs(12)));
    }
}
