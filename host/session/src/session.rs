//! What a session is to a reader.

use std::sync::Arc;

use annex_protocol::{ContextId, Timestamp};

use crate::SessionError;
use crate::event::Event;
use crate::limits::check_key;
use crate::session_state::SessionState;

/// Names one session. The same context id under another user, agent or tenant is another session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    /// The tenant that the request was authorised for.
    pub tenant: Arc<str>,
    /// The agent's name.
    pub app: Arc<str>,
    /// The authenticated principal, never a name that the client chose.
    pub user: Arc<str>,
    /// The A2A context.
    pub context: ContextId,
}

/// What the user ids of anonymous clients begin with; the context follows.
const ANONYMOUS: &str = "A2A_USER_";

impl SessionKey {
    /// The session of an anonymous client, who is as many users as conversations, so that `user:` state of one never
    /// reaches another.
    pub fn anonymous(tenant: Arc<str>, app: Arc<str>, context: ContextId) -> Self {
        Self { tenant, app, user: format!("{ANONYMOUS}{context}").into(), context }
    }

    /// Whether its user is anonymous, and so has no other session.
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

    pub(crate) fn not_found(&self) -> SessionError {
        SessionError::NotFound { context: self.context.clone() }
    }
}

/// A session as it was when it was read: a copy, later changes do not show.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// Which session this is.
    pub key: SessionKey,
    /// 1 when created, one more for each event stored later; 0 when there is none.
    /// [`append`](crate::SessionService::append) expects it.
    pub revision: u64,
    /// Its own keys and those that it shares.
    pub state: SessionState,
    /// The timestamp of the last event, or the time of creation. It can go backwards, as events bring their own.
    pub last_update: Timestamp,
    /// The events that were asked for. Their artifacts are read apart, by name.
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
    /// Whether there is such a session.
    pub fn exists(&self) -> bool {
        self.revision != 0
    }

    /// Its place in a list.
    pub fn cursor(&self) -> SessionCursor {
        let (user, context) = (self.key.user.clone(), self.key.context.clone());
        SessionCursor { last_update: self.last_update, user, context }
    }
}
