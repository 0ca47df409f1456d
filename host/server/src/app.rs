//! The one place where the parts are joined.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use annex_agent::{AgentExecutor, GenerativeModel, Model, ScriptAgent, ScriptedModel, TemplateAgent};
use annex_auth::{AuthConfig, Authenticator};
use annex_egress::{Screen, ScreenConfig};
use annex_protocol::AgentCard;
use annex_push::{Notifier, NotifierConfig};
use annex_runtime::{Installed, KeyValueStore, Runtime, RuntimeConfig, RuntimeError, Source};
use annex_session::{Bounds, InMemorySessionService, Turns};
use annex_tasks::TaskStore;
use annex_upstream::{UpstreamAgent, UpstreamConfig};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admin::{Admin, TokenError};
use crate::card;
use crate::claim::Claims;
use crate::config::{AgentConfig, Config, ModelConfig, PushConfig};
use crate::counters::Counters;
use crate::handler::RequestHandler;
use crate::input_modes::InputModes;
use crate::installer::{Folder, InstallError, Installer, Parts};
use crate::issuer::Issuer;
use crate::keyvalue_store::{self, KeyValueStoreError};
use crate::list::Lister;
use crate::pins::Pins;
use crate::places::Places;
use crate::push::PushNotifications;
use crate::scoped_keys::ScopedKeys;
use crate::services::Services;
use crate::signing::SigningError;
use crate::task_store::{self, TaskStoreError};
use crate::tasks::Tasks;

/// Where files are looked for.
#[derive(Clone, Debug)]
pub struct Locations {
    /// The folder of the config; relative paths start here.
    pub config: PathBuf,
    /// The components that ship with Annex, found by bare name.
    pub components: PathBuf,
    /// Compiled components, unless the config names a folder; `None` keeps nothing.
    pub cache: Option<PathBuf>,
}

impl Locations {
    /// The file of a component: a bare name is one that ships, anything else a path.
    #[must_use]
    pub fn component(&self, name: &str) -> PathBuf {
        match Self::ships(name) {
            true => self.components.join(name).with_extension("wasm"),
            false => self.config.join(name),
        }
    }

    /// Whether it is a bare name.
    pub(crate) fn ships(name: &str) -> bool {
        !name.contains(['/', '.'])
    }
}

