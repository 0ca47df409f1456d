//! `[agent]`: which agent answers, and what its kind needs.

use annex_agent::{EventScript, GenerativeConfig, McpConfig, ScriptConfig};
use serde::Deserialize;

/// `[agent]`
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "AgentTable")]
pub enum AgentConfig {
    /// An instruction template in front of a model.
    Template(TemplateConfig),
    /// Events by rules, for those who test clients.
    Script {
        /// The agent's name: author of its events and app of its sessions.
        name: String,
        /// Which message gets which events.
        script: EventScript,
    },
}

/// `[agent]` with `kind = "template"`.
#[derive(Clone, Debug)]
pub struct TemplateConfig {
    /// The agent's name: author of its events and app of its sessions.
    pub name: String,
    /// The instruction, with `{variable}`, `{user:variable}` and `{optional?}` from the session state.
    pub instruction: String,
    /// The state key that keeps the last answer.
    pub output_key: Option<String>,
    /// The name of the artifact that holds the answer; the agent's own when not set.
    pub artifact: Option<String>,
    /// The model behind it.
    pub model: ModelConfig,
    /// Where it has tools from.
    pub mcp: Vec<McpConfig>,
    /// How often the model may ask for tools in one turn; the agent's own bound when not set.
    pub max_tool_rounds: Option<u32>,
}

/// `[agent.model.scripted]` or `[agent.model.generative]`
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelConfig {
    /// Answers by rules, offline.
    Scripted(ScriptConfig),
    /// A model service.
    Generative(GenerativeConfig),
}

/// The table as it is written, with the keys of all kinds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentTable {
    kind: AgentKind,
    name: String,
    instruction: Option<String>,
    output_key: Option<String>,
    artifact: Option<String>,
    model: Option<ModelConfig>,
    mcp: Option<Vec<McpConfig>>,
    max_tool_rounds: Option<u32>,
    rule: Option<EventScript>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum AgentKind {
    Template,
    Script,
}

/// A key and a kind that do not belong together.
#[derive(Debug, thiserror::Error)]
enum AgentTableError {
    #[error("missing field `{key}`, which an agent of kind `{kind}` needs")]
    Missing { key: &'static str, kind: &'static str },
    #[error("unknown field `{key}` of an agent of kind `{kind}`")]
    Unknown { key: &'static str, kind: &'static str },
}

impl TryFrom<AgentTable> for AgentConfig {
    type Error = AgentTableError;

    fn try_from(table: AgentTable) -> Result<Self, AgentTableError> {
        match table.kind {
            AgentKind::Template => template(table).map(Self::Template),
            AgentKind::Script => script(table),
        }
    }
}

fn template(table: AgentTable) -> Result<TemplateConfig, AgentTableError> {
    const KIND: &str = "template";
    if table.rule.is_some() {
        return Err(AgentTableError::Unknown { key: "rule", kind: KIND });
    }
    let missing = |key| AgentTableError::Missing { key, kind: KIND };
    Ok(TemplateConfig {
        name: table.name,
        instruction: table.instruction.ok_or(missing("instruction"))?,
        output_key: table.output_key,
        artifact: table.artifact,
        model: table.model.ok_or(missing("model"))?,
        mcp: table.mcp.unwrap_or_default(),
        max_tool_rounds: table.max_tool_rounds,
    })
}

fn script(table: AgentTable) -> Result<AgentConfig, AgentTableError> {
    const KIND: &str = "script";
    let foreign = [
        ("instruction", table.instruction.is_some()),
        ("output_key", table.output_key.is_some()),
        ("artifact", table.artifact.is_some()),
        ("model", table.model.is_some()),
        ("mcp", table.mcp.is_some()),
        ("max_tool_rounds", table.max_tool_rounds.is_some()),
    ];
    if let Some((key, _)) = foreign.into_iter().find(|(_, is_given)| *is_given) {
        return Err(AgentTableError::Unknown { key, kind: KIND });
    }
    let script = table.rule.ok_or(AgentTableError::Missing { key: "rule", kind: KIND })?;
    Ok(AgentConfig::Script { name: table.name, script })
}
