//! Errors as `google.rpc.Status` (specification section 10.6). An error has the same code, message and details here as
//! on the other bindings. The client's side of this crate uses this module to read the details of a status.
//!
//! A status travels in HTTP/2 headers, which clients commonly limit to 8 KiB. Errors can repeat the client's texts, so every
//! text is cut here.

use std::collections::HashMap;

use annex_protocol::{A2aError, Json, v0_3};
use prost::Message;
use prost_types::Any;
use serde::{Deserialize, Serialize};
use tonic::{Code, Status};
use tonic_types::pb;

use crate::ServiceVersion;
use crate::convert::{self, IntoProto};

/// The maximum size of an error message, in bytes. Escaped in a header, each byte may need three.
const MAX_MESSAGE_BYTES: usize = 1024;
/// The maximum size, in bytes, of a value in an ErrorInfo's metadata, and of a text in a field violation.
const MAX_TEXT_BYTES: usize = 256;
/// The maximum size of the encoded details, in bytes. Base64 turns three bytes into four.
const MAX_DETAILS_BYTES: usize = 2048;

/// A detail of an error. There is a variant for each type of detail that this crate can encode as its own protobuf
/// message.
#[derive(Deserialize, Serialize)]
#[serde(tag = "@type")]
enum Detail {
    #[serde(rename = "type.googleapis.com/google.rpc.ErrorInfo")]
    ErrorInfo {
        reason: String,
        domain: String,
        #[serde(default, skip_serializing_if = "HashMap::is_empty")]
        metadata: HashMap<String, String>,
    },
    #[serde(rename = "type.googleapis.com/google.rpc.BadRequest", rename_all = "camelCase")]
    BadRequest { field_violations: Vec<Violation> },
    #[serde(rename = "type.googleapis.com/google.rpc.RetryInfo", rename_all = "camelCase")]
    RetryInfo { retry_delay: String },
}

#[derive(Deserialize, Serialize)]
struct Violation {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    field: String,
    description: String,
}

/// The ProtoJSON of a detail of the type `google.protobuf.Value`.
#[derive(Deserialize, Serialize)]
struct WrappedValue {
    #[serde(rename = "@type")]
    type_url: String,
    value: Json,
}

const VALUE: &str = "google.protobuf.Value";
const TYPE_URLS: &str = "type.googleapis.com/";

pub(crate) fn of(error: &A2aError) -> Status {
    of_version(ServiceVersion::V1_0, error)
}

/// The status with the codes, the names and the texts of a version.
pub(crate) fn of_version(service: ServiceVersion, error: &A2aError) -> Status {
    match service {
        ServiceVersion::V1_0 => with_code(error.grpc_status().number(), error.to_string(), error),
        ServiceVersion::V0_3 => with_code(v0_3::grpc_status(error).number(), v0_3::grpc_text(error), error),
    }
}

/// Tells whether tonic has refused a message for its size. Only the text of the status shows this.
pub(crate) fn is_too_large(status: &Status) -> bool {
    status.code() == Code::OutOfRange && status.message().contains("decoded message length too large")
}

/// Adds the details of A2A to a status that tonic created. The status keeps tonic's code, which clients know.
pub(crate) fn too_large(status: &Status) -> Status {
    let error = A2aError::InvalidRequest { reason: status.message().to_owned() };
    with_code(Code::OutOfRange as i32, error.to_string(), &error)
}

/// Tells whether tonic found no whole message in the body of a request. tonic reports INTERNAL, as if this server were
/// at fault.
pub(crate) fn is_without_message(status: &Status) -> bool {
    const MISSING: [&str; 2] = ["Missing request message.", "Unexpected EOF decoding stream."];
    status.code() == Code::Internal && MISSING.contains(&status.message())
}

/// The status that replaces tonic's status for a request without a whole message. Its text says that the request's body
/// is too short.
pub(crate) fn without_message(status: &Status) -> Status {
    let reason = format!("the body is shorter than the message length in front: {}", status.message());
    of(&A2aError::InvalidRequest { reason })
}

fn with_code(code: i32, text: String, error: &A2aError) -> Status {
    // The message travels twice: escaped in `grpc-message` (3 KiB at most), and in the encoded status. With 2 KiB of
    // details, in base64, that makes about 7 KiB of the 8 KiB that clients take.
    let message = annex_text::cut(text, MAX_MESSAGE_BYTES);
    let mut status = pb::Status { code, message: message.clone(), details: Vec::new() };
    let mut room = MAX_DETAILS_BYTES;
    for detail in error.details() {
        // The ErrorInfo comes first, so that it is kept if the room is short.
        let Some(any) = packed(&detail, room) else { break };
        room = room.saturating_sub(any.value.len());
        status.details.push(any);
    }
    Status::with_details(Code::from_i32(code), message, status.encode_to_vec().into())
}

