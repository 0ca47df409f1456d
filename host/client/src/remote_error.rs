//! Errors that agents return, in the form of each binding (specification sections 9.5, 10.6 and 11.6).

use std::fmt;

use annex_protocol::{A2aError, Json};
use serde::Deserialize;

/// An agent's error.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteError {
    /// The JSON-RPC code. HTTP+JSON and gRPC do not carry the code, so it is derived from a known `reason`.
    pub code: Option<i64>,
    /// `google.rpc.ErrorInfo.reason`, such as `TASK_NOT_FOUND`. Without an ErrorInfo, the status name of a gRPC or
    /// HTTP+JSON error, or `UNAUTHENTICATED` for the HTTP status 401.
    pub reason: Option<String>,
    /// The agent's message.
    pub message: String,
    /// `google.rpc` messages as ProtoJSON, each an object with `@type`. Empty if the agent's details are not a list.
    pub details: Vec<Json>,
}

/// A fault in one field of the request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Violation {
    /// The path of the field; empty for the request as a whole.
    #[serde(default)]
    pub field: String,
    /// The fault, without the name of the field.
    #[serde(default)]
    pub description: String,
}

/// The members of an error detail that this client reads.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Detail {
    reason: Option<String>,
    metadata: Option<Json>,
    field_violations: Vec<Violation>,
    retry_delay: Option<String>,
}

/// The members of an ErrorInfo's metadata that this client reads.
#[derive(Deserialize)]
struct InfoMetadata {
    code: String,
}

/// The member `error` of a JSON-RPC response.
#[derive(Deserialize)]
pub(crate) struct RpcError {
    code: i64,
    #[serde(default)]
    message: String,
    data: Option<Json>,
}

/// The member `error` of an HTTP+JSON response.
#[derive(Deserialize)]
pub(crate) struct HttpError {
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    message: String,
    details: Option<Json>,
}

impl RemoteError {
    /// The field violations in the details.
    pub fn violations(&self) -> Vec<Violation> {
        self.read_details().flat_map(|detail| detail.field_violations).collect()
    }

    /// Seconds after which the request may be sent again, if the details contain them.
    pub fn retry_after(&self) -> Option<u64> {
        self.read_details().find_map(|detail| seconds(&detail.retry_delay?))
    }

    /// Creates an error that came over a binding without JSON-RPC codes. `status` becomes the reason if the details have none.
    pub(crate) fn without_code(status: Option<String>, message: String, details: Vec<Json>) -> Self {
        let mut error = Self { code: None, reason: None, message, details };
        let info = error.read_details().find(|detail| detail.reason.is_some()).unwrap_or_default();
        // The table of A2A does not have the errors of extensions, so the metadata carries their codes.
        let own_code = info.metadata.and_then(|metadata| metadata.to::<InfoMetadata>().ok());
        let own_code = own_code.and_then(|metadata| metadata.code.parse().ok());
        let known_code = info.reason.as_deref().and_then(A2aError::code_of_reason).map(i64::from);
        // The table goes first: metadata cannot give a known reason another code.
        (error.code, error.reason) = (known_code.or(own_code), info.reason.or(status));
        error
    }

    fn read_details(&self) -> impl Iterator<Item = Detail> {
        // A detail of another shape is passed over, because it must not hide the error itself.
        self.details.iter().filter_map(|detail| detail.to::<Detail>().ok())
    }
}

/// The seconds of a ProtoJSON duration such as `1.5s`, rounded up.
fn seconds(duration: &str) -> Option<u64> {
    let number = duration.strip_suffix('s')?;
    match number.split_once('.') {
        Some((whole, _)) => whole.parse::<u64>().ok()?.checked_add(1),
        None => number.parse().ok(),
    }
}

fn list(details: Option<Json>) -> Vec<Json> {
    details.and_then(|details| details.to().ok()).unwrap_or_default()
}

impl From<RpcError> for RemoteError {
    fn from(error: RpcError) -> Self {
        let mut read = Self::without_code(None, error.message, list(error.data));
        // JSON-RPC carries the code itself, which takes precedence over the reason.
        read.code = Some(error.code);
        read
    }
}

