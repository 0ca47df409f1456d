//! The operator's config: TOML, every key checked, every error with file, line and what is accepted.
//!
//! Paths in it are relative to the file it stands in.

use std::fs;
use std::path::{Path, PathBuf};

use annex_auth::AuthConfig;
use annex_egress::Allowed;
use annex_operations::fault;
use axum::http::Uri;
use serde::de::{Error, IgnoredAny};
use serde::{Deserialize, Deserializer};

mod admin;
mod agent;
mod bounds;
mod card;
mod extension;
mod file;
mod grants;
mod limits;
mod postgres;
mod replica;
mod runtime;
pub(crate) mod served;
mod server;
mod sessions;
mod stored_tenants;
mod tasks;
pub(crate) mod tenant;
pub(crate) mod tenant_text;
mod wake;

pub use admin::AdminConfig;
pub use agent::{AgentConfig, ModelConfig, TemplateConfig};
pub use card::{BindingConfig, CardConfig, ProviderConfig, SkillConfig};
pub(crate) use card::{ExtendedCardConfig, SigningConfig};
pub use extension::{ActivateConfig, ExtensionConfig, InstancesConfig, OnFailureConfig};
pub use file::ConfigFile;
pub use grants::{
    GrantsConfig, HttpGrantConfig, HttpRuleConfig, HttpSchemeConfig, KeyValueGrantConfig, SecretConfig,
    SessionStateGrantConfig, StateScopeConfig,
};
pub use limits::LimitsConfig;
pub use postgres::PostgresConfig;
pub use replica::ReplicaConfig;
pub use runtime::RuntimeSection;
pub use server::ServerConfig;
pub use sessions::SessionsConfig;
pub use stored_tenants::StoredTenantsConfig;
pub use tasks::TasksConfig;
pub use tenant::TenantConfig;
pub use wake::WakeConfig;

/// Everything that `annex serve` reads.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The listener, its limits, and its times.
    #[serde(default)]
    pub server: ServerConfig,
    /// The part of the Agent Card that the server cannot know itself.
    #[serde(default)]
    pub card: CardConfig,
    /// The agent that answers. [`App::load`](crate::App::load) needs it, [`App::with_agent`](crate::App::with_agent)
    /// does not.
    pub agent: Option<AgentConfig>,
    /// The parser's error for a missing agent; `None` where there is one.
    #[serde(skip)]
    no_agent: Option<NoAgent>,
    /// The ways in which callers authenticate. Without it everybody may call, and the server listens on loopback only.
    pub auth: Option<AuthConfig>,
    /// Push notifications. Without it the server sends none.
    pub push: Option<PushConfig>,
    /// The place where sessions are kept, and their limits.
    #[serde(default)]
    pub sessions: SessionsConfig,
    /// The place where tasks are kept, and their limits.
    #[serde(default)]
    pub tasks: TasksConfig,
    /// The connections to PostgreSQL databases, where tasks or sessions are kept in one.
    #[serde(default)]
    pub postgres: PostgresConfig,
    /// This process among others on one database.
    #[serde(default)]
    pub replica: ReplicaConfig,
    /// The way in which such processes wake each other.
    #[serde(default)]
    pub wake: WakeConfig,
    /// The place where extensions keep keys.
    #[serde(default)]
    pub keyvalue: KeyValueConfig,
    /// The component runtime.
    #[serde(default)]
    pub runtime: RuntimeSection,
    /// The API that shows and changes what is installed. Without it there is none.
    pub admin: Option<AdminConfig>,
    /// Installed extensions, in the order in which they run.
    #[serde(default, rename = "extension")]
    pub extensions: Vec<ExtensionConfig>,
    /// Agents of others behind the same listener.
    #[serde(default, rename = "tenant")]
    pub tenants: Vec<TenantConfig>,
    /// Tenants that are added while the server runs. Without it none are.
    #[serde(rename = "tenants")]
    pub stored_tenants: Option<StoredTenantsConfig>,
    /// The file that it was read from; `None` for a text that was parsed.
    #[serde(skip)]
    pub file: Option<ConfigFile>,
}

/// The error of a config without `[agent]`, for those who need one.
#[derive(Clone, Debug)]
struct NoAgent {
    path: PathBuf,
    error: toml::de::Error,
}

/// A config that is parsed for this error alone.
#[derive(Deserialize)]
struct WithAgent {
    agent: IgnoredAny,
}

