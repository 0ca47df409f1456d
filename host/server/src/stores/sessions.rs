//! Sessions as operators see them, in a running server or, without a server, in the store.

use std::path::Path;
use std::sync::Arc;

use annex_conversation::{
    AppendError, Arrival, Beginning, Conversation, ConversationCursor, ConversationKey, ConversationNames,
    ConversationQuery, ConversationSnapshot, ConversationStore, Departure, Event, Store, StoreError, Submission,
    TaskLimits, Window,
};
use annex_operations::process::Process;
use annex_operations::views::agent_names::AgentNames;
use annex_protocol::{ContextId, JsonObject, Owner, Part, PartContent, TaskId, Timestamp};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use tokio::task::{JoinError, spawn_blocking};

use crate::admin_api::sessions::{self as shown, DeletedSession, EventError, Events, SessionSummary};
use crate::config::served::ServedConfig;
use crate::config::{Config, ConfigError};
use crate::redaction::Redaction;
use crate::stores::conversation_store::{self, ConversationStoreError};
use crate::stores::postgres::PostgresDatabases;

pub(crate) mod tasks;

/// The maximum number of sessions or events in one answer.
pub const MAX_SHOWN: usize = 1_000;
/// The maximum number of users that an error names.
const MAX_USERS_SHOWN: usize = 20;

/// The maximum size of all events in one answer together, in bytes.
const SHOWN_BYTES: usize = 8 << 20;

/// Shows and deletes sessions.
pub struct Sessions {
    pub(crate) store: Arc<dyn Store>,
    /// This process, which enters the queue of a session before it deletes the session. `None` if the store was opened
    /// without a server.
    pub(crate) process: Option<Process>,
    /// The names of the agents of all tenants. Sessions are stored under the names of their agents.
    pub(crate) apps: AgentNames,
    pub(crate) redaction: Redaction,
}

/// The tenant, the user and the context that identify one session.
#[derive(Clone, Debug, Default)]
pub struct SessionName {
    /// The tenant. `None` for the agent of the config itself.
    pub tenant: Option<String>,
    /// The user, spelled as in a list of sessions. `None` for the anonymous user of the context. If the anonymous user
    /// has no session, `None` stands for the only user with a session in the context.
    pub user: Option<String>,
    /// The A2A context.
    pub context: String,
}

/// Selects which sessions are listed, and which page of the list is returned.
#[derive(Clone, Debug, Default)]
pub struct SessionFilter {
    /// The tenant. `None` for the agent of the config itself.
    pub tenant: Option<String>,
    /// The user whose sessions are listed. `None` for all users.
    pub user: Option<String>,
    /// The `next` token of the previous page. `None` for the first page.
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
    /// The request does not name the owner of the key.
    #[error("key {key:?}: {reason}")]
    NoOwner {
        /// The key with its prefix.
        key: String,
        /// The missing information, such as the context.
        reason: &'static str,
    },
    /// The store failed.
    #[error("the sessions cannot be read")]
    Store(#[from] StoreError),
    /// The redaction of the session was cancelled or panicked.
    #[error("the session cannot be redacted")]
    BrokeOff(#[source] JoinError),
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] ConversationStoreError),
    /// The config names no agent, or the config of a tenant is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl Sessions {
    /// Opens the session store of a config, without a server. Relative paths start in `folder`. A running server on the
    /// same store is not notified of deletions.
    ///
    /// # Errors
    /// [`SessionsError::Open`] if the store cannot be opened. [`SessionsError::Config`] if the config names no agent,
    /// because sessions are stored under the name of their agent.
    pub async fn open(config: &Config, folder: &Path) -> Result<Self, SessionsError> {
        let databases = PostgresDatabases::new(&config.postgres);
        let store = conversation_store::open_beside(config, folder, &databases).await?;
        let apps = AgentNames::default();
        apps.set("", config.agent()?.name());
        let config = Arc::new(config.clone());
        for tenant in &config.tenants {
            let of_tenant = ServedConfig::of_tenant(tenant, &config, folder)?;
            apps.set(&tenant.name, of_tenant.agent()?.name());
        }
        Ok(Self { store, process: None, apps, redaction: config.sessions.redaction() })
    }

