//! The agent that the config names.

use std::sync::{Arc, Weak};

use annex_agent::{AgentExecutor, GenerativeModel, Model, ScriptAgent, ScriptedModel, TemplateAgent};
use annex_protocol::AgentCard;
use annex_upstream::{UpstreamAgent, UpstreamConfig};
use tokio::sync::watch;

use super::AppError;
use crate::card;
use crate::config::{AgentConfig, Config, ModelConfig};
use crate::installer::Installer;

/// Makes the cards again whenever that of the agent changes. Ends with the agent or the installer.
pub(super) async fn follow_card(mut card: watch::Receiver<Arc<AgentCard>>, installer: Weak<Installer>) {
    while card.changed().await.is_ok() {
        let Some(installer) = installer.upgrade() else { return };
        installer.reissue().await;
    }
}

/// What messages may have. An agent that lives elsewhere looks at them itself.
pub(super) fn input_modes(config: &Config) -> Vec<String> {
    let is_upstream = matches!(config.agent, AgentConfig::Upstream(_));
    let default = || if is_upstream { vec!["*/*".to_owned()] } else { card::default_input_modes() };
    config.card.input_modes.clone().unwrap_or_else(default)
}

pub(super) async fn agent(config: &AgentConfig) -> Result<Arc<dyn AgentExecutor>, AppError> {
    Ok(match config {
        AgentConfig::Template(template) => Arc::new(TemplateAgent {
            name: template.name.clone(),
            instruction: template.instruction.clone(),
            output_key: template.output_key.clone(),
            model: model(&template.model)?,
        }),
        AgentConfig::Upstream(upstream) => Arc::new(UpstreamAgent::connect(UpstreamConfig::clone(upstream)).await?),
        AgentConfig::Script { name, script } => Arc::new(ScriptAgent { name: name.clone(), script: script.clone() }),
    })
}

fn model(config: &ModelConfig) -> Result<Arc<dyn Model>, AppError> {
    Ok(match config {
        ModelConfig::Scripted(script) => {
            Arc::new(ScriptedModel::new(script.clone()).map_err(|error| AppError::Model(error.into()))?)
        }
        ModelConfig::Generative(generative) => {
            Arc::new(GenerativeModel::new(generative.clone()).map_err(|error| AppError::Model(error.into()))?)
        }
    })
}
