//! Loading and checking the agent of a config.

use std::sync::{Arc, Weak};

use annex_agent::{
    AgentExecutor, GenerativeModel, McpConfig, McpServers, Model, ScriptAgent, ScriptedModel, TemplateAgent, Tools,
};
use annex_protocol::AgentCard;
use annex_upstream::{ConnectError, UpstreamAgent, UpstreamConfig};
use tokio::sync::watch;

use super::error::AppError;
use crate::config::served::ServedConfig;
use crate::config::{AgentConfig, ModelConfig, TemplateConfig};
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
            Arc::new(UpstreamAgent::connect(UpstreamConfig::clone(upstream)).await?)
        }
        AgentConfig::Script { name, script, .. } => {
            Arc::new(ScriptAgent { name: name.clone(), script: script.clone() })
        }
    })
}

async fn template_agent(config: &TemplateConfig, locations: &Locations) -> Result<TemplateAgent, AppError> {
    let model = model(&config.model).await?;
    let mut agent = TemplateAgent::new(config.name.as_str(), &config.instruction, model);
    let (servers, tools) = McpServers::start(&config.mcp, &locations.config).await?;
    agent.tools = Tools::new(tools)?;
    agent.servers = servers;
    agent.output_key.clone_from(&config.output_key);
    agent.artifact = config.artifact.clone().unwrap_or(agent.artifact);
    agent.max_tool_rounds = config.max_tool_rounds.unwrap_or(agent.max_tool_rounds);
    Ok(agent)
}

/// Checks an agent without calling its peers: its model, and the environment variables with its keys.
pub(super) async fn check(config: &AgentConfig) -> Result<(), AppError> {
    match config {
        AgentConfig::Template(template) => {
            match &template.model {
                ModelConfig::Scripted(script) => {
                    let checked = ScriptedModel::check(script.clone()).await;
                    checked.map_err(|error| AppError::Model(error.into()))?;
                }
                ModelConfig::Generative(generative) => {
                    generative.check().map_err(|error| AppError::Model(error.into()))?;
                }
            }
            template.mcp.iter().try_for_each(McpConfig::check_environment)?;
        }
        AgentConfig::Upstream { upstream, .. } => upstream.check_environment().map_err(ConnectError::from)?,
        AgentConfig::Script { .. } => {}
    }
    Ok(())
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
