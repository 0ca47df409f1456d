//! State injection as code in the server: the logic of the component, without the component.

use std::sync::Arc;

use annex_agent::{AgentError, AgentEvent, AgentExecutor, EventSender, ScriptedModel, TemplateAgent, TurnContext};
use annex_conversation::{Conversation, StateDelta};
use annex_protocol::{A2aError, Json, SendMessageRequest};
use annex_runtime::Source;
use annex_sdk::{Location, MetadataEntry, Rejection, Scopes, Violation};
use annex_server::{AgentConfig, Config, ModelConfig};
use annex_state_injection::logic;
use annex_state_injection::parameters::Parameters;
use jsonschema::Validator;

pub(crate) struct NativeInjection {
    agent: TemplateAgent,
    parameters: Parameters,
    validator: Validator,
}

impl NativeInjection {
    /// An agent with the specialist's config, and with the parameters of the specialist's extension.
    pub(crate) fn new(config: &Config) -> Result<Self, Source> {
        let Some(AgentConfig::Template(template)) = &config.agent else { return Err("a template agent".into()) };
        let ModelConfig::Scripted(script) = &template.model else { return Err("a scripted model".into()) };
        let model = Arc::new(ScriptedModel::new(script.clone())?);
        let mut agent = TemplateAgent::new(template.name.as_str(), &template.instruction, model);
        agent.output_key.clone_from(&template.output_key);
        let schema = include_str!("schema.json");
        let parameters = Parameters::look_up(|key| Ok((key == "state_schema").then(|| schema.to_owned())))?;
        let validator = jsonschema::options().should_validate_formats(true).build(&serde_json::from_str(schema)?)?;
        Ok(Self { agent, parameters, validator })
    }
}

#[async_trait::async_trait]
impl AgentExecutor for NativeInjection {
    fn name(&self) -> &str {
        self.agent.name()
    }

    fn reads_history(&self) -> usize {
        self.agent.reads_history()
    }

    fn before_turn(
        &self,
        request: &SendMessageRequest,
        conversation: &Conversation,
        delta: &mut StateDelta,
    ) -> Result<(), A2aError> {
        let places = [(Location::Message, &request.message.metadata), (Location::Request, &request.metadata)];
        let mut entries = Vec::new();
        for (location, metadata) in places {
            for key in self.parameters.metadata_keys() {
                if let Some(value) = metadata.get(&key) {
                    entries.push(MetadataEntry { location, key, value: value.get().to_owned() });
                }
            }
        }
        let host = Host { conversation, validator: &self.validator };
        match logic::get_state(&self.parameters, &entries, &host) {
            Ok(None) => Ok(()),
            Ok(Some(state)) => {
                delta.merge(StateDelta::parse(&state).map_err(|error| A2aError::invalid_params(error.to_string()))?);
                Ok(())
            }
            Err(Rejection::Violations(_) | Rejection::Error(_)) => Err(A2aError::invalid_params("refused")),
        }
    }

    fn before_event(&self, conversation: &Conversation, event: &mut AgentEvent) {
        if let AgentEvent::Artifact { artifact, last_chunk: true, .. } = event {
            let patch = logic::add_state(&self.parameters, conversation.state().to_json_string());
            let entries = patch.metadata.into_iter().filter_map(|(key, value)| Some((key, Json::parse(value).ok()?)));
            artifact.metadata.extend(entries);
            artifact.extensions.push(annex_test_support::STATE_INJECTION.into());
        }
    }

    async fn execute(&self, turn: TurnContext, events: EventSender) -> Result<(), AgentError> {
        self.agent.execute(turn, events).await
    }
}

struct Host<'a> {
    conversation: &'a Conversation,
    validator: &'a Validator,
}

impl logic::Host for Host<'_> {
    fn snapshot(&self) -> String {
        self.conversation.state().to_json_string()
    }

    fn writable(&self) -> Scopes {
        Scopes::SESSION
    }

    fn violations(&self, _schema: &str, instance: &str) -> Result<Vec<Violation>, String> {
        let instance = serde_json::from_str(instance).map_err(|error| error.to_string())?;
        let errors = self.validator.iter_errors(&instance);
        Ok(errors.map(|error| Violation::new(error.instance_path().to_string(), error.to_string())).collect())
    }
}
