//! The settings of the process that a reload of the config changes besides extensions and tenants: callers, limits, receivers of
//! push notifications, and who may use the admin API.
//!
//! A reload is all or nothing: [`Settings::prepare`] makes all that can fail, and [`Settings::put`] puts it into effect.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use annex_auth::{AuthConfig, Authenticator, SecurityDeclaration};
use annex_egress::{Screen, ScreenConfig};
use annex_operations::permits::TurnBounds;
use annex_operations::push::PushNotifications;
use annex_operations::tasks::session_sweep::SessionSweep;
use annex_operations::tasks::{TaskBounds, Tasks};
use annex_push::{NotifierConfig, PreparedScreen};
use annex_session::Turns;

use crate::admin::access::{Access, AccessRules};
use crate::authentication::Authentication;
use crate::config::{Config, PushConfig, ServerConfig, TasksConfig};
use crate::installation::installer::InstallError;
use crate::stores::{session_store, task_store};

/// The settings in force, and the parts of the process that keep to them.
pub(crate) struct Settings {
    /// The folder of the config, where relative paths start.
    folder: PathBuf,
    config: Mutex<Arc<Config>>,
    authentication: Option<Authentication>,
    access: Option<Access>,
    push: Option<Arc<PushNotifications>>,
    tasks: Arc<Tasks>,
    turns: Turns,
    /// Deletes old sessions.
    pub(crate) session_sweep: Arc<SessionSweep>,
    /// Has the listener keep to a config, which is there before the settings are.
    listener: OnceLock<Keeping>,
}

/// Has something keep to a config from now on.
pub(crate) type Keeping = Box<dyn Fn(&Config) + Send + Sync>;

/// The parts of the process whose settings change.
pub(crate) struct SettingsOf {
    pub(crate) authentication: Option<Authentication>,
    pub(crate) access: Option<Access>,
    pub(crate) push: Option<Arc<PushNotifications>>,
    pub(crate) tasks: Arc<Tasks>,
    pub(crate) turns: Turns,
    pub(crate) session_sweep: Arc<SessionSweep>,
}

/// Settings that were read and can be used.
pub(crate) struct PreparedSettings {
    /// The config in force with them.
    pub(crate) config: Arc<Config>,
    authenticator: Option<Arc<Authenticator>>,
    access: Option<AccessRules>,
    /// The rule for receivers of push notifications, where it is another one.
    screen: Option<PreparedScreen>,
}

/// The changes that concern agents: whoever serves one puts them into effect there.
pub(crate) struct SettingsChange {
    /// True if any setting is another one than before.
    pub(crate) is_any: bool,
    pub(crate) turns: TurnBounds,
    /// The part of the cards about authentication, where it is another one than before.
    pub(crate) security: Option<SecurityDeclaration>,
    /// True if added tenants were loaded with settings that are no longer in force.
    pub(crate) concerns_added: bool,
}

impl Settings {
    pub(crate) fn new(folder: &Path, config: Arc<Config>, of: SettingsOf) -> Self {
        let SettingsOf { authentication, access, push, tasks, turns, session_sweep } = of;
        let (folder, config, listener) = (folder.to_owned(), Mutex::new(config), OnceLock::new());
        Self { folder, config, authentication, access, push, tasks, turns, session_sweep, listener }
    }

    /// Has the listener keep to each config that is put into effect from now on.
    pub(crate) fn attach(&self, listener: Keeping) {
        // Whoever was attached first stays: there is one listener.
        let _ = self.listener.set(listener);
    }

