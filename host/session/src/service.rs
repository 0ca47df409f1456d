//! The contract of a session service.

use std::time::Duration;

use annex_protocol::{ContextId, Parts, Timestamp};
use async_trait::async_trait;
use tokio::sync::Notify;

use crate::SessionError;
use crate::event::Event;
use crate::event_log::EventFilter;
use crate::limits::Limits;
use crate::place::{Joined, TurnPlace};
use crate::session::{Session, SessionCursor, SessionKey};
use crate::state::StateDelta;

/// Keeps sessions.
///
/// A session changes only by appending events. Events, their state changes and artifacts, the time and the revision are
/// stored together or not at all. When a call is dropped before it is ready, its change may be stored or not, but never
/// in part.
///
/// Every method returns [`SessionError::Database`] when a database fails; the methods below do not repeat this.
#[async_trait]
pub trait SessionService: Send + Sync + 'static {
    /// Creates a session, at revision 1. `temp:` keys of `initial` are dropped; `user:` and `app:` keys are visible to
    /// the other sessions of their scope at once.
    ///
    /// # Errors
    /// [`SessionError::AlreadyExists`], and the errors of [`append`](Self::append) about keys, ids and state.
    async fn create(&self, key: &SessionKey, initial: StateDelta) -> Result<Session, SessionError>;

    /// Reads a session with the events that `filter` selects, in the order of their arrival. A session that does not
    /// exist has revision 0 and the `user:` and `app:` keys of its scopes.
    ///
    /// # Errors
    /// [`SessionError::Unreadable`].
    async fn read(&self, key: &SessionKey, filter: EventFilter) -> Result<Session, SessionError>;

    /// Like [`read`](Self::read), but `None` for a session that does not exist.
    ///
    /// # Errors
    /// [`SessionError::Unreadable`].
    async fn get(&self, key: &SessionKey, filter: EventFilter) -> Result<Option<Session>, SessionError> {
        Ok(Some(self.read(key, filter).await?).filter(Session::exists))
    }

    /// True if the session exists. The check does not count as a use of the session.
    ///
    /// # Errors
    /// Only those of the database.
    async fn exists(&self, key: &SessionKey) -> Result<bool, SessionError>;

    /// Sessions without their events, the longest unchanged first.
    ///
    /// # Errors
    /// [`SessionError::Unreadable`].
    async fn list(&self, query: &SessionQuery) -> Result<Vec<Session>, SessionError>;

    /// At most `limit` users with a session in this context of an agent, in the order of their names.
    ///
    /// # Errors
    /// Only those of the database.
    async fn users_in(
        &self,
        tenant: &str,
        app: &str,
        context: &ContextId,
        limit: usize,
    ) -> Result<Vec<String>, SessionError>;

    /// Deletes a session with its events and artifacts. The `user:` state of an anonymous user is deleted too, because
    /// no other session can see that state; other `user:` state and `app:` state stay. Returns true if the session
    /// existed.
    ///
    /// # Errors
    /// Only those of the database.
    async fn delete(&self, key: &SessionKey) -> Result<bool, SessionError>;

    /// Deletes one full key, even while turns run. Returns true if the key existed. A running turn keeps the key to its
    /// end. The scope of the key decides which names of `owner` count: the tenant and the agent, for a `user:` key the
    /// user too, for a key of a session all names.
    ///
    /// # Errors
    /// Only those of the database.
    async fn delete_key(&self, owner: &SessionKey, full_key: &str) -> Result<bool, SessionError>;

    /// Deletes all `user:` keys of a user, and says how many there were. The context of `owner` does not count.
    ///
    /// # Errors
    /// Only those of the database.
    async fn delete_user_state(&self, owner: &SessionKey) -> Result<u64, SessionError>;

    /// Stores events in this order and applies their deltas, all in one step, if the session still has
    /// `expected_revision`. Revision 0 stands for a session that does not exist, and creates the session.
    ///
    /// `temp:` keys are dropped, from the stored events too. A partial event is not stored and changes nothing. An
    /// event that is stored already is skipped, so the same call again is a retry: the retry succeeds for every
    /// expected revision and changes nothing. Events are compared without their artifacts.
    ///
    /// # Errors
    /// [`SessionError::NotFound`], [`SessionError::Stale`], [`SessionError::EventConflict`],
    /// [`SessionError::InvalidContextId`], [`SessionError::InvalidKey`], [`SessionError::StateTooLarge`],
    /// [`SessionError::TooManyStateKeys`], [`SessionError::StateTooDeep`] or [`SessionError::ArtifactTooLarge`].
    async fn append(
        &self,
        key: &SessionKey,
        expected_revision: u64,
        events: Vec<Event>,
    ) -> Result<Appended, SessionError>;

    /// Creates the place of a new turn, which is not in the queue of its session yet. `None` if no other process uses
    /// these sessions; the methods with a place are then not called.
    fn place(&self) -> Option<TurnPlace> {
        None
    }

    /// Joins the end of the queue while an earlier turn of this process runs or waits.
    ///
    /// # Errors
    /// [`SessionError::Fenced`].
    async fn line_up(&self, _key: &SessionKey, _place: &TurnPlace) -> Result<(), SessionError> {
        Ok(())
    }

    /// Joins the queue as the first turn of this process, unless the turn is in the queue already. Reads the session if
    /// the turn runs at once.
    ///
    /// # Errors
    /// [`SessionError::Fenced`] and [`SessionError::Unreadable`].
    async fn join(&self, key: &SessionKey, _place: &TurnPlace, filter: EventFilter) -> Result<Joined, SessionError> {
        Ok(Joined::Runs(Box::new(self.read(key, filter).await?)))
    }

    /// Waits until a turn in the queue is the first one. A `hint` makes the service check at once; without hints the
    /// service polls.
    ///
    /// # Errors
    /// [`SessionError::Fenced`].
    async fn wait(&self, _key: &SessionKey, _place: &TurnPlace, _hint: &Notify) -> Result<(), SessionError> {
        Ok(())
    }

    /// Like [`append`](Self::append), if the turn is the first in the queue. The last events also remove the turn from
    /// the queue in the same step. The first append to a new session also enters its queue.
    ///
    /// # Errors
    /// As [`append`](Self::append), and [`SessionError::Fenced`].
    async fn append_in_turn(
        &self,
        key: &SessionKey,
        expected_revision: u64,
        events: Vec<Event>,
        _turn: OfTurn<'_>,
    ) -> Result<Appended, SessionError> {
        self.append(key, expected_revision, events).await
    }

    /// Removes a turn from the queue, and retries until the removal has succeeded.
    async fn leave(&self, _key: &SessionKey, _place: &TurnPlace) {}

    /// The latest version of an artifact.
    ///
    /// # Errors
    /// [`SessionError::Unreadable`].
    async fn artifact(&self, key: &SessionKey, name: &str) -> Result<Option<StoredArtifact>, SessionError>;

    /// Deletes sessions outside of the retention, as [`delete`](Self::delete) does, the longest unchanged first.
    /// Returns the number of deleted sessions.
    ///
    /// # Errors
    /// Only those of the database. Sessions deleted before the error stay deleted.
    async fn sweep(&self, retention: &Retention) -> Result<u64, SessionError>;

    /// Counts the sessions of a tenant and their bytes. The count reads all rows of the tenant, so it is too slow for
    /// each request.
    ///
    /// # Errors
    /// Only those of the database.
    async fn holdings(&self, tenant: &str) -> Result<Holdings, SessionError>;

    /// Reads a little, to check that the database answers.
    ///
    /// # Errors
    /// Only those of the database.
    async fn probe(&self) -> Result<(), SessionError> {
        Ok(())
    }

    /// Waits for changes in progress and closes the connections of a database. Later calls fail.
    async fn close(&self) {}

    /// The limits on one session.
    fn limits(&self) -> &Limits;

    /// Protects a session and its shared state from eviction, until as many calls of [`end_turn`](Self::end_turn).
    fn begin_turn(&self, _key: &SessionKey) {}

    /// Ends the protection by [`begin_turn`](Self::begin_turn).
    fn end_turn(&self, _key: &SessionKey) {}
}

