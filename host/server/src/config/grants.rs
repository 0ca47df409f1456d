//! `[extension.grants]`: the permissions of an extension.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use annex_egress::AllowedDestination;
use annex_runtime::{Grants, HostPattern, HttpGrant, HttpRule, HttpScheme, Quota, SessionStateGrant, StateScope};
use axum::http::Method;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

mod agent_steps;
mod caller;
mod live_card;
mod secret;

pub use agent_steps::AgentStepsGrantConfig;
pub use caller::CallerGrantConfig;
pub use live_card::LiveCardGrantConfig;
pub use secret::SecretConfig;

/// A key of the grants and the reason why its value is refused.
type Wrong = (&'static str, String);

/// The table `[extension.grants]`: the permissions of an extension.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct GrantsConfig {
    /// Allows the extension to read the time of day and to use timers.
    pub clock: bool,
    /// Allows the extension to get random numbers.
    pub random: bool,
    /// Allows the extension to send HTTP requests to other servers.
    pub http: Option<HttpGrantConfig>,
    /// Allows the extension to store keys and values that outlive a turn.
    pub keyvalue: Option<KeyValueGrantConfig>,
    /// The secrets that the extension can read by name. Secrets are separate from the parameters of the extension.
    pub secrets: BTreeMap<String, SecretConfig>,
    /// Allows the extension to read or write session state.
    #[serde(rename = "session-state")]
    pub session_state: Option<SessionStateGrantConfig>,
    /// Allows the extension to read the state of the turn's task.
    pub task: bool,
    /// Allows the extension to list the caller's tasks.
    pub tasks: bool,
    /// Allows the extension to resume the tasks that were interrupted by this extension.
    #[serde(rename = "task-resumption")]
    pub task_resumption: bool,
    /// Allows the extension to read the agent's steps in the turn, or also to steer them.
    #[serde(rename = "agent-steps")]
    pub agent_steps: AgentStepsGrantConfig,
    /// Allows the extension to read who calls.
    pub caller: Option<CallerGrantConfig>,
    /// Allows the extension to set metadata of the turn's task.
    #[serde(rename = "task-metadata")]
    pub task_metadata: bool,
    /// Keeps metadata of messages under the extension's own keys from being stored and shown to others.
    #[serde(rename = "forget-metadata")]
    pub forget_metadata: bool,
    /// Allows the extension to replace parts of the client's message.
    #[serde(rename = "rewrite-message")]
    pub rewrite_message: bool,
    /// Allows the extension to replace, hold back and refuse the agent's answers.
    #[serde(rename = "rewrite-answer")]
    pub rewrite_answer: bool,
    /// Allows the extension to answer in place of the agent.
    pub answer: bool,
    /// Allows the extension to decide what readers of tasks are shown, and to change its entry for readers of the extended
    /// card.
    pub reads: bool,
    /// Allows the extension to change its entry on the card while the extension runs.
    #[serde(rename = "live-card")]
    pub live_card: Option<LiveCardGrantConfig>,
}

/// The key `http = { allow = […], … }`: the HTTP requests that an extension may send.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { allow = [{ host = \"api.example.com\" }] }")]
pub struct HttpGrantConfig {
    /// Rules for allowed requests.
    pub allow: Vec<HttpRuleConfig>,
    /// The maximum size of a response body, in bytes. Default 1 MiB.
    #[serde(default = "max_response_bytes")]
    pub max_response_bytes: usize,
    /// Timeout of a request in milliseconds. Default 5,000. `limits.wall_ms` may end the waiting hook earlier.
    #[serde(default = "timeout_ms")]
    pub timeout_ms: u64,
    /// Private hosts, addresses and ranges that the extension may connect to. Default: none.
    #[serde(default, deserialize_with = "super::allowed", serialize_with = "texts")]
    pub allow_private: Vec<AllowedDestination>,
}

pub(super) fn max_response_bytes() -> usize {
    HttpGrant::MAX_RESPONSE_BYTES
}

pub(super) fn timeout_ms() -> u64 {
    u64::try_from(HttpGrant::TIMEOUT.as_millis()).unwrap_or(u64::MAX)
}

