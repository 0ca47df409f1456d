//! `[agent]` in the text of a tenant.

use std::collections::BTreeMap;

use annex_agent::{Adapter, EventScript, GenerativeConfig, McpConfig, ScriptConfig};
use annex_auth::{ClientAuthentication, Grant, OAuthConfig};
use annex_operations::on_lost_turn::OnLostTurn;
use annex_upstream::{Credentials, LostContext, StateMapping};
use serde::{Deserialize, Serialize};

use super::super::agent::{AgentKind, AgentTable, DEFAULT_MAX_ANSWER_BYTES};
use super::super::{AgentConfig, BindingConfig, ModelConfig};
use super::lent::Admission;

/// The table `[agent]` of a tenant's text. It has the keys of all kinds of agents that a text may set.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TextAgent {
    kind: AgentKind,
    name: String,
    instruction: Option<String>,
    output_key: Option<String>,
    artifact: Option<String>,
    model: Option<TextModel>,
    models: Option<BTreeMap<String, TextModel>>,
    mcp: Option<Vec<TextMcp>>,
    max_tool_rounds: Option<u32>,
    on_lost_turn: Option<OnLostTurn>,
    rule: Option<EventScript>,
    card: Option<String>,
    binding: Option<BindingConfig>,
    headers_forward: Option<Vec<String>>,
    forget_metadata: Option<Vec<String>>,
    credentials: Option<TextCredentials>,
    oauth: Option<TextOAuth>,
    allow_hosts: Option<Vec<String>>,
    connect_seconds: Option<u64>,
    idle_seconds: Option<u64>,
    start_seconds: Option<u64>,
    refresh_seconds: Option<u64>,
    pause_seconds: Option<u64>,
    max_answer_bytes: Option<usize>,
    on_lost_context: Option<LostContext>,
    state: Option<StateMapping>,
}

/// The table `[agent.model.scripted]` or `[agent.model.generative]` of a tenant's text.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum TextModel {
    Scripted(ScriptConfig),
    Generative(TextGenerative),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TextGenerative {
    model: String,
    #[serde(default)]
    adapter: Adapter,
    endpoint: Option<String>,
    /// The name of the lent secret with the API key.
    secret: Option<String>,
}

/// A table `[[agent.mcp]]` of a tenant's text: an MCP server over HTTP.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TextMcp {
    name: String,
    url: String,
    /// The name of the lent secret with the token.
    secret: Option<String>,
    tools: Option<Vec<String>>,
    #[serde(default)]
    long_running: Vec<String>,
    timeout_seconds: Option<u64>,
    #[serde(default)]
    state: Vec<String>,
}

/// A table `[[agent.mcp]]` in the form that it has in the server's config.
#[derive(Serialize)]
struct McpTable {
    name: String,
    url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_env: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<Vec<String>>,
    long_running: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_seconds: Option<u64>,
    state: Vec<String>,
}

/// The table `[agent.credentials]` of a tenant's text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TextCredentials {
    #[serde(default = "authorization")]
    header: String,
    /// The name of the lent secret with the whole value of the header.
    secret: String,
}

impl TextCredentials {
    /// Replaces the name of the secret. `None` if the secret is not lent.
    fn admit(self, admission: &mut Admission<'_>) -> Option<Credentials> {
        let env = admission.variable("agent.credentials.secret", &self.secret)?;
        Some(Credentials { header: self.header, env })
    }
}

fn authorization() -> String {
    "authorization".to_owned()
}

/// The table `[agent.oauth]` of a tenant's text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TextOAuth {
    token_url: String,
    #[serde(default)]
    grant: Grant,
    client_id: String,
    /// The name of the lent secret of the client.
    secret: String,
    #[serde(default)]
    client_authentication: ClientAuthentication,
    scope: Option<String>,
    audience: Option<String>,
    resource: Option<String>,
}

impl TextOAuth {
    /// Checks the table, and replaces the name of the secret. `None` if the secret is not lent.
    fn admit(self, admission: &mut Admission<'_>) -> Option<OAuthConfig> {
        admission.check_url("agent.oauth.token_url", &self.token_url);
        let (client_secret_env, client_secret_file) = admission.secret("agent.oauth.secret", &self.secret)?.places();
        Some(OAuthConfig {
            token_url: self.token_url,
            grant: self.grant,
            client_id: self.client_id,
            client_secret_env,
            client_secret_file,
            client_authentication: self.client_authentication,
            scope: self.scope,
            audience: self.audience,
            resource: self.resource,
            // A text exchanges no tokens, and the screen of its agent decides about addresses.
            fallback: None,
            allow_private: Vec::new(),
        })
    }
}

/// The maximum number of MCP servers. Loading the tenant connects to each server.
const MAX_MCP: usize = 16;
/// The maximum number of tool names per MCP server. Each name is compared with all tools of the server.
const MAX_NAMED_TOOLS: usize = 256;
/// The maximum number of rounds of tool calls in one turn.
const MAX_TOOL_ROUNDS: u32 = 64;
/// The maximum number of rules of a script agent. Each message is compared with all rules.
const MAX_RULES: usize = 1_000;
/// The maximum number of steps of a rule. Each step is an event.
const MAX_STEPS: usize = 1_000;

