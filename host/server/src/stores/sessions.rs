//! Sessions as operators see them, read from a running server or directly from its store.

use std::path::Path;
use std::sync::Arc;

use annex_operations::views::agent_names::AgentNames;
use annex_operations::views::scoped_keys::session_key;
use annex_protocol::{ContextId, Owner, Part, PartContent, Timestamp};
use annex_session::{
    Event, EventFilter, Session, SessionCursor, SessionError, SessionKey, SessionNames, SessionQuery, SessionService,
    State, Turns,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use tokio::task::{JoinError, spawn_blocking};

use crate::admin_api::sessions::{self as shown, DeletedSession, EventError, Events, SessionSummary};
use crate::config::served::ServedConfig;
use crate::config::{Config, ConfigError};
use crate::redaction::Redaction;
use crate::stores::postgres::PostgresDatabases;
use crate::stores::session_store::{self, SessionStoreError};

/// The most sessions or events in one answer.
pub const MAX_SHOWN: usize = 1_000;
/// The most users that an error names.
const MAX_USERS_SHOWN: usize = 20;

/// The most bytes of events in one answer.
const SHOWN_BYTES: usize = 8 << 20;

/// Shows and deletes sessions.
pub struct Sessions {
    pub(crate) service: Arc<dyn SessionService>,
    pub(crate) turns: Turns,
    /// The agents of all tenants. Sessions are stored under the names of agents.
    pub(crate) apps: AgentNames,
    pub(crate) redaction: Redaction,
}

/// The tenant, the user and the context that identify one session.
#[derive(Clone, Debug, Default)]
pub struct SessionName {
    /// The tenant. `None` for the agent of the config itself.
    pub tenant: Option<String>,
    /// The user, as a list shows it. `None` for the anonymous user of the context, or for the only user with a session
    /// in the context.
    pub user: Option<String>,
    /// The A2A context.
    pub context: String,
}

/// The filter and the page of a list of sessions.
#[derive(Clone, Debug, Default)]
pub struct SessionFilter {
    /// The tenant. `None` for the agent of the config itself.
    pub tenant: Option<String>,
    /// Only sessions of this user.
    pub user: Option<String>,
    /// The `next` token of the page before.
    pub after: Option<String>,
    /// The number of sessions on a page, at most [`MAX_SHOWN`].
    pub limit: usize,
}

/// The reasons why an operation on sessions fails.
#[derive(Debug, thiserror::Error)]
pub enum SessionsError {
    /// The tenant does not exist.
    #[error("there is no tenant {name:?}")]
    NoTenant {
        /// The name in the request.
        name: String,
    },
    /// The session does not exist.
    #[error("{}; `annex session list` shows those that there are", none_of(.user.as_deref(), .context))]
    NotFound {
        /// The user in the request. `None` if the request named none and no user has a session in the context.
        user: Option<String>,
        /// The A2A context in the request.
        context: String,
    },
    /// The request names no user, and several users have a session in the context.
    #[error("several users have a session {context:?}; name one of them: {}", users.join(", "))]
    SeveralUsers {
        /// The A2A context in the request.
        context: String,
        /// The first users, at most 20.
        users: Vec<String>,
    },
    /// The session cannot be deleted while a turn runs in it.
    #[error("a turn runs in session {context:?}; cancel its task, or wait")]
    Busy {
        /// The A2A context in the request.
        context: String,
    },
    /// The token does not come from a list of sessions.
    #[error("{token:?} is not a page token; use `next` of the page before")]
    NoPlace {
        /// The text in the request.
        token: String,
    },
    /// None of the keys to delete exists.
    #[error("none of these keys exists; `annex session state` and `annex session show` list the keys")]
    NoKeys,
    /// The user has no `user:` state.
    #[error("user {user:?} has no state; `annex session list` shows the users who have sessions")]
    NoUserState {
        /// The user in the request.
        user: String,
    },
    /// The request does not say to whom the key belongs.
    #[error("key {key:?}: {reason}")]
    NoOwner {
        /// The key with its prefix.
        key: String,
        /// The missing information, such as the context.
        reason: &'static str,
    },
    /// The store failed.
    #[error("the sessions cannot be read")]
    Store(#[from] SessionError),
    /// The redaction of the session was cancelled or panicked.
    #[error("the session cannot be redacted")]
    BrokeOff(#[source] JoinError),
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] SessionStoreError),
    /// The config names no agent, or the config of a tenant is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl Sessions {
    /// Opens the session store of a config, without a server. Relative paths start in `folder`. A running server on the
    /// same store is not notified of deletions.
    ///
    /// # Errors
    /// [`SessionsError::Open`], and [`SessionsError::Config`] if the config names no agent, under whose name sessions
    /// are stored.
    pub async fn open(config: &Config, folder: &Path) -> Result<Self, SessionsError> {
        let service = session_store::open(config, folder, &PostgresDatabases::new(&config.postgres), None).await?;
        let apps = AgentNames::default();
        apps.set("", config.agent()?.name());
        let config = Arc::new(config.clone());
        for tenant in &config.tenants {
            let of_tenant = ServedConfig::of_tenant(tenant, &config, folder)?;
            apps.set(&tenant.name, of_tenant.agent()?.name());
        }
        Ok(Self { service, turns: Turns::default(), apps, redaction: config.sessions.redaction() })
    }

    /// Lists sessions without their values.
    ///
    /// # Errors
    /// [`SessionsError::NoTenant`], [`SessionsError::NoPlace`], [`SessionsError::Store`].
    pub async fn list(&self, filter: SessionFilter) -> Result<shown::List, SessionsError> {
        let (tenant, app) = self.app(filter.tenant)?;
        let limit = filter.limit.clamp(1, MAX_SHOWN);
        let after = filter.after.map(|token| place(&token)).transpose()?;
        let query = SessionQuery { tenant, app: app.to_string(), user: filter.user, after, limit };
        let sessions = self.service.list(&query).await?;
        // A full page may be the last one. The page after it is then empty.
        let next = sessions.last().filter(|_| sessions.len() == limit).map(|last| token(&last.cursor()));
        Ok(shown::List { sessions: sessions.into_iter().map(SessionSummary::from).collect(), next })
    }

    /// Reads one session with its state.
    ///
    /// # Errors
    /// [`SessionsError::NoTenant`], [`SessionsError::NotFound`], [`SessionsError::SeveralUsers`],
    /// [`SessionsError::Store`].
    pub async fn show(&self, name: &SessionName) -> Result<shown::Session, SessionsError> {
        let session = self.read(name, EventFilter::NONE).await?;
        let SessionNames { tenant, app, user, context } = &*session.key;
        let state = session.state.merged();
        Ok(shown::Session {
            context: context.to_string(),
            user: user.to_string(),
            agent: app.to_string(),
            tenant: Some(tenant.to_string()).filter(|tenant| !tenant.is_empty()),
            revision: session.revision,
            last_update: session.last_update.to_string(),
            state: self.hidden(move |redaction| redaction.state(&state)).await?,
        })
    }

    /// The last events of a session. `last` is capped at [`MAX_SHOWN`].
    ///
    /// # Errors
    /// As [`Sessions::show`].
    pub async fn events(&self, name: &SessionName, last: usize) -> Result<Events, SessionsError> {
        let filter = EventFilter { max_bytes: Some(SHOWN_BYTES), ..EventFilter::recent(last.min(MAX_SHOWN)) };
        let session = self.read(name, filter).await?;
        let shown = move |redaction: &Redaction| {
            session.events.iter().map(|event| shown_event(event, redaction)).collect::<Vec<_>>()
        };
        Ok(Events { events: self.hidden(shown).await? })
    }

    /// Deletes a session and its events. The `user:` and `app:` state stays.
    ///
    /// # Errors
    /// As [`Sessions::show`], and [`SessionsError::Busy`].
    pub async fn delete(&self, name: &SessionName) -> Result<DeletedSession, SessionsError> {
        let key = self.key(name)?;
        let busy = || SessionsError::Busy { context: name.context.clone() };
        // The turn lock is held to the end, so that no turn begins in the session during the deletion.
        let _turn = self.turns.try_begin(&key).ok_or_else(busy)?;
        if self.service.delete(&key).await? {
            Ok(DeletedSession { deleted: name.context.clone(), user: key.user.to_string() })
        } else {
            Err(not_found(Some(&*key.user.to_string()), &key))
        }
    }

    /// Redacts on a blocking thread, because parsing JSON within JSON can take long.
    pub(crate) async fn hidden<T: Send + 'static>(
        &self,
        hide: impl FnOnce(&Redaction) -> T + Send + 'static,
    ) -> Result<T, SessionsError> {
        let redaction = self.redaction.clone();
        spawn_blocking(move || hide(&redaction)).await.map_err(SessionsError::BrokeOff)
    }

    async fn read(&self, name: &SessionName, filter: EventFilter) -> Result<Session, SessionsError> {
        let key = self.key(name)?;
        if let Some(session) = self.service.get(&key, filter).await? {
            return Ok(session);
        }
        if name.user.is_some() {
            return Err(not_found(name.user.as_deref(), &key));
        }
        // The operator may know only the context. A single user with a session in it is found.
        let mut users = self.service.users_in(&key.tenant, &key.app, &key.context, MAX_USERS_SHOWN).await?;
        match (users.pop(), users.is_empty()) {
            (None, _) => Err(not_found(None, &key)),
            (Some(user), true) => {
                let key = SessionKey::new(key.tenant.clone(), key.app.clone(), user.as_str(), key.context.clone());
                self.service.get(&key, filter).await?.ok_or_else(|| not_found(None, &key))
            }
            (Some(user), false) => {
                users.push(user);
                Err(SessionsError::SeveralUsers { context: name.context.clone(), users })
            }
        }
    }

    pub(crate) fn key(&self, name: &SessionName) -> Result<SessionKey, SessionsError> {
        let (tenant, app) = self.app(name.tenant.clone())?;
        let context = ContextId::from(name.context.as_str());
        let anonymous = session_key(app, &Owner { tenant, principal: String::new() }, &context);
        Ok(match &name.user {
            // The user comes from a list, so it already has its prefix.
            Some(user) => SessionKey::new(anonymous.tenant.clone(), anonymous.app.clone(), user.as_str(), context),
            None => anonymous,
        })
    }

    fn app(&self, tenant: Option<String>) -> Result<(String, Arc<str>), SessionsError> {
        let name = tenant.unwrap_or_default();
        match self.apps.of(&name) {
            Some(app) => Ok((name, app)),
            None => Err(SessionsError::NoTenant { name }),
        }
    }
}