impl NoAgent {
    /// `None` where the text has an agent.
    fn find(path: &Path, text: &str) -> Option<Self> {
        let parsed = toml::from_str::<WithAgent>(text).map(|config| config.agent);
        parsed.err().map(|error| Self { path: path.to_owned(), error })
    }
}

/// `[push]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PushConfig {
    /// Hosts, addresses and ranges (`10.0.0.0/8`) that may be notified although they are private. Default: none.
    #[serde(deserialize_with = "allowed")]
    pub allow: Vec<Allowed>,
    /// Takes only `https` URLs. Default: no.
    pub https_only: bool,
}

fn allowed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Allowed>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
}

/// `[keyvalue]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KeyValueConfig {
    /// Folder of the SQLite file that keeps the keys of extensions; it is made if needed. Default: they are kept where the
    /// tasks are.
    pub data_dir: Option<PathBuf>,
    /// Name of the environment variable with the URL of the PostgreSQL database that keeps them.
    pub postgres_env: Option<String>,
}

/// The reasons for which a config cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// It is not the TOML that it should be; the text has line, column and the accepted values.
    #[error("{}: {error}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The place in the file, and what is wrong there.
        error: Box<toml::de::Error>,
    },
    /// A value is well-formed and yet unusable.
    #[error("{}: {key}: {reason}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The key, as a dotted path.
        key: String,
        /// The fault, and the values that are accepted.
        reason: String,
    },
}

impl ConfigError {
    /// The error without the lines of files that errors of TOML show. They may have secrets.
    pub(crate) fn public_text(&self) -> String {
        let Self::Syntax { path, error } = self else { return fault::text(self) };
        let place = error.to_string();
        let place = place.lines().next().unwrap_or_default();
        format!("{}: {place}: {}", path.display(), error.message().trim().replace('\n', " "))
    }
}

