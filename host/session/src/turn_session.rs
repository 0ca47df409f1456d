//! A session as the turn that runs in it sees it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_protocol::{Json, Part};

use crate::SessionError;
use crate::event::{Event, EventError};
use crate::event_log::EventFilter;
use crate::service::SessionService;
use crate::session::{Session, SessionKey};
use crate::session_state::SessionState;
use crate::state::{Scope, State, StateDelta};
use crate::turn::TurnGuard;

/// What a turn reads of the conversation, in bytes. Sessions in a database may hold more than fits into memory.
const HISTORY_BYTES: usize = 8 << 20;

/// The code of the error of a turn that nobody ended.
const BROKEN_OFF: &str = "BROKEN_OFF";

/// The session of one running turn, with the `temp:` keys of this turn.
///
/// The state is read once, when the turn opens it, and follows what the turn appends; what others set meanwhile in the
/// scopes that they share is seen by the next turn. Clones are the same turn. It ends, and the next one may start, when
/// the last clone is dropped.
#[derive(Clone)]
pub struct TurnSession {
    inner: Arc<Inner>,
}

struct Inner {
    /// Dropped before the guard: the session is released before the next turn opens it.
    hold: Hold,
    view: Mutex<View>,
    /// Held while events are appended, so that appends through clones of one turn cannot make each other stale.
    appending: tokio::sync::Mutex<()>,
    _guard: TurnGuard,
}

/// Keeps the session from being dropped to make room.
struct Hold {
    service: Arc<dyn SessionService>,
    key: SessionKey,
}

/// What the turn sees, and what it has done so far.
struct View {
    exists: bool,
    revision: u64,
    state: SessionState,
    /// `temp:` keys in full.
    temp: State,
    /// Whether the user's event is the last one of this turn.
    is_unanswered: bool,
    /// What the last turn did not come to: it ended with the process, or its end could not be stored.
    broken_off: Option<Event>,
}

impl TurnSession {
    /// Starts a turn on a session that may not exist yet: opening creates nothing, the first append does.
    ///
    /// The session is kept until the last clone is dropped, which also ends the turn that `guard` stands for.
    ///
    /// # Errors
    /// [`SessionError::Database`] or [`SessionError::Unreadable`].
    pub async fn open(
        service: &Arc<dyn SessionService>,
        key: SessionKey,
        guard: TurnGuard,
    ) -> Result<Self, SessionError> {
        let hold = Hold::new(Arc::clone(service), key);
        let session = hold.service.read(&hold.key, EventFilter::recent(1)).await?;
        let (view, appending) = (Mutex::new(View::of(session)), tokio::sync::Mutex::default());
        Ok(Self { inner: Arc::new(Inner { hold, view, appending, _guard: guard }) })
    }

    /// Which session this is.
    pub fn key(&self) -> &SessionKey {
        &self.inner.hold.key
    }

    /// Whether the session exists yet: the first append creates it.
    pub fn exists(&self) -> bool {
        self.inner.view().exists
    }

    /// All that this turn can read: session keys, then `app:`, `user:` and `temp:` keys with their prefixes.
    pub fn state(&self) -> State {
        let view = self.inner.view();
        let mut state = view.state.merged();
        state.extend(view.temp.clone());
        state
    }

    /// One value by its full key.
    pub fn value(&self, key: &str) -> Option<Json> {
        let view = self.inner.view();
        match Scope::of(key).0 {
            Scope::Temp => view.temp.get(key).cloned(),
            Scope::Session | Scope::User | Scope::App => view.state.value(key).cloned(),
        }
    }

    /// Session-scope keys only: what may be shown to a client.
    pub fn snapshot(&self) -> State {
        self.inner.view().state.own().clone()
    }

    /// Whether the user has spoken in this turn, and nobody since.
    pub fn is_unanswered(&self) -> bool {
        self.inner.view().is_unanswered
    }

