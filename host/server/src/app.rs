//! The one place where the parts are joined.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use annex_agent::{AgentExecutor, McpError, ToolClash};
use annex_auth::{AuthConfig, AuthError, Authenticator, Principal};
use annex_egress::{Screen, ScreenConfig};
use annex_operations::counters::Counters;
use annex_operations::deduplication::Deduplication;
use annex_operations::fault;
use annex_operations::permits::shared::SharedPlaces;
use annex_operations::permits::{TurnBounds, TurnLimiter};
use annex_operations::push::PushNotifications;
use annex_operations::quota::{Quotas, Stores};
use annex_operations::request_handler::RequestHandler;
use annex_operations::send_message::input_modes::InputModes;
use annex_operations::service_parameters::Identity;
use annex_operations::tasks::list::Lister;
use annex_operations::tasks::pins::Pins;
use annex_operations::tasks::{TaskBounds, Tasks};
use annex_operations::views::ExtensionViews;
use annex_operations::views::agent_names::AgentNames;
use annex_operations::views::scoped_keys::ScopedKeys;
use annex_protocol::A2aError;
use annex_push::{Notifier, NotifierConfig};
use annex_runtime::{Installed, KeyValueStore, Runtime, RuntimeConfig, RuntimeError, Source};
use annex_session::{SessionService, Turns};
use annex_tasks::{Owner, TaskStore};
use axum::http::HeaderMap;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admin::{Admin, TokenError};
use crate::config::served::ServedConfig;
use crate::config::tenant_text::TenantTextError;
use crate::config::{Config, ConfigError, PushConfig, TasksConfig};
use crate::installation::installer::{Folder, InstallError, Installer, Parts, Peers};
use crate::installation::issuer::Issuer;
use crate::installation::signing::SigningError;
use crate::installation::watch::FileWatcher;
use crate::locations::Locations;
use crate::stores::editions::{self, EditionsOpenError};
use crate::stores::keyvalue_store::{self, KeyValueStoreError};
use crate::stores::postgres::PostgresDatabases;
use crate::stores::session_store::{self, SessionStoreError};
use crate::stores::sessions::Sessions;
use crate::stores::task_store::{self, TaskStoreError};
use crate::stores::wake::{self, WakeOpenError};
use crate::tenants::{Installers, Serving, Tenants};

mod agents;
mod tenants;

use agents::{agent, follow_card, input_modes};

