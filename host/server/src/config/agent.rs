//! `[agent]`: the kind of agent that answers, and its settings.

use std::collections::BTreeMap;
use std::time::Duration;

use annex_agent::{EventScript, GenerativeConfig, McpConfig, ScriptConfig, TemplateError, check_template};
use annex_auth::{AuthConfig, Grant, OAuthConfig};
use annex_client::Binding;
use annex_egress::Screen;
use annex_operations::on_lost_turn::OnLostTurn;
use annex_upstream::{Credentials, LostContext, StateMapping, UpstreamConfig};
use serde::Deserialize;

use super::card::BindingConfig;
use super::tasks::TasksConfig;

/// The default maximum size of one answer of an upstream agent, in bytes.
pub(super) const DEFAULT_MAX_ANSWER_BYTES: usize = 4 << 20;
/// The maximum number of models that are lent beside the agent's own.
const MAX_LENT_MODELS: usize = 16;
/// The maximum length of the name under which a model is lent, in bytes.
const MAX_MODEL_NAME: usize = 64;

/// The table `[agent]`: the agent that answers.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "AgentTable")]
pub enum AgentConfig {
    /// An agent of this process: an instruction template and a model.
    Template(Box<TemplateConfig>),
    /// Another A2A server. Annex passes the messages on to this server.
    Upstream {
        /// The upstream's card, credentials and time limits.
        upstream: Box<UpstreamConfig>,
        /// The handling of turns whose process has died.
        on_lost_turn: OnLostTurn,
        /// The keys of metadata in messages that the upstream gets, and that this server does not store.
        forget_metadata: Vec<String>,
    },
    /// An agent that sends scripted events, for tests of clients.
    Script {
        /// The agent's name. The agent's events name it as their author, and the agent's sessions are stored under it.
        name: String,
        /// The rules that choose the events for a message.
        script: EventScript,
        /// The handling of turns whose process has died.
        on_lost_turn: OnLostTurn,
    },
}

impl AgentConfig {
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Template(template) => &template.name,
            Self::Upstream { upstream, .. } => &upstream.name,
            Self::Script { name, .. } => name,
        }
    }

    /// Limits the addresses that the agent may connect to. Added tenants need this, because the operator has not chosen
    /// the URLs of their agents.
    pub(super) fn behind(mut self, screen: &Screen) -> Self {
        match &mut self {
            Self::Upstream { upstream, .. } => upstream.screen = Some(screen.clone()),
            Self::Template(template) => {
                for model in std::iter::once(&mut template.model).chain(template.models.values_mut()) {
                    if let ModelConfig::Generative(model) = model {
                        model.screen = Some(screen.clone());
                    }
                }
                let servers = std::mem::take(&mut template.mcp).into_iter();
                template.mcp = servers.map(|server| server.behind(screen.clone())).collect();
            }
            Self::Script { .. } => {}
        }
        self
    }

    /// The keys of metadata in messages that only an upstream agent gets, and that are not stored.
    pub(crate) fn forgotten_keys(&self) -> Vec<String> {
        match self {
            Self::Upstream { forget_metadata, .. } => forget_metadata.clone(),
            Self::Template(_) | Self::Script { .. } => Vec::new(),
        }
    }

    /// The handling of turns whose process has died.
    pub(crate) fn on_lost_turn(&self) -> OnLostTurn {
        match self {
            Self::Template(template) => template.on_lost_turn,
            Self::Upstream { on_lost_turn, .. } | Self::Script { on_lost_turn, .. } => *on_lost_turn,
        }
    }

    /// Checks the setting for lost turns. Turns can be rerun only with a shared store, because another process reruns
    /// them. The error is a pair of key and reason.
    pub(super) fn check_lost_turn(&self, tasks: &TasksConfig) -> Result<(), (&'static str, &'static str)> {
        let needs_others = self.on_lost_turn() == OnLostTurn::Rerun && tasks.postgres_env.is_none();
        let reason = "is \"rerun\", but only another process on the same database can rerun a turn; set \
                      tasks.postgres_env, or leave it out";
        if needs_others { Err(("agent.on_lost_turn", reason)) } else { Ok(()) }
    }

    /// True if the upstream agent is called with tokens in exchange for those of callers.
    pub(super) fn exchanges_tokens(&self) -> bool {
        let Self::Upstream { upstream, .. } = self else { return false };
        upstream.oauth.as_ref().is_some_and(|oauth| oauth.grant == Grant::TokenExchange)
    }

    /// Checks that callers have tokens if tokens are exchanged. The error is a pair of key and reason.
    pub(super) fn check_exchange(&self, auth: Option<&AuthConfig>) -> Result<(), (&'static str, &'static str)> {
        let reason = "is \"token_exchange\", but no caller has a token: add [auth.jwt] or [auth.introspection], or take \
                      \"client_credentials\"";
        let is_possible = !self.exchanges_tokens() || auth.is_some_and(AuthConfig::accepts_tokens);
        if is_possible { Ok(()) } else { Err(("agent.oauth.grant", reason)) }
    }
}

