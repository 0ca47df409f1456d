//! The claims of a turn on its session, which end with the turn.

use std::sync::Arc;

use annex_fairness::of_same_tenant;
use tokio::runtime::Handle;

use crate::SessionError;
use crate::event::Event;
use crate::event_log::EventFilter;
use crate::place::{Joined, TurnPlace};
use crate::service::{Appended, OfTurn, SessionService};
use crate::session::{Session, SessionKey};
use crate::turn::{TurnGuard, Turns};

/// Keeps the session from being dropped to make room, and other turns from running in it.
pub(crate) struct Hold {
    pub(crate) service: Arc<dyn SessionService>,
    pub(crate) key: SessionKey,
    /// The place among the turns of all processes; `None` where this process has the sessions for itself.
    place: Option<TurnPlace>,
    /// Ends the turn in this process. `None` while others come first, and once it is dropped.
    guard: Option<TurnGuard>,
}

impl Hold {
    pub(crate) fn new(
        service: &Arc<dyn SessionService>,
        key: SessionKey,
        guard: TurnGuard,
        place: Option<TurnPlace>,
    ) -> Self {
        let mut hold = Self::without_guard(service, key, place);
        hold.guard = Some(guard);
        hold
    }

    fn without_guard(service: &Arc<dyn SessionService>, key: SessionKey, place: Option<TurnPlace>) -> Self {
        service.begin_turn(&key);
        Self { service: Arc::clone(service), key, place, guard: None }
    }

    /// Waits for the earlier turns of this process. During the wait the turn is in the queue of all processes too, so
    /// that a later turn of another process cannot overtake the turn.
    pub(crate) async fn behind(
        service: &Arc<dyn SessionService>,
        key: SessionKey,
        turns: &Turns,
        place: Option<TurnPlace>,
    ) -> Result<Self, SessionError> {
        let mut hold = Self::without_guard(service, key, place);
        hold.guard = Some(turns.begin_after(&hold.key, hold.line_up()).await?);
        Ok(hold)
    }

    async fn line_up(&self) -> Result<(), SessionError> {
        match &self.place {
            Some(place) => self.service.line_up(&self.key, place).await,
            None => Ok(()),
        }
    }

    /// Joins the queue, where there is one, and reads the session if no other turn comes first.
    pub(crate) async fn join(&self, filter: EventFilter) -> Result<Joined, SessionError> {
        match &self.place {
            Some(place) => self.service.join(&self.key, place, filter).await,
            None => Ok(Joined::Runs(Box::new(self.read(filter).await?))),
        }
    }

    pub(crate) async fn read(&self, filter: EventFilter) -> Result<Session, SessionError> {
        self.service.read(&self.key, filter).await
    }

    /// Waits until all earlier turns have ended.
    pub(crate) async fn wait(&self) -> Result<(), SessionError> {
        match (&self.place, &self.guard) {
            (Some(place), Some(guard)) => self.service.wait(&self.key, place, guard.hint()).await,
            _ => Ok(()),
        }
    }

    pub(crate) async fn append(
        &self,
        expected: u64,
        events: Vec<Event>,
        is_last: bool,
    ) -> Result<Appended, SessionError> {
        let Self { service, key, place, .. } = self;
        let Some(place) = place else { return service.append(key, expected, events).await };
        // More than what was to be the last: it is taken where no other turn has come meanwhile.
        if place.has_left()
            && let Joined::Waits = service.join(key, place, EventFilter::NONE).await?
        {
            return Err(SessionError::Fenced { context: key.context.clone() });
        }
        service.append_in_turn(key, expected, events, OfTurn { place, is_last }).await
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // The session is released before the next turn opens it.
        self.service.end_turn(&self.key);
        let guard = self.guard.take();
        let Some(place) = self.place.take().filter(|place| place.may_be_in() || place.is_doubtful()) else { return };
        // Without a runtime the process ends, and its lease with it.
        let Ok(runtime) = Handle::try_current() else { return };
        let service = Arc::clone(&self.service);
        let key = self.key.clone();
        runtime.spawn(of_same_tenant(async move {
            service.leave(&key, &place).await;
            // The next turn of this process finds this one gone.
            drop(guard);
        }));
    }
}