    /// The latest events, at most `num_recent` and at most 8 MiB of them, in order of arrival.
    ///
    /// # Errors
    /// [`SessionError::Database`] or [`SessionError::Unreadable`].
    pub async fn history(&self, num_recent: usize) -> Result<Vec<Arc<Event>>, SessionError> {
        let Hold { service, key } = &self.inner.hold;
        let filter = EventFilter { max_bytes: Some(HISTORY_BYTES), ..EventFilter::recent(num_recent) };
        Ok(service.read(key, filter).await?.events)
    }

    /// The latest version of an artifact of the session.
    ///
    /// # Errors
    /// [`SessionError::Database`] or [`SessionError::Unreadable`].
    pub async fn artifact(&self, name: &str) -> Result<Option<Vec<Part>>, SessionError> {
        let Hold { service, key } = &self.inner.hold;
        Ok(service.artifact(key, name).await?.map(|artifact| artifact.parts))
    }

    /// Stores an event and applies its delta in one step; creates the session if need be. `temp:` keys are kept for
    /// this turn only. A partial event changes nothing.
    ///
    /// If the last turn left the user without an answer, and this event begins another one, an event that says so is
    /// stored before it in the same step.
    ///
    /// # Errors
    /// As [`SessionService::append`]; [`SessionError::NotFound`] if the session was deleted, [`SessionError::Stale`] if
    /// it was changed from outside this turn. Nothing of the event is stored then.
    pub async fn append(&self, mut event: Event) -> Result<(), SessionError> {
        if event.partial {
            return Ok(());
        }
        let Hold { service, key } = &self.inner.hold;
        let _appending = self.inner.appending.lock().await;
        let temp = event.state_delta.take_temp();
        let (delta, is_from_user) = (event.state_delta.clone(), event.is_from_user());
        let (expected, broken_off) = self.inner.view().next_step(&event);
        let events = broken_off.into_iter().chain([event]).collect();
        let appended = match service.append(key, expected, events).await {
            Ok(appended) => appended,
            Err(error) => {
                self.inner.view().exists &= !matches!(error, SessionError::NotFound { .. });
                return Err(error);
            }
        };
        if appended.repeated {
            // Its delta may be in the state for long, with later ones on top.
            let state = service.read(key, EventFilter::NONE).await?.state;
            self.inner.view().follow(appended.revision, |view| view.state = state);
        } else {
            self.inner.view().follow(appended.revision, |view| view.apply(delta, is_from_user));
        }
        self.inner.view().temp.extend(State::from(temp));
        Ok(())
    }
}

impl Inner {
    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hold {
    fn new(service: Arc<dyn SessionService>, key: SessionKey) -> Self {
        service.begin_turn(&key);
        Self { service, key }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.service.end_turn(&self.key);
    }
}

impl View {
    /// From a session that was read with its last event.
    fn of(session: Session) -> Self {
        let exists = session.exists();
        let unanswered = session.events.last().filter(|event| event.is_from_user());
        let broken_off = unanswered.map(|event| {
            let message = "The turn was broken off before the agent had answered.".to_owned();
            let (author, invocation) = (session.key.app.clone(), event.invocation_id.clone());
            Event::failed(author, invocation, EventError { code: BROKEN_OFF.to_owned(), message })
        });
        Self {
            exists,
            revision: session.revision,
            state: session.state,
            temp: State::new(),
            is_unanswered: false,
            broken_off,
        }
    }

    /// The revision to append `event` at, and what belongs before it.
    fn next_step(&self, event: &Event) -> (u64, Option<Event>) {
        let is_another = |last: &&Event| event.is_from_user() && event.invocation_id != last.invocation_id;
        (self.revision, self.broken_off.as_ref().filter(is_another).cloned())
    }

    fn follow(&mut self, revision: u64, change: impl FnOnce(&mut Self)) {
        (self.exists, self.revision) = (true, revision);
        change(self);
    }

    fn apply(&mut self, delta: StateDelta, is_from_user: bool) {
        self.state.apply(delta);
        self.is_unanswered = is_from_user;
        self.broken_off = None;
    }
}
