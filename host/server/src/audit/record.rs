//! The content of a line of the audit file.

use annex_text::line_within;
use serde::Serialize;
use serde_json::Value;

use super::chain::NEW_CHAIN;

/// The maximum size of a text in a line, in bytes. Texts of clients are cut to this size.
const MAX_TEXT_BYTES: usize = 2 << 10;
/// The maximum size of the grants in a line, in bytes of JSON.
const MAX_GRANTS_BYTES: usize = 64 << 10;

/// A line: its number, its time, the record and the digest of the line before it.
#[derive(Serialize)]
pub(super) struct Line<'a> {
    pub(super) number: u64,
    pub(super) time: String,
    #[serde(flatten)]
    pub(super) record: &'a Record,
    pub(super) prev: Option<&'a str>,
}

/// A change, the refusal of a change, or the receipt of a turn.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Record {
    /// The name of the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<String>,
    /// The address of the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<String>,
    /// The method and the path of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request: Option<String>,
    pub(crate) action: &'static str,
    pub(crate) outcome: Outcome,
    /// The number of the line that says that this change has begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) begun: Option<u64>,
    #[serde(flatten)]
    pub(crate) subject: Subject,
    #[serde(flatten)]
    pub(crate) effect: Effect,
    /// The HTTP status of a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) status: Option<u16>,
    /// The reason of a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// The number of refused changes that the line stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) times: Option<usize>,
    /// The receipt of a turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) receipt: Option<ReceiptCopy>,
}

/// A copy of a receipt.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ReceiptCopy {
    /// The number in the conversation.
    pub(crate) number: u64,
    /// The SHA-256 digest of the JWS, as 64 hexadecimal digits.
    pub(crate) sha256: String,
    /// The JWS. `None` if it is too long for a line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) jws: Option<String>,
}

/// The progress of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// The change begins after this line is on the disk.
    Begun,
    Done,
    /// The change was refused or has failed.
    Refused,
}

/// The subject of a change: the things that the request names.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Subject {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    /// The URI of the extension, or the name under which a new extension is installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) extension: Option<String>,
    /// The digest of a component that the request brings or names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) component: Option<String>,
    /// The reference of a component that the request names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reference: Option<String>,
    /// The digest of a text that the request brings: the settings of an extension, or the text of a tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) text: Option<String>,
    /// The A2A context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) context: Option<String>,
    /// The id of a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) task: Option<String>,
    /// The user whose sessions or keys are concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    /// The number of keys of state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) keys: Option<usize>,
}

/// The effect of a change.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Effect {
    /// A sentence about the change, as the log has it.
    #[serde(rename = "effect", skip_serializing_if = "String::is_empty")]
    pub(crate) text: String,
    /// The digest of the component that the change concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) digest: Option<String>,
    /// The number of the version that the change concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<u64>,
    /// The grants of that version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) grants: Option<Value>,
}

impl From<String> for Effect {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

impl Record {
    pub(crate) fn new(action: &'static str, outcome: Outcome) -> Self {
        Self {
            by: None,
            from: None,
            request: None,
            action,
            outcome,
            begun: None,
            subject: Subject::default(),
            effect: Effect::default(),
            status: None,
            reason: None,
            times: None,
            receipt: None,
        }
    }

    /// The record of a process that has started.
    pub(super) fn started() -> Self {
        Self::new("start", Outcome::Done).with_effect(format!("annex {} has started", env!("CARGO_PKG_VERSION")))
    }

    /// The record that begins a new chain, with the reason why the old chain does not continue.
    pub(super) fn new_chain(reason: &str) -> Self {
        Self { reason: Some(reason.to_owned()), ..Self::new(NEW_CHAIN, Outcome::Done) }
    }

    pub(crate) fn with_effect(self, effect: impl Into<Effect>) -> Self {
        Self { effect: effect.into().within_bounds(), ..self }
    }

    pub(crate) fn with_reason(self, reason: &str) -> Self {
        Self { reason: Some(bounded(reason)), ..self }
    }

    /// Cuts the texts of clients.
    pub(crate) fn about(self, subject: &Subject) -> Self {
        let bounded = |text: &Option<String>| text.as_deref().map(bounded);
        let Subject { tenant, extension, component, reference, text, context, task, user, keys } = subject;
        let subject = Subject {
            tenant: bounded(tenant),
            extension: bounded(extension),
            component: bounded(component),
            reference: bounded(reference),
            text: bounded(text),
            context: bounded(context),
            task: bounded(task),
            user: bounded(user),
            keys: *keys,
        };
        Self { subject, ..self }
    }
}

impl Effect {
    fn within_bounds(mut self) -> Self {
        self.text = bounded(&self.text);
        let is_small = |grants: &Value| grants.to_string().len() <= MAX_GRANTS_BYTES;
        if !self.grants.as_ref().is_none_or(is_small) {
            self.grants = Some(Value::String("too long for this file".to_owned()));
        }
        self
    }
}

/// The text in one line of at most [`MAX_TEXT_BYTES`].
pub(crate) fn bounded(text: &str) -> String {
    line_within(text, MAX_TEXT_BYTES)
}
