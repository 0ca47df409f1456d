//! A language model over HTTP. Supports OpenAI-compatible interfaces, Gemini, Anthropic and Ollama.

use std::env;
use std::fmt;
use std::time::Duration;

use annex_egress::{Events, Screen, UrlRefusal};
use async_trait::async_trait;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use serde::Deserialize;

use crate::model::{Model, ModelError, ModelStream, Prompt};

mod answer;
mod anthropic;
mod gemini;
mod interface;
mod ollama;
mod openai;

use answer::Reader;
use interface::ChatRequest;

/// The timeout for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The model and its address.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GenerativeConfig {
    /// The model, in its provider's spelling.
    pub model: String,
    /// The API of the provider. Default: OpenAI's.
    #[serde(default)]
    pub adapter: Adapter,
    /// The base URL of the API, for example `http://localhost:8000/v1`. Default: the public API of the provider.
    pub endpoint: Option<String>,
    /// The environment variable with the API key. Default without an `endpoint`: the provider's usual variable, such as
    /// `OPENAI_API_KEY`. Default with an `endpoint`: no key is sent.
    pub api_key_env: Option<String>,
    /// The screen that checks each address before a connection is opened. Set if a tenant chose the endpoint, and
    /// `None` if the operator chose it.
    #[serde(skip)]
    pub screen: Option<Screen>,
}

/// A model API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Adapter {
    /// OpenAI's chat completions API. Most other providers and local servers offer it too.
    #[default]
    OpenAi,
    /// Google's Gemini API.
    Gemini,
    /// Anthropic's Messages API.
    Anthropic,
    /// Ollama's own API; by default on this machine.
    Ollama,
}

impl Adapter {
    fn usual_endpoint(self) -> &'static str {
        match self {
            Self::OpenAi => "https://api.openai.com/v1",
            Self::Gemini => "https://generativelanguage.googleapis.com/v1beta",
            Self::Anthropic => "https://api.anthropic.com/v1",
            Self::Ollama => "http://localhost:11434",
        }
    }

    fn usual_key(self) -> Option<&'static str> {
        match self {
            Self::OpenAi => Some("OPENAI_API_KEY"),
            Self::Gemini => Some("GEMINI_API_KEY"),
            Self::Anthropic => Some("ANTHROPIC_API_KEY"),
            Self::Ollama => None,
        }
    }

    /// The name that OpenTelemetry has for the provider.
    fn provider(self) -> &'static str {
        match self {
            Self::OpenAi => "openai",
            Self::Gemini => "gcp.gemini",
            Self::Anthropic => "anthropic",
            Self::Ollama => "ollama",
        }
    }

    /// The name of the header field that carries the API key, and the text in front of the key in that field.
    fn key_field(self) -> (HeaderName, &'static str) {
        match self {
            Self::OpenAi | Self::Ollama => (AUTHORIZATION, "Bearer "),
            Self::Gemini => (HeaderName::from_static("x-goog-api-key"), ""),
            Self::Anthropic => (HeaderName::from_static("x-api-key"), ""),
        }
    }

    fn request(self, model: &str, prompt: &Prompt) -> ChatRequest {
        match self {
            Self::OpenAi => openai::request(model, prompt),
            Self::Gemini => gemini::request(model, prompt),
            Self::Anthropic => anthropic::request(model, prompt),
            Self::Ollama => ollama::request(model, prompt),
        }
    }

    fn reader(self) -> Reader {
        match self {
            Self::OpenAi => Reader { split: Events::new, read: openai::read },
            Self::Gemini => Reader { split: Events::new, read: gemini::read },
            Self::Anthropic => Reader { split: Events::new, read: anthropic::read },
            Self::Ollama => Reader { split: Events::lines, read: ollama::read },
        }
    }
}

/// The reason why a model cannot be used. Found at configuration, before any request.
#[derive(Debug, thiserror::Error)]
pub enum GenerativeError {
    /// The environment variable with the key is not set.
    #[error(
        "the environment variable {variable} is not set; set it before the start: it holds the API key of model {model}"
    )]
    KeyMissing {
        /// The name of the environment variable.
        variable: String,
        /// The name of the model in the config.
        model: String,
    },
    /// The key has characters that a header field cannot have.
    #[error(
        "environment variable {variable}, which holds the API key of model {model}, has characters that no key has"
    )]
    Key {
        /// The name of the environment variable.
        variable: String,
        /// The name of the model in the config.
        model: String,
    },
    /// The endpoint is not a URL, or a URL that must not be called.
    #[error("the endpoint of model {model} may not be called")]
    Endpoint {
        /// The name of the model in the config.
        model: String,
        /// The fault of the URL.
        #[source]
        source: UrlRefusal,
    },
    /// The HTTP client cannot be built, for example because the system has no root certificates.
    #[error("no HTTP client for model {model}")]
    Client {
        /// The name of the model in the config.
        model: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A model behind an HTTP API. The key is kept in memory only and is never printed.
#[derive(Clone)]
pub struct GenerativeModel {
    client: Client,
    adapter: Adapter,
    endpoint: Url,
    fields: HeaderMap,
    name: String,
}

impl fmt::Debug for GenerativeModel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The header fields have the key.
        formatter.debug_struct("GenerativeModel").field("model", &self.name).finish_non_exhaustive()
    }
}