fn shown_event(event: &Event, redaction: &Redaction) -> shown::Event {
    let part = |part: &Part| {
        // Redaction matches names of keys. Text that is not JSON has no keys and is shown unchanged.
        let mut part = part.clone();
        match &part.content {
            PartContent::Data(data) => part.content = PartContent::Data(redaction.json(data)),
            PartContent::Text(text) => part.content = PartContent::Text(redaction.text(text)),
            PartContent::Raw(_) | PartContent::Url(_) => {}
        }
        part.metadata = redaction.state(&part.metadata);
        part
    };
    let delta: State = event.state_delta.clone().into();
    let error = event.error.as_ref();
    shown::Event {
        id: event.id.clone(),
        author: event.author.to_string(),
        task: event.invocation_id.to_string(),
        timestamp: event.timestamp.to_string(),
        parts: event.parts.iter().map(part).collect(),
        state_delta: redaction.state(&delta),
        error: error.map(|error| EventError { code: error.code.clone(), message: error.message.clone() }),
    }
}

impl From<Session> for SessionSummary {
    fn from(session: Session) -> Self {
        let keys = session.state.own().keys().map(str::to_owned).collect();
        let Session { key, revision, last_update, .. } = session;
        Self {
            context: key.context.to_string(),
            user: key.user.to_string(),
            revision,
            last_update: last_update.to_string(),
            keys,
        }
    }
}

fn not_found(user: Option<&str>, key: &SessionKey) -> SessionsError {
    SessionsError::NotFound { user: user.map(str::to_owned), context: key.context.to_string() }
}

fn none_of(user: Option<&str>, context: &str) -> String {
    match user {
        Some(user) => format!("user {user:?} has no session {context:?}"),
        None => format!("there is no session {context:?}"),
    }
}

/// Encodes a position in a list as an opaque token.
fn token(cursor: &SessionCursor) -> String {
    let place = (cursor.last_update.as_millis(), &*cursor.user, cursor.context.as_str());
    BASE64.encode(serde_json::to_vec(&place).unwrap_or_default())
}

fn place(token: &str) -> Result<SessionCursor, SessionsError> {
    let decoded = BASE64.decode(token).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let (millis, user, context): (i64, String, String) =
        decoded.ok_or_else(|| SessionsError::NoPlace { token: token.to_owned() })?;
    Ok(SessionCursor {
        last_update: Timestamp::from_millis(millis),
        user: user.into(),
        context: ContextId::from(context),
    })
}
