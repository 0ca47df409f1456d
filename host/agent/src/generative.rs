//! A real model, over HTTP: anything with an OpenAI-compatible interface, Gemini, Anthropic or Ollama.

use std::env;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt};
use genai::adapter::AdapterKind;
use genai::chat::{ChatMessage, ChatOptions, ChatRequest, ChatStreamEvent, Usage};
use genai::resolver::{AuthData, Endpoint};
use genai::{Client, ModelIden};
use serde::Deserialize;

use crate::model::{Model, ModelError, ModelEvent, ModelStream, Prompt, Speaker};
use crate::steps::Tokens;

/// How long to wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait for the first byte of an answer, and between two pieces of it: models think before they speak.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(120);

/// Which model to ask, and where.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GenerativeConfig {
    /// The model, in its provider's spelling.
    pub model: String,
    /// The interface that the provider speaks. Default: OpenAI's.
    #[serde(default)]
    pub adapter: Adapter,
    /// The base URL of the interface, for example `http://localhost:8000/v1`. Default: the provider's own.
    pub endpoint: Option<String>,
    /// The environment variable that holds the API key. Default: the provider's usual one, such as `OPENAI_API_KEY`;
    /// or, with an `endpoint` of your own, no key.
    pub api_key_env: Option<String>,
}

/// An interface to models.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Adapter {
    /// OpenAI's chat completions, which most other providers and local servers speak too.
    #[default]
    OpenAi,
    /// Google's Gemini.
    Gemini,
    /// Anthropic's messages.
    Anthropic,
    /// Ollama's own interface; by default the one on this machine.
    Ollama,
}

impl Adapter {
    fn kind(self) -> AdapterKind {
        match self {
            Self::OpenAi => AdapterKind::OpenAI,
            Self::Gemini => AdapterKind::Gemini,
            Self::Anthropic => AdapterKind::Anthropic,
            Self::Ollama => AdapterKind::Ollama,
        }
    }
}

/// Why a model cannot be used. Found when it is configured, before any request.
#[derive(Debug, thiserror::Error)]
pub enum GenerativeError {
    /// The key is not where the configuration says.
    #[error("environment variable {variable}, which should hold the API key of model {model}, is not set")]
    KeyMissing {
        /// The variable.
        variable: String,
        /// The model.
        model: String,
    },
    /// The HTTP client cannot be built, for example because the system has no root certificates.
    #[error("no HTTP client for model {model}")]
    Client {
        /// The model.
        model: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A model behind an HTTP interface. Its key is in memory only and never printed.
#[derive(Clone)]
pub struct GenerativeModel {
    client: Client,
    model: ModelIden,
    name: String,
    options: ChatOptions,
}

impl fmt::Debug for GenerativeModel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The client knows the key.
        formatter.debug_struct("GenerativeModel").field("model", &self.name).finish_non_exhaustive()
    }
}

impl GenerativeModel {
    /// Reads the key and builds the client. No request is made.
    ///
    /// # Errors
    /// See [`GenerativeError`].
    pub fn new(config: GenerativeConfig) -> Result<Self, GenerativeError> {
        let GenerativeConfig { model, adapter, endpoint, api_key_env } = config;
        let usual = if endpoint.is_none() { adapter.kind().default_key_env_name() } else { None };
        let variable = api_key_env.or_else(|| usual.map(str::to_owned));
        let key = variable.map(|variable| api_key(variable, &model)).transpose()?;
        let client = client(adapter.kind(), endpoint, key)
            .map_err(|source| GenerativeError::Client { model: model.clone(), source })?;
        let options = ChatOptions::default()
            .with_stream_header_timeout(SILENCE_TIMEOUT)
            .with_stream_read_timeout(SILENCE_TIMEOUT)
            .with_capture_usage(true);
        Ok(Self { client, model: ModelIden::new(adapter.kind(), model.as_str()), name: model, options })
    }
}

#[async_trait]
impl Model for GenerativeModel {
    fn name(&self) -> &str {
        &self.name
    }

    async fn stream(&self, prompt: Prompt) -> Result<ModelStream, ModelError> {
        let name = self.name.clone();
        let failed = move |source: genai::Error| ModelError { model: name.clone(), source: Box::new(source) };
        let answer = self
            .client
            .exec_chat_stream(self.model.clone(), chat_request(prompt), Some(&self.options))
            .await
            .map_err(&failed)?;
        Ok(answer.stream.try_filter_map(|event| async move { Ok(known(event)) }).map_err(failed).boxed())
    }
}

/// The part of the answer in an event, or what it cost. What a model thinks and which tools it asks for is no part of
/// the answer.
fn known(event: ChatStreamEvent) -> Option<ModelEvent> {
    match event {
        ChatStreamEvent::Chunk(chunk) => Some(ModelEvent::Text(chunk.content)),
        ChatStreamEvent::End(end) => end.captured_usage.map(|usage| ModelEvent::Tokens(tokens(&usage))),
        ChatStreamEvent::Start
        | ChatStreamEvent::ReasoningChunk(_)
        | ChatStreamEvent::ThoughtSignatureChunk(_)
        | ChatStreamEvent::ToolCallChunk(_)
        | ChatStreamEvent::Heartbeat => None,
    }
}

fn tokens(usage: &Usage) -> Tokens {
    let count = |tokens: Option<i32>| tokens.and_then(|tokens| u64::try_from(tokens).ok());
    Tokens { input: count(usage.prompt_tokens), output: count(usage.completion_tokens) }
}

fn chat_request(prompt: Prompt) -> ChatRequest {
    let messages = prompt
        .turns
        .into_iter()
        .map(|turn| match turn.speaker {
            Speaker::User => ChatMessage::user(turn.text),
            Speaker::Agent => ChatMessage::assistant(turn.text),
        })
        .collect();
    let request = ChatRequest::new(messages);
    if prompt.instruction.is_empty() { request } else { request.with_system(prompt.instruction) }
}

fn api_key(variable: String, model: &str) -> Result<String, GenerativeError> {
    env::var(&variable)
        .ok()
        .filter(|key| !key.is_empty())
        .ok_or_else(|| GenerativeError::KeyMissing { variable, model: model.to_owned() })
}

fn client(
    kind: AdapterKind,
    endpoint: Option<String>,
    key: Option<String>,
) -> Result<Client, Box<dyn std::error::Error + Send + Sync>> {
    // The whole process uses one provider; somebody else may have installed it already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT).build()?;
    // Without a key an empty one is sent: otherwise the library would look for one in the environment by itself.
    let auth = AuthData::from_single(key.unwrap_or_default());
    let mut builder = Client::builder().with_reqwest(http).append_provider_config(kind, auth);
    if let Some(url) = endpoint {
        // The library appends paths to it as text.
        let url = format!("{}/", url.trim_end_matches('/'));
        builder = builder.append_provider_config(kind, Endpoint::from_owned(url));
    }
    Ok(builder.build()?)
}