    /// Lists sessions without their values.
    ///
    /// # Errors
    /// [`SessionsError::NoTenant`], [`SessionsError::NoPlace`], [`SessionsError::Store`].
    pub async fn list(&self, filter: SessionFilter) -> Result<shown::List, SessionsError> {
        let (tenant, app) = self.app(filter.tenant)?;
        let limit = filter.limit.clamp(1, MAX_SHOWN);
        let after = filter.after.map(|token| place(&token)).transpose()?;
        let query = ConversationQuery { tenant, app: app.to_string(), user: filter.user, after, limit };
        let sessions = self.store.list(&query).await?;
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
        let session = self.read(name, Window::NONE).await?;
        let ConversationNames { tenant, app, user, context } = &*session.key;
        let state = session.state.merged();
        Ok(shown::Session {
            context: context.to_string(),
            user: user.to_string(),
            agent: app.to_string(),
            tenant: Some(tenant.to_string()).filter(|tenant| !tenant.is_empty()),
            revision: session.number,
            last_update: session.updated_at.to_string(),
            state: self.hidden(move |redaction| redaction.state(&state)).await?,
        })
    }

    /// Returns the last `last` events of a session, but at most [`MAX_SHOWN`].
    ///
    /// # Errors
    /// The same errors as for [`Sessions::show`].
    pub async fn events(&self, name: &SessionName, last: usize) -> Result<Events, SessionsError> {
        let window = Window { events: last.min(MAX_SHOWN), bytes: SHOWN_BYTES };
        let session = self.read(name, window).await?;
        let shown = move |redaction: &Redaction| {
            session.history.iter().map(|event| shown_event(event, redaction)).collect::<Vec<_>>()
        };
        Ok(Events { events: self.hidden(shown).await? })
    }

    /// Deletes a session and its events. The `user:` and `app:` state is not deleted.
    ///
    /// # Errors
    /// The same errors as for [`Sessions::show`], and [`SessionsError::Busy`] while a turn runs in the session.
    pub async fn delete(&self, name: &SessionName) -> Result<DeletedSession, SessionsError> {
        let key = self.key(name)?;
        // The queue is held to the end, so that no turn begins in the session during the deletion.
        let held = match &self.process {
            Some(process) => Some(self.hold(&key, process).await?),
            None => None,
        };
        let deleted = self.store.delete(&key).await?;
        if let Some(turn) = held {
            // If that fails, the turn leaves when it is dropped.
            turn.leave(Departure::Refused).await?;
        }
        if deleted {
            Ok(DeletedSession { deleted: name.context.clone(), user: key.user.to_string() })
        } else {
            Err(not_found(Some(&*key.user.to_string()), &key))
        }
    }

    /// Enters the queue of the session as a turn, so that no other turn can begin. Returns the conversation with the
    /// fence of this turn. Fails if another turn is in the queue.
    async fn hold(&self, key: &ConversationKey, process: &Process) -> Result<Conversation, SessionsError> {
        let submission = Submission::of_process(process.replica(), TaskId::generate());
        let store: Arc<dyn ConversationStore> = self.store.clone();
        // The turn stores nothing.
        let limits = TaskLimits { bytes: 0, messages: 0, artifacts: 0 };
        let beginning = Beginning { task: None, limits, history: 0 };
        match Conversation::enter(&store, key.clone(), submission, beginning).await {
            Ok(Arrival::Runs(turn)) => Ok(turn),
            Ok(Arrival::Waits(turn)) => {
                turn.leave(Departure::Refused).await?;
                Err(SessionsError::Busy { context: key.context.to_string() })
            }
            Err(AppendError::Store(error)) => Err(error.into()),
            // A name that cannot be stored was never stored.
            Err(AppendError::Name(_)) => Err(not_found(Some(&*key.user), key)),
            Err(_) => Err(SessionsError::Busy { context: key.context.to_string() }),
        }
    }

