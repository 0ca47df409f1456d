//! Responses before decoding. They are decoded once the type of the result is known, in one pass over the whole text.

use std::sync::Arc;

use annex_protocol::{Json, JsonObject, StreamResponse, portable, v0_3};
use http::StatusCode;
use memchr::memmem;
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::part_repair;
use crate::error::quoted;
use crate::{ClientError, RemoteError};

/// The field names of stream events in 1.0.
const EVENTS: [&str; 6] = ["task", "message", "statusUpdate", "artifactUpdate", "status_update", "artifact_update"];

/// A response, or an event of a stream, before decoding.
pub(crate) enum RawAnswer {
    /// The JSON of a result that the binding has already extracted.
    Result { url: Arc<str>, json: Json },
    /// The whole text, from which no result is extracted yet.
    Text(Text),
}

/// The text of a response or an event.
pub(crate) struct Text {
    /// The URL of the request.
    url: Arc<str>,
    /// The HTTP status of the response.
    status: StatusCode,
    text: String,
    form: Form,
    /// True for an event with a name that A2A does not use. A2A's events are named `message` or have no name.
    is_named: bool,
}

/// The reason of an error with the status 401.
const UNAUTHENTICATED: &str = "UNAUTHENTICATED";

/// The form of a binding's responses.
#[derive(Clone, Copy)]
pub(super) struct Form {
    /// Extracts the result from a text, or fails with the agent's error in the text.
    pub(super) read: fn(&str) -> Result<Json, ReadFailure>,
    /// Where the result is in the text of a successful response.
    pub(super) place: ResultPlace,
}

/// Where the result is in the text of a successful response.
#[derive(Clone, Copy)]
pub(super) enum ResultPlace {
    /// The member `result`, if the object has no `error`.
    Result,
    /// The whole text, if the object has no member `error`.
    Whole,
    /// At a position that only [`Form::read`] can find.
    Unknown,
}

/// The reason why a text has no result.
pub(super) enum ReadFailure {
    /// The text is the agent's error.
    Agent(RemoteError),
    /// The text does not have the binding's form.
    Foreign(Box<dyn std::error::Error + Send + Sync>),
}

/// A JSON-RPC response without an error.
#[derive(Deserialize)]
struct Success<T> {
    result: T,
    error: Option<IgnoredAny>,
}

impl RawAnswer {
    /// Decodes the result.
    ///
    /// # Errors
    /// The agent's error, or a breach of the protocol.
    pub(crate) fn decode<T: DeserializeOwned>(&self) -> Result<T, ClientError> {
        // Nearly all answers are successes and are read in one pass. Any other text is read again, slowly, to find its
        // kind.
        if let Self::Text(text) = self
            && let Some(result) = text.success()
        {
            return Ok(result);
        }
        let json = self.result()?;
        let read = json.to::<T>().or_else(|error| {
            let mended = part_repair::mended(&json, part_repair::of_1_0);
            mended.and_then(|mended| mended.to().ok()).ok_or(error)
        });
        read.map_err(|error| ClientError::protocol(self.url(), json.get(), error))
    }

    /// Decodes an event of a stream; `None` for an event of an unknown kind, which is skipped. Some agents of 1.0 write some
    /// events in the form of 0.3. Other agents send keep-alive events with an event name of their own.
    ///
    /// # Errors
    /// The agent's error, or a breach of the protocol.
    pub(crate) fn decode_event(&self) -> Result<Option<StreamResponse>, ClientError> {
        match self.decode() {
            Err(error @ ClientError::Protocol { .. }) => {
                let odd = |json: Json| {
                    odd_event(&json).or_else(|| odd_event(&part_repair::mended(&json, part_repair::of_1_0)?))
                };
                let odd = self.result().ok().and_then(odd);
                odd.or_else(|| self.is_named().then_some(None)).ok_or(error)
            }
            decoded => decoded.map(Some),
        }
    }

    /// True for a stream event with a name that A2A does not use.
    pub(crate) fn is_named(&self) -> bool {
        matches!(self, Self::Text(Text { is_named: true, .. }))
    }

    /// Extracts the result now, so that an agent's error is reported before the result is decoded.
    ///
    /// # Errors
    /// The agent's error, or a breach of the protocol.
    pub(super) fn taken_apart(self) -> Result<Self, ClientError> {
        let json = self.result()?;
        let url = match self {
            Self::Result { url, .. } | Self::Text(Text { url, .. }) => url,
        };
        Ok(Self::Result { url, json })
    }