/// The table `[agent]` of an agent of the kind `template`.
#[derive(Clone, Debug)]
pub struct TemplateConfig {
    /// The agent's name. The agent's events name it as their author, and the agent's sessions are stored under it.
    pub name: String,
    /// The instruction for the model. `{variable}`, `{user:variable}` and `{optional?}` are replaced by values of the
    /// session state.
    pub instruction: String,
    /// The state key in which each answer is stored.
    pub output_key: Option<String>,
    /// The name of the artifact with the answer. Default: the name that the agent gives.
    pub artifact: Option<String>,
    /// The model that answers.
    pub model: ModelConfig,
    /// The models that extensions may choose instead, by the names under which they are lent.
    pub models: BTreeMap<String, ModelConfig>,
    /// The MCP servers with the agent's tools.
    pub mcp: Vec<McpConfig>,
    /// The maximum number of rounds of tool calls in one turn. Default: the agent's own limit.
    pub max_tool_rounds: Option<u32>,
    /// The handling of turns whose process has died.
    pub on_lost_turn: OnLostTurn,
}

/// The model of a template agent: `[agent.model.scripted]` or `[agent.model.generative]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelConfig {
    /// Scripted answers by rules, without a network.
    Scripted(ScriptConfig),
    /// A model service over HTTP.
    Generative(GenerativeConfig),
}

/// The table `[agent]` before its check. It has the keys of all kinds of agents.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AgentTable {
    pub(super) kind: AgentKind,
    pub(super) name: String,
    pub(super) instruction: Option<String>,
    pub(super) output_key: Option<String>,
    pub(super) artifact: Option<String>,
    pub(super) model: Option<ModelConfig>,
    pub(super) models: Option<BTreeMap<String, ModelConfig>>,
    pub(super) mcp: Option<Vec<McpConfig>>,
    pub(super) max_tool_rounds: Option<u32>,
    pub(super) on_lost_turn: Option<OnLostTurn>,
    pub(super) rule: Option<EventScript>,
    pub(super) card: Option<String>,
    pub(super) binding: Option<BindingConfig>,
    pub(super) headers_forward: Option<Vec<String>>,
    pub(super) forget_metadata: Option<Vec<String>>,
    pub(super) credentials: Option<Credentials>,
    pub(super) oauth: Option<OAuthConfig>,
    pub(super) allow_hosts: Option<Vec<String>>,
    pub(super) connect_seconds: Option<u64>,
    pub(super) idle_seconds: Option<u64>,
    pub(super) start_seconds: Option<u64>,
    pub(super) refresh_seconds: Option<u64>,
    pub(super) pause_seconds: Option<u64>,
    pub(super) max_answer_bytes: Option<usize>,
    pub(super) on_lost_context: Option<LostContext>,
    pub(super) state: Option<StateMapping>,
}