    /// Calls `hide` with the redaction of these sessions, and returns the result of `hide`. The call runs on a blocking
    /// thread, because parsing JSON within JSON can take long.
    pub(crate) async fn hidden<T: Send + 'static>(
        &self,
        hide: impl FnOnce(&Redaction) -> T + Send + 'static,
    ) -> Result<T, SessionsError> {
        let redaction = self.redaction.clone();
        spawn_blocking(move || hide(&redaction)).await.map_err(SessionsError::BrokeOff)
    }

    async fn read(&self, name: &SessionName, window: Window) -> Result<ConversationSnapshot, SessionsError> {
        let key = self.key(name)?;
        let session = self.store.conversation(&key, window).await?;
        if session.exists() {
            return Ok(session);
        }
        if name.user.is_some() {
            return Err(not_found(name.user.as_deref(), &key));
        }
        // The operator may know only the context. A single user with a session in it is found.
        let mut users = self.store.users_in(&key.tenant, &key.app, &key.context, MAX_USERS_SHOWN).await?;
        match (users.pop(), users.is_empty()) {
            (None, _) => Err(not_found(None, &key)),
            (Some(user), true) => {
                let (tenant, app) = (Arc::clone(&key.tenant), Arc::clone(&key.app));
                let key = ConversationKey::new(tenant, app, user.as_str(), key.context.clone());
                let session = self.store.conversation(&key, window).await?;
                if session.exists() { Ok(session) } else { Err(not_found(None, &key)) }
            }
            (Some(user), false) => {
                users.push(user);
                Err(SessionsError::SeveralUsers { context: name.context.clone(), users })
            }
        }
    }

    pub(crate) fn key(&self, name: &SessionName) -> Result<ConversationKey, SessionsError> {
        let (tenant, app) = self.app(name.tenant.clone())?;
        let context = ContextId::from(name.context.as_str());
        let anonymous = ConversationKey::of(app, &Owner { tenant, principal: String::new() }, &context);
        Ok(match &name.user {
            // The user comes from a list, so it already has its prefix.
            Some(user) => {
                let (tenant, app) = (Arc::clone(&anonymous.tenant), Arc::clone(&anonymous.app));
                ConversationKey::new(tenant, app, user.as_str(), context)
            }
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

fn shown_part(part: &Part, redaction: &Redaction) -> Part {
    // Redaction matches names of keys. Text that is not JSON has no keys and is shown unchanged.
    let mut part = part.clone();
    match &part.content {
        PartContent::Data(data) => part.content = PartContent::Data(redaction.json(data)),
        PartContent::Text(text) => part.content = PartContent::Text(redaction.text(text)),
        PartContent::Raw(_) | PartContent::Url(_) => {}
    }
    part.metadata = redaction.state(&part.metadata);
    part
}

fn shown_event(event: &Event, redaction: &Redaction) -> shown::Event {
    let delta: JsonObject = event.state_delta.clone().into();
    let error = event.error.as_ref();
    shown::Event {
        id: event.id.clone(),
        author: event.author.to_string(),
        task: event.invocation_id.to_string(),
        timestamp: event.timestamp.to_string(),
        parts: event.parts.iter().map(|part| shown_part(part, redaction)).collect(),
        state_delta: redaction.state(&delta),
        error: error.map(|error| EventError { code: error.code.clone(), message: error.message.clone() }),
    }
}

impl From<ConversationSnapshot> for SessionSummary {
    fn from(session: ConversationSnapshot) -> Self {
        let keys = session.state.own().keys().map(str::to_owned).collect();
        let ConversationSnapshot { key, number, updated_at, .. } = session;
        Self {
            context: key.context.to_string(),
            user: key.user.to_string(),
            revision: number,
            last_update: updated_at.to_string(),
            keys,
        }
    }
}

fn not_found(user: Option<&str>, key: &ConversationKey) -> SessionsError {
    SessionsError::NotFound { user: user.map(str::to_owned), context: key.context.to_string() }
}

fn none_of(user: Option<&str>, context: &str) -> String {
    match user {
        Some(user) => format!("user {user:?} has no session {context:?}"),
        None => format!("there is no session {context:?}"),
    }
}

/// Encodes a position in a list as an opaque token.
fn token(cursor: &ConversationCursor) -> String {
    let place = (cursor.updated_at.as_millis(), &*cursor.user, cursor.context.as_str());
    BASE64.encode(serde_json::to_vec(&place).unwrap_or_default())
}

fn place(token: &str) -> Result<ConversationCursor, SessionsError> {
    let decoded = BASE64.decode(token).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let (millis, user, context): (i64, String, String) =
        decoded.ok_or_else(|| SessionsError::NoPlace { token: token.to_owned() })?;
    Ok(ConversationCursor {
        updated_at: Timestamp::from_millis(millis),
        user: user.into(),
        context: ContextId::from(context),
    })
}