/// Why the server cannot be put together.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The component runtime does not start.
    #[error("cannot start the component runtime")]
    Runtime(#[from] RuntimeError),
    /// An extension cannot be installed.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// The model cannot be set up.
    #[error("agent.model cannot be used")]
    Model(#[source] Source),
    /// The agent lives elsewhere and cannot be used.
    #[error("[agent] cannot be used")]
    Upstream(#[from] annex_upstream::ConnectError),
    /// Cards cannot be signed.
    #[error("[card.signing] cannot be used")]
    Signing(#[from] SigningError),
    /// Nothing could be sent.
    #[error("[push] cannot be used")]
    Push(#[from] annex_push::NotifierError),
    /// Nobody could be authenticated.
    #[error("[auth] cannot be used")]
    Auth(#[from] annex_auth::ConfigError),
    /// Nobody could use the admin API.
    #[error("[admin] cannot be used")]
    Admin(#[from] TokenError),
    /// Tasks cannot be kept.
    #[error("tasks cannot be kept")]
    Tasks(#[from] TaskStoreError),
    /// Keys of extensions cannot be kept.
    #[error("keys of extensions cannot be kept")]
    KeyValue(#[from] KeyValueStoreError),
}

/// Everything that serves requests.
pub struct App {
    pub(crate) handler: Arc<RequestHandler>,
    installer: Arc<Installer>,
    pub(crate) admin: Option<Arc<Admin>>,
    base_url: String,
}

impl App {
    /// Loads every component and joins the parts. `base_url` is where clients reach the server.
    ///
    /// # Errors
    /// Names the config's key, or the component and the step that refused it.
    pub async fn load(config: &Config, locations: &Locations, base_url: &str) -> Result<Self, AppError> {
        let agent = agent(&config.agent).await?;
        Self::with_agent(config, locations, base_url, agent).await
    }

    /// The same with an agent that is compiled into the program; the config's `[agent]` is not used.
    ///
    /// # Errors
    /// As [`App::load`].
    pub async fn with_agent(
        config: &Config,
        locations: &Locations,
        base_url: &str,
        agent: Arc<dyn AgentExecutor>,
    ) -> Result<Self, AppError> {
        let store = task_store::open(&config.tasks, &locations.config).await?;
        let authenticator =
            config.auth.as_ref().map(|auth| Authenticator::new(&located(auth, locations))).transpose()?;
        let issuer = Issuer::new(config, base_url, authenticator.as_ref(), locations, agent.remote_card())?;
        let pins = Arc::new(Pins::default());
        let keyvalue = keyvalue_store::open(config, &locations.config).await?;
        let parts = parts(config, locations, issuer, (&pins, &keyvalue))?;
        let installer = Installer::start(config, parts).await?;
        let closing = CancellationToken::new();
        let push = config.push.as_ref().map(|push| notifications(push, &store, &closing)).transpose()?;
        let sessions = Arc::new(InMemorySessionService::new(bounds(config)));
        let keys = ScopedKeys::new(keyvalue, Arc::clone(&store), Arc::clone(&sessions), agent.name());
        let shows_all_anonymous = config.tasks.list_all_anonymous;
        let services = Services { keys, lister: Lister { store: Arc::clone(&store), shows_all_anonymous } };
        let remote_card = agent.remote_card();
        let handler = Arc::new_cyclic(|me| RequestHandler {
            me: Weak::clone(me),
            editions: Arc::clone(installer.editions()),
            agent_is_remote: remote_card.is_some(),
            agent,
            speaks_v0_3: config.server.a2a_0_3,
            authenticator,
            push,
            input_modes: InputModes::new(&input_modes(config)),
            sessions,
            turns: Turns::new(config.server.max_waiting_turns),
            claims: Claims::new(Arc::clone(&store)),
            tasks: Arc::new(Tasks::new(store, pins)),
            services,
            places: Places::new(config.server.max_running_turns, config.server.max_running_turns_per_caller),
            max_turn: Duration::from_secs(config.server.max_turn_seconds),
            running: TaskTracker::new(),
            counters: Arc::new(Counters::default()),
            stop: CancellationToken::new(),
            closing,
        });
        let installer = Arc::new(installer);
        if let Some(card) = remote_card {
            tokio::spawn(follow_card(card, Arc::downgrade(&installer)));
        }
        let admin = |admin| Admin::new(admin, &locations.config, Arc::clone(&installer), &handler);
        let admin = config.admin.as_ref().map(admin).transpose()?.map(Arc::new);
        Ok(Self { handler, installer, admin, base_url: base_url.to_owned() })
    }

    /// What is installed now.
    #[must_use]
    pub fn installed(&self) -> Installed {
        self.installer.installed()
    }

    /// Who changes what is installed.
    #[must_use]
    pub fn installer(&self) -> &Arc<Installer> {
        &self.installer
    }

    /// Where clients reach the server.
    #[must_use]
    pub fn base_url(&self) -> &str {
        &self.base_url
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

/// Files are named relative to the config.
fn located(auth: &AuthConfig, locations: &Locations) -> AuthConfig {
    let mut auth = auth.clone();
    let files = auth.api_key.iter_mut().filter_map(|key| key.key_file.as_mut());
    for file in files.chain(auth.jwt.as_mut().and_then(|jwt| jwt.jwks_file.as_mut())) {
        *file = locations.config.join(&*file);
    }
    auth
}

fn bounds(config: &Config) -> Bounds {
    Bounds {
        max_sessions: config.sessions.max_sessions,
        max_bytes: config.sessions.max_bytes,
        max_state_bytes: config.sessions.max_state_bytes,
        max_events_per_session: config.sessions.max_events,
    }
}

/// Makes the cards again whenever that of the agent changes. Ends with the agent or the installer.
async fn follow_card(mut card: watch::Receiver<Arc<AgentCard>>, installer: Weak<Installer>) {
    while card.changed().await.is_ok() {
        let Some(installer) = installer.upgrade() else { return };
        installer.reissue().await;
    }
}

/// What messages may have. An agent that lives elsewhere looks at them itself.
fn input_modes(config: &Config) -> Vec<String> {
    let is_upstream = matches!(config.agent, AgentConfig::Upstream(_));
    let default = || if is_upstream { vec!["*/*".to_owned()] } else { card::default_input_modes() };
    config.card.input_modes.clone().unwrap_or_else(default)
}

async fn agent(config: &AgentConfig) -> Result<Arc<dyn AgentExecutor>, AppError> {
    Ok(match config {
        AgentConfig::Template(template) => Arc::new(TemplateAgent {
            name: template.name.clone(),
            instruction: template.instruction.clone(),
            output_key: template.output_key.clone(),
            model: model(&template.model)?,
        }),
        AgentConfig::Upstream(upstream) => Arc::new(UpstreamAgent::connect(UpstreamConfig::clone(upstream)).await?),
        AgentConfig::Script { name, script } => Arc::new(ScriptAgent { name: name.clone(), script: script.clone() }),
    })
}

fn model(config: &ModelConfig) -> Result<Arc<dyn Model>, AppError> {
    Ok(match config {
        ModelConfig::Scripted(script) => {
            Arc::new(ScriptedModel::new(script.clone()).map_err(|error| AppError::Model(error.into()))?)
        }
        ModelConfig::Generative(generative) => {
            Arc::new(GenerativeModel::new(generative.clone()).map_err(|error| AppError::Model(error.into()))?)
        }
    })
}

fn parts(
    config: &Config,
    locations: &Locations,
    issuer: Issuer,
    (pins, keyvalue): (&Arc<Pins>, &Arc<dyn KeyValueStore>),
) -> Result<Parts, AppError> {
    let cache = config.runtime.cache_dir.as_ref().map(|folder| locations.config.join(folder));
    let runtime = Runtime::new(&RuntimeConfig {
        instances: config.runtime.max_instances,
        compile_time: Duration::from_secs(config.runtime.compile_seconds),
        cache: cache.or_else(|| locations.cache.clone()),
        keyvalue: Arc::clone(keyvalue),
        ..RuntimeConfig::default()
    })?;
    let folder = config.runtime.extensions_dir.as_ref().map(|folder| locations.config.join(folder));
    let open = |path: PathBuf| Folder::open(path.clone()).map_err(|source| InstallError::Folder { path, source });
    let folder = folder.map(open).transpose()?;
    Ok(Parts { runtime, issuer, locations: locations.clone(), folder, pins: Arc::clone(pins) })
}
