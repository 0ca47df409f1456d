//! A session as the turn that runs in it sees it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use annex_protocol::{Json, Parts};

use crate::SessionError;
use crate::durability::{Durability, Following, durability};
use crate::event::Event;
use crate::event_log::EventFilter;
use crate::hold::Hold;
use crate::place::{Joined, TurnPlace};
use crate::service::SessionService;
use crate::session::SessionKey;
use crate::state::{Scope, State, StateDelta};
use crate::turn::{TurnGuard, Turns};
use crate::view::{First, HISTORY_BYTES, View};

/// The start of a turn.
#[derive(Debug, Default)]
pub struct Beginning {
    /// The result of [`SessionService::place`] when the turn arrived.
    pub place: Option<TurnPlace>,
    /// The number of latest events that the turn will request. The events are read with the session.
    pub history: usize,
}

impl Beginning {
    fn filter(&self) -> EventFilter {
        match self.history {
            // One event is enough to see that the last turn left the user without an answer.
            0 => EventFilter::recent(1),
            history => EventFilter { max_bytes: Some(HISTORY_BYTES), ..EventFilter::recent(history) },
        }
    }
}

/// The session of one running turn, with the `temp:` keys of this turn.
///
/// The state is read once, when the turn opens the session, and follows the events of the turn. A change of shared keys
/// by another session is visible from the next turn on. Clones are the same turn. The turn ends, and the next one may
/// start, when the last clone is dropped.
#[derive(Clone)]
pub struct TurnSession {
    inner: Arc<Inner>,
}

/// A turn in which no event is being appended.
#[must_use = "events can be appended when it is dropped"]
pub struct LockedTurn<'a> {
    inner: &'a Inner,
    _appending: tokio::sync::MutexGuard<'a, ()>,
}

struct Inner {
    hold: Hold,
    view: Mutex<View>,
    /// Held while events are appended, so that appends through clones of one turn cannot make each other stale.
    appending: tokio::sync::Mutex<()>,
}

impl TurnSession {
    /// Starts a turn on a session that may not exist yet: opening creates nothing, the first append does.
    ///
    /// The call waits for earlier turns: those of this process, which are in `turns`, and those of other processes. The
    /// session is protected from eviction until the last clone is dropped, which also ends the turn.
    ///
    /// # Errors
    /// [`SessionError::TooManyTurns`], [`SessionError::Database`], [`SessionError::Unreadable`] or
    /// [`SessionError::Fenced`].
    pub async fn open(
        service: &Arc<dyn SessionService>,
        key: SessionKey,
        turns: &Turns,
        beginning: Beginning,
    ) -> Result<Self, SessionError> {
        let filter = beginning.filter();
        // Before it is read: from here on the session is not evicted, and a place that is taken is left again.
        let hold = Hold::behind(service, key, turns, beginning.place).await?;
        let session = match hold.join(filter).await? {
            Joined::Runs(session) => *session,
            Joined::Waits => {
                hold.wait().await?;
                hold.read(filter).await?
            }
        };
        Ok(Self::of(hold, View::of(session, beginning.history)))
    }