    /// Checks that the body of an error status contains an A2A error.
    ///
    /// # Errors
    /// When the body contains no A2A error. The error has the status, and the time after which the request may be sent again.
    /// Also for an A2A error without a reason and with the status 401, which becomes its reason.
    pub(super) fn check_status(&self, status: StatusCode, seconds: Option<u64>) -> Result<(), ClientError> {
        if status.is_success() {
            return Ok(());
        }
        match self.result() {
            Err(ClientError::Status { url, status, body, .. }) => {
                Err(ClientError::Status { url, status, body, retry_after: seconds })
            }
            // JSON-RPC has no name for this error, but HTTP has its status.
            Err(ClientError::Agent(error)) if status == StatusCode::UNAUTHORIZED && error.reason.is_none() => {
                Err(RemoteError { reason: Some(UNAUTHENTICATED.to_owned()), ..*error }.into())
            }
            // The agent's own error is reported when the answer is decoded.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// The error for a result with an unexpected shape.
    pub(crate) fn misshapen(&self, problem: &'static str) -> ClientError {
        match self.result() {
            Ok(json) => ClientError::protocol(self.url(), json.get(), problem),
            Err(error) => error,
        }
    }

    fn url(&self) -> &str {
        match self {
            Self::Result { url, .. } => url,
            Self::Text(text) => &text.url,
        }
    }

    /// Extracts the result as JSON.
    fn result(&self) -> Result<Json, ClientError> {
        match self {
            Self::Result { json, .. } => Ok(json.clone()),
            Self::Text(text) => text.result(),
        }
    }
}

/// Decodes an event that does not have the form of 1.0. `Some(None)` if the event is of an unknown kind. `None` if the
/// event has the form of 1.0, or cannot be read.
fn odd_event(json: &Json) -> Option<Option<StreamResponse>> {
    let object: JsonObject = json.to().ok()?;
    if EVENTS.iter().any(|name| object.contains_key(name)) {
        return None;
    }
    let kind = object.get("kind").and_then(|kind| kind.to::<String>().ok());
    let event = match kind.as_deref() {
        Some("task") => json.to().map(StreamResponse::Task),
        Some("message") => json.to().map(StreamResponse::Message),
        Some("status-update") => json.to().map(StreamResponse::StatusUpdate),
        Some("artifact-update") => json.to().map(StreamResponse::ArtifactUpdate),
        _ => return Some(None),
    };
    // The state in the event may also have its name of 0.3.
    event.or_else(|_| v0_3::answer::event(json)).ok().map(Some)
}

impl Text {
    /// Wraps the text of a response or an event that came from `url`. JSON values that some readers cannot read are
    /// replaced. `is_told` is true if a replacement was logged before. If it is false, this function logs the first
    /// replaced value and sets `is_told` to true.
    pub(super) fn new(url: Arc<str>, status: StatusCode, text: String, form: Form, is_told: &mut bool) -> Self {
        let is_named = false;
        let Some(repaired) = portable::repaired(&text) else { return Self { url, status, text, form, is_named } };
        if !std::mem::replace(is_told, true)
            && let Err(unportable) = portable::check(&text)
        {
            let problem = quoted(&unportable.to_string());
            tracing::warn!(%url, problem, "the agent sent JSON that not every client can read; it was replaced");
        }
        Self { url, status, text: repaired, form, is_named }
    }

    /// Records whether the event has a name other than the default `message`.
    pub(super) fn named(self, name: &str) -> Self {
        Self { is_named: !matches!(name, "" | "message"), ..self }
    }

    /// The result of a success; `None` for any other text.
    fn success<T: DeserializeOwned>(&self) -> Option<T> {
        if !self.status.is_success() {
            return None;
        }
        match self.form.place {
            ResultPlace::Result => {
                let Success { result, error } = serde_json::from_str(&self.text).ok()?;
                if error.is_none() { Some(result) } else { None }
            }
            // Only a text without `"error"` is surely a result. In any other text, `"error"` may be a member of this
            // object, a member of an inner object, or a string, so the text is examined more closely.
            ResultPlace::Whole if memmem::find(self.text.as_bytes(), br#""error""#).is_none() => {
                serde_json::from_str(&self.text).ok()
            }
            ResultPlace::Whole | ResultPlace::Unknown => None,
        }
    }

    fn result(&self) -> Result<Json, ClientError> {
        let Self { url, status, text, form, .. } = self;
        match (form.read)(text) {
            // The agent's own error is more precise than its HTTP status.
            Err(ReadFailure::Agent(error)) => Err(error.into()),
            _ if !status.is_success() => Err(ClientError::Status {
                url: url.to_string(),
                status: *status,
                body: quoted(text),
                retry_after: None,
            }),
            Ok(json) => Ok(json),
            Err(ReadFailure::Foreign(source)) => Err(ClientError::protocol(url, text, source)),
        }
    }
}

#[cfg(test)]
mod tests {
    use annex_protocol::{StreamResponse, TaskState};
    use http::StatusCode;

    use super::{RawAnswer, Text};
    use crate::ClientError;
    use crate::transport::{http_json, json_rpc};

    const MESSAGE: &str = r#"{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"hi"}]}}"#;

    fn decoded(text: &str, form: super::Form) -> Result<StreamResponse, ClientError> {
        let (url, text) = ("http://a.example".into(), text.to_owned());
        let text = Text { url, status: StatusCode::OK, text, form, is_named: false };
        RawAnswer::Text(text).decode()
    }

    #[test]
    fn an_error_beside_a_result_counts_whichever_comes_first() {
        let error = r#""error":{"code":-32001,"message":"no such task"}"#;
        for text in [format!("{{{error},\"result\":{MESSAGE}}}"), format!("{{\"result\":{MESSAGE},{error}}}")] {
            let code = decoded(&text, json_rpc::FORM).unwrap_err().agent().and_then(|error| error.code);
            assert_eq!(code, Some(-32001), "{text}");
        }
        assert!(decoded(&format!(r#"{{"result":{MESSAGE},"error":null}}"#), json_rpc::FORM).is_ok());
    }

    #[test]
    fn a_text_about_an_error_is_no_error() {
        let text =
            MESSAGE.replace("hi", r#"what is \"error\"?"#).replace(r#""messageId""#, r#""x":{"error":1},"messageId""#);
        assert!(decoded(&text, http_json::FORM).is_ok());
        let failed = decoded(r#"{"error":{"message":"no"},"task":{"id":"t"}}"#, http_json::FORM).unwrap_err();
        assert!(failed.agent().is_some(), "{failed}");
    }

    fn event(text: &str) -> Result<Option<StreamResponse>, ClientError> {
        named("", &format!(r#"{{"result":{text}}}"#))
    }

    fn named(name: &str, text: &str) -> Result<Option<StreamResponse>, ClientError> {
        let (url, text) = ("http://a.example".into(), text.to_owned());
        let text = Text { url, status: StatusCode::OK, text, form: json_rpc::FORM, is_named: false };
        RawAnswer::Text(text.named(name)).decode_event()
    }

    #[test]
    fn an_event_with_a_name_of_its_own_is_none_unless_it_is_one_of_a2a() {
        for text in ["{}", "2026-01-01", "null", r#"{"result":7}"#] {
            assert_eq!(named("ping", text).unwrap(), None, "{text}");
            for name in ["", "message"] {
                assert!(matches!(named(name, text), Err(ClientError::Protocol { .. })), "{text}");
            }
        }
        assert!(named("update", &format!(r#"{{"result":{MESSAGE}}}"#)).unwrap().is_some());
        let failed = named("error", r#"{"error":{"code":-32001,"message":"no such task"}}"#).unwrap_err();
        assert!(failed.agent().is_some(), "{failed}");
    }

    #[test]
    fn an_event_that_says_by_its_kind_what_it_is_is_read_whichever_names_its_states_have() {
        for state in ["TASK_STATE_WORKING", "working"] {
            let text =
                format!(r#"{{"kind":"status-update","taskId":"t","contextId":"c","status":{{"state":"{state}"}}}}"#);
            let Some(StreamResponse::StatusUpdate(update)) = event(&text).unwrap() else { panic!("{text}") };
            assert_eq!((update.status.state, update.task_id.as_str()), (TaskState::Working, "t"));
        }
        let message = r#"{"kind":"message","messageId":"m","role":"ROLE_AGENT","parts":[{"kind":"text","text":"hi"}]}"#;
        assert!(matches!(event(message).unwrap(), Some(StreamResponse::Message(message)) if message.text() == "hi"));
    }

    #[test]
    fn an_event_of_an_unknown_kind_is_none_and_one_that_cannot_be_read_is_an_error() {
        for text in ["{}", r#"{"somethingNew":{}}"#, r#"{"kind":"progress"}"#] {
            assert_eq!(event(text).unwrap(), None, "{text}");
        }
        for text in ["null", "[]", "7", r#"{"task":{"status":{"state":"DREAMING"}}}"#, r#"{"kind":"task","id":7}"#] {
            assert!(matches!(event(text), Err(ClientError::Protocol { .. })), "{text}");
        }
    }

    #[test]
    fn an_error_without_a_reason_has_that_of_the_status_401() {
        let checked = |status| {
            let (url, text) = ("http://a.example".into(), r#"{"error":{"code":-32000,"message":"no"}}"#.to_owned());
            let text = Text { url, status, text, form: json_rpc::FORM, is_named: false };
            RawAnswer::Text(text).check_status(status, None)
        };
        let refused = checked(StatusCode::UNAUTHORIZED).unwrap_err();
        assert_eq!(refused.agent().and_then(|error| error.reason.as_deref()), Some("UNAUTHENTICATED"), "{refused}");
        assert!(checked(StatusCode::FORBIDDEN).is_ok());
    }

    #[test]
    fn what_is_no_result_is_quoted() {
        let ClientError::Protocol { body, .. } = decoded(r#"{"result":{"what":1}}"#, json_rpc::FORM).unwrap_err()
        else {
            panic!("another error");
        };
        assert_eq!(body, r#"{"what":1}"#);
    }
}