impl From<HttpError> for RemoteError {
    fn from(error: HttpError) -> Self {
        Self::without_code(error.status, error.message, list(error.details))
    }
}

/// Writes the code or the reason, the message, the time to wait, and each violation that the message does not
/// contain.
impl fmt::Display for RemoteError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, &self.reason) {
            (Some(code), _) => write!(formatter, "the agent answered with error {code}: {}", self.message)?,
            (None, Some(reason)) => write!(formatter, "the agent answered with error {reason}: {}", self.message)?,
            (None, None) => write!(formatter, "the agent answered with an error: {}", self.message)?,
        }
        if let Some(seconds) = self.retry_after().filter(|_| !self.message.contains("try again in")) {
            write!(formatter, "; try again in {seconds} s")?;
        }
        for Violation { field, description } in self.violations() {
            if !self.message.contains(&description) {
                let field = if field.is_empty() { "the request" } else { &field };
                write!(formatter, "\n  {field}: {description}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for RemoteError {}

#[cfg(test)]
mod tests {
    use super::{HttpError, RemoteError, RpcError};

    fn rpc(text: &str) -> RemoteError {
        serde_json::from_str::<RpcError>(text).unwrap().into()
    }

    fn http(text: &str) -> RemoteError {
        serde_json::from_str::<HttpError>(text).unwrap().into()
    }

    #[test]
    fn an_error_names_the_time_to_wait_once() {
        let cases = [("busy", "7s", "busy; try again in 7 s"), ("busy", "0.2s", "busy; try again in 1 s")];
        let told = [("full; try again in 7 s", "7s", "full; try again in 7 s"), ("busy", "soon", "busy")];
        for (message, delay, expected) in cases.into_iter().chain(told) {
            let detail = format!(r#"{{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"{delay}"}}"#);
            let error = rpc(&format!(r#"{{"code":-32000,"message":"{message}","data":[{detail}]}}"#));
            assert_eq!(error.to_string(), format!("the agent answered with error -32000: {expected}"));
        }
    }

    #[test]
    fn an_error_names_its_code_its_message_and_each_violation_once() {
        let error = rpc(r#"{"code":-32602,"message":"invalid: is required","data":[
            {"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"INVALID_PARAMS"},
            {"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[
                {"field":"message.role","description":"is required"},
                {"field":"message.parts","description":"must have an element"},
                {"description":"too much"}]}]}"#);
        assert_eq!((error.code, error.reason.as_deref()), (Some(-32602), Some("INVALID_PARAMS")));
        assert_eq!(
            error.to_string(),
            "the agent answered with error -32602: invalid: is required\n  message.parts: must have an element\n  \
             the request: too much"
        );
    }

    #[test]
    fn details_of_another_shape_do_not_hide_the_error() {
        for data in ["null", "7", r#"{"x":1}"#, "[null,3,{\"fieldViolations\":\"?\"}]"] {
            let error = rpc(&format!(r#"{{"code":-32603,"message":"m","data":{data}}}"#));
            assert_eq!(error.to_string(), "the agent answered with error -32603: m");
        }
    }

    #[test]
    fn the_reason_tells_the_code_where_the_binding_has_none() {
        let info = |reason: &str, metadata: &str| {
            http(&format!(
                r#"{{"code":404,"status":"NOT_FOUND","message":"m","details":[{{"reason":"{reason}"{metadata}}}]}}"#
            ))
        };
        assert_eq!(info("TASK_NOT_FOUND", "").code, Some(-32001));
        assert_eq!(info("EXTENSION_ERROR", r#","metadata":{"code":"-32200"}"#).code, Some(-32200));
        let own = info("OWN", "");
        assert_eq!((own.code, own.to_string().as_str()), (None, "the agent answered with error OWN: m"));
        let bare = http(r#"{"status":"INTERNAL","message":"m"}"#);
        assert_eq!(bare.to_string(), "the agent answered with error INTERNAL: m");
    }
}
