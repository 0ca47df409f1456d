//! The JSON-RPC 2.0 envelope: reads a request from bytes, and writes a result or an error as a response.

use std::borrow::Cow;
use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::error::Category;
use serde_json::value::RawValue;

use crate::portable::{self, Flaw};
use crate::{A2aError, Json, Method, v0_3};

/// Tells whether a method name belongs to A2A 1.0, A2A 0.3 or JSON-RPC, regardless of upper and lower case.
///
/// ```
/// use annex_protocol::jsonrpc::is_reserved;
///
/// assert!(is_reserved("sendmessage") && is_reserved("tasks/get") && is_reserved("rpc.discover"));
/// assert!(!is_reserved("tasks/search"));
/// ```
pub fn is_reserved(method: &str) -> bool {
    let of_1_0 = Method::ALL.into_iter().map(Method::name);
    let of_0_3 = v0_3::Method::ALL.iter().map(|method| method.name());
    // JSON-RPC 2.0 keeps the names that begin with `rpc.` for itself.
    let is_of_json_rpc = method.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("rpc."));
    is_of_json_rpc || of_1_0.chain(of_0_3).any(|name| name.eq_ignore_ascii_case(method))
}

/// The id of a request. It is echoed with its JSON type, which clients compare.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RequestId {
    /// `null`. It also stands for an id that could not be read.
    Null,
    /// A number as the client wrote it.
    Number(String),
    /// A JSON string, decoded.
    String(String),
}

/// A request with a valid envelope. The method's existence and parameters are not checked yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Request<'a> {
    /// The id, which the response repeats.
    pub id: RequestId,
    /// The name of the method.
    pub method: Cow<'a, str>,
    /// The text of the parameters in the body; `{}` if the request has none.
    pub params: &'a str,
}

impl Request<'_> {
    /// The parameters as an owned value.
    ///
    /// # Errors
    /// No known request causes an error, because [`decode`] has checked the parameters.
    pub fn params_json(&self) -> Result<Json, A2aError> {
        Json::parse(self.params.to_owned()).map_err(|error| invalid_request(&format!("params: {error}")))
    }
}

/// The error for bytes that are not a request, with the id for the response.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejection {
    /// The id of the request, as far as it could be read.
    pub id: RequestId,
    /// The error for the client.
    pub error: A2aError,
}

/// The maximum length of a request id, in bytes. Every event of a stream repeats the id.
const MAX_ID_BYTES: usize = 256;

/// Reads one request.
///
/// ```
/// use annex_protocol::jsonrpc::{self, RequestId};
///
/// let request = jsonrpc::decode(br#"{"method":"GetTask","params":{"id":"t-1"},"id":7,"jsonrpc":"2.0"}"#).unwrap();
/// assert_eq!(request.method, "GetTask");
/// assert_eq!(jsonrpc::success_raw(&request.id, "{}"), r#"{"jsonrpc":"2.0","id":7,"result":{}}"#);
/// ```
///
/// # Errors
/// [`A2aError::Parse`] when the bytes are not JSON. [`A2aError::InvalidRequest`] when they are not a single JSON-RPC
/// 2.0 request with an id. [`A2aError::InvalidParams`] when not every reader could read the parameters.
pub fn decode(bytes: &[u8]) -> Result<Request<'_>, Box<Rejection>> {
    let envelope = read_envelope(bytes).map_err(|error| reject(RequestId::Null, error))?;
    // The id is read first, so that the errors after it go out under it.
    let id = envelope.request_id().map_err(|error| reject(RequestId::Null, error))?;
    let method = envelope.method().map_err(|error| reject(id.clone(), error))?;
    let params = envelope.into_params().map_err(|error| reject(id.clone(), error))?;
    Ok(Request { id, method, params })
}

fn reject(id: RequestId, error: A2aError) -> Box<Rejection> {
    Box::new(Rejection { id, error })
}

fn invalid_request(reason: &str) -> A2aError {
    A2aError::InvalidRequest { reason: reason.to_owned() }
}

// Members are taken as raw text: one of a wrong type is then an error under the id of its request, where a typed member
// would fail the whole envelope before the id is known.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

/// A name, borrowed from the request unless it has escapes.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// Reads a field that is present, even if its value is `null`. Without this function, `"id": null` would be read as a missing
/// id.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

fn read_envelope(bytes: &[u8]) -> Result<Envelope<'_>, A2aError> {
    let parse_error = |reason: String| A2aError::Parse { reason };
    let text = std::str::from_utf8(bytes).map_err(|error| parse_error(error.to_string()))?;
    // Anything but an object is refused here: serde would read a struct from an array too, and a batch is an array.
    match text.trim_start().chars().next() {
        Some('{') => serde_json::from_str(text).map_err(|error| match error.classify() {
            // Valid JSON of another shape is an invalid request (-32600), not a parse error (-32700).
            Category::Data => A2aError::InvalidRequest { reason: error.to_string() },
            Category::Io | Category::Syntax | Category::Eof => parse_error(error.to_string()),
        }),
        other => {
            // Text that is not JSON at all is a parse error, also when it begins like a batch.
            serde_json::from_str::<&RawValue>(text).map_err(|error| parse_error(error.to_string()))?;
            let is_batch = other == Some('[');
            let reason = if is_batch { "batches are not supported, send one request" } else { "not a JSON object" };
            Err(invalid_request(reason))
        }
    }
}

