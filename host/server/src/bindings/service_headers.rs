//! The header fields that all HTTP bindings share.

use annex_protocol::service::{A2A_EXTENSIONS, format_extensions};
use annex_protocol::{A2aError, ExtensionUri};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;

/// Adds the field `A2A-Extensions`, which lists the extensions that were active.
pub(crate) fn echo(response: Response, active: &[ExtensionUri]) -> Response {
    echo_as(A2A_EXTENSIONS, response, active)
}

/// Adds a field with the name `header` that lists the extensions that were active.
pub(crate) fn echo_as(header: &'static str, mut response: Response, active: &[ExtensionUri]) -> Response {
    if !active.is_empty()
        && let Ok(value) = HeaderValue::from_str(&format_extensions(active))
    {
        response.headers_mut().insert(header, value);
    }
    response
}

/// Adds `Retry-After` if the error has a delay (RFC 9110 section 10.2.3).
pub(crate) fn retry_after(mut response: Response, error: &A2aError) -> Response {
    if let Some(seconds) = error.retry_after() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Checks that the media type is one of `understood`. Parameters of the type are ignored.
pub(crate) fn check_content_type(headers: &HeaderMap, understood: &[&str]) -> Result<(), A2aError> {
    // A value that is not UTF-8 is decoded lossily, so that the error can quote it.
    let content_type = headers.get(header::CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let content_type = content_type.unwrap_or_default();
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    if understood.iter().any(|name| media_type.eq_ignore_ascii_case(name)) {
        return Ok(());
    }
    Err(A2aError::BodyTypeNotSupported { content_type: content_type.into_owned() })
}
