//! The operator's config: TOML, every key checked, every error with file, line and what is accepted.
//!
//! Paths in it are relative to the file it stands in.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use annex_auth::AuthConfig;
use annex_egress::Allowed;
use axum::http::Uri;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::listener::ConnectionLimits;

mod admin;
mod agent;
mod bounds;
mod card;
mod extension;
mod file;
mod grants;
mod limits;
mod sessions;
mod tenant;

pub use admin::AdminConfig;
pub use agent::{AgentConfig, ModelConfig, TemplateConfig};
pub use card::{BindingConfig, CardConfig, ProviderConfig, SkillConfig};
pub(crate) use card::{ExtendedCardConfig, SigningConfig};
pub use extension::{ExtensionConfig, OnFailureConfig};
pub use file::ConfigFile;
pub use grants::{
    GrantsConfig, HttpGrantConfig, HttpRuleConfig, HttpSchemeConfig, KeyValueGrantConfig, SecretConfig,
    SessionStateGrantConfig, StateScopeConfig,
};
pub use limits::LimitsConfig;
pub use sessions::SessionsConfig;
pub use tenant::TenantConfig;

/// Everything that `annex serve` reads.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where and how to listen.
    #[serde(default)]
    pub server: ServerConfig,
    /// What the Agent Card says besides what the server knows itself.
    #[serde(default)]
    pub card: CardConfig,
    /// What answers.
    pub agent: AgentConfig,
    /// Who may call. Without it everybody may, and the server listens on loopback only.
    pub auth: Option<AuthConfig>,
    /// Push notifications. Without it the server sends none.
    pub push: Option<PushConfig>,
    /// Where sessions are kept, and how many.
    #[serde(default)]
    pub sessions: SessionsConfig,
    /// Where tasks are kept, and how many.
    #[serde(default)]
    pub tasks: TasksConfig,
    /// Where extensions keep keys.
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
    /// Where it was read from; a text that was parsed has no such place.
    #[serde(skip)]
    pub file: Option<ConfigFile>,
}

/// `[server]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Address and port; port 0 takes a free one. Default `127.0.0.1:9999`.
    pub listen: SocketAddr,
    /// The base URL that clients reach, for the card. Default: `http://` and the address listened on.
    pub public_url: Option<String>,
    /// Whether everybody may call although `listen` is no loopback address. Default: no.
    pub allow_anonymous: bool,
    /// Whether clients of A2A 0.3 are served too. Default: no.
    pub a2a_0_3: bool,
    /// The largest request body in bytes. Default 1 MiB.
    pub max_body_bytes: usize,
    /// Seconds that a client may take to send a request's body. Default 30.
    pub body_seconds: u64,
    /// Seconds that a client may take to send a request's head; a connection that is idle for so long is closed.
    /// Default 60.
    pub head_seconds: u64,
    /// Seconds that a client may leave what is sent to it unread; then it is hung up on. Default 60.
    pub write_seconds: u64,
    /// Connections at once; more wait. Default 16,384.
    pub max_connections: usize,
    /// Connections at once from one address, or from one /64 of IPv6; more are closed. Default 4,096.
    pub max_connections_per_address: usize,
    /// Requests at once on one HTTP/2 connection. Default 32.
    pub max_requests_per_connection: u32,
    /// Bytes of request bodies that are being read and have to be waited for. A caller gets a quarter. Default 64 MiB.
    pub max_reading_bytes: usize,
    /// Bytes of long answers that clients have not read yet. A caller gets a quarter, or one answer. Default 256 MiB.
    pub max_answer_bytes: usize,
    /// Streams at once. Default 10,000.
    pub max_streams: usize,
    /// The same for each caller. Default 1,000.
    pub max_streams_per_caller: usize,
    /// Seconds that running turns get to finish after SIGTERM. Default 10.
    pub drain_seconds: u64,
    /// Seconds that one turn of the agent may take. Default 600.
    pub max_turn_seconds: u64,
    /// Turns that may wait for their turn in one context. Default 64.
    pub max_waiting_turns: usize,
    /// Turns at once, those that wait included; more are refused. Default 1,000.
    pub max_running_turns: usize,
    /// The same for each authenticated caller. Default 100.
    pub max_running_turns_per_caller: usize,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9999)),
            public_url: None,
            allow_anonymous: false,
            a2a_0_3: false,
            max_body_bytes: 1 << 20,
            body_seconds: 30,
            head_seconds: 60,
            write_seconds: 60,
            max_connections: 16_384,
            max_connections_per_address: 4_096,
            max_requests_per_connection: 32,
            max_reading_bytes: 64 << 20,
            max_answer_bytes: 256 << 20,
            max_streams: 10_000,
            max_streams_per_caller: 1_000,
            drain_seconds: 10,
            max_turn_seconds: 600,
            max_waiting_turns: 64,
            max_running_turns: 1_000,
            max_running_turns_per_caller: 100,
        }
    }
}

