//! The operator's settings of an upstream agent.

use std::env::{self, VarError};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use annex_agent::check_template;
use annex_auth::{OAuthConfig, OAuthConfigError, TokenSource};
use annex_client::{Binding, ServiceParameters};
use annex_egress::Screen;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use serde::Deserialize;

/// The settings of an upstream agent, and of the calls to the upstream.
#[derive(Clone, Debug)]
pub struct UpstreamConfig {
    /// The agent's name. It is the author of the agent's events, and the app of the agent's sessions.
    pub name: String,
    /// The URL of the agent's card, or the base URL of the agent. With a base URL the card is read from
    /// `/.well-known/agent-card.json` below this URL.
    pub card: String,
    /// The binding to use. `None`: the first binding on the card that this server supports.
    pub binding: Option<Binding>,
    /// Names of header fields of the caller's request that are forwarded to the upstream.
    pub headers_forward: Vec<String>,
    /// A header field that this server adds to each request.
    pub credentials: Option<Credentials>,
    /// Where this server gets access tokens for the upstream.
    pub oauth: Option<OAuthConfig>,
    /// Hosts, each as `name` or `name:port`. Interfaces at these hosts may be used in addition to interfaces at the origin of
    /// the card.
    pub allow_hosts: Vec<String>,
    /// The timeout for opening a connection.
    pub connect: Duration,
    /// The longest time without an event from the upstream. A longer silence fails the call.
    pub idle: Duration,
    /// The longest time that the start of this server waits for the upstream's card.
    pub start: Duration,
    /// The time between two requests for the upstream's card. A longer `max-age` in the response takes precedence.
    pub refresh: Duration,
    /// The time for which the circuit stays open after five failures in a row.
    pub pause: Duration,
    /// The largest answer, and the largest event of a stream, in bytes.
    pub max_answer_bytes: usize,
    /// The reaction when the upstream no longer knows a conversation.
    pub on_lost_context: LostContext,
    /// The mapping between the session's state and the upstream's requests and answers.
    pub state: StateMapping,
    /// The screen that checks each address before a connection is opened. Set a screen if a tenant, not the operator,
    /// chose the agent.
    pub screen: Option<Screen>,
}

/// A header field whose value comes from an environment variable.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    /// The name of the field. Default `authorization`.
    #[serde(default = "authorization")]
    pub header: String,
    /// The environment variable with the whole value, such as `Bearer …`.
    pub env: String,
}

fn authorization() -> String {
    "authorization".to_owned()
}

/// The reaction when the upstream no longer knows a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LostContext {
    /// Messages of the conversation fail with an error that explains the loss.
    #[default]
    Fail,
    /// The conversation continues as a new one at the upstream.
    Restart,
}

/// `[agent.state]`: how the session's state is sent with a request, and how changes of the state are read from the
/// answer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateMapping {
    /// Where in the request the state is sent. Default: the state is not sent.
    pub send: Option<StateTarget>,
    /// The metadata key under which the state is sent, or the key of the state in the data part. Required by every target
    /// except `text-part`.
    pub key: Option<String>,
    /// The text in front of the message, such as `The user is {user:name}.`, with `{variables}` from the state.
    /// Required for `text-part`, and allowed only there.
    pub template: Option<String>,
    /// The names of the state keys that are sent, each with its prefix. Default: all keys without a prefix, which
    /// belong to the session alone.
    pub keys: Option<Vec<String>>,
    /// Where in the answer changes of the state are read. Default: no changes are read.
    pub receive: Option<StateSource>,
    /// The metadata key under which changes of the state are read, or the key of the changes in the data part. Default:
    /// the value of `key`.
    pub receive_key: Option<String>,
}

/// Where in the request the state is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateTarget {
    /// An object under a key of the request's metadata.
    RequestMetadata,
    /// An object under a key of the message's metadata.
    MessageMetadata,
    /// A data part `{"<key>": {…}}` in front of all other parts.
    DataPart,
    /// A text in front of the text in the first text part. It is rendered from a template.
    TextPart,
}