impl GenerativeConfig {
    /// Checks the config as [`GenerativeModel::new`] does. Does not build the HTTP client, because building it takes
    /// most of the time.
    ///
    /// # Errors
    /// All errors of [`GenerativeModel::new`] except [`GenerativeError::Client`].
    pub fn check(&self) -> Result<(), GenerativeError> {
        self.parts().map(drop)
    }

    /// Returns the header fields of each request, which contain the key, and the base URL.
    fn parts(&self) -> Result<(HeaderMap, Url), GenerativeError> {
        let Self { model, adapter, endpoint, api_key_env, screen } = self;
        // The provider's usual key must not be sent to another endpoint.
        let usual = if endpoint.is_none() { adapter.usual_key() } else { None };
        let variable = api_key_env.clone().or_else(|| usual.map(str::to_owned));
        let fields = fields(*adapter, variable, model)?;
        let endpoint = parse(endpoint.as_deref().unwrap_or(adapter.usual_endpoint()), screen.as_ref());
        let endpoint = endpoint.map_err(|source| GenerativeError::Endpoint { model: model.clone(), source })?;
        Ok((fields, endpoint))
    }
}

impl GenerativeModel {
    /// Reads the key and builds the client. Sends no request.
    ///
    /// # Errors
    /// See [`GenerativeError`].
    pub fn new(config: GenerativeConfig) -> Result<Self, GenerativeError> {
        let (fields, endpoint) = config.parts()?;
        let GenerativeConfig { model, adapter, screen, .. } = config;
        let client = client(screen.as_ref())
            .map_err(|source| GenerativeError::Client { model: model.clone(), source: source.into() })?;
        Ok(Self { client, adapter, endpoint, fields, name: model })
    }

    /// The URL to which `request` is sent. If the base URL has a query, such as the version of the API, the query is kept.
    fn url(&self, request: &ChatRequest) -> Url {
        let mut url = self.endpoint.clone();
        url.set_path(&format!("{}/{}", url.path().trim_end_matches('/'), request.path));
        let queries: Vec<&str> = self.endpoint.query().into_iter().chain(request.query).collect();
        url.set_query((!queries.is_empty()).then(|| queries.join("&")).as_deref());
        url
    }
}

#[async_trait]
impl Model for GenerativeModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn provider(&self) -> Option<&'static str> {
        Some(self.adapter.provider())
    }

    async fn stream(&self, prompt: Prompt) -> Result<ModelStream, ModelError> {
        let request = self.adapter.request(&self.name, &prompt);
        let mut fields = self.fields.clone();
        if let Some(trace) = annex_telemetry::trace_fields() {
            trace.insert_into(&mut fields);
        }
        let sent = self.client.post(self.url(&request)).headers(fields).json(&request.body);
        answer::ask(&self.name, sent, self.adapter.reader()).await
    }
}

fn api_key(variable: String, model: &str) -> Result<String, GenerativeError> {
    env::var(&variable)
        .ok()
        // A variable that is set to nothing is found here, at the start, and not by the first user.
        .filter(|key| !key.is_empty())
        .ok_or_else(|| GenerativeError::KeyMissing { variable, model: model.to_owned() })
}

fn fields(adapter: Adapter, variable: Option<String>, model: &str) -> Result<HeaderMap, GenerativeError> {
    let mut fields = HeaderMap::new();
    if let Some(variable) = variable {
        let key = api_key(variable.clone(), model)?;
        let (name, before) = adapter.key_field();
        let value = HeaderValue::try_from(format!("{before}{}", key.trim()));
        let mut value = value.map_err(|_| GenerativeError::Key { variable, model: model.to_owned() })?;
        // Debug output hides a sensitive value, and HTTP/2 keeps the value out of the header table.
        value.set_sensitive(true);
        fields.insert(name, value);
    }
    if adapter == Adapter::Anthropic {
        fields.insert("anthropic-version", HeaderValue::from_static(anthropic::VERSION));
    }
    Ok(fields)
}

fn parse(url: &str, screen: Option<&Screen>) -> Result<Url, UrlRefusal> {
    match screen {
        Some(screen) => screen.parse(url),
        None => Url::parse(url).map_err(UrlRefusal::Malformed),
    }
}

fn client(screen: Option<&Screen>) -> reqwest::Result<Client> {
    // A redirect would send the key to a host that the operator did not choose.
    let client = annex_egress::client_builder(Vec::new()).connect_timeout(CONNECT_TIMEOUT).redirect(Policy::none());
    match screen {
        Some(screen) => screen.guard(client).build(),
        None => client.build(),
    }
}
