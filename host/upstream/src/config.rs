//! The operator's settings of an upstream agent.

use std::env;
use std::time::Duration;

use annex_agent::check_template;
use annex_client::{Binding, ServiceParameters};
use annex_egress::Screen;
use http::{HeaderName, HeaderValue};
use serde::Deserialize;

/// The settings of an upstream agent and of the calls to it.
#[derive(Clone, Debug)]
pub struct UpstreamConfig {
    /// The agent's name: author of its events and app of its sessions.
    pub name: String,
    /// The URL of its card, or of the agent, whose card is then at the well-known place below it.
    pub card: String,
    /// The binding to use; `None` for the first of its card that can be used.
    pub binding: Option<Binding>,
    /// Names of the callers' header fields that are sent on.
    pub headers_forward: Vec<String>,
    /// A header field of this server's own.
    pub credentials: Option<Credentials>,
    /// Hosts, each `name` or `name:port`, whose interfaces may be used besides those at the origin of the card.
    pub allow_hosts: Vec<String>,
    /// The longest time that a connection may take.
    pub connect: Duration,
    /// The longest time that the upstream may send no event.
    pub idle: Duration,
    /// The longest time that its card is asked for at the start.
    pub start: Duration,
    /// The time between two requests for its card. A card with a longer `max-age` is kept until that is over.
    pub refresh: Duration,
    /// The time for which nothing is sent after five failures in a row.
    pub pause: Duration,
    /// The longest answer and the longest event of a stream, in bytes.
    pub max_answer_bytes: usize,
    /// The fate of a conversation that the upstream does not know any more.
    pub on_lost_context: LostContext,
    /// The mapping of the session's state.
    pub state: StateMapping,
    /// Looks at each address before it is connected to, where somebody else than the operator has chosen the agent.
    pub screen: Option<Screen>,
}

/// A header field whose value is in the environment.
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

/// The fate of a conversation that the upstream does not know any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LostContext {
    /// Its messages fail, and say so.
    #[default]
    Fail,
    /// It goes on as a new conversation at the upstream.
    Restart,
}

/// `[agent.state]`: the mapping of the session's state to the request, and of the answer to changes of it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateMapping {
    /// The place in the request that the state is sent in. Default: none.
    pub send: Option<Sent>,
    /// The metadata key, or the key in the data part. Needed by all but `text-part`.
    pub key: Option<String>,
    /// The text in front of the message, with `{variables}` from the state. Needed by `text-part` and for it alone.
    pub template: Option<String>,
    /// The full state keys that are sent. Default: all of the session's own, that is those without a prefix.
    pub keys: Option<Vec<String>>,
    /// The place in the answer that a change of the state comes from. Default: none.
    pub receive: Option<Received>,
    /// The metadata key, or the key in the data part, of that change. Default: `key`.
    pub receive_key: Option<String>,
}

/// The place in the request that state is sent in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sent {
    /// An object under a key of the request's metadata.
    RequestMetadata,
    /// An object under a key of the message's metadata.
    MessageMetadata,
    /// A data part in front of the others: `{"<key>": {…}}`.
    DataPart,
    /// A text in front of the first text part, rendered from a template.
    TextPart,
}

/// The place in the answer that a change of the state comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Received {
    /// An object under a key of the metadata of a task, or of an event about one.
    TaskMetadata,
    /// An object under a key of an artifact's metadata.
    ArtifactMetadata,
    /// An object under a key of a data part of an artifact or a message.
    DataPart,
}

/// A fault in a config.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A key is missing, superfluous or has an unusable value.
    #[error("{key} {reason}")]
    Value {
        /// The key below `[agent]`.
        key: &'static str,
        /// The fault, and the values that are accepted.
        reason: String,
    },
}

impl ConfigError {
    fn new(key: &'static str, reason: impl Into<String>) -> Self {
        Self::Value { key, reason: reason.into() }
    }
}

/// Header fields, checked.
pub(crate) struct Fields {
    /// Those of callers that are sent on.
    pub(crate) forwarded: Vec<HeaderName>,
    /// This server's own.
    pub(crate) own: Option<(HeaderName, HeaderValue)>,
}