/// Where in the answer changes of the state are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateSource {
    /// An object under a key of the metadata of a task, of a status update or of an artifact update.
    TaskMetadata,
    /// An object under a key of an artifact's metadata.
    ArtifactMetadata,
    /// An object under a key of a data part. The part may belong to an artifact or a message.
    DataPart,
}

/// A fault in the config.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A key is missing, superfluous or has an unusable value.
    #[error("{key} {reason}")]
    Value {
        /// The key below `[agent]`.
        key: &'static str,
        /// The fault of the value. The text also lists the accepted values.
        reason: String,
    },
}

impl From<OAuthConfigError> for ConfigError {
    fn from(OAuthConfigError { key, reason }: OAuthConfigError) -> Self {
        Self::Value { key, reason }
    }
}

impl ConfigError {
    fn new(key: &'static str, reason: impl Into<String>) -> Self {
        Self::Value { key, reason: reason.into() }
    }
}

/// The header fields for requests to the upstream, as [`UpstreamConfig::fields`] has checked them.
pub(crate) struct Fields {
    /// Names of the caller's fields that are forwarded.
    pub(crate) forwarded: Vec<HeaderName>,
    /// The credentials: the name and the value of a field that this server adds.
    pub(crate) own: Option<(HeaderName, HeaderValue)>,
}

impl UpstreamConfig {
    /// Checks the settings that do not depend on the environment.
    ///
    /// # Errors
    /// When a setting cannot be used. The error names the key.
    pub fn check(&self) -> Result<(), ConfigError> {
        let times = [
            ("connect_seconds", self.connect),
            ("idle_seconds", self.idle),
            ("start_seconds", self.start),
            ("refresh_seconds", self.refresh),
            ("pause_seconds", self.pause),
        ];
        if let Some((key, _)) = times.into_iter().find(|(_, time)| time.is_zero()) {
            return Err(ConfigError::new(key, "must be at least 1"));
        }
        if self.max_answer_bytes == 0 {
            return Err(ConfigError::new("max_answer_bytes", "must be at least 1"));
        }
        self.forwarded()?;
        if let Some(host) = self.allow_hosts.iter().find(|host| host.is_empty() || host.contains(['/', '@', ' '])) {
            let reason =
                format!("has {host:?}, which is no host; write a name or name:port, such as \"b.example:8443\"");
            return Err(ConfigError::new("allow_hosts", reason));
        }
        if let Some(credentials) = &self.credentials {
            settable("credentials.header", &credentials.header)?;
        }
        self.check_oauth()?;
        self.state.check()
    }

    /// Checks the settings and the environment variables that they name. Sends nothing.
    ///
    /// # Errors
    /// When a setting cannot be used. The error names the key.
    pub fn check_environment(&self) -> Result<(), ConfigError> {
        self.check()?;
        self.fields()?;
        self.token_source().map(drop)
    }

    /// The settings with files whose relative paths start at `folder`.
    #[must_use]
    pub fn located(self, folder: &Path) -> Self {
        Self { oauth: self.oauth.map(|oauth| oauth.located(folder)), ..self }
    }

    /// The source of access tokens. `None` without `[agent.oauth]`. Reads the secret of this server, and sends nothing.
    ///
    /// # Errors
    /// When a setting cannot be used. The error names the key.
    pub fn token_source(&self) -> Result<Option<Arc<TokenSource>>, ConfigError> {
        let source = self.oauth.as_ref().map(|oauth| TokenSource::load(oauth, self.screen.as_ref()));
        Ok(source.transpose()?)
    }

    fn check_oauth(&self) -> Result<(), ConfigError> {
        let Some(oauth) = &self.oauth else { return Ok(()) };
        oauth.check()?;
        let is_taken = |name: &str| AUTHORIZATION.as_str().eq_ignore_ascii_case(name);
        if self.credentials.as_ref().is_some_and(|credentials| is_taken(&credentials.header)) {
            return Err(ConfigError::new("credentials.header", "is \"authorization\", which `oauth` sets already"));
        }
        if self.headers_forward.iter().any(|name| is_taken(name)) {
            let reason = "has \"authorization\", which `oauth` sets already; remove one of the two";
            return Err(ConfigError::new("headers_forward", reason));
        }
        Ok(())
    }

