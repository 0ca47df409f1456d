//! A session as the turn that runs in it sees it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_protocol::Json;

use crate::SessionError;
use crate::event::Event;
use crate::event_log::EventFilter;
use crate::memory::InMemorySessionService;
use crate::session::SessionKey;
use crate::state::{Scope, State};
use crate::turn::TurnGuard;

/// The session of one running turn: live, not a copy, with the `temp:` keys of this turn.
///
/// Clones are the same turn. It ends, and the next one may start, when the last clone is dropped.
#[derive(Clone)]
pub struct TurnSession {
    inner: Arc<Inner>,
}

struct Inner {
    service: Arc<InMemorySessionService>,
    key: SessionKey,
    progress: Mutex<Progress>,
    _guard: TurnGuard,
}

/// What the turn has done so far. Its lock is held while an event is appended, so that appends through clones of one
/// turn cannot make each other stale.
struct Progress {
    revision: u64,
    /// `temp:` keys in full.
    temp: State,
}

impl TurnSession {
    pub(crate) fn new(service: Arc<InMemorySessionService>, key: SessionKey, revision: u64, guard: TurnGuard) -> Self {
        let progress = Mutex::new(Progress { revision, temp: State::new() });
        Self { inner: Arc::new(Inner { service, key, progress, _guard: guard }) }
    }

    /// Which session this is.
    pub fn key(&self) -> &SessionKey {
        &self.inner.key
    }

    /// Whether the session exists yet: the first append creates it.
    pub fn exists(&self) -> bool {
        self.inner.service.exists(&self.inner.key)
    }

    /// All that this turn can read: session keys, then `app:`, `user:` and `temp:` keys with their prefixes.
    pub fn state(&self) -> State {
        let mut state = self.inner.service.merged_state(&self.inner.key);
        state.extend(self.inner.progress().temp.clone());
        state
    }

    /// One value by its full key.
    pub fn value(&self, key: &str) -> Option<Json> {
        match Scope::of(key).0 {
            Scope::Temp => self.inner.progress().temp.get(key).cloned(),
            Scope::Session | Scope::User | Scope::App => self.inner.service.value(&self.inner.key, key),
        }
    }

    /// Session-scope keys only: what may be shown to a client.
    pub fn snapshot(&self) -> State {
        self.inner.service.session_state(&self.inner.key)
    }

    /// The events so far, in order of arrival.
    pub fn history(&self) -> Vec<Arc<Event>> {
        // A session that does not exist yet has no history.
        self.inner.service.events(&self.inner.key, EventFilter::default()).unwrap_or_default()
    }

    /// Stores an event and applies its delta in one step; creates the session if need be. `temp:` keys are kept for
    /// this turn only. A partial event changes nothing.
    ///
    /// # Errors
    /// [`SessionError::StateTooLarge`], [`SessionError::EventConflict`] or [`SessionError::InvalidContextId`];
    /// [`SessionError::NotFound`] if the session was deleted, [`SessionError::Stale`] if it was changed from outside
    /// this turn. Nothing of the event is stored then.
    pub fn append(&self, mut event: Event) -> Result<(), SessionError> {
        if event.partial {
            return Ok(());
        }
        let temp = event.state_delta.take_temp();
        let mut progress = self.inner.progress();
        progress.revision = self.inner.service.append_in_turn(&self.inner.key, progress.revision, event)?;
        progress.temp.extend(State::from(temp));
        Ok(())
    }
}

impl Inner {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Runs before the guard is dropped: the session is released before the next turn opens it.
        self.service.end_turn(&self.key);
    }
}
