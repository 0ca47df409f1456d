//! The composition root. Only this module connects all parts of the server.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use annex_agent::AgentExecutor;
use annex_auth::{AuthError, Authenticator, Principal};
use annex_conversation::{ConversationStore, LostTurn, Store};
use annex_leases::Description;
use annex_operations::claims::Claims;
use annex_operations::counters::Counters;
use annex_operations::permits::TurnLimiter;
use annex_operations::process::Process;
use annex_operations::process_parts::ProcessParts;
use annex_operations::push::PushNotifications;
use annex_operations::quota::{Quotas, Stores};
use annex_operations::receipts::StoredReceipt;
use annex_operations::request_handler::RequestHandler;
use annex_operations::send_message::input_modes::InputModes;
use annex_operations::service_parameters::Identity;
use annex_operations::tasks::Tasks;
use annex_operations::tasks::list::Lister;
use annex_operations::tasks::pins::Pins;
use annex_operations::views::ExtensionViews;
use annex_operations::views::agent_names::AgentNames;
use annex_operations::views::scoped_keys::ScopedKeys;
use annex_protocol::{A2aError, Owner, Timestamp};
use annex_push::Notifier;
use annex_runtime::{Installed, KeyValueStore, Runtime, RuntimeConfig, RuntimeError};
use annex_tenants::TenantStores;
use axum::http::HeaderMap;
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access_log::RequestNumbers;
use crate::admin::access::{Access, AccessRules};
use crate::admin::exposition::Family;
use crate::admin::metrics::{self, Sources};
use crate::admin::replicas::ThisProcess;
use crate::admin::{Admin, AdminParts};
use crate::audit::receipts::MAX_WAITING;
use crate::authentication::Authentication;
use crate::config::served::ServedConfig;
use crate::config::{Config, PushConfig};
use crate::connections::peer::Peer;
use crate::installation::denied::{DeniedComponents, DenyFileError};
use crate::installation::installer::{Folder, InstallError, Installer, Parts, Peers};
use crate::installation::issuer::Issuer;
use crate::installation::receipts::receipts;
use crate::installation::watch::FileWatcher;
use crate::locations::Locations;
use crate::metrics_sender::MetricsSender;
use crate::process::listeners_tls::ListenersTls;
use crate::settings::{Settings, SettingsOf, located, notifier_config, task_bounds, turn_bounds};
use crate::stores::conversation_store;
use crate::stores::editions;
use crate::stores::keyvalue_store;
use crate::stores::postgres::PostgresDatabases;
use crate::stores::sessions::Sessions;
use crate::stores::tenant_store;
use crate::stores::turn_places;
use crate::stores::wake;
use crate::tenants::{Installers, Serving, Tenants};
use crate::traces::Traces;

mod agents;
mod audit_file;
mod check;
mod error;
mod tenants;

use agents::{agent, follow_card, input_modes};
use audit_file::{audit_path, open_audit};
pub use check::{CheckReport, Counts, check, check_extensions, check_tenant_text};
pub use error::AppError;

/// The whole server without its listeners.
pub struct App {
    tenants: Tenants,
    /// Authenticates callers. `None` accepts everybody as anonymous.
    authentication: Option<Authentication>,
    installers: Arc<Installers>,
    /// The parts that all agents of the process share.
    pub(crate) process: Arc<ProcessParts>,
    /// The other processes on the database. `None` without a shared database.
    pub(crate) peers: Option<Peers>,
    pub(crate) admin: Option<Arc<Admin>>,
    /// The stores of tenants. They are closed when the process ends.
    pub(crate) tenant_stores: TenantStores,
    /// The sender of spans. `None` if the config has no `[traces]`.
    pub(crate) traces: Option<Arc<Traces>>,
    /// The settings that a reload of the config changes.
    pub(crate) settings: Arc<Settings>,
    runtime: Arc<Runtime>,
    base_url: String,
}