    /// The header fields of requests. The credentials are read from the environment.
    pub(crate) fn fields(&self) -> Result<Fields, ConfigError> {
        let own = self.credentials.as_ref().map(Credentials::field).transpose()?;
        Ok(Fields { forwarded: self.forwarded()?, own })
    }

    fn forwarded(&self) -> Result<Vec<HeaderName>, ConfigError> {
        let own = self.credentials.as_ref().map(|credentials| credentials.header.as_str());
        let names = self.headers_forward.iter().map(|name| {
            // Two values for one field would fail each call, so the error is reported to the operator at the start.
            if own.is_some_and(|own| own.eq_ignore_ascii_case(name)) {
                let reason = format!("has {name:?}, which `credentials` sets already; remove one of the two");
                return Err(ConfigError::new("headers_forward", reason));
            }
            settable("headers_forward", name)
        });
        names.collect()
    }
}

/// Parses the name of a header field. Refuses names that the transport sets itself, such as `content-length`.
fn settable(key: &'static str, name: &str) -> Result<HeaderName, ConfigError> {
    let unusable = |reason: &str| ConfigError::new(key, format!("has {name:?}, which {reason}"));
    let header = HeaderName::try_from(name).map_err(|_| unusable("is not the name of a header field"))?;
    // The client decides, so that the protocol's own fields are listed only once.
    let set = ServiceParameters::default().set_field(header.clone(), HeaderValue::from_static(""));
    set.map_err(|_| unusable("is set by the protocol itself"))?;
    Ok(header)
}

impl Credentials {
    fn field(&self) -> Result<(HeaderName, HeaderValue), ConfigError> {
        const KEY: &str = "credentials.env";
        let wrong = |reason: &str| ConfigError::new(KEY, format!("the environment variable {} {reason}", self.env));
        let value = env::var(&self.env).map_err(|error| match error {
            VarError::NotPresent => wrong("is not set; set it before the start"),
            VarError::NotUnicode(_) => wrong("has a value that is not UTF-8"),
        })?;
        let value = HeaderValue::try_from(value.trim());
        let mut value = value.map_err(|_| wrong("has characters that no header field has"))?;
        // Debug output hides a sensitive value, and HTTP/2 keeps the value out of the header table.
        value.set_sensitive(true);
        Ok((settable("credentials.header", &self.header)?, value))
    }
}

impl StateMapping {
    fn check(&self) -> Result<(), ConfigError> {
        let is_text = self.send == Some(StateTarget::TextPart);
        if let Some(Err(error)) = self.template.as_deref().map(check_template) {
            return Err(ConfigError::new("state.template", format!("cannot be used: {error}")));
        }
        match (is_text, self.template.is_some()) {
            (true, false) => {
                let reason = "is missing: the text in front of the message, such as \"About the user: {user_info?}\"";
                return Err(ConfigError::new("state.template", reason));
            }
            (false, true) => {
                return Err(ConfigError::new("state.template", "is allowed only with send = \"text-part\""));
            }
            (true, true) | (false, false) => {}
        }
        let sends_object = self.send.is_some() && !is_text;
        if sends_object && self.key.is_none() {
            return Err(ConfigError::new("state.key", "is missing: the key under which the state is sent"));
        }
        if self.receive.is_some() && self.received_key().is_none() {
            return Err(ConfigError::new("state.receive_key", "is missing: the key under which changes are received"));
        }
        if self.receive.is_none() && self.receive_key.is_some() {
            return Err(ConfigError::new("state.receive_key", "is allowed only with state.receive"));
        }
        if self.keys.is_some() && (is_text || self.send.is_none()) {
            return Err(ConfigError::new(
                "state.keys",
                "is for state that is sent as an object; a template names its own keys",
            ));
        }
        Ok(())
    }

    /// The key under which changes of the state are received.
    pub(crate) fn received_key(&self) -> Option<&str> {
        self.receive_key.as_deref().or(self.key.as_deref())
    }
}