    /// The config in force: that of the start, with what was changed since.
    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes what the config that was read again needs.
    ///
    /// # Errors
    /// The table that cannot be used, and why. Nothing has changed.
    pub(crate) fn prepare(&self, read: &Config) -> Result<PreparedSettings, InstallError> {
        let config = self.config().with_live(read);
        let authenticator = match (&self.authentication, &config.auth) {
            (Some(authentication), Some(auth)) => {
                let made = authentication.current().read_again(&located(auth, &self.folder));
                Some(Arc::new(made.map_err(|error| unusable("auth", error))?))
            }
            _ => None,
        };
        let access = match (&self.access, &config.admin) {
            (Some(_), Some(admin)) => {
                Some(AccessRules::read(admin, &self.folder).map_err(|error| unusable("admin", error))?)
            }
            _ => None,
        };
        let screen = match (&self.push, &config.push) {
            (Some(sender), Some(push)) if self.has_changed(&config, "push") => {
                Some(sender.prepare_screen(&notifier_config(push)).map_err(|error| unusable("push", error))?)
            }
            _ => None,
        };
        Ok(PreparedSettings { config: Arc::new(config), authenticator, access, screen })
    }

    /// Puts prepared settings into effect for what comes from now on.
    pub(crate) fn put(&self, prepared: PreparedSettings) -> SettingsChange {
        let PreparedSettings { config, authenticator, access, screen } = prepared;
        if let (Some(sender), Some(screen)) = (&self.push, screen) {
            sender.set_screen(screen);
        }
        let security = match (&self.authentication, authenticator) {
            (Some(authentication), Some(authenticator)) => {
                let [before, now] = [&authentication.current(), &authenticator].map(|one| one.security_schemes());
                authentication.replace(authenticator);
                Some(now).filter(|now| *now != before)
            }
            _ => None,
        };
        if let (Some(access), Some(rules)) = (&self.access, access) {
            access.set(rules);
        }
        self.tasks.set_bounds(task_bounds(&config.tasks));
        self.session_sweep.set_retention(session_store::retention(&config.sessions));
        self.turns.set_max_waiting(config.server.max_waiting_turns);
        if let Some(listener) = self.listener.get() {
            listener(&config);
        }
        let turns = turn_bounds(&config.server);
        // A header by which callers show who they are is one that an added tenant's agent must not be sent. Without tokens there
        // are no claims that an extension could be for.
        let of_added = ["tenants", "auth.api_key_header", "auth.jwt", "runtime.ceiling"];
        let concerns_added = of_added.into_iter().any(|table| self.has_changed(&config, table));
        let before = self.config();
        let files = before.file.as_ref().zip(config.file.as_ref());
        let is_any = files.is_none_or(|(before, now)| !before.that_count(now).is_empty());
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = config;
        SettingsChange { is_any, turns, security, concerns_added }
    }

    /// True if the table says something else in this config than in the one in force.
    fn has_changed(&self, config: &Config, table: &str) -> bool {
        let before = self.config();
        let files = before.file.as_ref().zip(config.file.as_ref());
        files.is_none_or(|(before, now)| before.differs(now, table))
    }
}

/// The bounds on the turns of one agent.
pub(crate) fn turn_bounds(config: &ServerConfig) -> TurnBounds {
    TurnBounds {
        in_all: config.max_running_turns,
        per_caller: config.max_running_turns_per_caller,
        longest: Duration::from_secs(config.max_turn_seconds),
    }
}

pub(crate) fn task_bounds(config: &TasksConfig) -> TaskBounds {
    TaskBounds {
        limits: task_store::limits(config),
        waiting: task_store::waiting(config),
        retention: task_store::retention(config),
    }
}

/// The rule for the addresses that may be notified.
pub(crate) fn notifier_config(push: &PushConfig) -> NotifierConfig {
    NotifierConfig::new(Screen::new(ScreenConfig { allow: push.allow.clone(), https_only: push.https_only }))
}

/// The same config with the paths of its files resolved against the config's folder.
pub(crate) fn located(auth: &AuthConfig, folder: &Path) -> AuthConfig {
    let mut auth = auth.clone();
    let files = auth.api_key.iter_mut().filter_map(|key| key.key_file.as_mut());
    for file in files.chain(auth.jwt.as_mut().and_then(|jwt| jwt.jwks_file.as_mut())) {
        *file = folder.join(&*file);
    }
    auth
}

fn unusable(table: &'static str, source: impl std::error::Error + Send + Sync + 'static) -> InstallError {
    InstallError::Table { table, source: source.into() }
}
