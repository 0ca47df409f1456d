//! Removes from a recorded turn the values that operators must not see.

use annex_protocol::Json;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::host_call::{HostCall, Octets};
use super::step::{RecordedStep, StepInput};
use super::{KnownKey, RecordedTurn};
use crate::caller::VisibleCaller;
use crate::chain::steering::{MadeToolCall, PlannedToolCall};

/// The text that replaces a hidden value.
pub(super) const HIDDEN: &str = "[hidden]";

/// Decides which values are hidden.
pub trait Hide {
    /// True if the value of this key is hidden.
    fn hides(&self, key: &str) -> bool;

    /// Text with secrets replaced.
    fn text(&self, text: &str) -> String;

    /// JSON with the values of hidden keys replaced, including JSON inside strings. Other strings go through
    /// [`Hide::text`].
    fn json(&self, value: &Json) -> Json;
}

impl RecordedTurn {
    /// The turn with hidden values replaced. `None` if the result cannot be serialized.
    #[must_use]
    pub fn hidden(&self, hide: &dyn Hide) -> Option<Self> {
        let steps = self.steps.iter().map(|step| step.hidden(hide)).collect::<Option<_>>()?;
        let keys = self.keys.iter().map(|KnownKey { bucket, key, value }| {
            let value = value.as_ref().map(|value| value_of(key, value, hide));
            KnownKey { bucket: bucket.clone(), key: hide.text(key), value }
        });
        let caller = self.caller.as_ref().map(|caller| caller.hidden(hide));
        Some(Self { caller, keys: keys.collect(), steps, ..self.clone() })
    }
}

impl VisibleCaller {
    fn hidden(&self, hide: &dyn Hide) -> Self {
        let is_hidden = |key: &str| self.hide || hide.hides(key);
        let text = |key: &str, text: &str| if is_hidden(key) { HIDDEN.to_owned() } else { hide.text(text) };
        let claims = self.claims.iter().map(|(key, value)| {
            let value = if is_hidden(key) { Json::string(HIDDEN) } else { hide.json(value) };
            (key.to_owned(), value)
        });
        Self {
            presence: self.presence,
            principal: self.principal.as_deref().map(|principal| text("principal", principal)),
            claims: claims.collect(),
            headers: self.headers.iter().map(|(name, value)| (name.clone(), text(name, value))).collect(),
            hide: self.hide,
        }
    }
}

impl RecordedStep {
    fn hidden(&self, hide: &dyn Hide) -> Option<Self> {
        let json = |value: &Option<Json>| value.as_ref().map(|value| hide.json(value));
        Some(Self {
            input: self.input.hidden(hide)?,
            session: match &self.session {
                Some(session) => Some(decoded(session, hide)?),
                None => None,
            },
            task: json(&self.task),
            agent_steps: json(&self.agent_steps),
            calls: self.calls.iter().map(|call| call.hidden(hide)).collect(),
            result: decoded(&self.result, hide)?,
            times: self.times.clone(),
        })
    }
}

impl StepInput {
    fn hidden(&self, hide: &dyn Hide) -> Option<Self> {
        Some(match self {
            // Message and metadata separately: each may be nested as deeply as a value can be.
            Self::Request { message, metadata } => {
                Self::Request { message: decoded(message, hide)?, metadata: decoded(metadata, hide)? }
            }
            Self::Begin { .. } | Self::Next => self.clone(),
            Self::Change { current, update } => Self::Change { current: *current, update: decoded(update, hide)? },
            Self::Reply { message } => Self::Reply { message: decoded(message, hide)? },
            Self::Model(call) => Self::Model(decoded(call, hide)?),
            // The values separately, because each may be nested as deeply as a value can be.
            Self::Tool(call) => Self::Tool(PlannedToolCall { arguments: hide.json(&call.arguments), ..call.clone() }),
            Self::ToolResult(made) => {
                let (arguments, output) = (hide.json(&made.arguments), hide.json(&made.output));
                Self::ToolResult(MadeToolCall { arguments, output, ..made.clone() })
            }
            Self::Output(event) => Self::Output(decoded(event, hide)?),
            Self::Event(event) => Self::Event(decoded(event, hide)?),
            Self::Read { tasks } => Self::Read { tasks: decoded(tasks, hide)? },
            Self::ExtendedCard(entry) => Self::ExtendedCard(decoded(entry, hide)?),
            Self::Call { params } => Self::Call { params: hide.json(params) },
        })
    }
}

impl HostCall {
    fn hidden(&self, hide: &dyn Hide) -> Self {
        let mut call = self.clone();
        match &mut call {
            Self::Get { key, value: Some(value), .. } | Self::Set { key, value, .. } => {
                *value = value_of(key, value, hide);
                *key = hide.text(key);
            }
            Self::TaskMetadata { key, value, .. } => {
                *value = if hide.hides(key) { HIDDEN.to_owned() } else { text(value, hide) };
            }
            Self::Tasks { request, answer, error } => {
                *request = text(request, hide);
                *answer = answer.as_ref().map(|answer| hide.json(answer));
                *error = error.as_ref().map(|error| hide.text(error));
            }
            Self::Http { request, body, answer } => {
                *request = hide.text(request);
                *body = octets(body, hide);
                if let Some(answer) = answer {
                    answer.body = octets(&answer.body, hide);
                    answer.headers.iter_mut().for_each(|(_, value)| *value = hide.text(value));
                }
            }
            Self::Delete { key, .. } | Self::Increment { key, .. } | Self::Get { key, .. } => *key = hide.text(key),
            Self::Keys { keys, .. } => keys.iter_mut().for_each(|key| *key = hide.text(key)),
            Self::Time { .. } | Self::Monotonic { .. } | Self::Random(_) | Self::Resume { .. } => {}
        }
        call
    }
}

/// The value of an extension's key, with hidden values replaced.
fn value_of(key: &str, value: &Octets, hide: &dyn Hide) -> Octets {
    if hide.hides(key) { Octets::Text(HIDDEN.to_owned()) } else { octets(value, hide) }
}

fn octets(octets: &Octets, hide: &dyn Hide) -> Octets {
    match octets {
        Octets::Text(plain) => Octets::Text(text(plain, hide)),
        // Binary data may contain text.
        Octets::Hex(_) => {
            let bytes = octets.bytes();
            let lossless: String = bytes.iter().copied().map(char::from).collect();
            let hidden = hide.text(&lossless);
            if hidden == lossless {
                return octets.clone();
            }
            let bytes: Vec<u8> = hidden.chars().map(|one| u8::try_from(one).unwrap_or(b'?')).collect();
            Octets::from(bytes.as_slice())
        }
    }
}

/// The text with hidden values replaced. If the text is JSON, they are replaced within the JSON.
fn text(text: &str, hide: &dyn Hide) -> String {
    hide.json(&Json::string(text)).to().unwrap_or_else(|_| HIDDEN.to_owned())
}

/// Converts a value to JSON, applies `hide`, and converts it back. `None` if the JSON no longer has the form of the
/// type.
fn decoded<T: Serialize + DeserializeOwned>(value: &T, hide: &dyn Hide) -> Option<T> {
    hide.json(&Json::from_serialize(value).ok()?).to().ok()
}