impl App {
    /// Loads the agent and all components, and connects the parts. `base_url` is the URL under which clients reach the
    /// server.
    ///
    /// # Errors
    /// When the config is wrong, or when a part cannot be loaded. The error names the config key, or the component and
    /// the step that failed.
    pub fn load<'a>(
        config: &'a Config,
        locations: &'a Locations,
        base_url: &'a str,
    ) -> BoxFuture<'a, Result<Self, AppError>> {
        Box::pin(async move {
            // The check precedes the connections to peers, and reports all mistakes at once.
            check::check_start(config, locations, true).await?;
            let agent = agent(config.agent()?, locations).await?;
            Self::join(config, locations, base_url, agent).await
        })
    }

    /// Like [`App::load`], with an agent that is compiled into the program. The config needs no `[agent]`. An existing
    /// `[agent]` is ignored. The program's `main` must begin with [`annex_runtime::compile_if_asked`], because the
    /// program starts itself as a child process to compile components.
    ///
    /// # Errors
    /// The same errors as for [`App::load`].
    pub fn with_agent<'a>(
        config: &'a Config,
        locations: &'a Locations,
        base_url: &'a str,
        agent: Arc<dyn AgentExecutor>,
    ) -> BoxFuture<'a, Result<Self, AppError>> {
        Box::pin(async move {
            check::check_start(config, locations, false).await?;
            Self::join(config, locations, base_url, agent).await
        })
    }

    async fn join(
        config: &Config,
        locations: &Locations,
        base_url: &str,
        agent: Arc<dyn AgentExecutor>,
    ) -> Result<Self, AppError> {
        let config = Arc::new(config.clone());
        let names = AgentNames::default();
        let since = Timestamp::now();
        let shared = SharedParts::open(&config, locations, base_url, &names).await?;
        let (copies, receipts) = mpsc::channel(MAX_WAITING);
        let copies = audit_path(&config, locations).map(|_| copies);
        let shared = Arc::new(SharedParts { receipt_copies: copies, ..shared });
        let served = ServedConfig::own(&config);
        let served =
            ServedAgent { name: String::new(), config: served, locations: locations.clone(), is_watched: true };
        // The future of a load is large, so it is boxed to stay out of this one.
        let own = Box::pin(shared.serve(served, agent)).await?;
        let access = config.admin.as_ref().map(|admin| AccessRules::read(admin, &locations.config)).transpose()?;
        let access = access.map(Access::new);
        let audit = open_audit(&config, locations).await?;
        if let Some(audit) = &audit {
            audit.follow(receipts, shared.process.closing.clone());
        }
        let settings = Arc::new(Settings::new(&locations.config, Arc::clone(&config), shared.settings(access.clone())));
        let others = tenants::open(&settings, locations, &shared).await?;
        others.named.load_missing().await;
        let installers = Arc::new(Installers::new(&own, others.clone(), Arc::clone(&settings)));
        let sessions = || Sessions {
            store: Arc::clone(&shared.store),
            process: Some(shared.process.tasks.process().clone()),
            apps: names.clone(),
            redaction: config.sessions.redaction(),
        };
        let admin = |access| {
            Admin::new(AdminParts {
                access,
                installers: Arc::clone(&installers),
                sessions: sessions(),
                process: Arc::clone(&shared.process),
                runtime: Arc::clone(&shared.runtime),
                agent: Arc::clone(&own.handler.agent),
                peers: shared.peers.clone(),
                this_process: ThisProcess { since, address: base_url.to_owned() },
                audit: audit.clone(),
            })
        };
        let admin = access.map(admin).map(Arc::new);
        let authentication = shared.authentication.clone();
        let tenants = Tenants::new(own.handler, others);
        Ok(Self {
            tenants,
            authentication,
            installers,
            process: Arc::clone(&shared.process),
            peers: shared.peers.clone(),
            admin,
            tenant_stores: shared.tenants.clone(),
            traces: shared.traces.clone(),
            settings,
            runtime: Arc::clone(&shared.runtime),
            base_url: base_url.to_owned(),
        })
    }

    /// Publishes the phase of this process to the other processes, if there are any. `annex replica list` shows the
    /// phase.
    pub(crate) fn describe(&self, phase: &str) {
        if let Some(peers) = &self.peers {
            describe(peers, &self.base_url, phase);
        }
    }

    /// Takes over the turns that no process works on. Returns those turns that can continue, and ends the others.
    pub(crate) async fn end_turns_of_others(&self) -> Result<Vec<LostTurn>, AppError> {
        Ok(self.process.tasks.end_turns_of_others().await?)
    }

    /// The sender of metrics. `None` if the config wants no metrics.
    pub(crate) fn metrics_sender(&self) -> Option<&MetricsSender> {
        self.traces.as_ref()?.metrics.as_ref()
    }

    /// The metrics of `/metrics` as numbers. `numbers` are those of requests, and `tls` those of the listeners.
    pub(crate) fn metric_families(&self, numbers: &RequestNumbers, tls: &ListenersTls) -> Vec<Family> {
        let own_agent = &*self.tenants.own().agent;
        let sources = Sources { process: &self.process, runtime: &self.runtime, numbers, own_agent, tls };
        metrics::families(&self.installers, &sources)
    }

    /// The request handlers by tenant.
    pub(crate) fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    /// Authenticates a caller (A2A 1.0 section 7.4).
    ///
    /// # Errors
    /// [`A2aError::Unauthenticated`], or [`A2aError::Overloaded`] while the identity provider is unavailable.
    pub(crate) async fn identify(&self, headers: &HeaderMap, peer: &Peer) -> Result<Identity, A2aError> {
        // Without [auth] only the ids of tasks and contexts separate clients (`docs/decisions/server.md`).
        let Some(authentication) = &self.authentication else { return Ok(Identity::default()) };
        let authenticator = authentication.current();
        let certificate = peer.certificate.as_deref();
        match authenticator.authenticate(headers, peer.network.part(), certificate).await {
            // `Tenants::serving` sets the tenant, which the request names later.
            Ok(principal) => {
                let token = authenticator.token_of(headers, &principal);
                let key_header = authenticator.key_header().cloned();
                let Principal { id, claims, .. } = principal;
                Ok(Identity { owner: Owner { tenant: String::new(), principal: id }, claims, token, key_header })
            }
            // The credentials cannot be verified at the moment, so the client should try again.
            Err(AuthError::Unavailable) => {
                Err(A2aError::Overloaded { reason: "the identity provider is unavailable".to_owned() })
            }
            Err(error) => {
                let challenge = error.www_authenticate().and_then(|value| value.to_str().ok()).unwrap_or_default();
                Err(A2aError::Unauthenticated { reason: error.to_string(), challenge: challenge.to_owned() })
            }
        }
    }

    /// The extensions that are installed now for the agent that the config itself describes. Extensions of tenants are
    /// not included.
    #[must_use]
    pub fn installed(&self) -> Installed {
        self.installer().installed()
    }

    /// The installer of the config's own agent.
    #[must_use]
    pub fn installer(&self) -> &Arc<Installer> {
        self.installers.own()
    }

    /// The installers of the config's own agent and of all tenants.
    #[must_use]
    pub fn installers(&self) -> &Arc<Installers> {
        &self.installers
    }

    /// The base URL under which clients reach the server.
    #[must_use]
    pub fn base_url(&self) -> &str {
        &self.base_url
    }
}

