//! The HTTP+JSON binding: bodies, query parameters and errors (specification section 11).

use serde::de::IgnoredAny;

use crate::portable::{self, Flaw};
use crate::{A2aError, Json, JsonObject};

/// The media type of the binding. The server also accepts `application/json`.
pub const MEDIA_TYPE: &str = "application/a2a+json";

/// The query parameters whose value is a boolean.
const FLAGS: [&str; 1] = ["includeArtifacts"];

/// Reads a body. An empty body and `null` count as an empty object.
///
/// # Errors
/// [`A2aError::Parse`] when the bytes are not one JSON value in UTF-8, or nest too deeply. [`A2aError::InvalidParams`]
/// when the JSON is valid but not every reader could read it.
pub fn body(bytes: &[u8]) -> Result<Json, A2aError> {
    let parse_error = |reason: String| A2aError::Parse { reason };
    let text = std::str::from_utf8(bytes).map_err(|error| parse_error(error.to_string()))?;
    // CancelTask and SubscribeToTask have all their data in the path, so clients may send no body.
    let text = if matches!(text.trim(), "" | "null") { "{}" } else { text };
    Json::parse(text.to_owned()).map_err(|error| {
        // Only a body that is refused pays for finding out whether it is JSON at all.
        let is_json = serde_json::from_str::<IgnoredAny>(text).is_ok();
        match portable::check(text) {
            Err(unportable) if is_json && unportable.flaw != Flaw::TooDeep => unportable.into(),
            _ => parse_error(error.to_string()),
        }
    })
}

/// Converts query parameters to an object (section 11.5). The value of `includeArtifacts` becomes a boolean. All other values
/// become strings, which ProtoJSON accepts for numbers, enums and timestamps. If a name occurs twice, the last value counts.
///
/// ```
/// use annex_protocol::http_json;
///
/// let query = http_json::query([("contextId", "true"), ("includeArtifacts", "true")]);
/// assert_eq!(query.to_json_string(), r#"{"contextId":"true","includeArtifacts":true}"#);
/// ```
pub fn query<'a>(parameters: impl IntoIterator<Item = (&'a str, &'a str)>) -> JsonObject {
    // A query has no types, so that only the name tells a flag from an id which happens to be `true`.
    let value = |name: &str, text: &str| match text {
        "true" | "false" if FLAGS.contains(&name) => {
            Json::from_serialize(&(text == "true")).unwrap_or_else(|_| Json::string(text))
        }
        _ => Json::string(text),
    };
    parameters.into_iter().map(|(name, text)| (name.to_owned(), value(name, text))).collect()
}

/// The body of an error response: the HTTP status, the gRPC status by name, the message, the details (section 11.6).
///
/// ```
/// use annex_protocol::{A2aError, http_json};
///
/// let body = http_json::failure(&A2aError::PushNotificationNotSupported);
/// assert!(body.starts_with(r#"{"error":{"code":400,"status":"FAILED_PRECONDITION","message":"#));
/// ```
pub fn failure(error: &A2aError) -> String {
    let code = error.http_status();
    let status = error.grpc_status().name();
    let message = Json::string(&error.message());
    let details = error.details();
    let details = details.iter().map(Json::get).collect::<Vec<_>>().join(",");
    let message = message.get();
    // The details are JSON text already and go in as they are, so that the data of extensions survives byte for byte.
    format!(r#"{{"error":{{"code":{code},"status":"{status}","message":{message},"details":[{details}]}}}}"#)
}
