//! A session as a reader sees it, and its names.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use annex_protocol::{ContextId, Timestamp};

use crate::SessionError;
use crate::event::Event;
use crate::limits::check_key;
use crate::session_state::SessionState;
use crate::state::Scope;

/// Names one session. The same context id under another user, agent or tenant is another session.
///
/// Clones share the names. The names are long, and one turn looks its session up many times, so the key keeps their
/// hash. Clients choose the names, so the hash function is secret.
#[derive(Clone)]
pub struct SessionKey(Arc<Hashed>);

#[derive(PartialEq)]
struct Hashed {
    hash: u64,
    names: SessionNames,
}

/// The names that a [`SessionKey`] is made of.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionNames {
    /// The tenant that the request was authorised for.
    pub tenant: Arc<str>,
    /// The agent's name.
    pub app: Arc<str>,
    /// The authenticated principal, never a name that the client chose.
    pub user: Arc<str>,
    /// The A2A context.
    pub context: ContextId,
}

/// Hashes names with a random key of this process.
pub(crate) static NAME_HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl From<SessionNames> for SessionKey {
    fn from(names: SessionNames) -> Self {
        Self(Arc::new(Hashed { hash: NAME_HASHER.hash_one(&names), names }))
    }
}

impl Deref for SessionKey {
    type Target = SessionNames;

    fn deref(&self) -> &SessionNames {
        &self.0.names
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, formatter)
    }
}

impl PartialEq for SessionKey {
    fn eq(&self, other: &Self) -> bool {
        // A turn looks its session up by clones of one key, whose long names need not be compared.
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Eq for SessionKey {}

impl PartialOrd for SessionKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SessionKey {
    fn cmp(&self, other: &Self) -> Ordering {
        SessionNames::cmp(self, other)
    }
}

impl Hash for SessionKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Equal names have equal hashes, so this agrees with `eq`.
        state.write_u64(self.0.hash);
    }
}

/// The prefix of the user ids of anonymous clients; the context follows.
const ANONYMOUS: &str = "A2A_USER_";

impl SessionKey {
    /// The key of the session with these names.
    pub fn new(
        tenant: impl Into<Arc<str>>,
        app: impl Into<Arc<str>>,
        user: impl Into<Arc<str>>,
        context: impl Into<ContextId>,
    ) -> Self {
        SessionNames { tenant: tenant.into(), app: app.into(), user: user.into(), context: context.into() }.into()
    }

    /// The session of an anonymous client, who is as many users as conversations, so that `user:` state of one never
    /// reaches another.
    pub fn anonymous(tenant: Arc<str>, app: Arc<str>, context: ContextId) -> Self {
        let user = [ANONYMOUS, context.as_str()].concat();
        Self::new(tenant, app, user, context)
    }

    /// True if its user is anonymous, and so has no other session.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.user.strip_prefix(ANONYMOUS) == Some(self.context.as_str())
    }

    /// Checks what every stored key must satisfy. A key that fails is never found, because it is never stored.
    pub(crate) fn check(&self) -> Result<(), SessionError> {
        let id = self.context.as_str();
        if id.is_empty() || id.trim() != id {
            return Err(SessionError::InvalidContextId { context: self.context.clone() });
        }
        check_key("tenant", &self.tenant)?;
        check_key("agent's name", &self.app)?;
        check_key("user id", &self.user)?;
        check_key("context id", id)
    }

    /// Checks the names that the state of a scope is found by.
    pub(crate) fn check_of(&self, scope: Scope) -> Result<(), SessionError> {
        if scope == Scope::Session {
            return self.check();
        }
        check_key("tenant", &self.tenant)?;
        check_key("agent's name", &self.app)?;
        check_key("user id", &self.user)
    }

    pub(crate) fn not_found(&self) -> SessionError {
        SessionError::NotFound { context: self.context.clone() }
    }
}

/// A session as it was when it was read: a copy, later changes do not show.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// The names of the session.
    pub key: SessionKey,
    /// 1 when created, one more for each event stored later; 0 when there is none.
    /// [`append`](crate::SessionService::append) expects it.
    pub revision: u64,
    /// The session's own keys, and the shared `user:` and `app:` keys.
    pub state: SessionState,
    /// The timestamp of the last event, or the time of creation. It can go backwards, as events bring their own.
    pub last_update: Timestamp,
    /// The events that the filter selected. Artifacts are read separately, by name.
    pub events: Vec<Arc<Event>>,
}

/// A place in a list of sessions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionCursor {
    /// The last update of the session at this place.
    pub last_update: Timestamp,
    /// Its user.
    pub user: Arc<str>,
    /// Its context.
    pub context: ContextId,
}

impl Session {
    /// True if there is such a session.
    pub fn exists(&self) -> bool {
        self.revision != 0
    }

    /// The session's place in a list.
    pub fn cursor(&self) -> SessionCursor {
        let user = self.key.user.clone();
        let context = self.key.context.clone();
        SessionCursor { last_update: self.last_update, user, context }
    }
}