/// A rule that allows the requests with these methods to this host, port and path.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HttpRuleConfig {
    /// The methods, in capitals. Default: `GET` alone.
    #[serde(default = "get", deserialize_with = "methods", serialize_with = "texts")]
    pub methods: Vec<Method>,
    /// `https` or `http`. Default `https`.
    #[serde(default)]
    pub scheme: HttpSchemeConfig,
    /// A host name, an address, or a pattern such as `*.example.com` for all names below `example.com`.
    #[serde(deserialize_with = "host", serialize_with = "text")]
    pub host: HostPattern,
    /// The port. Default: the usual port of the scheme.
    pub port: Option<u16>,
    /// The allowed path, including all paths below. Default `/`.
    #[serde(default = "root")]
    pub path: String,
}

fn get() -> Vec<Method> {
    vec![Method::GET]
}

fn root() -> String {
    "/".to_owned()
}

fn methods<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Method>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    let method = |name: &String| {
        let is_known = name.bytes().all(|byte| byte.is_ascii_uppercase()) && name != "CONNECT";
        let method = Method::from_bytes(name.as_bytes()).ok().filter(|_| is_known);
        method.ok_or_else(|| D::Error::custom(format!("{name:?} is not a method; write it in capitals, as in \"GET\"")))
    };
    names.iter().map(method).collect()
}

fn text<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn texts<S: Serializer>(values: &[impl Display], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(values.iter().map(ToString::to_string))
}

fn host<'de, D: Deserializer<'de>>(deserializer: D) -> Result<HostPattern, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// The scheme of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HttpSchemeConfig {
    /// HTTP over TLS.
    #[default]
    Https,
    /// HTTP without encryption.
    Http,
}

/// The key `keyvalue = { max_keys = …, … }`: the limits on the stored keys of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "a table such as {}")]
pub struct KeyValueGrantConfig {
    /// The maximum number of keys of one bucket. Each task, each conversation and the extension itself have a bucket.
    /// Default 1,000.
    pub max_keys: usize,
    /// The maximum size of one value, in bytes. Default 64 KiB.
    pub max_value_bytes: usize,
    /// The maximum size of all keys and values of one bucket together, in bytes. Default 1 MiB.
    pub max_total_bytes: usize,
    /// The maximum number of keys in the buckets of all tasks and conversations together. Default 100,000.
    pub max_scoped_keys: usize,
    /// The maximum size, in bytes, of the keys and values in the buckets of all tasks and conversations together.
    /// Default 64 MiB.
    pub max_scoped_bytes: usize,
}

impl Default for KeyValueGrantConfig {
    fn default() -> Self {
        let Quota { max_keys, max_value_bytes, max_total_bytes, max_scoped_keys, max_scoped_bytes } = Quota::default();
        Self { max_keys, max_value_bytes, max_total_bytes, max_scoped_keys, max_scoped_bytes }
    }
}

/// The key `session-state = { read = …, scopes = […] }`: the session state that an extension may read and write.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { read = true }")]
pub struct SessionStateGrantConfig {
    /// Allows reading keys of the session scope. If `keys` is set, only those keys can be read.
    pub read: bool,
    /// The keys that the extension can read. The extension can also return their values to a client. Default: all.
    pub keys: Option<Vec<String>>,
    /// The scopes that the extension's deltas may write, in addition to the session scope.
    #[serde(default)]
    pub scopes: Vec<StateScopeConfig>,
    /// The keys that the extension's deltas may write, with their prefixes. Default: all.
    pub write_keys: Option<Vec<String>>,
}

/// A state scope that needs a grant to be written.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StateScopeConfig {
    /// The scope of `user:` keys.
    User,
    /// The scope of `app:` keys.
    App,
    /// The scope of `temp:` keys.
    Temp,
}

impl GrantsConfig {
    /// Converts the grants to the form that the runtime takes. Relative paths start at `folder`.
    pub(super) fn to_grants(&self, folder: &Path) -> Result<Grants, Wrong> {
        let secrets = self.secrets.iter().map(|(name, secret)| match secret.read(folder) {
            Ok(value) => Ok((name.clone(), value)),
            Err(reason) => Err(("grants.secrets", format!("{name}: {reason}"))),
        });
        Ok(Grants {
            clock: self.clock,
            random: self.random,
            http: self.http.as_ref().map(HttpGrantConfig::to_grant).transpose()?,
            keyvalue: self.keyvalue.map(KeyValueGrantConfig::to_quota).transpose()?,
            secrets: secrets.collect::<Result<_, _>>()?,
            session_state: self.session_state.as_ref().map(SessionStateGrantConfig::to_grant).transpose()?,
            task: self.task,
            tasks: self.tasks,
            task_resumption: self.task_resumption,
            agent_steps: self.agent_steps.reads(),
            steering: self.agent_steps.steers(),
            caller: self.caller.as_ref().map(CallerGrantConfig::to_grant).transpose()?,
            task_metadata: self.task_metadata,
            forget_metadata: self.forget_metadata,
            rewrite_message: self.rewrite_message,
            rewrite_answer: self.rewrite_answer,
            answer: self.answer,
            reads: self.reads,
            live_card: self.live_card.map(LiveCardGrantConfig::to_grant).transpose()?,
        })
    }
}