fn describe(peers: &Peers, base_url: &str, phase: &str) {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let (address, phase) = (base_url.to_owned(), phase.to_owned());
    peers.editions.lease().describe(Description { version, address, phase });
}

/// One agent to load: the agent of the config itself, or of a tenant.
struct ServedAgent {
    /// The name of the tenant. Empty for the config's own agent.
    name: String,
    config: ServedConfig,
    locations: Locations,
    /// True if changed files are reloaded.
    is_watched: bool,
}

/// The parts that all tenants share. Each part keeps the data of the tenants apart. The field `process` has the parts
/// that request handlers use.
struct SharedParts {
    base_url: String,
    names: AgentNames,
    authentication: Option<Authentication>,
    runtime: Arc<Runtime>,
    watcher: Option<Arc<FileWatcher>>,
    denied: Arc<DeniedComponents>,
    peers: Option<Peers>,
    store: Arc<dyn Store>,
    tenants: TenantStores,
    pins: Arc<Pins>,
    traces: Option<Arc<Traces>>,
    /// Leads receipts to the audit file. `None` if the config has no audit file.
    receipt_copies: Option<mpsc::Sender<StoredReceipt>>,
    process: Arc<ProcessParts>,
}

impl SharedParts {
    /// Opens the stores and creates the shared parts. `names` has the names of the loaded agents. Agents that are
    /// loaded later are added to it.
    async fn open(
        config: &Config,
        locations: &Locations,
        base_url: &str,
        names: &AgentNames,
    ) -> Result<Self, AppError> {
        let databases = PostgresDatabases::new(&config.postgres);
        let opened = conversation_store::open(config, &locations.config, &databases).await?;
        let conversation_store::Opened { store, process, lease } = opened;
        let wake = wake::open(config, &databases, &process).await?;
        let peers = editions::open(config, &databases, lease.as_ref(), &wake).await?;
        if let Some(peers) = &peers {
            describe(peers, base_url, "starting");
        }
        let authenticator = |auth| Authenticator::new(&located(auth, &locations.config));
        let authenticator = config.auth.as_ref().map(authenticator).transpose()?;
        let keyvalue = keyvalue_store::open(config, &locations.config, &databases).await?;
        let closing = CancellationToken::new();
        let push = config.push.as_ref().map(|push| notifications(push, (&store, &process), &closing)).transpose()?;
        let tenants = tenant_store::open(config, &locations.config, &databases).await?;
        let places = turn_places::open(config, &databases, lease.as_ref()).await?;
        let conversations: Arc<dyn ConversationStore> = store.clone();
        let pins = Arc::new(Pins::default());
        let counted = Stores {
            conversations: Arc::clone(&store),
            keys: Arc::clone(&keyvalue),
            usage: Arc::clone(&tenants.usage),
        };
        let quotas = Quotas::new(counted, Arc::clone(&places));
        let lister = Lister { store: Arc::clone(&conversations), shows_all_anonymous: config.tasks.list_all_anonymous };
        let traces = config.traces.as_ref().map(|traces| Traces::start(traces, &locations.config));
        let traces = traces.transpose()?.map(Arc::new);
        let keys = ScopedKeys::new(Arc::clone(&keyvalue), Arc::clone(&conversations), names.clone());
        let of_tasks = (Arc::clone(&conversations), process);
        let process = ProcessParts {
            tasks: Tasks::new(of_tasks, Arc::clone(&pins), task_bounds(config), Arc::clone(&wake)),
            views: ExtensionViews { keys, lister },
            claims: Claims::new(conversations, wake),
            places,
            quotas,
            push,
            counters: Counters::default(),
            tracer: traces.as_ref().map(|traces| traces.tracer.clone()),
            running: TaskTracker::new(),
            draining: CancellationToken::new(),
            stop: CancellationToken::new(),
            closing,
        };
        Ok(Self {
            base_url: base_url.to_owned(),
            names: names.clone(),
            authentication: authenticator.map(Authentication::new),
            runtime: Arc::new(runtime(config, locations, &keyvalue)?),
            watcher: config.runtime.watch.then(FileWatcher::start),
            denied: denied(config, locations)?,
            peers,
            store,
            tenants,
            pins,
            traces,
            receipt_copies: None,
            process: Arc::new(process),
        })
    }