/// Encodes the detail in at most `room` bytes. Field violations are dropped from the end until the detail fits. `None` if the
/// detail still does not fit.
fn packed(detail: &Json, room: usize) -> Option<Any> {
    let any = match detail.to() {
        Ok(Detail::ErrorInfo { reason, domain, metadata }) => error_info(reason, domain, metadata),
        Ok(Detail::BadRequest { field_violations }) => bad_request(field_violations, room),
        Ok(Detail::RetryInfo { retry_delay }) => retry_info(&retry_delay)?,
        Err(_) => value(detail)?,
    };
    // A detail that is still too large is dropped entirely, because a cut one could not be decoded.
    (any.value.len() <= room).then_some(any)
}

/// Encodes the detail of an extension as a `google.protobuf.Value`. A detail whose type has no descriptor in this crate is
/// encoded in the same way. `None` if protobuf cannot carry the detail.
fn value(detail: &Json) -> Option<Any> {
    let wrapped =
        detail.to::<WrappedValue>().ok().filter(|wrapped| wrapped.type_url.strip_prefix(TYPE_URLS) == Some(VALUE));
    let value = wrapped.map_or_else(|| detail.clone(), |wrapped| wrapped.value);
    // If protobuf cannot carry this detail, the error is sent without it.
    Some(any_of(VALUE, &value.into_proto().ok()?))
}

fn error_info(reason: String, domain: String, metadata: HashMap<String, String>) -> Any {
    let metadata = metadata.into_iter().map(|(key, value)| (key, annex_text::cut(value, MAX_TEXT_BYTES))).collect();
    any_of("google.rpc.ErrorInfo", &pb::ErrorInfo { reason, domain, metadata })
}

/// Encodes the detail for a delay in whole seconds, such as `3s`. `None` for any other text. No error of this crate has
/// a fraction of a second.
fn retry_info(delay: &str) -> Option<Any> {
    let seconds = delay.strip_suffix('s')?.parse().ok()?;
    let retry_delay = Some(prost_types::Duration { seconds, nanos: 0 });
    Some(any_of("google.rpc.RetryInfo", &pb::RetryInfo { retry_delay }))
}

/// The bytes that protobuf adds to each violation in the list: a tag, and a length of up to two bytes.
const ENTRY_BYTES: usize = 4;

fn bad_request(violations: Vec<Violation>, room: usize) -> Any {
    let violation = |violation: Violation| pb::bad_request::FieldViolation {
        field: annex_text::cut(violation.field, MAX_TEXT_BYTES),
        description: annex_text::cut(violation.description, MAX_TEXT_BYTES),
        ..Default::default()
    };
    let mut detail = pb::BadRequest::default();
    let mut left = room;
    for violation in violations.into_iter().map(violation) {
        // The key and the length of the entry take a few more bytes.
        let Some(rest) = left.checked_sub(violation.encoded_len() + ENTRY_BYTES) else { break };
        left = rest;
        detail.field_violations.push(violation);
    }
    any_of("google.rpc.BadRequest", &detail)
}

fn any_of(name: &str, message: &impl Message) -> Any {
    Any { type_url: format!("{TYPE_URLS}{name}"), value: message.encode_to_vec() }
}

/// Reads the details in an agent's status as ProtoJSON. Details of unknown types are dropped.
pub(crate) fn details(status: &Status) -> Vec<Json> {
    // Details are an addition: an agent whose status has none, or unreadable ones, has still answered with an error.
    let details = pb::Status::decode(status.details()).map(|status| status.details).unwrap_or_default();
    details.iter().filter_map(unpacked).collect()
}

fn unpacked(any: &Any) -> Option<Json> {
    let type_url = any.type_url.as_str();
    let bytes = any.value.as_slice();
    let detail = match type_url.rsplit('/').next()? {
        "google.rpc.ErrorInfo" => {
            let info = pb::ErrorInfo::decode(bytes).ok()?;
            Detail::ErrorInfo { reason: info.reason, domain: info.domain, metadata: info.metadata }
        }
        "google.rpc.BadRequest" => {
            let violations = pb::BadRequest::decode(bytes).ok()?.field_violations.into_iter();
            let violation = |violation: pb::bad_request::FieldViolation| Violation {
                field: violation.field,
                description: violation.description,
            };
            Detail::BadRequest { field_violations: violations.map(violation).collect() }
        }
        "google.rpc.RetryInfo" => {
            let delay = pb::RetryInfo::decode(bytes).ok()?.retry_delay?;
            Detail::RetryInfo { retry_delay: format!("{}s", delay.seconds) }
        }
        VALUE => {
            let value: Json = convert::of_answer(prost_types::Value::decode(bytes).ok()?).ok()?;
            return Json::from_peer(&WrappedValue { type_url: format!("{TYPE_URLS}{VALUE}"), value }).ok();
        }
        _ => return None,
    };
    Json::from_serialize(&detail).ok()
}

/// The name that the proto file of `google.rpc.Code` has for a code.
pub(crate) fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
