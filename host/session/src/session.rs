//! What a session is to a reader.

use annex_protocol::{ContextId, Timestamp};

use crate::SessionError;
use crate::state::State;

/// Names one session. The same context id under another user, agent or tenant is another session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    /// The tenant that the request was authorised for.
    pub tenant: String,
    /// The agent's name.
    pub app: String,
    /// The authenticated principal, never a name that the client chose.
    pub user: String,
    /// The A2A context.
    pub context: ContextId,
}

impl SessionKey {
    /// Checks what every stored key must satisfy. A key that fails is never found, because it is never stored.
    pub(crate) fn check(&self) -> Result<(), SessionError> {
        let id = self.context.as_str();
        if id.is_empty() || id.trim() != id {
            return Err(SessionError::InvalidContextId { context: self.context.clone() });
        }
        Ok(())
    }

    pub(crate) fn not_found(&self) -> SessionError {
        SessionError::NotFound { context: self.context.clone() }
    }
}

/// A session as it was when it was read: a copy, later changes do not show. Its events are read apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    /// Which session this is.
    pub key: SessionKey,
    /// 1 when created, one more for each event stored later. [`append`](crate::InMemorySessionService::append) expects
    /// it.
    pub revision: u64,
    /// The merged view: session keys, then `app:` and `user:` keys with their prefixes.
    pub state: State,
    /// The timestamp of the last event, or the time of creation. It can go backwards, as events bring their own.
    pub last_update: Timestamp,
}