/// The reasons for which the server cannot be put together.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The config names no agent, or the file of a tenant cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The component runtime does not start.
    #[error("cannot start the component runtime")]
    Runtime(#[from] RuntimeError),
    /// An extension cannot be installed.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// The model cannot be set up.
    #[error("agent.model cannot be used")]
    Model(#[source] Source),
    /// An MCP server or one of its tools cannot be used.
    #[error("[[agent.mcp]] cannot be used")]
    Mcp(#[from] McpError),
    /// Two tools have one name, so the model could not tell them apart.
    #[error("[[agent.mcp]] cannot be used")]
    Tools(#[from] ToolClash),
    /// The agent lives elsewhere and cannot be used.
    #[error("[agent] cannot be used")]
    Upstream(#[from] annex_upstream::ConnectError),
    /// Cards cannot be signed.
    #[error("[card.signing] cannot be used")]
    Signing(#[from] SigningError),
    /// The sender of push notifications cannot be made.
    #[error("[push] cannot be used")]
    Push(#[from] annex_push::NotifierError),
    /// The authenticator cannot be made.
    #[error("[auth] cannot be used")]
    Auth(#[from] annex_auth::AuthConfigError),
    /// The token of the admin API cannot be used.
    #[error("[admin] cannot be used")]
    Admin(#[from] TokenError),
    /// Tasks cannot be kept.
    #[error("tasks cannot be kept")]
    Tasks(#[from] TaskStoreError),
    /// Other processes cannot be heard.
    #[error("other processes on the database of the tasks cannot be heard")]
    Wake(#[from] WakeOpenError),
    /// Processes cannot agree on what is installed.
    #[error("what all replicas have installed cannot be found out")]
    Editions(#[from] EditionsOpenError),
    /// Sessions cannot be kept.
    #[error("sessions cannot be kept")]
    Sessions(#[from] SessionStoreError),
    /// The agent of a tenant takes too long.
    #[error("[agent] was not there in time")]
    AgentLate,
    /// The text of a tenant cannot be used.
    #[error(transparent)]
    TenantText(#[from] TenantTextError),
    /// Keys of extensions cannot be kept.
    #[error("keys of extensions cannot be kept")]
    KeyValue(#[from] KeyValueStoreError),
}

impl AppError {
    /// The error and its causes without the lines of files that errors of TOML show.
    fn public_text(&self) -> String {
        match self {
            Self::Config(error) => error.public_text(),
            Self::Install(error) => error.public_text(),
            error => fault::text(error),
        }
    }
}

/// Everything that serves requests.
pub struct App {
    tenants: Tenants,
    /// Says who calls; `None` lets everybody in.
    authenticator: Option<Arc<Authenticator>>,
    installers: Arc<Installers>,
    /// The other processes on the database; `None` where there can be none.
    pub(crate) peers: Option<Peers>,
    pub(crate) admin: Option<Arc<Admin>>,
    /// The use of the tenants.
    pub(crate) quotas: Arc<Quotas>,
    base_url: String,
}

impl App {
    /// Loads every component and joins the parts. `base_url` is where clients reach the server.
    ///
    /// # Errors
    /// Names the config's key, or the component and the step that refused it.
    pub async fn load(config: &Config, locations: &Locations, base_url: &str) -> Result<Self, AppError> {
        let agent = agent(config.agent()?, locations).await?;
        Self::with_agent(config, locations, base_url, agent).await
    }

    /// The same with an agent that is compiled into the program; the config needs no `[agent]`, and one that it has is
    /// not used. The program's `main` begins with [`annex_runtime::compile_if_asked`]: its components are compiled by
    /// processes of that program.
    ///
    /// # Errors
    /// As [`App::load`].
    pub async fn with_agent(
        config: &Config,
        locations: &Locations,
        base_url: &str,
        agent: Arc<dyn AgentExecutor>,
    ) -> Result<Self, AppError> {
        // On the heap, because it is large. So this crate compiles it, and not each program that loads an app.
        Self::joined(config, locations, base_url, agent).await
    }

    fn joined<'a>(
        config: &'a Config,
        locations: &'a Locations,
        base_url: &'a str,
        agent: Arc<dyn AgentExecutor>,
    ) -> BoxFuture<'a, Result<Self, AppError>> {
        Box::pin(Self::join(config, locations, base_url, agent))
    }

    async fn join(
        config: &Config,
        locations: &Locations,
        base_url: &str,
        agent: Arc<dyn AgentExecutor>,
    ) -> Result<Self, AppError> {
        let config = Arc::new(config.clone());
        let names = AgentNames::default();
        let shared = Arc::new(Shared::open(&config, locations, base_url, &names).await?);
        let served = ServedConfig::own(&config);
        let served = Served { name: String::new(), config: served, locations: locations.clone(), is_watched: true };
        // On the heap, because the future of a load is large and would be a part of this one.
        let Serving { handler, installer, .. } = Box::pin(shared.serve(served, agent)).await?;
        let others = tenants::open(&config, locations, &shared).await?;
        others.named.load_missing().await;
        let installers = Arc::new(Installers::new(installer, others.clone()));
        let sessions = || Sessions {
            service: Arc::clone(&shared.sessions),
            turns: shared.turns.clone(),
            apps: names.clone(),
            redaction: config.sessions.redaction(),
        };
        let admin = |admin| Admin::new(admin, &locations.config, Arc::clone(&installers), sessions(), &handler);
        let admin = config.admin.as_ref().map(admin).transpose()?.map(Arc::new);
        let authenticator = shared.authenticator.clone();
        let tenants = Tenants::new(handler, others);
        let quotas = Arc::clone(&shared.quotas);
        let peers = shared.peers.clone();
        Ok(Self { tenants, authenticator, installers, peers, admin, quotas, base_url: base_url.to_owned() })
    }

    /// The handlers that serve requests, by tenant.
    pub(crate) fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    /// Authenticates the caller (A2A 1.0 section 7.4).
    ///
    /// # Errors
    /// [`A2aError::Unauthenticated`], or [`A2aError::Overloaded`] while nobody can tell.
    pub(crate) async fn identify(&self, headers: &HeaderMap) -> Result<Identity, A2aError> {
        // Without [auth] ids are all that keeps clients apart (`docs/decisions/server-list-tasks-context.md`).
        let Some(authenticator) = &self.authenticator else { return Ok(Identity::default()) };
        match authenticator.authenticate(headers).await {
            // The tenant is filled in by `Tenants::serving`, once the request has named one.
            Ok(Principal { id, claims, .. }) => {
                Ok(Identity { owner: Owner { tenant: String::new(), principal: id }, claims })
            }
            // Nobody knows whether the credentials are good, so the client is told to try again.
            Err(AuthError::Unavailable) => {
                Err(A2aError::Overloaded { reason: "the identity provider is unavailable".to_owned() })
            }
            Err(error) => {
                let challenge = error.www_authenticate().and_then(|value| value.to_str().ok()).unwrap_or_default();
                Err(A2aError::Unauthenticated { reason: error.to_string(), challenge: challenge.to_owned() })
            }
        }
    }

    /// The extensions that the config itself has installed now.
    #[must_use]
    pub fn installed(&self) -> Installed {
        self.installer().installed()
    }

    /// The installer of the config itself.
    #[must_use]
    pub fn installer(&self) -> &Arc<Installer> {
        self.installers.own()
    }

    /// The installers of the config itself and of each tenant.
    #[must_use]
    pub fn installers(&self) -> &Arc<Installers> {
        &self.installers
    }

    /// The base URL that clients reach.
    #[must_use]
    pub fn base_url(&self) -> &str {
        &self.base_url
    }
}

/// One agent with its extensions and its card: that of the config itself, or a tenant's.
struct Served {
    /// Empty for that of the config itself.
    name: String,
    config: ServedConfig,
    locations: Locations,
    /// True if changes of its files are looked for.
    is_watched: bool,
}

/// The parts that all tenants of a process share. Whatever is kept in them is kept by tenant.
struct Shared {
    base_url: String,
    names: AgentNames,
    authenticator: Option<Arc<Authenticator>>,
    runtime: Runtime,
    watcher: Option<Arc<FileWatcher>>,
    peers: Option<Peers>,
    tasks: Arc<Tasks>,
    store: Arc<dyn TaskStore>,
    pins: Arc<Pins>,
    deduplication: Arc<Deduplication>,
    sessions: Arc<dyn SessionService>,
    turns: Turns,
    places: Arc<SharedPlaces>,
    quotas: Arc<Quotas>,
    keys: Arc<ScopedKeys>,
    push: Option<Arc<PushNotifications>>,
    running: TaskTracker,
    counters: Arc<Counters>,
    draining: CancellationToken,
    stop: CancellationToken,
    closing: CancellationToken,
}

impl Shared {
    /// `names` learns the agents that are served.
    async fn open(
        config: &Config,
        locations: &Locations,
        base_url: &str,
        names: &AgentNames,
    ) -> Result<Self, AppError> {
        let databases = PostgresDatabases::new(&config.postgres);
        let task_store::Opened { store, lease } = task_store::open(config, &locations.config, &databases).await?;
        let wake = wake::open(config, &databases, store.as_ref()).await?;
        let peers = editions::open(config, &databases, lease.as_ref(), &wake).await?;
        let authenticator =
            config.auth.as_ref().map(|auth| Authenticator::new(&located(auth, locations))).transpose()?;
        let keyvalue = keyvalue_store::open(config, &locations.config, &databases).await?;
        let closing = CancellationToken::new();
        let push = config.push.as_ref().map(|push| notifications(push, &store, &closing)).transpose()?;
        let sessions = session_store::open(config, &locations.config, &databases, lease).await?;
        let pins = Arc::new(Pins::default());
        let places = SharedPlaces::new(Arc::clone(&store));
        places.look().await.map_err(TaskStoreError::from)?;
        let kept = Stores {
            tasks: Arc::clone(&store),
            sessions: Arc::clone(&sessions),
            keys: Arc::clone(&keyvalue),
            keep_tasks: config.tasks.keep_count,
        };
        let quotas = Quotas::new(kept, Arc::clone(&places));
        Ok(Self {
            base_url: base_url.to_owned(),
            names: names.clone(),
            authenticator: authenticator.map(Arc::new),
            runtime: runtime(config, locations, &keyvalue)?,
            watcher: config.runtime.watch.then(FileWatcher::start),
            peers,
            tasks: Tasks::new(Arc::clone(&store), Arc::clone(&pins), task_bounds(&config.tasks), Arc::clone(&wake)),
            pins,
            deduplication: Deduplication::new(Arc::clone(&store), wake),
            keys: ScopedKeys::new(keyvalue, Arc::clone(&store), Arc::clone(&sessions), names.clone()),
            store,
            sessions,
            turns: Turns::new(config.server.max_waiting_turns),
            places,
            quotas,
            push,
            running: TaskTracker::new(),
            counters: Arc::new(Counters::default()),
            draining: CancellationToken::new(),
            stop: CancellationToken::new(),
            closing,
        })
    }

    /// Loads the components and joins the parts of one agent.
    async fn serve(&self, served: Served, agent: Arc<dyn AgentExecutor>) -> Result<Serving, AppError> {
        let Served { name, config, locations, is_watched } = served;
        self.names.set(&name, agent.name());
        let remote_card = agent.remote_card();
        let issuer = Issuer::new(&config, &name, &self.base_url, self.authenticator.as_deref(), &locations)?;
        let issuer = issuer.with_remote(remote_card.clone());
        let folder = config.extensions_dir().map(|folder| locations.config.join(folder));
        let open = |path: PathBuf| Folder::open(path.clone()).map_err(|source| InstallError::Folder { path, source });
        let folder = folder.map(open).transpose()?;
        // Engine, instances and compiler are shared. Keys of extensions and numbers of their calls are the tenant's
        // own.
        let ledger = config.quota.is_some().then(|| self.quotas.ledger(&name));
        let busy = ledger.as_ref().map(|ledger| ledger.busy()).unwrap_or_default();
        let runtime = self.runtime.of_tenant(&name).counting_in(busy);
        let pins = Arc::clone(&self.pins);
        let watcher = self.watcher.clone().filter(|_| is_watched);
        let peers = self.peers.clone();
        let parts = Parts { tenant: name, runtime, issuer, locations, folder, pins, watcher, peers };
        let installer = Arc::new(Installer::start(&config, parts).await?);
        let agent_is_remote = remote_card.is_some();
        if let Some(card) = remote_card {
            // The reference is weak: following the card of another agent must not keep the installer alive.
            tokio::spawn(follow_card(card, Arc::downgrade(&installer)));
        }
        let shows_all_anonymous = config.process.tasks.list_all_anonymous;
        let lister = Lister { store: Arc::clone(&self.store), shows_all_anonymous };
        let of_process = &config.process.server;
        let used = match ledger.zip(config.quota.clone()) {
            Some((ledger, quota)) => Some(self.quotas.begin(ledger, quota).await),
            None => None,
        };
        let bounds =
            TurnBounds { in_all: of_process.max_running_turns, per_caller: of_process.max_running_turns_per_caller };
        // The handler knows itself, because a turn goes on when the request that began it is answered.
        let handler = Arc::new_cyclic(|me| RequestHandler {
            me: Weak::clone(me),
            extensions: Arc::clone(installer.publisher().sets()),
            app: agent.name().into(),
            agent,
            agent_is_remote,
            on_lost_turn: config.on_lost_turn(),
            push: self.push.clone(),
            input_modes: InputModes::new(&input_modes(&config)),
            sessions: Arc::clone(&self.sessions),
            // The turn queues are shared by all tenants. Their keys begin with the name of the tenant.
            turns: self.turns.clone(),
            deduplication: Arc::clone(&self.deduplication),
            tasks: Arc::clone(&self.tasks),
            views: ExtensionViews { keys: Arc::clone(&self.keys), lister },
            // The permits are the tenant's own: one that has all its turns running takes none from others.
            turn_limiter: TurnLimiter::new(bounds, used.clone(), Arc::clone(&self.places)),
            used,
            max_turn: Duration::from_secs(of_process.max_turn_seconds),
            running: self.running.clone(),
            counters: Arc::clone(&self.counters),
            removed: AtomicBool::new(false),
            draining: self.draining.clone(),
            stop: self.stop.clone(),
            closing: self.closing.clone(),
        });
        Ok(Serving::new(handler, installer))
    }
}

fn notifications(
    push: &PushConfig,
    store: &Arc<dyn TaskStore>,
    closing: &CancellationToken,
) -> Result<Arc<PushNotifications>, AppError> {
    let screen = Screen::new(ScreenConfig { allow: push.allow.clone(), https_only: push.https_only });
    let notifier = Notifier::new(&NotifierConfig::new(screen))?;
    Ok(Arc::new(PushNotifications::new(notifier, Arc::clone(store), closing.clone())))
}

fn task_bounds(config: &TasksConfig) -> TaskBounds {
    TaskBounds { limits: task_store::limits(config), waiting: task_store::waiting(config) }
}

/// The same config with the paths of its files resolved against the config's folder.
fn located(auth: &AuthConfig, locations: &Locations) -> AuthConfig {
    let mut auth = auth.clone();
    let files = auth.api_key.iter_mut().filter_map(|key| key.key_file.as_mut());
    for file in files.chain(auth.jwt.as_mut().and_then(|jwt| jwt.jwks_file.as_mut())) {
        *file = locations.config.join(&*file);
    }
    auth
}

fn runtime(config: &Config, locations: &Locations, keyvalue: &Arc<dyn KeyValueStore>) -> Result<Runtime, RuntimeError> {
    let cache = config.runtime.cache_dir.as_ref().map(|folder| locations.config.join(folder));
    Runtime::new(&RuntimeConfig {
        instances: config.runtime.max_instances,
        compile_time: Duration::from_secs(config.runtime.compile_seconds),
        compile_memory: config.runtime.compile_memory_bytes,
        compile_processes: config.runtime.compile_processes,
        cache: cache.or_else(|| locations.cache.clone()),
        cache_bytes: config.runtime.cache_bytes,
        debug_info: config.runtime.debug_info,
        quarantine: config.runtime.quarantine,
        keyvalue: Arc::clone(keyvalue),
        ..RuntimeConfig::default()
    })
}
