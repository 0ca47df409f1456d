//! The settings that a reload of the config changes, except extensions and tenants: authentication, limits, receivers
//! of push notifications, and access to the admin API.
//!
//! A reload is all or nothing: [`Settings::prepare`] does everything that can fail, and [`Settings::put`] applies the
//! result.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use annex_auth::{AuthConfig, Authenticator, SecurityDeclaration};
use annex_egress::{Screen, ScreenConfig};
use annex_operations::permits::TurnBounds;
use annex_operations::process_parts::ProcessParts;
use annex_operations::tasks::TaskBounds;
use annex_push::{NotifierConfig, PreparedScreen};

use crate::admin::access::{Access, AccessRules};
use crate::authentication::Authentication;
use crate::config::{Config, PushConfig, ServerConfig};
use crate::installation::installer::InstallError;
use crate::stores::conversation_store;

/// The current settings, and the parts of the process that use them.
pub(crate) struct Settings {
    /// The folder of the config. Relative paths in the config start there.
    folder: PathBuf,
    config: Mutex<Arc<Config>>,
    authentication: Option<Authentication>,
    access: Option<Access>,
    process: Arc<ProcessParts>,
    /// Applies a new config to the listener of the server. Empty until [`attach`](Settings::attach) is called, because
    /// the server can pass this function only after the settings are loaded.
    listener: OnceLock<ConfigListener>,
}

/// A function that applies a new config to a part of the process.
pub(crate) type ConfigListener = Box<dyn Fn(&Config) + Send + Sync>;

/// The parts of the process whose settings can change with a reload of the config.
pub(crate) struct SettingsOf {
    pub(crate) authentication: Option<Authentication>,
    pub(crate) access: Option<Access>,
    pub(crate) process: Arc<ProcessParts>,
}

/// New settings that were checked and can be applied.
pub(crate) struct PreparedSettings {
    /// The config with the checked settings.
    pub(crate) config: Arc<Config>,
    authenticator: Option<Arc<Authenticator>>,
    access: Option<AccessRules>,
    /// The new rule for receivers of push notifications. `None` if unchanged.
    screen: Option<PreparedScreen>,
}

/// The effects of new settings on the agents. The caller applies them to each agent.
pub(crate) struct SettingsChange {
    /// True if any setting changed.
    pub(crate) is_any: bool,
    pub(crate) turns: TurnBounds,
    /// The new security schemes and requirements of the cards. `None` if unchanged.
    pub(crate) security: Option<SecurityDeclaration>,
    /// True if one of the changed settings is used when an added tenant is loaded.
    pub(crate) concerns_added: bool,
}

impl Settings {
    pub(crate) fn new(folder: &Path, config: Arc<Config>, of: SettingsOf) -> Self {
        let SettingsOf { authentication, access, process } = of;
        let (folder, config, listener) = (folder.to_owned(), Mutex::new(config), OnceLock::new());
        Self { folder, config, authentication, access, process, listener }
    }

    /// Registers the listener of the server. Each later config is applied to the listener.
    pub(crate) fn attach(&self, listener: ConfigListener) {
        // The process has one listener, so the first registration stays.
        let _ = self.listener.set(listener);
    }

    /// The current config: the config of the start, with the changes of all reloads since.
    pub(crate) fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Checks the new config `read`, and creates everything that this config needs. Does not apply it yet.
    ///
    /// # Errors
    /// The table that cannot be used, and the reason.
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
        let screen = match (&self.process.push, &config.push) {
            (Some(sender), Some(push)) if self.has_changed(&config, "push") => {
                Some(sender.prepare_screen(&notifier_config(push)).map_err(|error| unusable("push", error))?)
            }
            _ => None,
        };
        Ok(PreparedSettings { config: Arc::new(config), authenticator, access, screen })
    }

    /// Applies prepared settings. Later requests are served with the new settings.
    pub(crate) fn put(&self, prepared: PreparedSettings) -> SettingsChange {
        let PreparedSettings { config, authenticator, access, screen } = prepared;
        if let (Some(sender), Some(screen)) = (&self.process.push, screen) {
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
        self.process.tasks.set_bounds(task_bounds(&config));
        if let Some(listener) = self.listener.get() {
            listener(&config);
        }
        let turns = turn_bounds(&config.server);
        // These tables affect added tenants too. Their agents must not forward the header field of API keys, the claims
        // in `allow` of their extensions need `[auth.jwt]` or `[auth.introspection]`, and `[trust]` decides about their
        // components of registries.
        let of_added = ["tenants", "auth.api_key_header", "auth.jwt", "auth.introspection", "runtime.ceiling", "trust"];
        let concerns_added = of_added.into_iter().any(|table| self.has_changed(&config, table));
        let before = self.config();
        let files = before.file.as_ref().zip(config.file.as_ref());
        let is_any = files.is_none_or(|(before, now)| !before.that_count(now).is_empty());
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = config;
        SettingsChange { is_any, turns, security, concerns_added }
    }

    /// True if the table differs between this config and the current one.
    fn has_changed(&self, config: &Config, table: &str) -> bool {
        let before = self.config();
        let files = before.file.as_ref().zip(config.file.as_ref());
        files.is_none_or(|(before, now)| before.differs(now, table))
    }
}

/// The limits on the turns of one agent.
pub(crate) fn turn_bounds(config: &ServerConfig) -> TurnBounds {
    TurnBounds {
        in_all: config.max_running_turns,
        per_caller: config.max_running_turns_per_caller,
        waiting: config.max_waiting_turns,
        longest: Duration::from_secs(config.max_turn_seconds),
    }
}

/// The limits on the size of tasks, and on the age and number of stored sessions and tasks.
pub(crate) fn task_bounds(config: &Config) -> TaskBounds {
    TaskBounds {
        limits: conversation_store::limits(&config.tasks),
        retention: conversation_store::retention(&config.sessions, &config.tasks),
    }
}

/// Makes the config of the sender of push notifications, with the addresses that may get notifications.
pub(crate) fn notifier_config(push: &PushConfig) -> NotifierConfig {
    NotifierConfig::new(Screen::new(ScreenConfig { allow: push.allow.clone(), https_only: push.https_only }))
}

/// A copy of the config in which the paths of files start with `folder`.
pub(crate) fn located(auth: &AuthConfig, folder: &Path) -> AuthConfig {
    let mut auth = auth.clone();
    let files = auth.api_key.iter_mut().filter_map(|key| key.key_file.as_mut());
    let keys = auth.jwt.as_mut().and_then(|jwt| jwt.jwks_file.as_mut());
    let secret = auth.introspection.as_mut().and_then(|introspection| introspection.client_secret_file.as_mut());
    for file in files.chain(keys).chain(secret) {
        *file = folder.join(&*file);
    }
    auth
}

fn unusable(table: &'static str, source: impl std::error::Error + Send + Sync + 'static) -> InstallError {
    InstallError::Table { table, source: source.into() }
}