impl GrantsConfig {
    /// Returns each grant that cannot be used, as a pair of the config key and the reason.
    pub(super) fn wrong(&self, folder: &Path) -> Vec<(String, String)> {
        let secrets = self.secrets.iter().filter_map(|(name, secret)| {
            Some((format!("grants.secrets.{name}.{}", secret.key()), secret.fault(folder)?))
        });
        let others = [
            self.http.as_ref().and_then(|http| http.to_grant().err()),
            self.keyvalue.and_then(|keyvalue| keyvalue.to_quota().err()),
            self.session_state.as_ref().and_then(|state| state.to_grant().err()),
            self.caller.as_ref().and_then(|caller| caller.to_grant().err()),
            self.live_card.and_then(|live_card| live_card.to_grant().err()),
        ];
        let others = others.into_iter().flatten().map(|(key, reason)| (key.to_owned(), reason));
        secrets.chain(others).collect()
    }
}

impl HttpGrantConfig {
    fn to_grant(&self) -> Result<HttpGrant, Wrong> {
        if self.allow.is_empty() {
            return Err(("grants.http.allow", "allows nothing; leave http out".to_owned()));
        }
        if self.max_response_bytes == 0 || self.timeout_ms == 0 {
            return Err(("grants.http", "max_response_bytes and timeout_ms must be at least 1".to_owned()));
        }
        Ok(HttpGrant {
            allow: self.allow.iter().map(HttpRuleConfig::to_rule).collect::<Result<_, _>>()?,
            max_response_bytes: self.max_response_bytes,
            timeout: Duration::from_millis(self.timeout_ms),
            allow_private: self.allow_private.clone(),
        })
    }
}

impl HttpRuleConfig {
    fn to_rule(&self) -> Result<HttpRule, Wrong> {
        if self.methods.is_empty() {
            return Err(("grants.http.allow.methods", "names no method; leave it out for GET".to_owned()));
        }
        if !self.path.starts_with('/') || self.path.contains(['?', '#', '*']) {
            let reason = format!("{:?} is not a path: it begins with `/` and has no `?`, `#` and `*`", self.path);
            return Err(("grants.http.allow.path", reason));
        }
        let scheme = match self.scheme {
            HttpSchemeConfig::Https => HttpScheme::Https,
            HttpSchemeConfig::Http => HttpScheme::Http,
        };
        Ok(HttpRule {
            methods: self.methods.clone(),
            scheme,
            host: self.host.clone(),
            port: self.port.unwrap_or_else(|| scheme.port()),
            path: self.path.clone(),
        })
    }
}

impl KeyValueGrantConfig {
    fn to_quota(self) -> Result<Quota, Wrong> {
        let Self { max_keys, max_value_bytes, max_total_bytes, max_scoped_keys, max_scoped_bytes } = self;
        if [max_keys, max_value_bytes, max_total_bytes, max_scoped_keys, max_scoped_bytes].contains(&0) {
            return Err(("grants.keyvalue", "its bounds must be at least 1; leave it out to refuse it".to_owned()));
        }
        Ok(Quota { max_keys, max_value_bytes, max_total_bytes, max_scoped_keys, max_scoped_bytes })
    }
}

impl SessionStateGrantConfig {
    fn to_grant(&self) -> Result<SessionStateGrant, Wrong> {
        if !self.read {
            let reason = "grants nothing without read = true; set it, or leave the grant out".to_owned();
            return Err(("grants.session-state", reason));
        }
        Ok(SessionStateGrant {
            keys: self.keys.clone(),
            scopes: self.scopes.iter().map(|scope| scope.to_scope()).collect(),
            write_keys: self.write_keys.clone(),
        })
    }
}

impl StateScopeConfig {
    fn to_scope(self) -> StateScope {
        match self {
            Self::User => StateScope::User,
            Self::App => StateScope::App,
            Self::Temp => StateScope::Temp,
        }
    }
}
