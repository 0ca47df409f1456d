//! The operator's config: TOML, every key checked, all errors at once with file, line and what is accepted.
//!
//! Paths in it are relative to the file it stands in.

use std::fs;
use std::path::{Path, PathBuf};

use annex_auth::AuthConfig;
use annex_egress::AllowedDestination;
use axum::http::Uri;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

mod admin;
mod agent;
mod bounds;
mod card;
mod cors;
mod document;
mod extension;
mod file;
mod grants;
mod in_force;
mod limits;
mod live;
mod log;
mod postgres;
mod problems;
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
mod wording;

pub use admin::{AdminConfig, AdminTokenConfig};
pub use agent::{AgentConfig, ModelConfig, TemplateConfig};
pub use card::{BindingConfig, CardConfig, ProviderConfig, SkillConfig};
pub(crate) use card::{ExtendedCardConfig, SigningConfig};
pub use cors::CorsOrigins;
pub(crate) use document::{ConfigText, Document};
pub(crate) use extension::ExtensionPlace;
pub use extension::{ActivateConfig, ExtensionConfig, InstancesConfig, OnFailureConfig};
pub use file::ConfigFile;
pub use grants::{
    GrantsConfig, HttpGrantConfig, HttpRuleConfig, HttpSchemeConfig, KeyValueGrantConfig, SecretConfig,
    SessionStateGrantConfig, StateScopeConfig,
};
pub use limits::LimitsConfig;
pub(crate) use log::AtomicShare;
pub use log::{AccessShare, LogConfig};
pub use postgres::PostgresConfig;
pub use problems::{ConfigError, Problem};
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
    /// The requests that have a line in the log.
    #[serde(default)]
    pub log: LogConfig,
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
    /// The text that it was parsed from.
    #[serde(skip)]
    pub(crate) text: Option<ConfigText>,
}

/// `[push]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PushConfig {
    /// Hosts, addresses and ranges (`10.0.0.0/8`) that may be notified although they are private. Default: none.
    #[serde(deserialize_with = "allowed")]
    pub allow: Vec<AllowedDestination>,
    /// Takes only `https` URLs. Default: no.
    pub https_only: bool,
}