/// The turn that appends.
#[derive(Clone, Copy, Debug)]
pub struct OfTurn<'a> {
    /// The place of the turn.
    pub place: &'a TurnPlace,
    /// True if the turn appends no further events.
    pub is_last: bool,
}

/// The result of appending to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The revision after the append.
    pub revision: u64,
    /// True if all events were stored before, so that nothing has changed now.
    pub repeated: bool,
}

/// An artifact as it is kept with a session.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredArtifact {
    /// The number of times that the name was written; 1 for the first time.
    pub version: u64,
    /// The content.
    pub parts: Parts,
}

/// Selects sessions for a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionQuery {
    /// Only sessions of this tenant.
    pub tenant: String,
    /// Only sessions of this agent.
    pub app: String,
    /// Only those of this user; `None` for all users.
    pub user: Option<String>,
    /// Only sessions after this place in the list.
    pub after: Option<SessionCursor>,
    /// The most sessions in the list.
    pub limit: usize,
}

/// The holdings of all sessions of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// The number of sessions.
    pub sessions: u64,
    /// Bytes of names and values of all state, also of that which sessions share. Events are not counted.
    pub state_bytes: u64,
}

/// The sessions that stay. The time of a session's last change counts, by the clock of the process that stored the
/// change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// The longest time that a session stays unchanged. [`Duration::MAX`] for ever.
    pub age: Duration,
    /// The most sessions of one tenant that stay, of all its users together. [`u64::MAX`] for all.
    pub count: u64,
}

impl Retention {
    /// Sessions that were changed last before this go. Milliseconds since 1970-01-01T00:00:00Z.
    pub(crate) fn changed_before(&self, now: Timestamp) -> i64 {
        now.as_millis().saturating_sub(i64::try_from(self.age.as_millis()).unwrap_or(i64::MAX))
    }
}
