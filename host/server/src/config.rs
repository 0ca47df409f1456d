//! The operator's config: TOML, with every key checked. All errors are reported at once, each with file, line and the
//! accepted values.
//!
//! Relative paths in a config start at the folder of its file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use annex_auth::AuthConfig;
use annex_egress::AllowedDestination;
use annex_trust::{Policy, TrustConfig, TrustError};
use axum::http::Uri;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

mod admin;
mod agent;
mod bounds;
mod card;
mod cors;
mod credentials;
mod document;
pub(crate) mod environment;
mod extension;
mod file;
mod grants;
mod in_force;
mod limits;
mod live;
mod log;
mod postgres;
mod problems;
mod receipts;
pub(crate) mod registries;
mod replica;
mod runtime;
pub(crate) mod served;
mod server;
mod sessions;
mod stored_tenants;
mod tasks;
pub(crate) mod tenant;
pub(crate) mod tenant_name;
pub(crate) mod tenant_text;
mod tls;
mod traces;
mod wording;

pub(crate) use admin::AdminRole;
pub use admin::{AdminConfig, AdminTokenConfig};
pub use agent::{AgentConfig, ModelConfig, TemplateConfig};
pub use card::{BindingConfig, CardConfig, ProviderConfig, SkillConfig};
pub(crate) use card::{ExtendedCardConfig, SigningConfig};
pub use cors::CorsOrigins;
pub(crate) use document::{ConfigText, Document};
pub(crate) use extension::ExtensionPlace;
pub use extension::{ActivateConfig, ExtensionConfig, InstancesConfig, OnFailureConfig, ReadsConfig};
pub use file::ConfigFile;
pub use grants::{
    AgentStepsGrantConfig, CallerGrantConfig, GrantsConfig, HttpGrantConfig, HttpRuleConfig, HttpSchemeConfig,
    KeyValueGrantConfig, LiveCardGrantConfig, SecretConfig, SessionStateGrantConfig, StateScopeConfig,
};
pub use limits::LimitsConfig;
pub(crate) use log::AtomicShare;
pub use log::{LogConfig, RequestShare};
pub use postgres::PostgresConfig;
pub use problems::{ConfigError, Problem};
pub use receipts::ReceiptsConfig;
pub(crate) use receipts::are_wanted as wants_receipts;
pub use registries::RegistryConfig;
pub use replica::ReplicaConfig;
pub use runtime::RuntimeSection;
pub use server::ServerConfig;
pub use sessions::SessionsConfig;
pub use stored_tenants::StoredTenantsConfig;
pub use tasks::TasksConfig;
pub use tenant::{TenantComponents, TenantConfig};
pub use tls::{ClientCertificatesConfig, TlsConfig};
pub(crate) use traces::header_value;
pub use traces::{TracesConfig, TracesProtocol};

/// The whole config of `annex serve`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// `[server]`: the listener and its limits.
    #[serde(default)]
    pub server: ServerConfig,
    /// The part of the Agent Card that the server does not generate.
    #[serde(default)]
    pub card: CardConfig,
    /// The agent that answers. [`App::load`](crate::App::load) needs this table,
    /// [`App::with_agent`](crate::App::with_agent) does not.
    pub agent: Option<AgentConfig>,
    /// The authentication of callers. Without this table callers are anonymous. The server then listens only on
    /// loopback addresses, unless `server.allow_anonymous` is set.
    pub auth: Option<AuthConfig>,
    /// Receipts of turns. Without this table no receipt is signed.
    pub receipts: Option<ReceiptsConfig>,
    /// Push notifications. Without this table the server sends none.
    pub push: Option<PushConfig>,
    /// The store of sessions, and its limits.
    #[serde(default)]
    pub sessions: SessionsConfig,
    /// The store of tasks, and its limits.
    #[serde(default)]
    pub tasks: TasksConfig,
    /// The connections to PostgreSQL databases, if tasks, sessions or keys are stored in one.
    #[serde(default)]
    pub postgres: PostgresConfig,
    /// The name of this process among the replicas that share a database.
    #[serde(default)]
    pub replica: ReplicaConfig,
    /// The store for the keys of extensions.
    #[serde(default)]
    pub keyvalue: KeyValueConfig,
    /// The component runtime.
    #[serde(default)]
    pub runtime: RuntimeSection,
    /// The access log.
    #[serde(default)]
    pub log: LogConfig,
    /// The collector of traces. Without this table the server has no traces.
    pub traces: Option<TracesConfig>,
    /// The signers that components from registries need. Without this table no such component is installed.
    pub trust: Option<TrustConfig>,
    /// The registries of components, by their hosts as in references.
    #[serde(default, deserialize_with = "registries::by_host")]
    pub registries: BTreeMap<String, RegistryConfig>,
    /// The admin API, which lists and changes the installed extensions. Disabled without this table.
    pub admin: Option<AdminConfig>,
    /// Installed extensions. Their order in the file is the order in which they run.
    #[serde(default, rename = "extension")]
    pub extensions: Vec<ExtensionConfig>,
    /// Further agents behind the same listener.
    #[serde(default, rename = "tenant")]
    pub tenants: Vec<TenantConfig>,
    /// Settings for tenants that are added while the server runs. Without this table no tenant can be added.
    #[serde(rename = "tenants")]
    pub stored_tenants: Option<StoredTenantsConfig>,
    /// The file of the config. `None` if the config was parsed from a text.
    #[serde(skip)]
    pub file: Option<ConfigFile>,
    /// The source text. `None` only while the text is being checked.
    #[serde(skip)]
    pub(crate) text: Option<ConfigText>,
}