impl ServerConfig {
    pub(crate) fn connections(&self) -> ConnectionLimits {
        ConnectionLimits {
            connections: self.max_connections,
            per_address: self.max_connections_per_address,
            head: Duration::from_secs(self.head_seconds),
            write: Duration::from_secs(self.write_seconds),
            streams: self.max_requests_per_connection,
        }
    }

    pub(crate) fn drain(&self) -> Duration {
        Duration::from_secs(self.drain_seconds)
    }

    /// The key of a budget that has no room for one body of the largest size, or for an answer as long.
    fn budget_below_a_body(&self) -> Option<&'static str> {
        let budgets =
            [("server.max_reading_bytes", self.max_reading_bytes), ("server.max_answer_bytes", self.max_answer_bytes)];
        budgets.into_iter().find(|(_, bytes)| *bytes < self.max_body_bytes).map(|(key, _)| key)
    }
}

/// `[push]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PushConfig {
    /// Hosts, addresses and ranges (`10.0.0.0/8`) that may be notified although they are private. Default: none.
    #[serde(deserialize_with = "allowed")]
    pub allow: Vec<Allowed>,
    /// Whether only `https` URLs are taken. Default: no.
    pub https_only: bool,
}

fn allowed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Allowed>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
}

/// `[tasks]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TasksConfig {
    /// Folder of the SQLite file that keeps the tasks; it is made if needed. Default: they are kept in memory.
    pub data_dir: Option<PathBuf>,
    /// Name of the environment variable with the URL of the PostgreSQL database that keeps the tasks.
    pub postgres_env: Option<String>,
    /// Whether tasks that are running in the PostgreSQL database fail when this server starts. Must be `false` where
    /// several processes work on one database. Default: yes.
    pub recover: bool,
    /// Days that a finished task is kept. Default 30.
    pub keep_days: u64,
    /// Finished tasks kept; the oldest goes first. Default 100,000.
    pub keep_count: u64,
    /// Tasks kept in memory; the oldest finished one of the caller that has most goes first, then the oldest that waits.
    /// Default 10,000.
    pub max_tasks: usize,
    /// Bytes of all tasks in memory and their events, of their texts and of the values that hold them. Default 256 MiB.
    pub max_bytes: usize,
    /// Bytes of one task, of its texts and of the values that hold them. Default 8 MiB.
    pub max_task_bytes: usize,
    /// Messages of one task's history. Default 1,000.
    pub max_task_messages: usize,
    /// Artifacts of one task. Default 100.
    pub max_task_artifacts: usize,
    /// Days that a task may wait for its client; then it fails. Default 7.
    pub keep_waiting_days: u64,
    /// Tasks of one caller that may wait for it; beyond, the one that has waited longest fails. Default 1,000. Anonymous
    /// callers, who cannot be told apart, have `max_tasks` together.
    pub max_waiting_per_caller: usize,
    /// Whether everybody may list everybody's tasks where nobody is authenticated. For servers that clients are tested
    /// with. Default: no.
    pub list_all_anonymous: bool,
}

impl Default for TasksConfig {
    fn default() -> Self {
        Self {
            data_dir: None,
            postgres_env: None,
            recover: true,
            keep_days: 30,
            keep_count: 100_000,
            max_tasks: 10_000,
            max_bytes: 256 << 20,
            max_task_bytes: 8 << 20,
            max_task_messages: 1_000,
            max_task_artifacts: 100,
            keep_waiting_days: 7,
            max_waiting_per_caller: 1_000,
            list_all_anonymous: false,
        }
    }
}

/// `[keyvalue]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KeyValueConfig {
    /// Folder of the SQLite file that keeps the keys of extensions; it is made if needed. Default: `tasks.data_dir`, and
    /// without it they are kept in memory.
    pub data_dir: Option<PathBuf>,
}

