//! The details of an error, for programs to read: `google.rpc` messages as ProtoJSON. All bindings send the same list.

use indexmap::IndexMap;
use serde::Serialize;

use crate::error::{MAX_TEXT_BYTES, comma_separated};
use crate::{A2aError, FieldViolation, Json, JsonObject};

const DOMAIN: &str = "a2a-protocol.org";

#[derive(Serialize)]
#[serde(tag = "@type")]
enum Detail<'a> {
    #[serde(rename = "type.googleapis.com/google.rpc.ErrorInfo")]
    ErrorInfo {
        reason: &'static str,
        domain: &'static str,
        #[serde(skip_serializing_if = "IndexMap::is_empty")]
        metadata: IndexMap<&'static str, String>,
    },
    #[serde(rename = "type.googleapis.com/google.rpc.BadRequest", rename_all = "camelCase")]
    BadRequest { field_violations: Vec<FieldViolation> },
    #[serde(rename = "type.googleapis.com/google.rpc.RetryInfo", rename_all = "camelCase")]
    RetryInfo { retry_delay: String },
    #[serde(rename = "type.googleapis.com/google.protobuf.Value")]
    Value { value: &'a Json },
}

impl A2aError {
    /// The list of details, each an object with `@type`. The first one is an `ErrorInfo`. The others depend on the kind
    /// of error. JSON-RPC sends the list as `data`, the other bindings as `details`.
    pub fn details(&self) -> Vec<Json> {
        // The ErrorInfo is the first entry: gRPC drops details from the end when a status does not fit into its
        // headers.
        let metadata = self.info_metadata().into_iter().map(|(key, text)| (key, cut(text))).collect();
        let info = Detail::ErrorInfo { reason: self.reason(), domain: DOMAIN, metadata };
        let own = match self {
            Self::InvalidParams { violations } => {
                let field_violations = violations.iter().cloned().map(short).collect();
                Json::from_serialize(&Detail::BadRequest { field_violations }).ok()
            }
            Self::QuotaExceeded { retry_seconds, .. }
            | Self::Unavailable { retry_seconds: Some(retry_seconds), .. } => {
                // ProtoJSON of a duration.
                Json::from_serialize(&Detail::RetryInfo { retry_delay: format!("{retry_seconds}s") }).ok()
            }
            Self::Extension { data: Some(data), .. } => typed(data),
            _ => None,
        };
        // An entry that cannot be encoded is dropped, because the error itself matters more. An example is an
        // extension's data at the deepest allowed level, because the wrapper adds a level.
        Json::from_serialize(&info).ok().into_iter().chain(own).collect()
    }

    fn info_metadata(&self) -> IndexMap<&'static str, String> {
        // `google.rpc` declares the metadata as a map of strings, so lists are joined and numbers are written as text.
        let entry = |key, value: &dyn ToString| IndexMap::from([(key, value.to_string())]);
        match self {
            Self::TaskNotFound { task_id } => entry("taskId", task_id),
            Self::PushConfigNotFound { task_id, config_id } => {
                IndexMap::from([("taskId", task_id.to_string()), ("pushNotificationConfigId", config_id.clone())])
            }
            Self::TaskNotCancelable { task_id, state } => {
                IndexMap::from([("taskId", task_id.to_string()), ("state", state.to_string())])
            }
            Self::ContentTypeNotSupported { content_type } | Self::BodyTypeNotSupported { content_type } => {
                entry("contentType", content_type)
            }
            Self::ExtensionSupportRequired { missing, .. } => entry("extensions", &comma_separated(missing)),
            Self::VersionNotSupported { requested, supported } => {
                IndexMap::from([("requestedVersion", requested.clone()), ("supportedVersions", supported.join(","))])
            }
            Self::PathOfOtherVersion { of, requested, .. } => {
                IndexMap::from([("requestedVersion", requested.clone()), ("supportedVersions", (*of).to_owned())])
            }
            Self::MethodNotFound { method } => entry("method", method),
            Self::Internal { error_id } => entry("errorId", error_id),
            Self::QuotaExceeded { quota, used, limit, .. } => IndexMap::from([
                ("quota", (*quota).to_owned()),
                ("used", used.to_string()),
                ("limit", limit.to_string()),
            ]),
            // Only JSON-RPC has a place for the code; the other bindings find it here.
            Self::Extension { uri, code, .. } => {
                IndexMap::from([("extension", uri.to_string()), ("code", code.to_string())])
            }
            Self::PushNotificationNotSupported
            | Self::UnsupportedOperation { .. }
            | Self::InvalidAgentResponse { .. }
            | Self::ExtendedAgentCardNotConfigured
            | Self::Parse { .. }
            | Self::InvalidRequest { .. }
            | Self::InvalidParams { .. }
            | Self::Overloaded { .. }
            | Self::Unavailable { .. }
            | Self::Unauthenticated { .. } => IndexMap::new(),
        }
    }
}

fn cut(text: String) -> String {
    annex_text::cut(text, MAX_TEXT_BYTES)
}

fn short(violation: FieldViolation) -> FieldViolation {
    FieldViolation { field: cut(violation.field), description: cut(violation.description) }
}

/// Makes a detail from the data of an extension's error. Data with `@type` is used unchanged. Other data is wrapped in
/// a `google.protobuf.Value`.
fn typed(data: &Json) -> Option<Json> {
    let has_type = data.to::<JsonObject>().is_ok_and(|object| object.contains_key("@type"));
    if has_type { Some(data.clone()) } else { Json::from_serialize(&Detail::Value { value: data }).ok() }
}