    /// Like [`open`](Self::open), but `None` if a turn runs or waits in the session.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn try_open(
        service: &Arc<dyn SessionService>,
        key: SessionKey,
        guard: TurnGuard,
    ) -> Result<Option<Self>, SessionError> {
        let beginning = Beginning { place: service.place(), history: 0 };
        let filter = beginning.filter();
        let hold = Hold::new(service, key, guard, beginning.place);
        Ok(match hold.join(filter).await? {
            Joined::Runs(session) => Some(Self::of(hold, View::of(*session, 0))),
            Joined::Waits => None,
        })
    }

    /// Starts the first turn of a session with a new context id, which no client knows yet.
    ///
    /// Nothing is read, so the turn does not see shared keys of other sessions. The first append creates the session
    /// and enters the turn into the session's queue.
    pub fn open_new(
        service: &Arc<dyn SessionService>,
        key: SessionKey,
        guard: TurnGuard,
        beginning: Beginning,
    ) -> Self {
        Self::of(Hold::new(service, key, guard, beginning.place), View::default())
    }

    /// Like [`open_new`](Self::open_new), but reads the shared keys.
    ///
    /// # Errors
    /// [`SessionError::Database`] or [`SessionError::Unreadable`].
    pub async fn read_new(
        service: &Arc<dyn SessionService>,
        key: SessionKey,
        guard: TurnGuard,
        beginning: Beginning,
    ) -> Result<Self, SessionError> {
        let hold = Hold::new(service, key, guard, beginning.place);
        let session = hold.read(EventFilter::NONE).await?;
        Ok(Self::of(hold, View::of(session, 0)))
    }

    fn of(hold: Hold, view: View) -> Self {
        Self { inner: Arc::new(Inner { hold, view: Mutex::new(view), appending: tokio::sync::Mutex::default() }) }
    }

    /// The names of the session.
    pub fn key(&self) -> &SessionKey {
        &self.inner.hold.key
    }

    /// True if the session exists yet. The first append creates it.
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

    /// Checks a change that is not appended yet, as far as that can be done without the rest of the state.
    ///
    /// # Errors
    /// The reason for which an append would be refused.
    pub fn check(&self, delta: &StateDelta) -> Result<(), SessionError> {
        self.inner.hold.service.limits().check_delta_alone(delta)
    }

    /// Session-scope keys only: the keys that a client may see.
    pub fn snapshot(&self) -> State {
        self.inner.view().state.own().clone()
    }

    /// True if the latest event of this turn is the user's.
    pub fn is_unanswered(&self) -> bool {
        self.inner.view().is_unanswered
    }

    /// Marks the user's event as unanswered if the last turn was interrupted and had this invocation id. The turn then
    /// answers that event.
    pub fn answer_again(&self, invocation: &str) {
        let mut view = self.inner.view();
        view.is_unanswered = view.broken_off.as_ref().is_some_and(|event| *event.invocation_id == *invocation);
    }

    /// The latest events in order of arrival: at most `num_recent`, and at most 8 MiB in total.
    ///
    /// # Errors
    /// [`SessionError::Database`] or [`SessionError::Unreadable`].
    pub async fn history(&self, num_recent: usize) -> Result<Vec<Arc<Event>>, SessionError> {
        // The only event of the session is at hand, whether it is stored or not.
        if let Some(First { event, .. }) = &self.inner.view().first {
            let is_shown = num_recent > 0 && event.size() <= HISTORY_BYTES;
            return Ok(is_shown.then(|| Arc::clone(event)).into_iter().collect());
        }
        // Later it is read again, because it may be large and the turn long.
        let at_hand = self.inner.view().history.take();
        if let Some(events) = at_hand.and_then(|history| history.latest(num_recent)) {
            return Ok(events);
        }
        let Hold { service, key, .. } = &self.inner.hold;
        let filter = EventFilter { max_bytes: Some(HISTORY_BYTES), ..EventFilter::recent(num_recent) };
        Ok(service.read(key, filter).await?.events)
    }

    /// The latest version of an artifact of the session.
    ///
    /// # Errors
    /// [`SessionError::Database`] or [`SessionError::Unreadable`].
    pub async fn artifact(&self, name: &str) -> Result<Option<Parts>, SessionError> {
        // The only event of the session is at hand, and has no artifacts.
        if self.inner.view().first.is_some() {
            return Ok(None);
        }
        let Hold { service, key, .. } = &self.inner.hold;
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
    pub async fn append(&self, event: Event) -> Result<(), SessionError> {
        self.append_as(event, false).await
    }

    /// Like [`append`](Self::append), for the last event of the turn. The next turn of the conversation may then begin
    /// in another process.
    ///
    /// # Errors
    /// As [`append`](Self::append). Then an event may still be appended.
    pub async fn append_last(&self, event: Event) -> Result<(), SessionError> {
        self.append_as(event, true).await
    }

    async fn append_as(&self, mut event: Event, is_last: bool) -> Result<(), SessionError> {
        if event.partial {
            return Ok(());
        }
        let Hold { service, key, .. } = &self.inner.hold;
        // Held until the answer is in the view: the next append of this turn has to expect the revision that this one
        // leads to.
        let _appending = self.inner.appending.lock().await;
        let temp = event.state_delta.take_temp();
        let delta = event.state_delta.clone();
        let is_from_user = event.is_from_user();
        if self.inner.view().unstored().is_some_and(|first| first.id == event.id) {
            // Only with what is stored is an event compared.
            self.inner.store_first().await?;
        }
        let (expected, earlier) = self.inner.view().next_step(&event);
        let first = First::of(expected, earlier.as_ref(), &event);
        let events: Vec<Event> = earlier.into_iter().chain([event]).collect();
        // Whatever becomes of them: unless all goes well they are read.
        let mut history = self.inner.view().history.take();
        if let Some(history) = &mut history {
            history.push(&events);
        }
        let appended = match self.inner.hold.append(expected, events, is_last).await {
            Ok(appended) => appended,
            Err(error) => {
                // A session that was deleted meanwhile begins anew with the next turn.
                self.inner.view().exists &= !matches!(error, SessionError::NotFound { .. });
                if error.is_about_events() || matches!(error, SessionError::Stale { .. }) {
                    // It may be the later event alone that cannot be stored, and the first one may be stored already, by an
                    // append that was given up.
                    self.inner.store_first().await?;
                }
                return Err(error);
            }
        };
        if appended.repeated {
            // Its delta may be in the state for long, with later ones on top.
            let state = service.read(key, EventFilter::NONE).await?.state;
            self.inner.view().follow(appended.revision, |view| (view.state, view.first) = (state, None));
        } else {
            self.inner.view().follow(appended.revision, |view| {
                (view.history, view.first) = (history, first);
                view.apply(delta, service.limits(), is_from_user);
            });
        }
        // Last, because nothing of an event that was not stored is to be seen.
        self.inner.view().apply_temp(temp, service.limits());
        Ok(())
    }

    /// Appends the user's event. The event is durable when this returns, with one exception: the first event of a
    /// conversation is only staged if nothing outside of the turn can depend on the event. A staged event is stored in
    /// one step with the turn's next event or by [`store`](Self::store), whichever comes first.
    ///
    /// A message that is sent again because its process ended has the id of the stored event. If that event is the last
    /// one, the turn continues from that event; otherwise the message is appended once more. The delta is applied once.
    ///
    /// # Errors
    /// As [`append`](Self::append). For a staged event, errors of the database and of other writers appear only when
    /// the event is stored.
    pub async fn append_user(&self, mut event: Event, following: Following) -> Result<(), SessionError> {
        let limits = self.inner.hold.service.limits();
        if self.inner.view().goes_on_from(&mut event, limits) {
            return Ok(());
        }
        match durability(&event, self.exists(), following) {
            Durability::Now => self.append_said(event).await,
            Durability::WithNext => self.stage(event).await,
        }
    }

    async fn append_said(&self, mut event: Event) -> Result<(), SessionError> {
        let invocation = Arc::clone(&event.invocation_id);
        let parts = event.parts.clone();
        let temp = event.state_delta.take_temp();
        match self.append(event).await {
            // The delta of the event that is there has been applied, and those of later ones on top.
            Err(SessionError::EventConflict { .. }) => {
                self.append(Event::of_user(invocation, parts, StateDelta::new())).await?;
            }
            other => other?,
        }
        self.inner.view().apply_temp(temp, self.inner.hold.service.limits());
        Ok(())
    }

    /// Keeps the first event of a session to be stored later.
    async fn stage(&self, mut event: Event) -> Result<(), SessionError> {
        let _appending = self.inner.appending.lock().await;
        let Hold { service, key, .. } = &self.inner.hold;
        let temp = event.state_delta.take_temp();
        key.check()?;
        // Limits are checked now, although the event is stored later: then the agent would have run in vain.
        service.limits().check_first(&event)?;
        let delta = event.state_delta.clone();
        let is_from_user = event.is_from_user();
        let first = First { event: Arc::new(event), is_stored: false };
        let mut view = self.inner.view();
        // For this turn the session exists, but the revision stays 0: the append that stores the event creates it.
        view.follow(0, |view| {
            view.first = Some(first);
            view.apply(delta, service.limits(), is_from_user);
        });
        view.apply_temp(temp, service.limits());
        Ok(())
    }

    /// True if no event is staged.
    pub fn is_stored(&self) -> bool {
        self.inner.view().unstored().is_none()
    }

    /// Stores the event that is staged, if there is one.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub async fn store(&self) -> Result<(), SessionError> {
        if self.is_stored() { Ok(()) } else { self.lock().await.store().await }
    }

    /// Waits until no event is being appended, and blocks further appends. The task that appends must not wait for the
    /// caller.
    pub async fn lock(&self) -> LockedTurn<'_> {
        LockedTurn { _appending: self.inner.appending.lock().await, inner: &self.inner }
    }

    /// Drops the event that is staged: the conversation is as if it had never come.
    pub fn drop_staged(&self) {
        let mut view = self.inner.view();
        if view.unstored().is_some() {
            (view.first, view.exists, view.is_unanswered) = (None, false, false);
        }
    }
}

impl LockedTurn<'_> {
    /// Stores the event that is staged, if there is one.
    ///
    /// # Errors
    /// As [`TurnSession::append`].
    pub async fn store(&self) -> Result<(), SessionError> {
        self.inner.store_first().await
    }
}

impl Inner {
    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the staged event. The caller must hold `appending`.
    async fn store_first(&self) -> Result<(), SessionError> {
        let Some(event) = self.view().unstored() else { return Ok(()) };
        let Hold { service, key, .. } = &self.hold;
        // Revision 0 says that there is no session: where one has appeared meanwhile, nothing is stored and the turn is
        // stale.
        let appended = self.hold.append(0, vec![Event::clone(&event)], false).await?;
        if appended.repeated {
            // With what came behind it, perhaps, although the database failed to say so.
            let state = service.read(key, EventFilter::NONE).await?.state;
            self.view().follow(appended.revision, |view| (view.state, view.first) = (state, None));
        } else {
            self.view().follow(appended.revision, |view| view.first = Some(First { event, is_stored: true }));
        }
        Ok(())
    }
}