/// `[runtime]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuntimeSection {
    /// Component instances alive at once. Default 1,000.
    pub max_instances: u32,
    /// Folder for compiled components. Default: `annex/components` in the user's cache folder.
    pub cache_dir: Option<PathBuf>,
    /// Bytes of all compiled components in that folder; what was not used for longest goes. Default 1 GiB.
    pub cache_bytes: u64,
    /// Seconds that compiling one component may take. Default 60.
    pub compile_seconds: u64,
    /// Bytes of memory that compiling one component may take. Default 512 MiB.
    pub compile_memory_bytes: u64,
    /// Components that are compiled at once, each by a process of its own. Default 2.
    pub compile_processes: u32,
    /// Folder whose components are installed, each `NAME.wasm` with the settings of `NAME.toml`. Default: none.
    pub extensions_dir: Option<PathBuf>,
    /// Whether component files are watched and loaded again when they change. Default: yes.
    pub watch: bool,
    /// Replaced versions of each extension that are kept for a rollback. Default 3.
    pub keep_versions: usize,
    /// What no extension's limits may go beyond.
    pub ceiling: LimitsConfig,
}

impl Default for RuntimeSection {
    fn default() -> Self {
        Self {
            max_instances: 1_000,
            cache_dir: None,
            cache_bytes: 1 << 30,
            compile_seconds: 60,
            compile_memory_bytes: 512 << 20,
            compile_processes: 2,
            extensions_dir: None,
            watch: true,
            keep_versions: 3,
            ceiling: LimitsConfig::default(),
        }
    }
}

/// Why a config cannot be used.
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
        /// Where and what.
        error: Box<toml::de::Error>,
    },
    /// A value is well-formed and yet unusable.
    #[error("{}: {key}: {reason}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// The key, as a dotted path.
        key: String,
        /// What is wrong and what is accepted.
        reason: String,
    },
}

impl Config {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// When the file cannot be read, is not TOML, has an unknown key or an unusable value.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let file = Some(ConfigFile::new(path, &text));
        Ok(Self { file, ..Self::parse(path, &text)? })
    }

    /// Checks the text of a config; `path` is for messages.
    ///
    /// # Errors
    /// When it is not TOML, has an unknown key or an unusable value.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let config: Self = toml::from_str(text)
            .map_err(|error| ConfigError::Syntax { path: path.to_owned(), error: Box::new(error) })?;
        config.check(path)?;
        config.check_homes(path)?;
        config.check_tenants(path)?;
        Ok(config)
    }

    /// Tasks have one home, and so have sessions.
    fn check_homes(&self, path: &Path) -> Result<(), ConfigError> {
        let homes = [
            ("tasks", self.tasks.data_dir.is_some() && self.tasks.postgres_env.is_some()),
            ("sessions", self.sessions.data_dir.is_some() && self.sessions.postgres_env.is_some()),
        ];
        let Some((key, _)) = homes.into_iter().find(|(_, has_two)| *has_two) else { return Ok(()) };
        Err(ConfigError::Value {
            path: path.to_owned(),
            key: key.to_owned(),
            reason: "has data_dir and postgres_env, and there is one place to keep them in; leave one out".to_owned(),
        })
    }

    /// The tenants as the config names them.
    fn check_tenants(&self, path: &Path) -> Result<(), ConfigError> {
        let all = (self.tasks.list_all_anonymous && !self.tenants.is_empty()).then_some((
            "tasks.list_all_anonymous",
            "shows tasks of all tenants to everybody; leave it out".to_owned(),
        ));
        let wrong =
            |(key, reason): (&str, String)| ConfigError::Value { path: path.to_owned(), key: key.to_owned(), reason };
        tenant::check(&self.tenants).and(all.map_or(Ok(()), Err)).map_err(wrong)
    }

    /// Bounds of zero would make a server that refuses everything.
    fn check(&self, path: &Path) -> Result<(), ConfigError> {
        let wrong = |key: &str, reason: &str| {
            Err(ConfigError::Value { path: path.to_owned(), key: key.to_owned(), reason: reason.to_owned() })
        };
        if let Some((key, _)) = bounds::all(self).find(|(_, value)| *value == 0) {
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
        match (&self.agent, self.card.missing()) {
            (AgentConfig::Upstream(_), _) | (_, None) => {}
            (_, Some(key)) => return wrong(key, "is missing; every card has it, and only an upstream agent has one"),
        }
        if let Err(reason) = self.card.check_bindings() {
            return wrong("card.bindings", reason);
        }
        if self.card.extended.is_some() && self.auth.is_none() {
            return wrong("card.extended", "is for authenticated callers, and there is no [auth]");
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
}

/// The card and its links begin with it.
fn check_url(url: &str) -> Result<(), String> {
    let parsed: Result<Uri, _> = url.parse();
    let is_whole = parsed.is_ok_and(|url| matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some());
    match is_whole && !url.ends_with('/') {
        true => Ok(()),
        false => Err(format!("is {url:?}; write it as in \"https://agent.example.com\", without a slash at its end")),
    }
}