    /// The parts of the process whose settings can change with a reload of the config.
    fn settings(&self, access: Option<Access>) -> SettingsOf {
        SettingsOf { authentication: self.authentication.clone(), access, process: Arc::clone(&self.process) }
    }

    /// Loads the components of one agent and connects its parts.
    async fn serve(&self, served: ServedAgent, agent: Arc<dyn AgentExecutor>) -> Result<Serving, AppError> {
        let ServedAgent { name, config, locations, is_watched } = served;
        self.names.set(&name, agent.name());
        let remote_card = agent.remote_card();
        let authenticator = self.authentication.as_ref().map(Authentication::current);
        let issuer = Issuer::new(&config, &name, &self.base_url, authenticator.as_deref(), &locations)?;
        let issuer = issuer.with_remote(remote_card.clone());
        let copies = self.receipt_copies.clone();
        let receipts = receipts(&config, &issuer, (&self.base_url, &name, agent.name()), copies);
        let folder = config.extensions_dir().map(|folder| locations.config.join(folder));
        let folder = folder.map(open_folder).transpose()?;
        // Tenants share engine, instances and compiler, and have their own extension keys and call counters.
        let ledger = config.quota.is_some().then(|| self.process.quotas.ledger(&name));
        let busy = ledger.as_ref().map(|ledger| ledger.busy()).unwrap_or_default();
        let runtime = self.runtime.of_tenant(&name).counting_in(busy);
        let pins = Arc::clone(&self.pins);
        let watcher = self.watcher.clone().filter(|_| is_watched);
        let peers = self.peers.clone();
        let uploads = Some(Arc::clone(&self.tenants.components));
        let denied = Arc::clone(&self.denied);
        let parts = Parts { tenant: name, runtime, issuer, locations, folder, pins, watcher, peers, uploads, denied };
        let installer = Arc::new(Installer::start(&config, parts).await?);
        let agent_is_remote = remote_card.is_some();
        if let Some(card) = remote_card {
            // The reference is weak, so that following an upstream's card does not keep the installer alive.
            tokio::spawn(follow_card(card, Arc::downgrade(&installer)));
        }
        let used = match ledger.zip(config.quota.clone()) {
            Some((ledger, quota)) => Some(self.process.quotas.begin(ledger, quota).await),
            None => None,
        };
        let bounds = turn_bounds(&config.process.server);
        // The handler refers to itself, because a turn outlives the request that began it.
        let handler = Arc::new_cyclic(|me| RequestHandler {
            me: Weak::clone(me),
            process: Arc::clone(&self.process),
            extensions: Arc::clone(installer.publisher().sets()),
            app: agent.name().into(),
            agent,
            agent_is_remote,
            forgotten_keys: config.forgotten_keys(),
            on_lost_turn: config.on_lost_turn(),
            input_modes: InputModes::new(&input_modes(&config)),
            // Each tenant has its own permits, so a tenant at its limit takes none from others.
            turn_limiter: TurnLimiter::new(bounds, used.clone(), Arc::clone(&self.process.places)),
            used,
            receipts,
            removed: AtomicBool::new(false),
        });
        Ok(Serving::new(handler, installer))
    }
}

fn notifications(
    push: &PushConfig,
    (store, process): (&Arc<dyn Store>, &Process),
    closing: &CancellationToken,
) -> Result<Arc<PushNotifications>, AppError> {
    let notifier = Notifier::new(&notifier_config(push))?;
    Ok(Arc::new(PushNotifications::new(notifier, (Arc::clone(store), process.clone()), closing.clone())))
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

/// The components that the deny file of the config denies. The file is watched from now on.
fn denied(config: &Config, locations: &Locations) -> Result<Arc<DeniedComponents>, DenyFileError> {
    match deny_file(config, locations) {
        Some(path) => DeniedComponents::watch(&path),
        None => Ok(Arc::default()),
    }
}

/// The path of `trust.deny_file`. `None` if the config has none.
fn deny_file(config: &Config, locations: &Locations) -> Option<PathBuf> {
    let file = config.trust.as_ref()?.deny_file.as_ref()?;
    Some(locations.config.join(file))
}

/// Opens the folder of `runtime.extensions_dir`, and creates it if missing.
fn open_folder(path: PathBuf) -> Result<Folder, InstallError> {
    Folder::open(path.clone()).map_err(|source| InstallError::Folder { path, source })
}