impl AgentTable {
    /// The keys that only upstream agents have. The second value of each pair is true if the key is set.
    fn of_upstream(&self) -> [(&'static str, bool); 15] {
        [
            ("card", self.card.is_some()),
            ("binding", self.binding.is_some()),
            ("headers_forward", self.headers_forward.is_some()),
            ("forget_metadata", self.forget_metadata.is_some()),
            ("credentials", self.credentials.is_some()),
            ("oauth", self.oauth.is_some()),
            ("allow_hosts", self.allow_hosts.is_some()),
            ("connect_seconds", self.connect_seconds.is_some()),
            ("idle_seconds", self.idle_seconds.is_some()),
            ("start_seconds", self.start_seconds.is_some()),
            ("refresh_seconds", self.refresh_seconds.is_some()),
            ("pause_seconds", self.pause_seconds.is_some()),
            ("max_answer_bytes", self.max_answer_bytes.is_some()),
            ("on_lost_context", self.on_lost_context.is_some()),
            ("state", self.state.is_some()),
        ]
    }

    /// The keys that only template agents have. The second value of each pair is true if the key is set.
    fn of_template(&self) -> [(&'static str, bool); 7] {
        [
            ("instruction", self.instruction.is_some()),
            ("output_key", self.output_key.is_some()),
            ("artifact", self.artifact.is_some()),
            ("model", self.model.is_some()),
            ("models", self.models.is_some()),
            ("mcp", self.mcp.is_some()),
            ("max_tool_rounds", self.max_tool_rounds.is_some()),
        ]
    }

    /// The key that only script agents have. The second value of the pair is true if the key is set.
    fn of_script(&self) -> [(&'static str, bool); 1] {
        [("rule", self.rule.is_some())]
    }
}

/// Checks that none of the keys in `foreign` is set. `foreign` has the keys that only agents of other kinds have.
///
/// # Errors
/// When a key is set. The error names the first such key.
fn refuse(kind: &'static str, foreign: impl IntoIterator<Item = (&'static str, bool)>) -> Result<(), AgentTableError> {
    match foreign.into_iter().find(|(_, is_given)| *is_given) {
        Some((key, _)) => Err(AgentTableError::Unknown { key, kind }),
        None => Ok(()),
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum AgentKind {
    Template,
    Script,
    Upstream,
}

/// A key that does not fit the kind of the agent, or an unusable value.
#[derive(Debug, thiserror::Error)]
pub(super) enum AgentTableError {
    #[error("missing field `{key}`, which an agent of kind `{kind}` needs")]
    Missing { key: &'static str, kind: &'static str },
    #[error("unknown field `{key}` of an agent of kind `{kind}`")]
    Unknown { key: &'static str, kind: &'static str },
    #[error(
        "on_lost_turn = \"follow\" is for an agent of kind `upstream`; one of kind `{kind}` takes \"fail\" or \"rerun\""
    )]
    Follows { kind: &'static str },
    #[error("on_lost_turn = \"rerun\" would send a message to the upstream twice; take \"follow\" or \"fail\"")]
    SendsTwice,
    #[error("models.{name}: {reason}")]
    Lent { name: String, reason: &'static str },
    #[error("instruction cannot be used: {0}")]
    Instruction(#[from] TemplateError),
    #[error(transparent)]
    Upstream(#[from] annex_upstream::ConfigError),
}

impl AgentTableError {
    /// The key with the mistake, and the reason. Needed for the text of a tenant, whose `[agent]` is not decoded by
    /// serde.
    pub(super) fn at_fault(&self) -> (String, String) {
        match self {
            Self::Missing { key, kind } => {
                (format!("agent.{key}"), format!("is missing; an agent of kind `{kind}` needs it"))
            }
            Self::Unknown { key, kind } => {
                (format!("agent.{key}"), format!("unknown key of an agent of kind `{kind}`"))
            }
            Self::Follows { .. } | Self::SendsTwice => ("agent.on_lost_turn".to_owned(), self.to_string()),
            Self::Lent { name, reason } => (format!("agent.models.{name}"), (*reason).to_owned()),
            Self::Instruction(error) => ("agent.instruction".to_owned(), format!("cannot be used: {error}")),
            Self::Upstream(annex_upstream::ConfigError::Value { key, reason }) => {
                (format!("agent.{key}"), reason.clone())
            }
        }
    }
}

impl TryFrom<AgentTable> for AgentConfig {
    type Error = AgentTableError;

    fn try_from(table: AgentTable) -> Result<Self, AgentTableError> {
        match table.kind {
            AgentKind::Template => template(table).map(|template| Self::Template(Box::new(template))),
            AgentKind::Script => script(table),
            AgentKind::Upstream => upstream(table),
        }
    }
}

fn template(table: AgentTable) -> Result<TemplateConfig, AgentTableError> {
    const KIND: &str = "template";
    refuse(KIND, table.of_script().into_iter().chain(table.of_upstream()))?;
    let missing = |key| AgentTableError::Missing { key, kind: KIND };
    let instruction = table.instruction.ok_or(missing("instruction"))?;
    check_template(&instruction)?;
    Ok(TemplateConfig {
        name: table.name,
        instruction,
        output_key: table.output_key,
        artifact: table.artifact,
        model: table.model.ok_or(missing("model"))?,
        models: lent(table.models.unwrap_or_default())?,
        mcp: table.mcp.unwrap_or_default(),
        max_tool_rounds: table.max_tool_rounds,
        on_lost_turn: of_this_process(table.on_lost_turn, KIND)?,
    })
}

/// Checks the names under which models are lent.
fn lent(models: BTreeMap<String, ModelConfig>) -> Result<BTreeMap<String, ModelConfig>, AgentTableError> {
    let wrong = |name: &String, reason| AgentTableError::Lent { name: name.clone(), reason };
    for name in models.keys() {
        let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'));
        if name.is_empty() || name.len() > MAX_MODEL_NAME || !is_plain {
            return Err(wrong(name, "a name has 1 to 64 letters, digits, `-`, `_` and `.`"));
        }
        if name == "default" {
            return Err(wrong(name, "agent.model is lent under this name; choose another"));
        }
    }
    if let Some(name) = models.keys().nth(MAX_LENT_MODELS) {
        return Err(wrong(name, "at most 16 models can be lent beside agent.model"));
    }
    Ok(models)
}

fn script(table: AgentTable) -> Result<AgentConfig, AgentTableError> {
    const KIND: &str = "script";
    refuse(KIND, table.of_template().into_iter().chain(table.of_upstream()))?;
    let script = table.rule.ok_or(AgentTableError::Missing { key: "rule", kind: KIND })?;
    let on_lost_turn = of_this_process(table.on_lost_turn, KIND)?;
    Ok(AgentConfig::Script { name: table.name, script, on_lost_turn })
}

/// Refuses `follow` for an agent that runs in this process: only the task of an upstream agent can be followed.
fn of_this_process(on_lost_turn: Option<OnLostTurn>, kind: &'static str) -> Result<OnLostTurn, AgentTableError> {
    match on_lost_turn.unwrap_or_default() {
        OnLostTurn::Follow => Err(AgentTableError::Follows { kind }),
        other => Ok(other),
    }
}

fn upstream(table: AgentTable) -> Result<AgentConfig, AgentTableError> {
    const KIND: &str = "upstream";
    refuse(KIND, table.of_template().into_iter().chain(table.of_script()))?;
    let on_lost_turn = table.on_lost_turn.unwrap_or(OnLostTurn::Follow);
    if on_lost_turn == OnLostTurn::Rerun {
        return Err(AgentTableError::SendsTwice);
    }
    let forget_metadata = table.forget_metadata.unwrap_or_default();
    let seconds = |given: Option<u64>, default| Duration::from_secs(given.unwrap_or(default));
    let config = UpstreamConfig {
        name: table.name,
        card: table.card.ok_or(AgentTableError::Missing { key: "card", kind: KIND })?,
        binding: table.binding.map(Binding::from),
        // A header field may be a credential for this server, so only the fields of the config are forwarded.
        headers_forward: table.headers_forward.unwrap_or_default(),
        credentials: table.credentials,
        oauth: table.oauth,
        // The interfaces of the card get credentials, so they are used only at the card's origin and at these hosts.
        allow_hosts: table.allow_hosts.unwrap_or_default(),
        connect: seconds(table.connect_seconds, 5),
        idle: seconds(table.idle_seconds, 120),
        start: seconds(table.start_seconds, 30),
        refresh: seconds(table.refresh_seconds, 60),
        pause: seconds(table.pause_seconds, 10),
        max_answer_bytes: table.max_answer_bytes.unwrap_or(DEFAULT_MAX_ANSWER_BYTES),
        on_lost_context: table.on_lost_context.unwrap_or_default(),
        state: table.state.unwrap_or_default(),
        screen: None,
    };
    config.check()?;
    Ok(AgentConfig::Upstream { upstream: Box::new(config), on_lost_turn, forget_metadata })
}

impl From<BindingConfig> for Binding {
    fn from(binding: BindingConfig) -> Self {
        match binding {
            BindingConfig::JsonRpc => Self::JsonRpc,
            BindingConfig::HttpJson => Self::HttpJson,
            BindingConfig::Grpc => Self::Grpc,
        }
    }
}
