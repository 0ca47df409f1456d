//! Loads and checks the agent of a config.

use std::path::Path;
use std::sync::{Arc, Weak};

use annex_agent::{
    AgentExecutor, GenerativeError, GenerativeModel, McpError, McpServers, Model, ScriptAgent, ScriptedModel,
    TemplateAgent, Tools,
};
use annex_protocol::AgentCard;
use annex_telemetry::fault;
use annex_upstream::{UpstreamAgent, UpstreamConfig};
use tokio::sync::watch;

use super::error::AppError;
use crate::config::served::ServedConfig;
use crate::config::{AgentConfig, ModelConfig, TemplateConfig, environment};
use crate::installation::card;
use crate::installation::installer::Installer;
use crate::locations::Locations;

/// Issues the cards again whenever the card of the upstream agent changes. Ends when the agent or the installer is
/// dropped.
pub(super) async fn follow_card(mut card: watch::Receiver<Arc<AgentCard>>, installer: Weak<Installer>) {
    while card.changed().await.is_ok() {
        let Some(installer) = installer.upgrade() else { return };
        installer.reissue().await;
    }
}

/// The accepted media types of messages. By default an upstream agent gets all types and checks them itself.
pub(super) fn input_modes(config: &ServedConfig) -> Vec<String> {
    let is_upstream = matches!(config.agent(), Ok(AgentConfig::Upstream { .. }));
    let default = || if is_upstream { vec!["*/*".to_owned()] } else { card::default_input_modes() };
    config.card.input_modes.clone().unwrap_or_else(default)
}

pub(super) async fn agent(config: &AgentConfig, locations: &Locations) -> Result<Arc<dyn AgentExecutor>, AppError> {
    Ok(match config {
        AgentConfig::Template(template) => Arc::new(template_agent(template, locations).await?),
        AgentConfig::Upstream { upstream, .. } => {
            let upstream = UpstreamConfig::clone(upstream).located(&locations.config);
            Arc::new(UpstreamAgent::connect(upstream).await?)
        }
        AgentConfig::Script { name, script, .. } => {
            Arc::new(ScriptAgent { name: name.clone(), script: script.clone() })
        }
    })
}

async fn template_agent(config: &TemplateConfig, locations: &Locations) -> Result<TemplateAgent, AppError> {
    let model = model(&config.model).await?;
    let mut agent = TemplateAgent::new(config.name.as_str(), &config.instruction, model);
    for (name, lent) in &config.models {
        agent.lent.insert(name.clone(), self::model(lent).await?);
    }
    let (servers, tools) = McpServers::start(&config.mcp, &locations.config).await?;
    agent.tools = Tools::new(tools)?;
    agent.servers = servers;
    agent.output_key.clone_from(&config.output_key);
    agent.artifact = config.artifact.clone().unwrap_or(agent.artifact);
    agent.max_tool_rounds = config.max_tool_rounds.unwrap_or(agent.max_tool_rounds);
    Ok(agent)
}

/// Checks an agent without calling a model or another peer. Finds wrong settings of the model, and environment
/// variables and files that are missing or cannot be used. Relative paths start at `folder`. Returns each mistake as a pair
/// of config key and reason.
pub(super) async fn wrong(config: &AgentConfig, folder: &Path) -> Vec<(String, String)> {
    match config {
        AgentConfig::Template(template) => {
            let servers = template.mcp.iter().enumerate().flat_map(|(number, server)| {
                let key = format!("agent.mcp[{number}].{}", server.variables_key());
                server.unusable_variables().into_iter().map(move |error| {
                    let reason = match &error {
                        McpError::Variable { variable, .. } => environment::unusable(variable),
                        error => fault::text(error),
                    };
                    (key.clone(), reason)
                })
            });
            let mut found: Vec<_> = wrong_in_model("agent.model", &template.model).await.into_iter().collect();
            for (name, model) in &template.models {
                found.extend(wrong_in_model(&format!("agent.models.{name}"), model).await);
            }
            found.extend(servers);
            found
        }
        AgentConfig::Upstream { upstream, .. } => {
            match UpstreamConfig::clone(upstream).located(folder).check_environment() {
                Ok(()) => Vec::new(),
                Err(annex_upstream::ConfigError::Value { key, reason }) => vec![(format!("agent.{key}"), reason)],
            }
        }
        AgentConfig::Script { .. } => Vec::new(),
    }
}

/// Checks a model. `table` is the config key of its table.
async fn wrong_in_model(table: &str, model: &ModelConfig) -> Option<(String, String)> {
    let key = || format!("{table}.generative.api_key_env");
    match model {
        ModelConfig::Scripted(script) => {
            let error = ScriptedModel::check(script.clone()).await.err()?;
            Some((table.to_owned(), fault::text(&error)))
        }
        ModelConfig::Generative(generative) => match generative.check().err()? {
            GenerativeError::KeyMissing { variable, .. } => Some((key(), environment::unusable(&variable))),
            error @ GenerativeError::Key { .. } => Some((key(), fault::text(&error))),
            error @ GenerativeError::Endpoint { .. } => {
                Some((format!("{table}.generative.endpoint"), fault::text(&error)))
            }
            error @ GenerativeError::Client { .. } => Some((table.to_owned(), fault::text(&error))),
        },
    }
}

/// The peers that the agent connects to when it is loaded, for error texts.
pub(super) fn peers(config: &AgentConfig) -> String {
    match config {
        AgentConfig::Upstream { upstream, .. } => format!("the upstream agent at {}", upstream.card),
        AgentConfig::Template(template) if !template.mcp.is_empty() => {
            let servers: Vec<String> = template.mcp.iter().map(|server| format!("`{}`", server.name)).collect();
            format!("the MCP servers {}", servers.join(", "))
        }
        AgentConfig::Template(_) | AgentConfig::Script { .. } => "nobody else".to_owned(),
    }
}

async fn model(config: &ModelConfig) -> Result<Arc<dyn Model>, AppError> {
    Ok(match config {
        ModelConfig::Scripted(script) => {
            let compiled = ScriptedModel::compile(script.clone()).await;
            Arc::new(compiled.map_err(|error| AppError::Model(error.into()))?)
        }
        ModelConfig::Generative(generative) => {
            Arc::new(GenerativeModel::new(generative.clone()).map_err(|error| AppError::Model(error.into()))?)
        }
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::peers;
    use crate::config::Config;

    #[test]
    fn an_agent_that_is_late_is_named_with_the_address_that_it_waits_for() {
        let of = |text: &str| {
            let config = Config::parse(Path::new("annex.toml"), text).expect("a config");
            peers(config.agent().expect("an agent"))
        };
        let upstream = "[agent]\nkind = \"upstream\"\nname = \"a\"\ncard = \"http://127.0.0.1:1\"\n";
        assert_eq!(of(upstream), "the upstream agent at http://127.0.0.1:1");
        let template = "[card]\nname = \"n\"\ndescription = \"d\"\n[agent]\nkind = \"template\"\nname = \"a\"\n\
                        instruction = \"i\"\n[agent.model.scripted]\nfallback = \"f\"\n[[agent.mcp]]\nname = \"files\"\n\
                        command = \"x\"\n";
        assert_eq!(of(template), "the MCP servers `files`");
    }
}