fn allowed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<AllowedDestination>, D::Error> {
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
    /// When it is not TOML, has an unknown key or an unusable value: with all of them.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let mut document = Document::parse(path, text);
        let config = Self::decode(&mut document);
        document.into_checked(config)
    }

    /// The config that the text is, without what is wrong in it, which is noted; `None` where too much is.
    pub(crate) fn decode(document: &mut Document<'_>) -> Option<Self> {
        let mut config: Self = document.decode()?;
        config.check(document);
        config.check_homes(document);
        config.check_tenants(document);
        let text = document.to_config_text();
        extension::set_places(&mut config.extensions, &text);
        config.text = Some(text);
        Some(config)
    }

    /// The agent that the config names.
    ///
    /// # Errors
    /// When it names none.
    pub(crate) fn agent(&self) -> Result<&AgentConfig, ConfigError> {
        let path = || self.text.as_ref().map(|text| text.path().to_owned()).unwrap_or_default();
        let missing = || Problem { path: path(), place: None, key: "agent".to_owned(), reason: NO_AGENT.to_owned() };
        self.agent.as_ref().ok_or_else(|| ConfigError::Problems(vec![missing()]))
    }

    /// Checks that the config names one place for tasks at most, one for sessions and one for keys, and a replica only
    /// where it can be one of several.
    fn check_homes(&self, document: &mut Document<'_>) {
        let homes = [
            ("tasks", self.tasks.data_dir.is_some() && self.tasks.postgres_env.is_some()),
            ("sessions", self.sessions.data_dir.is_some() && self.sessions.postgres_env.is_some()),
            ("keyvalue", self.keyvalue.data_dir.is_some() && self.keyvalue.postgres_env.is_some()),
        ];
        for (key, _) in homes.into_iter().filter(|(_, has_two)| *has_two) {
            document.wrong(key, "has data_dir and postgres_env, and there is one place to keep them in; leave one out");
        }
        let of_replicas = [
            self.runtime.check(&self.tasks),
            self.replica.check(&self.tasks),
            self.postgres.check(&self.tasks),
            self.wake.check(&self.tasks),
        ];
        for (key, reason) in of_replicas.into_iter().filter_map(Result::err) {
            document.wrong(key, reason);
        }
    }

    /// The tenants as the config names them.
    fn check_tenants(&self, document: &mut Document<'_>) {
        tenant::check(&self.tenants, self.auth.as_ref(), document);
        let has_tenants = !self.tenants.is_empty() || self.stored_tenants.is_some();
        if self.tasks.list_all_anonymous && has_tenants {
            document.wrong("tasks.list_all_anonymous", "shows tasks of all tenants to everybody; leave it out");
        }
    }

    /// Checks what the types of the keys do not: bounds of zero, which would make a server that refuses everything, and
    /// keys that do not go together.
    fn check(&self, document: &mut Document<'_>) {
        let mut wrong = |key: &str, reason: &str| document.wrong(key, reason);
        let bounds = bounds::all(&self.server, &self.sessions, &self.tasks, &self.runtime)
            .chain([("postgres.max_connections", bounds::whole(self.postgres.max_connections.into()))]);
        let zero = bounds.filter(|(_, value)| *value == 0).map(|(key, _)| key);
        for key in zero.chain(self.stored_tenants.iter().filter_map(StoredTenantsConfig::zero)) {
            wrong(key, "must be at least 1");
        }
        if let Some(key) = self.server.budget_below_a_body() {
            let reason = format!("is less than server.max_body_bytes ({})", self.server.max_body_bytes);
            wrong(key, &format!("{reason}: the largest request would never be served; raise it"));
        }
        if let Some(Err(reason)) = self.server.public_url.as_deref().map(check_url) {
            wrong("server.public_url", &reason);
        }
        if let Err((key, reason)) = self.runtime.ceiling.check() {
            wrong(&key.replace("limits", "runtime.ceiling"), &reason);
        }
        for (key, reason) in self.check_card(&self.card, self.agent.as_ref()) {
            wrong(key, reason);
        }
        if let Some(Err((key, reason))) = self.agent.as_ref().map(|agent| agent.check_lost_turn(&self.tasks)) {
            wrong(key, reason);
        }
        if let Some(Err((key, reason))) = self.admin.as_ref().map(AdminConfig::check) {
            wrong(key, reason);
        }
        if let Some(Err((key, reason))) = self.admin.as_ref().map(|admin| admin.check_listeners(self.server.listen)) {
            wrong(key, &reason);
        }
        if self.tasks.list_all_anonymous && self.auth.is_some() {
            wrong("tasks.list_all_anonymous", "does nothing with [auth], which leaves no caller anonymous");
        }
        let is_open = self.auth.is_none() && !self.server.allow_anonymous;
        if is_open && !self.server.listen.ip().is_loopback() {
            let reason = "is no loopback address, and nobody is authenticated: add [auth], or set \
                          server.allow_anonymous = true to serve everybody";
            wrong("server.listen", reason);
        }
    }

    /// Checks what an agent of this process, its own or a tenant's, says on its card. The errors are keys and reasons.
    fn check_card(&self, card: &CardConfig, agent: Option<&AgentConfig>) -> Vec<(&'static str, &'static str)> {
        let mut wrong = Vec::new();
        if !matches!(agent, Some(AgentConfig::Upstream { .. })) {
            wrong.extend(card.missing().map(|key| (key, NOT_ON_CARD)));
        }
        wrong.extend(card.check_bindings().err().map(|reason| ("card.bindings", reason)));
        // Authentication is mandatory for this card (A2A 1.0 section 3.1.11).
        if card.extended.is_some() && self.auth.is_none() {
            wrong.push(("card.extended", "is for authenticated callers, and there is no [auth]"));
        }
        wrong
    }
}

/// Said of a config without an agent.
pub(crate) const NO_AGENT: &str =
    "is missing; add [agent] with kind = \"template\", \"upstream\" (an agent that you have) or \"script\"";

const NOT_ON_CARD: &str = "is missing; write it under [card]: clients and people read it on the agent card. Only with [agent] \
                           kind = \"upstream\" it can be left out, because that agent has a card of its own";

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