impl<'a> Envelope<'a> {
    fn request_id(&self) -> Result<RequestId, A2aError> {
        // Each operation of A2A has an answer, and a notification (JSON-RPC 2.0, section 4.1) gets none.
        let id = self.id.ok_or_else(|| invalid_request("`id` is missing; notifications are not supported"))?.get();
        if id.len() > MAX_ID_BYTES {
            return Err(invalid_request(&format!("`id` is longer than {MAX_ID_BYTES} bytes")));
        }
        let wrong_type = || invalid_request("`id` must be a string, a number or null");
        // The text is valid JSON, so its first byte tells its type.
        match id.as_bytes().first() {
            Some(b'n') => Ok(RequestId::Null),
            // The digits are echoed as they came: official clients refuse an answer whose id differs, and a large
            // integer is another one as a double.
            Some(b'-' | b'0'..=b'9') if portable::check(id).is_ok() => Ok(RequestId::Number(id.to_owned())),
            // Many clients could not read an answer with such an id.
            Some(b'-' | b'0'..=b'9') => Err(invalid_request("`id` is a number beyond the range of a double")),
            Some(b'"') => serde_json::from_str(id).map(RequestId::String).map_err(|_| wrong_type()),
            _ => Err(wrong_type()),
        }
    }

    fn method(&self) -> Result<Cow<'a, str>, A2aError> {
        if self.jsonrpc.is_none_or(|version| version.get() != r#""2.0""#) {
            return Err(invalid_request(r#"`jsonrpc` must be "2.0""#));
        }
        let method = self.method.ok_or_else(|| invalid_request("`method` is missing"))?;
        let Name(name) =
            serde_json::from_str(method.get()).map_err(|_| invalid_request("`method` must be a string"))?;
        Ok(name)
    }

    fn into_params(self) -> Result<&'a str, A2aError> {
        // Parameters that are missing or `null` are `{}`: GetExtendedAgentCard comes without any.
        let params = self.params.map_or("{}", RawValue::get);
        // The text is valid JSON already.
        portable::check(params).map_err(|unportable| match unportable.flaw {
            Flaw::TooDeep => invalid_request(&format!("params: {unportable}")),
            Flaw::HalfSurrogate | Flaw::HugeNumber | Flaw::RepeatedKey => unportable.into(),
        })?;
        Ok(params)
    }
}

/// Reads the parameters of a method, which [`portable::check`] has accepted.
///
/// # Errors
/// [`A2aError::InvalidParams`] that names the field whose value does not fit.
pub fn params<T: DeserializeOwned>(params: &str) -> Result<T, A2aError> {
    // Only a request that fails pays for finding out where: it is read once more, with the path.
    portable::checked(|| serde_json::from_str(params)).or_else(|_| {
        let mut deserializer = serde_json::Deserializer::from_str(params);
        serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
            let path = error.path().to_string();
            let field = if path == "." { String::new() } else { path };
            // The position counts from the start of the params, not of the body, and the path says it better.
            let text = error.inner().to_string();
            let description = text.rsplit_once(" at line ").map_or(text.as_str(), |(description, _)| description);
            A2aError::invalid_field(field, description)
        })
    })
}

/// The response with `result`.
///
/// # Errors
/// When the `Serialize` implementation of `result` fails.
pub fn success<T: Serialize + ?Sized>(id: &RequestId, result: &T) -> Result<String, serde_json::Error> {
    Ok(success_raw(id, &serde_json::to_string(result)?))
}

/// The response with a result that is JSON text already.
pub fn success_raw(id: &RequestId, result: &str) -> String {
    success_in_pieces(id, &[result])
}

/// The response with a result, as [`success_raw`] makes it. The JSON of the result comes in several pieces, each of
/// which is copied once.
pub fn success_in_pieces(id: &RequestId, result: &[&str]) -> String {
    let id = match id {
        RequestId::Number(text) => Cow::Borrowed(text.as_str()),
        RequestId::Null | RequestId::String(_) => Cow::Owned(id.to_string()),
    };
    let head = [r#"{"jsonrpc":"2.0","id":"#, &id, r#","result":"#];
    let pieces = || head.iter().chain(result).copied().chain(["}"]);
    // The exact capacity, because a larger one would cause another copy when the text becomes a body.
    let mut response = String::with_capacity(pieces().map(str::len).sum());
    response.extend(pieces());
    response
}

/// The response with an error.
pub fn failure(id: &RequestId, error: &A2aError) -> String {
    let code = error.code();
    let message = Json::string(&text(error));
    let details = error.details();
    // `data` is the list of details itself (section 9.5), where 0.3 has an object around it.
    let data = details.iter().map(Json::get).collect::<Vec<_>>().join(",");
    let message = message.get();
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message},"data":[{data}]}}}}"#)
}

/// The error's message. For a method of 0.3 it says how to call that method in 1.0.
fn text(error: &A2aError) -> String {
    let A2aError::MethodNotFound { method } = error else { return error.message() };
    v0_3::Method::from_name(method).map_or_else(
        || error.message(),
        |known| {
            let (version, operation) = (v0_3::VERSION, known.of_1_0().name());
            format!(
                "method `{method}` is one of A2A {version}; call {operation}, or send the header `A2A-Version: {version}` \
                 where the agent card has an interface of that version"
            )
        },
    )
}

/// Writes the id as JSON.
impl fmt::Display for RequestId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => formatter.write_str("null"),
            Self::Number(text) => formatter.write_str(text),
            Self::String(text) => formatter.write_str(Json::string(text).get()),
        }
    }
}