impl TextAgent {
    /// Checks `[agent]`, and replaces the names of secrets. `None` if the table cannot be used as an agent.
    pub(super) fn admit(self, admission: &mut Admission<'_>) -> Option<AgentConfig> {
        admission.check_most("agent.max_answer_bytes", (self.max_answer_bytes, DEFAULT_MAX_ANSWER_BYTES));
        let whole = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        admission.check_most("agent.max_tool_rounds", (self.max_tool_rounds.map(whole), whole(MAX_TOOL_ROUNDS)));
        admission.check_most("agent.mcp", (self.mcp.as_ref().map(Vec::len), MAX_MCP));
        admission.check_most("agent.rule", (self.rule.as_ref().map(EventScript::rules), MAX_RULES));
        admission.check_most("agent.rule.steps", (self.rule.as_ref().map(EventScript::longest_rule), MAX_STEPS));
        if let Some(card) = &self.card {
            admission.check_url("agent.card", card);
        }
        for host in self.allow_hosts.iter().flatten() {
            admission.check_url("agent.allow_hosts", &format!("https://{host}/"));
        }
        let credentials = self.credentials.and_then(|credentials| credentials.admit(admission));
        let oauth = self.oauth.and_then(|oauth| oauth.admit(admission));
        let mcp = self.mcp.map(|servers| {
            let servers = servers.into_iter().enumerate();
            servers.filter_map(|(number, server)| server.admit(&format!("agent.mcp[{number}]"), admission)).collect()
        });
        let models = self.models.map(|models| {
            let models = models.into_iter();
            models.map(|(name, model)| (name.clone(), model.admit_lent(&name, admission))).collect()
        });
        let table = AgentTable {
            kind: self.kind,
            name: self.name,
            instruction: self.instruction,
            output_key: self.output_key,
            artifact: self.artifact,
            model: self.model.map(|model| model.admit("agent.model", admission)),
            models,
            mcp,
            max_tool_rounds: self.max_tool_rounds,
            on_lost_turn: self.on_lost_turn,
            rule: self.rule,
            card: self.card,
            binding: self.binding,
            headers_forward: self.headers_forward,
            forget_metadata: self.forget_metadata,
            credentials,
            oauth,
            allow_hosts: self.allow_hosts,
            connect_seconds: self.connect_seconds,
            idle_seconds: self.idle_seconds,
            start_seconds: self.start_seconds,
            refresh_seconds: self.refresh_seconds,
            pause_seconds: self.pause_seconds,
            max_answer_bytes: self.max_answer_bytes,
            on_lost_context: self.on_lost_context,
            state: self.state,
        };
        match AgentConfig::try_from(table) {
            Ok(agent) => Some(agent.behind(&admission.screen())),
            Err(error) => {
                let (key, reason) = error.at_fault();
                admission.refuse(key, reason);
                None
            }
        }
    }
}

impl TextModel {
    /// Checks a model that is lent to extensions under `name`.
    fn admit_lent(self, name: &str, admission: &mut Admission<'_>) -> ModelConfig {
        let table = format!("agent.models.{name}");
        if let Self::Scripted(_) = self {
            // The memory for rules is shared by one script per tenant.
            admission.refuse(table.as_str(), "is scripted; a tenant can have rules in agent.model alone");
        }
        self.admit(&table, admission)
    }

    /// Checks a model. `table` is the config key of its table.
    fn admit(self, table: &str, admission: &mut Admission<'_>) -> ModelConfig {
        let key = format!("{table}.generative.endpoint");
        let TextGenerative { model, adapter, endpoint, secret } = match self {
            Self::Scripted(script) => return ModelConfig::Scripted(script.for_one_of(admission.max_loaded())),
            Self::Generative(generative) => generative,
        };
        match &endpoint {
            Some(endpoint) => admission.check_url(&key, endpoint),
            // Without an endpoint the provider's default would be called, a host that the operator may not have
            // allowed.
            None => admission.refuse(
                key,
                "is missing; name the URL of the model's provider, whose host tenants.hosts of the config names",
            ),
        }
        let secret_key = format!("{table}.generative.secret");
        let api_key_env = secret.and_then(|secret| admission.variable(&secret_key, &secret));
        ModelConfig::Generative(GenerativeConfig { model, adapter, endpoint, api_key_env, screen: None })
    }
}

impl TextMcp {
    /// Checks the MCP server. `table` is the config key of its table, such as `agent.mcp[0]`.
    fn admit(self, table: &str, admission: &mut Admission<'_>) -> Option<McpConfig> {
        admission.check_url(&format!("{table}.url"), &self.url);
        let token_env = self.secret.and_then(|secret| admission.variable(&format!("{table}.secret"), &secret));
        let of_config = McpTable {
            name: self.name,
            url: self.url,
            token_env,
            tools: self.tools,
            long_running: self.long_running,
            timeout_seconds: self.timeout_seconds,
            state: self.state,
        };
        let read = toml::Value::try_from(of_config).map_err(|error| error.to_string());
        let read = read
            .and_then(|of_config| of_config.try_into().map_err(|error: toml::de::Error| error.message().to_owned()));
        match read {
            Ok(server) => {
                admission.check_most(&format!("{table}.tools"), (Some(McpConfig::named(&server)), MAX_NAMED_TOOLS));
                Some(server)
            }
            Err(reason) => {
                admission.refuse(table, reason);
                None
            }
        }
    }
}