impl Config {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// When the file cannot be read, is not TOML, has an unknown key or an unusable value.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        // The rule for files does not judge the config: who starts the server names it, and in containers it often
        // belongs to another user.
        let text = fs::read_to_string(path)
            .map(annex_files::without_mark)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let file = Some(ConfigFile::new(path, &text));
        Ok(Self { file, ..Self::parse(path, &text)? })
    }

    /// Checks the text of a config; `path` is for messages.
    ///
    /// # Errors
    /// When it is not TOML, has an unknown key or an unusable value.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let mut config: Self = toml::from_str(text)
            .map_err(|error| ConfigError::Syntax { path: path.to_owned(), error: Box::new(error) })?;
        // Kept and not returned: a program that brings an agent of its own reads a config without one.
        config.no_agent = NoAgent::find(path, text);
        config.check(path)?;
        config.check_homes(path)?;
        config.check_tenants(path)?;
        Ok(config)
    }

    /// The agent that the config names.
    ///
    /// # Errors
    /// When it names none: what the parser says to that.
    pub(crate) fn agent(&self) -> Result<&AgentConfig, ConfigError> {
        if let Some(agent) = &self.agent {
            return Ok(agent);
        }
        // An agent may also have been taken out of a config that was parsed with one.
        let taken_out = || NoAgent { path: PathBuf::new(), error: Error::custom("missing field `agent`") };
        let NoAgent { path, error } = self.no_agent.clone().unwrap_or_else(taken_out);
        Err(ConfigError::Syntax { path, error: Box::new(error) })
    }

    /// Checks that the config names one place for tasks at most, one for sessions and one for keys, and a replica only
    /// where it can be one of several.
    fn check_homes(&self, path: &Path) -> Result<(), ConfigError> {
        let homes = [
            ("tasks", self.tasks.data_dir.is_some() && self.tasks.postgres_env.is_some()),
            ("sessions", self.sessions.data_dir.is_some() && self.sessions.postgres_env.is_some()),
            ("keyvalue", self.keyvalue.data_dir.is_some() && self.keyvalue.postgres_env.is_some()),
        ];
        let two = homes.into_iter().find(|(_, has_two)| *has_two).map(|(key, _)| {
            (key, "has data_dir and postgres_env, and there is one place to keep them in; leave one out".to_owned())
        });
        let shared = || {
            self.runtime.check(&self.tasks)?;
            self.replica
                .check(&self.tasks)
                .and_then(|()| self.postgres.check(&self.tasks))
                .and_then(|()| self.wake.check(&self.tasks))
        };
        two.map_or_else(shared, Err).map_err(|(key, reason)| ConfigError::Value {
            path: path.to_owned(),
            key: key.to_owned(),
            reason,
        })
    }

    /// The tenants as the config names them.
    fn check_tenants(&self, path: &Path) -> Result<(), ConfigError> {
        let has_tenants = !self.tenants.is_empty() || self.stored_tenants.is_some();
        let all = (self.tasks.list_all_anonymous && has_tenants).then_some((
            "tasks.list_all_anonymous",
            "shows tasks of all tenants to everybody; leave it out".to_owned(),
        ));
        let wrong =
            |(key, reason): (&str, String)| ConfigError::Value { path: path.to_owned(), key: key.to_owned(), reason };
        tenant::check(&self.tenants).and(all.map_or(Ok(()), Err)).map_err(wrong)
    }

    /// Checks what the types of the keys do not: bounds of zero, which would make a server that refuses everything, and
    /// keys that do not go together.
    fn check(&self, path: &Path) -> Result<(), ConfigError> {
        let wrong = |key: &str, reason: &str| {
            Err(ConfigError::Value { path: path.to_owned(), key: key.to_owned(), reason: reason.to_owned() })
        };
        let mut bounds = bounds::all(&self.server, &self.sessions, &self.tasks, &self.runtime)
            .chain([("postgres.max_connections", bounds::whole(self.postgres.max_connections.into()))]);
        if let Some((key, _)) = bounds.find(|(_, value)| *value == 0) {
            return wrong(key, "must be at least 1");
        }
        if let Some(key) = self.stored_tenants.as_ref().and_then(StoredTenantsConfig::zero) {
            return wrong(key, "must be at least 1");
        }
        if let Some(key) = self.server.budget_below_a_body() {
            let reason = format!("is less than server.max_body_bytes ({})", self.server.max_body_bytes);
            return wrong(key, &format!("{reason}: the largest request would never be served; raise it"));
        }
        if let Some(Err(reason)) = self.server.public_url.as_deref().map(check_url) {
            return wrong("server.public_url", &reason);
        }
        if let Err((key, reason)) = self.runtime.ceiling.check() {
            return wrong(&key.replace("limits", "runtime.ceiling"), &reason);
        }
        if let Err((key, reason)) = self.check_card(&self.card, self.agent.as_ref()) {
            return wrong(key, reason);
        }
        if let Some(Err((key, reason))) = self.agent.as_ref().map(|agent| agent.check_lost_turn(&self.tasks)) {
            return wrong(key, reason);
        }
        if let Some(Err((key, reason))) = self.admin.as_ref().map(AdminConfig::check) {
            return wrong(key, reason);
        }
        if self.tasks.list_all_anonymous && self.auth.is_some() {
            return wrong("tasks.list_all_anonymous", "does nothing with [auth], which leaves no caller anonymous");
        }
        let is_open = self.auth.is_none() && !self.server.allow_anonymous;
        if is_open && !self.server.listen.ip().is_loopback() {
            let reason = "is no loopback address, and nobody is authenticated: add [auth], or set \
                          server.allow_anonymous = true to serve everybody";
            return wrong("server.listen", reason);
        }
        Ok(())
    }

    /// Checks what an agent of this process, its own or a tenant's, says on its card. An error is the key and the reason.
    fn check_card(&self, card: &CardConfig, agent: Option<&AgentConfig>) -> Result<(), (&'static str, &'static str)> {
        match (agent, card.missing()) {
            (Some(AgentConfig::Upstream { .. }), _) | (_, None) => {}
            (_, Some(key)) => return Err((key, "is missing; every card has it, and only an upstream agent has one")),
        }
        card.check_bindings().map_err(|reason| ("card.bindings", reason))?;
        // Authentication is mandatory for this card (A2A 1.0 section 3.1.11).
        if card.extended.is_some() && self.auth.is_none() {
            return Err(("card.extended", "is for authenticated callers, and there is no [auth]"));
        }
        Ok(())
    }
}

/// Checks a URL that the card and its links begin with.
fn check_url(url: &str) -> Result<(), String> {
    let parsed: Result<Uri, _> = url.parse();
    let is_whole = parsed.is_ok_and(|url| matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some());
    if is_whole && !url.ends_with('/') {
        Ok(())
    } else {
        Err(format!("is {url:?}; write it as in \"https://agent.example.com\", without a slash at its end"))
    }
}