impl UpstreamConfig {
    /// Checks the settings that do not depend on the environment.
    ///
    /// # Errors
    /// The key and its fault.
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
        if let Some(credentials) = &self.credentials {
            settable("credentials.header", &credentials.header)?;
        }
        self.state.check()
    }

    /// Checks the settings with the environment as it is now. Nobody is asked.
    ///
    /// # Errors
    /// The key and its fault.
    pub fn check_environment(&self) -> Result<(), ConfigError> {
        self.check()?;
        self.fields().map(drop)
    }

    /// The header fields, with the credentials from the environment.
    pub(crate) fn fields(&self) -> Result<Fields, ConfigError> {
        let own = self.credentials.as_ref().map(Credentials::field).transpose()?;
        Ok(Fields { forwarded: self.forwarded()?, own })
    }

    fn forwarded(&self) -> Result<Vec<HeaderName>, ConfigError> {
        let own = self.credentials.as_ref().map(|credentials| credentials.header.as_str());
        let names = self.headers_forward.iter().map(|name| {
            // Two values for one field would fail each call. The operator hears of it at the start instead.
            if own.is_some_and(|own| own.eq_ignore_ascii_case(name)) {
                let reason = format!("has {name:?}, which is what `credentials` sets; leave one of them out");
                return Err(ConfigError::new("headers_forward", reason));
            }
            settable("headers_forward", name)
        });
        names.collect()
    }
}

/// A name of a field that is not the transport's own.
fn settable(key: &'static str, name: &str) -> Result<HeaderName, ConfigError> {
    let unusable = |reason: &str| ConfigError::new(key, format!("has {name:?}, which {reason}"));
    let header = HeaderName::try_from(name).map_err(|_| unusable("is not the name of a header field"))?;
    // The client itself is asked, so that there is one list of fields that are the protocol's own.
    let set = ServiceParameters::default().set_field(header.clone(), HeaderValue::from_static(""));
    set.map_err(|_| unusable("is set by the protocol itself"))?;
    Ok(header)
}

impl Credentials {
    fn field(&self) -> Result<(HeaderName, HeaderValue), ConfigError> {
        const KEY: &str = "credentials";
        let wrong = |reason: &str| ConfigError::new(KEY, format!("names the variable {}, which {reason}", self.env));
        let value = env::var(&self.env).map_err(|_| wrong("is not set, or is not text"))?;
        let mut value = HeaderValue::try_from(value.trim()).map_err(|_| wrong("is no value of a header field"))?;
        // Debug output hides a sensitive value, and HTTP/2 does not put it into its table.
        value.set_sensitive(true);
        Ok((settable(KEY, &self.header)?, value))
    }
}

impl StateMapping {
    fn check(&self) -> Result<(), ConfigError> {
        let is_text = self.send == Some(Sent::TextPart);
        if let Some(Err(error)) = self.template.as_deref().map(check_template) {
            return Err(ConfigError::new("state.template", format!("cannot be used: {error}")));
        }
        if is_text != self.template.is_some() {
            return Err(ConfigError::new("state.template", "goes with send = \"text-part\", and with nothing else"));
        }
        let sends_object = self.send.is_some() && !is_text;
        if sends_object && self.key.is_none() {
            return Err(ConfigError::new("state.key", "is missing; it says under which key the state is sent"));
        }
        if self.receive.is_some() && self.received_key().is_none() {
            return Err(ConfigError::new("state.receive_key", "is missing; it says under which key changes come"));
        }
        if self.receive.is_none() && self.receive_key.is_some() {
            return Err(ConfigError::new("state.receive_key", "goes with state.receive only"));
        }
        if self.keys.is_some() && (is_text || self.send.is_none()) {
            return Err(ConfigError::new(
                "state.keys",
                "says what is sent as an object; a template names what it wants",
            ));
        }
        Ok(())
    }

    /// The key under which changes come.
    pub(crate) fn received_key(&self) -> Option<&str> {
        self.receive_key.as_deref().or(self.key.as_deref())
    }
}
