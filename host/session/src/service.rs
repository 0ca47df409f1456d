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
/// A session changes by appending events only. Events, the state that they change, the artifacts that they bring, the
/// time and the revision are stored together or not at all. When a call is dropped before it is ready, its change may be
/// stored or not, but never half of it.
///
/// All return [`SessionError::Database`] when a database fails; that is not repeated below.
#[async_trait]
pub trait SessionService: Send + Sync + 'static {
    /// Creates a session, at revision 1. `temp:` keys of `initial` are dropped; `user:` and `app:` keys are visible to
    /// the other sessions of their scope at once.
    ///
    /// # Errors
    /// [`SessionError::AlreadyExists`], and what [`append`](Self::append) says of keys, ids and state.
    async fn create(&self, key: &SessionKey, initial: StateDelta) -> Result<Session, SessionError>;

    /// Reads a session with the events that `filter` chooses, in the order in which they were appended. A session that
    /// does not exist has revision 0; it sees what others set in the scopes that it shares.
    ///
    /// # Errors
    /// [`SessionError::Unreadable`].
    async fn read(&self, key: &SessionKey, filter: EventFilter) -> Result<Session, SessionError>;

    /// The same, if there is such a session.
    ///
    /// # Errors
    /// [`SessionError::Unreadable`].
    async fn get(&self, key: &SessionKey, filter: EventFilter) -> Result<Option<Session>, SessionError> {
        Ok(Some(self.read(key, filter).await?).filter(Session::exists))
    }

    /// Tells whether there is such a session. Asking does not count as using it.
    ///
    /// # Errors
    /// None but those of the database.
    async fn exists(&self, key: &SessionKey) -> Result<bool, SessionError>;

    /// Sessions without their events, the longest unchanged first.
    ///
    /// # Errors
    /// [`SessionError::Unreadable`].
    async fn list(&self, query: &SessionQuery) -> Result<Vec<Session>, SessionError>;

    /// The users with a session in this context of an agent, in the order of their names and at most so many.
    ///
    /// # Errors
    /// None but those of the database.
    async fn users_in(
        &self,
        tenant: &str,
        app: &str,
        context: &ContextId,
        limit: usize,
    ) -> Result<Vec<String>, SessionError>;

    /// Deletes a session with its events and artifacts, and the `user:` state of an anonymous user with the one session
    /// that can see it; other `user:` state and `app:` state stay. Says whether there was a session.
    ///
    /// # Errors
    /// None but those of the database.
    async fn delete(&self, key: &SessionKey) -> Result<bool, SessionError>;

    /// Deletes one full key, whether turns run or not, and says whether it was there. A turn that runs sees the key to its
    /// end. Of `owner` counts what the scope of the key belongs to: the tenant and the agent, for a `user:` key the user too,
    /// for a key of a session all of it.
    ///
    /// # Errors
    /// None but those of the database.
    async fn delete_key(&self, owner: &SessionKey, full_key: &str) -> Result<bool, SessionError>;

    /// Deletes all `user:` keys of a user, and says how many there were. The context of `owner` does not count.
    ///
    /// # Errors
    /// None but those of the database.
    async fn delete_user_state(&self, owner: &SessionKey) -> Result<u64, SessionError>;

    /// Stores events in this order and applies their deltas, all in one step, if nobody appended since the session had
    /// `expected_revision`. With 0, which says that there was no session, it is created.
    ///
    /// `temp:` keys are dropped, from the stored events too. A partial event is not stored and changes nothing. An event
    /// that is stored already is left out, so that the same call again is a retry: it succeeds, whatever revision it
    /// expects, and changes nothing. Events are compared without their artifacts.
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

    /// A place for a turn that comes now in the queue of its session, outside of the queue yet; `None` where no other process
    /// has these sessions. What follows of places is asked only where there are some.
    fn place(&self) -> Option<TurnPlace> {
        None
    }

    /// Joins the end of the queue, where another turn of this process comes first.
    ///
    /// # Errors
    /// [`SessionError::Fenced`].
    async fn line_up(&self, _key: &SessionKey, _place: &TurnPlace) -> Result<(), SessionError> {
        Ok(())
    }

    /// Joins the queue as the first one of its process, if it is not in it, and reads the session where the turn runs at once.
    ///
    /// # Errors
    /// [`SessionError::Fenced`] and [`SessionError::Unreadable`].
    async fn join(&self, key: &SessionKey, _place: &TurnPlace, filter: EventFilter) -> Result<Joined, SessionError> {
        Ok(Joined::Runs(Box::new(self.read(key, filter).await?)))
    }

    /// Waits until a turn that has joined the queue is the first one. A `hint` says that this may be so by now; without one it
    /// is looked for all the same.
    ///
    /// # Errors
    /// [`SessionError::Fenced`].
    async fn wait(&self, _key: &SessionKey, _place: &TurnPlace, _hint: &Notify) -> Result<(), SessionError> {
        Ok(())
    }

    /// Appends as [`append`](Self::append) does, if the turn is the first of the queue; the last events take it out in the same
    /// step. The first append of a session that is new needs no place before.
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

    /// Takes a turn out of the queue, however long that takes.
    async fn leave(&self, _key: &SessionKey, _place: &TurnPlace) {}

    /// The latest version of an artifact.
    ///
    /// # Errors
    /// [`SessionError::Unreadable`].
    async fn artifact(&self, key: &SessionKey, name: &str) -> Result<Option<StoredArtifact>, SessionError>;

    /// Deletes sessions that need not stay as [`delete`](Self::delete) does, the longest unchanged first, and says how
    /// many.
    ///
    /// # Errors
    /// None but those of the database. What was deleted until then stays deleted.
    async fn sweep(&self, retention: &Retention) -> Result<u64, SessionError>;

    /// Counts what a tenant has. It looks at all of that, so it is not for each request.
    ///
    /// # Errors
    /// None but those of the database.
    async fn holdings(&self, tenant: &str) -> Result<Holdings, SessionError>;

    /// Reads a little, to see whether the database answers.
    ///
    /// # Errors
    /// None but those of the database.
    async fn probe(&self) -> Result<(), SessionError> {
        Ok(())
    }

    /// Waits for what is under way and closes what is open: a database's connections, after which later calls fail.
    async fn close(&self) {}

    /// The limits on one session.
    fn limits(&self) -> &Limits;

    /// Keeps what a turn reads from being dropped to make room, until as many calls of [`end_turn`](Self::end_turn).
    fn begin_turn(&self, _key: &SessionKey) {}

    /// Ends what [`begin_turn`](Self::begin_turn) began.
    fn end_turn(&self, _key: &SessionKey) {}
}

/// The turn that appends.
#[derive(Clone, Copy, Debug)]
pub struct OfTurn<'a> {
    /// Its place.
    pub place: &'a TurnPlace,
    /// True if it appends nothing behind this.
    pub is_last: bool,
}

/// The result of appending to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The revision from now on.
    pub revision: u64,
    /// True if all of it was stored before, so that nothing has changed now.
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

/// Which sessions to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionQuery {
    /// Only those of this tenant.
    pub tenant: String,
    /// Only those of this agent.
    pub app: String,
    /// Only those of this user; `None` for all users.
    pub user: Option<String>,
    /// Only those behind this one.
    pub after: Option<SessionCursor>,
    /// At most so many.
    pub limit: usize,
}

/// The holdings of all sessions of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Sessions.
    pub sessions: u64,
    /// Bytes of names and values of all state, also of that which sessions share. Events are not counted.
    pub state_bytes: u64,
}

/// Which sessions stay. What counts is when they were changed last by the clock of whoever stored the change.
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
