//! A real model, over HTTP: anything with an OpenAI-compatible interface, Gemini, Anthropic or Ollama.

use std::env;
use std::fmt;
use std::time::Duration;

use annex_protocol::{Json, JsonObject};
use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use genai::adapter::AdapterKind;
use genai::chat::{self, ChatMessage, ChatOptions, ChatRequest, ChatStreamEvent, ContentPart, StreamEnd, Usage};
use genai::resolver::{AuthData, Endpoint};
use genai::{Client, ModelIden};
use reqwest::redirect::Policy;
use serde::Deserialize;
use serde_json::Value;

use crate::model::{Model, ModelError, ModelEvent, ModelStream, Prompt, ToolCall, ToolDeclaration, ToolResult, Turn};
use crate::steps::Tokens;

/// The longest time to wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest time to wait for the first byte of an answer, and between two pieces of it: models think before they
/// speak.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(120);

/// The model to ask, and its address.
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

/// The reason that a model cannot be used. Found when it is configured, before any request.
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
        /// The cause.
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
        // The provider's usual key must not be sent to another endpoint.
        let usual = if endpoint.is_none() { adapter.kind().default_key_env_name() } else { None };
        let variable = api_key_env.or_else(|| usual.map(str::to_owned));
        let key = variable.map(|variable| api_key(variable, &model)).transpose()?;
        let client = client(adapter.kind(), endpoint, key)
            .map_err(|source| GenerativeError::Client { model: model.clone(), source })?;
        // Both limits are on silence and none is on the whole answer, because a long answer is not a fault. Usage is
        // asked for, because streams tell token counts only then.
        let options = ChatOptions::default()
            .with_stream_header_timeout(SILENCE_TIMEOUT)
            .with_stream_read_timeout(SILENCE_TIMEOUT)
            .with_capture_usage(true)
            .with_capture_tool_calls(true);
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
        let known = answer.stream.map_ok(|event| stream::iter(known(event).into_iter().map(Ok)));
        Ok(known.try_flatten().map_err(failed).boxed())
    }
}

/// The events of the model in an event of the library. Calls come whole, with the end of the answer.
fn known(event: ChatStreamEvent) -> Vec<ModelEvent> {
    match event {
        ChatStreamEvent::Chunk(chunk) => vec![ModelEvent::Text(chunk.content)],
        ChatStreamEvent::ReasoningChunk(chunk) => vec![ModelEvent::Thought(chunk.content)],
        ChatStreamEvent::End(end) => ended(end),
        // Calls come whole with the end of the answer, so their pieces are not needed.
        ChatStreamEvent::Start
        | ChatStreamEvent::ThoughtSignatureChunk(_)
        | ChatStreamEvent::ToolCallChunk(_)
        | ChatStreamEvent::Heartbeat => Vec::new(),
    }
}

fn ended(end: StreamEnd) -> Vec<ModelEvent> {
    let usage = end.captured_usage.map(|usage| ModelEvent::Tokens(tokens(&usage)));
    let calls = end.captured_content.map(chat::MessageContent::into_tool_calls).unwrap_or_default();
    calls.into_iter().map(|call| ModelEvent::Call(tool_call(call))).chain(usage).collect()
}

fn tool_call(call: chat::ToolCall) -> ToolCall {
    // A model that has nothing to say to a tool leaves the arguments out.
    let arguments = match &call.fn_arguments {
        Value::Null => Ok(empty_object()),
        Value::String(text) if text.trim().is_empty() => Ok(empty_object()),
        other => Json::from_serialize(other),
    };
    ToolCall {
        id: call.call_id,
        name: call.fn_name,
        // Arguments that nest too deeply are no object, and the model is told so.
        arguments: arguments.unwrap_or_else(|_| Json::string("nested too deeply")),
        signatures: call.thought_signatures.unwrap_or_default(),
    }
}

fn empty_object() -> Json {
    JsonObject::new().to_json().unwrap_or_else(|_| Json::string(""))
}

fn tokens(usage: &Usage) -> Tokens {
    // A negative count is a fault of the provider and counts as none.
    let count = |tokens: Option<i32>| tokens.and_then(|tokens| u64::try_from(tokens).ok());
    Tokens { input: count(usage.prompt_tokens), output: count(usage.completion_tokens) }
}

fn chat_request(prompt: Prompt) -> ChatRequest {
    let mut request = ChatRequest::new(prompt.turns.into_iter().map(chat_message).collect());
    if !prompt.instruction.is_empty() {
        request = request.with_system(prompt.instruction);
    }
    if prompt.tools.is_empty() { request } else { request.with_tools(prompt.tools.iter().map(chat_tool)) }
}

fn chat_message(turn: Turn) -> ChatMessage {
    match turn {
        Turn::User(text) => ChatMessage::user(text),
        Turn::Agent { text, calls } if calls.is_empty() => ChatMessage::assistant(text),
        Turn::Agent { text, calls } => {
            let signatures = calls.iter().flat_map(|call| call.signatures.clone());
            let signatures: Vec<ContentPart> = signatures.map(ContentPart::ThoughtSignature).collect();
            let text = (!text.is_empty()).then_some(ContentPart::Text(text));
            let calls = calls.into_iter().map(|call| ContentPart::ToolCall(chat_call(call)));
            let parts: Vec<ContentPart> = signatures.into_iter().chain(text).chain(calls).collect();
            ChatMessage::assistant(chat::MessageContent::from_parts(parts))
        }
        Turn::Tools(results) => ChatMessage::from(results.into_iter().map(chat_response).collect::<Vec<_>>()),
    }
}

fn chat_call(call: ToolCall) -> chat::ToolCall {
    chat::ToolCall {
        call_id: call.id,
        fn_name: call.name,
        fn_arguments: call.arguments.to().unwrap_or_default(),
        thought_signatures: (!call.signatures.is_empty()).then_some(call.signatures),
    }
}

fn chat_response(result: ToolResult) -> chat::ToolResponse {
    chat::ToolResponse::new(result.id, result.response.get()).with_fn_name(result.name)
}

fn chat_tool(tool: &ToolDeclaration) -> chat::Tool {
    let schema: Value = tool.parameters.to().unwrap_or_default();
    chat::Tool::new(&tool.name).with_description(&tool.description).with_schema(schema)
}

fn api_key(variable: String, model: &str) -> Result<String, GenerativeError> {
    env::var(&variable)
        .ok()
        // A variable that is set to nothing is found here, at the start, and not by the first user.
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
    // A redirect would lead the key to a host that nobody has named.
    let http = reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT).redirect(Policy::none());
    let http = http.build()?;
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