/// The table `[push]`: the receivers that may get notifications.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PushConfig {
    /// Private hosts, addresses and ranges that may get notifications, such as `10.0.0.0/8`. Default: none.
    #[serde(deserialize_with = "allowed")]
    pub allow: Vec<AllowedDestination>,
    /// Refuses `http` URLs for notifications. Default: no.
    pub https_only: bool,
}

fn allowed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<AllowedDestination>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
}

/// The table `[keyvalue]`: the store for the keys of extensions.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KeyValueConfig {
    /// Folder of the SQLite file with the keys of extensions. It is created if missing. Without it, the keys are where the
    /// tasks are.
    pub data_dir: Option<PathBuf>,
    /// Name of the environment variable with the URL of a PostgreSQL database for the keys.
    pub postgres_env: Option<String>,
}

impl Config {
    /// Reads and checks a config file.
    ///
    /// # Errors
    /// [`ConfigError::Read`] if the file cannot be read, [`ConfigError::Problems`] if a key or value is wrong.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        // Files that a config names must not be writable by others. The config itself is exempt: the person who starts
        // the server names it, and in containers it often belongs to another user.
        let text = fs::read_to_string(path)
            .map(annex_files::without_mark)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        let file = Some(ConfigFile::new(path, &text));
        Ok(Self { file, ..Self::parse(path, &text)? })
    }

    /// Checks the text of a config. `path` is only for messages.
    ///
    /// # Errors
    /// [`ConfigError::Problems`] with all mistakes: invalid TOML, unknown keys, unusable values.
    pub fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let mut document = Document::parse(path, text);
        let config = Self::decode(&mut document);
        document.into_checked(config)
    }

    /// Decodes the config and notes all mistakes in `document`. Keys, tables and list elements with a mistake are left
    /// out. `None` if the rest does not make up a config.
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

    /// The agent of the config.
    ///
    /// # Errors
    /// The config has no `[agent]`.
    pub(crate) fn agent(&self) -> Result<&AgentConfig, ConfigError> {
        let path = || self.text.as_ref().map(|text| text.path().to_owned()).unwrap_or_default();
        let missing = || {
            let (key, reason) = ("agent".to_owned(), NO_AGENT.to_owned());
            Problem { path: path(), place: None, key, reason, example: None }
        };
        self.agent.as_ref().ok_or_else(|| ConfigError::Problems(vec![missing()]))
    }

    /// The folder where relative paths in the config start.
    pub(crate) fn folder(&self) -> &Path {
        self.text.as_ref().and_then(|text| text.path().parent()).unwrap_or(Path::new(""))
    }

    /// The policy of `[trust]`. Without this table, the policy refuses each component that a reference names. Relative
    /// paths of keys start at `folder`.
    ///
    /// # Errors
    /// The first key of the table that cannot be used.
    pub fn policy(&self, folder: &Path) -> Result<Policy, TrustError> {
        registries::policy(self.trust.as_ref().unwrap_or(&TrustConfig::default()), folder)
    }

    /// The settings of a registry. `host` has the port if references have one. The relative path of a `ca_file` starts at
    /// `folder`.
    #[must_use]
    pub fn registry(&self, host: &str, folder: &Path) -> annex_registry::RegistryConfig {
        self.registries.get(host).map(|registry| registry.for_client(folder)).unwrap_or_default()
    }

    /// Checks the stores. Tasks, sessions and extension keys may each name only one store, and sessions must be in the
    /// store of the tasks. Also checks the settings that depend on whether the tasks are in PostgreSQL.
    fn check_homes(&self, document: &mut Document<'_>) {
        let homes = [
            ("tasks", self.tasks.data_dir.is_some() && self.tasks.postgres_env.is_some()),
            ("sessions", self.sessions.data_dir.is_some() && self.sessions.postgres_env.is_some()),
            ("keyvalue", self.keyvalue.data_dir.is_some() && self.keyvalue.postgres_env.is_some()),
        ];
        for (key, _) in homes.into_iter().filter(|(_, has_two)| *has_two) {
            document.wrong(key, "has both data_dir and postgres_env; leave one out");
        }
        let (sessions, tasks) = (&self.sessions, &self.tasks);
        let elsewhere = [
            ("sessions.data_dir", sessions.data_dir.is_some() && sessions.data_dir != tasks.data_dir),
            ("sessions.postgres_env", sessions.postgres_env.is_some() && sessions.postgres_env != tasks.postgres_env),
        ];
        for (key, _) in elsewhere.into_iter().filter(|(_, is_elsewhere)| *is_elsewhere) {
            document
                .wrong(key, "names another place than [tasks]; sessions and tasks are in one store: leave the key out");
        }
        let of_replicas =
            [self.runtime.check(&self.tasks), self.replica.check(&self.tasks), self.postgres.check(&self.tasks)];
        for (key, reason) in of_replicas.into_iter().filter_map(Result::err) {
            document.wrong(key, reason);
        }
    }

    /// Checks the `[[tenant]]` tables.
    fn check_tenants(&self, document: &mut Document<'_>) {
        tenant::check(&self.tenants, self.auth.as_ref(), document);
        let has_tenants = !self.tenants.is_empty() || self.stored_tenants.is_some();
        if self.tasks.list_all_anonymous && has_tenants {
            document.wrong("tasks.list_all_anonymous", "shows tasks of all tenants to everybody; leave it out");
        }
    }

    /// Checks the rules that the types of the keys cannot express. Refuses limits of zero, with which the server would
    /// refuse every request. Also refuses keys that exclude each other.
    fn check(&self, document: &mut Document<'_>) {
        let mut wrong = |key: &str, reason: &str| document.wrong(key, reason);
        let bounds = bounds::all(&self.server, &self.sessions, &self.tasks, &self.runtime)
            .chain([("postgres.max_connections", bounds::whole(self.postgres.max_connections.into()))]);
        let zero = bounds.filter(|(_, value)| *value == 0).map(|(key, _)| key);
        for key in zero.chain(self.stored_tenants.iter().flat_map(StoredTenantsConfig::zeros)) {
            wrong(key, "must be at least 1");
        }
        if let Err((key, reason)) = self.sessions.check() {
            wrong(key, &reason);
        }
        if let Some(key) = self.server.budget_below_a_body() {
            let reason = format!("is less than server.max_body_bytes ({})", self.server.max_body_bytes);
            wrong(key, &format!("{reason}: the largest request would never be served; raise it"));
        }
        if let Some(Err(reason)) = self.server.public_url.as_deref().map(check_url) {
            wrong("server.public_url", &reason);
        }
        for (key, reason) in self.runtime.ceiling.wrong(&LimitsConfig::default()) {
            wrong(&key.replace("limits", "runtime.ceiling"), &reason);
        }
        for (key, reason) in self.check_card(&self.card, self.agent.as_ref()) {
            wrong(key, reason);
        }
        if let Err((key, reason)) = receipts::check(self.receipts.as_ref(), &self.card) {
            wrong(key, reason);
        }
        let checks =
            |agent: &AgentConfig| [agent.check_lost_turn(&self.tasks), agent.check_exchange(self.auth.as_ref())];
        for (key, reason) in self.agent.iter().flat_map(checks).filter_map(Result::err) {
            wrong(key, reason);
        }
        if let Some(Err((key, reason))) = self.admin.as_ref().map(AdminConfig::check) {
            wrong(key, reason);
        }
        if let Some(Err((key, reason))) = self.admin.as_ref().map(|admin| admin.check_listeners(self.server.listen)) {
            wrong(key, &reason);
        }
        for (key, reason) in self.traces.iter().flat_map(TracesConfig::wrong) {
            wrong(&key, &reason);
        }
        for (key, reason) in self.check_tls() {
            wrong(key, reason);
        }
        if self.tasks.list_all_anonymous && self.auth.is_some() {
            wrong("tasks.list_all_anonymous", "does nothing with [auth], which leaves no caller anonymous");
        }
        let is_open = self.auth.is_none() && !self.server.allow_anonymous;
        if is_open && !self.server.listen.ip().is_loopback() {
            let reason = "is no loopback address, and callers are not authenticated: add [auth], or set \
                          server.allow_anonymous = true to serve everybody";
            wrong("server.listen", reason);
        }
    }

    /// Checks the TLS tables, and that callers can show the certificates that `[auth]` wants. Returns each mistake as a pair
    /// of key and reason.
    fn check_tls(&self) -> Vec<(&'static str, &'static str)> {
        let of_server = self.server.tls.as_ref();
        let of_admin = self.admin.as_ref().and_then(|admin| admin.tls.as_ref());
        let tables =
            [("server.tls.client_certificates", of_server), ("admin.tls.client_certificates", of_admin)].into_iter();
        let check = |(key, tls): (&'static str, Option<&TlsConfig>)| Some((key, tls?.check().err()?));
        let mut wrong: Vec<_> = tables.filter_map(check).collect();
        let Some(auth) = self.auth.as_ref().filter(|auth| auth.client_certificate.is_some()) else { return wrong };
        let has_others = !auth.api_key.is_empty() || auth.accepts_tokens();
        if has_others && of_server.is_some_and(TlsConfig::wants_certificate_of_each_client) {
            let reason = "makes the certificate of each client its credential, so no caller could use an API key or a \
                          token; take client_certificates = \"optional\" in [server.tls], or leave this table out";
            wrong.push(("auth.client_certificate", reason));
        }
        if of_server.is_none_or(|tls| tls.client_ca.is_none()) {
            let reason = "names callers by their certificates, but no client shows one; set client_ca in [server.tls]";
            wrong.push(("auth.client_certificate", reason));
        }
        wrong
    }

    /// Checks the `[card]` of the config's own agent or of a tenant's agent. Returns each mistake as a pair of key and
    /// reason.
    fn check_card(&self, card: &CardConfig, agent: Option<&AgentConfig>) -> Vec<(&'static str, &'static str)> {
        let mut wrong = Vec::new();
        if !matches!(agent, Some(AgentConfig::Upstream { .. })) {
            wrong.extend(card.missing().map(|key| (key, NOT_ON_CARD)));
        }
        wrong.extend(card.check_bindings().err().map(|reason| ("card.bindings", reason)));
        // Authentication is mandatory for this card (A2A 1.0 section 3.1.11).
        if card.extended.is_some() && self.auth.is_none() {
            wrong.push(("card.extended", "is for authenticated callers, but the config has no [auth]"));
        }
        wrong
    }
}

/// The error text for a config without an agent.
pub(crate) const NO_AGENT: &str =
    "is missing; add [agent] with kind = \"template\", \"upstream\" (an agent that you have) or \"script\"";

const NOT_ON_CARD: &str = "is missing; write it under [card]: clients and people read it on the agent card. Only with [agent] \
                           kind = \"upstream\" it can be left out, because that agent has a card of its own";

/// Checks the base URL of the server. The links on the Agent Card begin with this URL. The error is the reason.
fn check_url(url: &str) -> Result<(), String> {
    let parsed: Result<Uri, _> = url.parse();
    let is_whole = parsed.is_ok_and(|url| matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some());
    if is_whole && !url.ends_with('/') {
        Ok(())
    } else {
        Err(format!("is {url:?}; write it as in \"https://agent.example.com\", without a slash at its end"))
    }
}
