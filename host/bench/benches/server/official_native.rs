//! The specialist on the official server, with the logic of state injection compiled in. There are no sessions: each
//! turn uses only the state in its message.

use std::collections::HashMap;
use std::sync::Arc;

use a2a::{A2AError, Artifact, Part, StreamResponse};
use a2a_server::{AgentExecutor, ExecutorContext};
use annex_agent::{Model, ModelEvent, Prompt, ScriptedModel, Turn};
use annex_server::{AgentConfig, Config, ModelConfig, TemplateConfig};
use annex_test_support::{STATE_INJECTION, STATE_KEY};
use anyhow::bail;
use futures::stream::{self, BoxStream, StreamExt};
use jsonschema::Validator;
use serde_json::{Map, Value};

use crate::official;

pub(crate) struct Specialist(Arc<Agent>);

struct Agent {
    instruction: String,
    output_key: String,
    model: ScriptedModel,
    validator: Validator,
}

impl Specialist {
    /// An agent with the instruction, script and schema of the config.
    pub(crate) fn new(config: &Config) -> anyhow::Result<Self> {
        let Some(AgentConfig::Template(template)) = &config.agent else { bail!("a template agent") };
        let TemplateConfig { instruction, output_key, model, .. } = &**template;
        let (ModelConfig::Scripted(script), Some(output_key)) = (model, output_key) else { bail!("a scripted model") };
        let schema = serde_json::from_str(include_str!("schema.json"))?;
        Ok(Self(Arc::new(Agent {
            instruction: instruction.clone(),
            output_key: output_key.clone(),
            model: ScriptedModel::new(script.clone())?,
            validator: jsonschema::options().should_validate_formats(true).build(&schema)?,
        })))
    }
}

impl AgentExecutor for Specialist {
    fn execute(&self, context: ExecutorContext) -> BoxStream<'static, Result<StreamResponse, A2AError>> {
        let agent = Arc::clone(&self.0);
        stream::once(async move { agent.events(context).await })
            .flat_map(|events| match events {
                Ok(events) => stream::iter(events.map(Ok)).left_stream(),
                Err(error) => stream::iter([Err(error)]).right_stream(),
            })
            .boxed()
    }

    fn cancel(&self, context: ExecutorContext) -> BoxStream<'static, Result<StreamResponse, A2AError>> {
        official::canceled(&context)
    }
}

impl Agent {
    async fn events(&self, mut context: ExecutorContext) -> Result<[StreamResponse; 3], A2AError> {
        let message = context.message.as_mut().ok_or_else(|| A2AError::invalid_params("no message"))?;
        let sent = message.metadata.as_mut().and_then(|metadata| metadata.remove(STATE_KEY));
        let Some(Value::Object(state)) = sent else { return Err(A2AError::invalid_params("no state")) };
        let mut state = self.validated(state)?;
        let text = message.text().unwrap_or_default().to_owned();
        let answer = self.answer(&state, text).await?;
        state.insert(self.output_key.clone(), Value::String(answer.clone()));
        let artifact = Artifact {
            artifact_id: "result".to_owned(),
            name: Some("result".to_owned()),
            description: None,
            parts: vec![Part::text(answer)],
            metadata: Some(HashMap::from([(STATE_KEY.to_owned(), Value::Object(state))])),
            extensions: Some(vec![STATE_INJECTION.to_owned()]),
        };
        Ok(official::events(&context, artifact))
    }

    fn validated(&self, state: Map<String, Value>) -> Result<Map<String, Value>, A2AError> {
        let state = Value::Object(state);
        let violations: Vec<String> = self.validator.iter_errors(&state).map(|error| error.to_string()).collect();
        match state {
            Value::Object(state) if violations.is_empty() => Ok(state),
            _ => Err(A2AError::invalid_params(violations.join("; "))),
        }
    }

    async fn answer(&self, state: &Map<String, Value>, text: String) -> Result<String, A2AError> {
        let user = state.get("user_info").map(Value::to_string).unwrap_or_default();
        let instruction = self.instruction.replacen("{user_info}", &user, 1);
        let prompt = Prompt { instruction, turns: vec![Turn::User(text)], ..Prompt::default() };
        let failed = |error: annex_agent::ModelError| A2AError::internal(error.to_string());
        let mut pieces = self.model.stream(prompt).await.map_err(failed)?;
        let mut answer = String::new();
        while let Some(piece) = pieces.next().await {
            if let ModelEvent::Text(text) = piece.map_err(failed)? {
                answer.push_str(&text);
            }
        }
        Ok(answer)
    }
}
