//! The checks that every request for the console has to pass, and the header fields of every answer.

use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, HeaderName};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::operator::{ConsoleState, network_of};
use super::page::notice;
use crate::admin::error::AdminError;
use crate::admin::wrong_host;

/// The header fields of every answer. A page may load only files of this server and has no inline script or style.
/// The referrer policy is not `no-referrer`, with which browsers send forms with the origin `null`.
const FIELDS: [(&str, &str); 7] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
         form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    ("x-frame-options", "DENY"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
];

/// The values of `Sec-Fetch-Dest` for a document inside another document.
const FRAMES: [&str; 5] = ["iframe", "frame", "embed", "object", "fencedframe"];

/// Refuses a request with a foreign `Host` or for a frame. Adds the header fields to the answer.
pub(super) async fn guard(State(console): State<ConsoleState>, request: Request, next: Next) -> Response {
    let rules = console.admin.access.rules();
    // As for the API, the login does not help a foreign `Host`: DNS rebinding can lead the operator's browser here.
    if let Err(foreign) = rules.hosts.check(&request) {
        console.admin.strangers.were_refused(&network_of(request.extensions()), &request, StatusCode::FORBIDDEN);
        return with_fields(wrong_host(&foreign));
    }
    if !rules.has_console {
        // A path of a console that is off is answered as any other unknown path.
        return match rules.tokens.holder_of(request.headers()) {
            Some(_) => AdminError::new(StatusCode::NOT_FOUND, "not_found", "there is nothing at this path"),
            None => AdminError::unauthenticated(),
        }
        .into_response();
    }
    if is_framed(&request) {
        let text = "The console does not open inside of another page. Open it in a window of its own.";
        return with_fields(notice(StatusCode::FORBIDDEN, "Refused", text));
    }
    with_fields(next.run(request).await)
}

fn is_framed(request: &Request) -> bool {
    let destinations = request.headers().get_all("sec-fetch-dest");
    destinations.iter().any(|destination| FRAMES.iter().any(|frame| destination == frame))
}

fn with_fields(mut response: Response) -> Response {
    let fields = response.headers_mut();
    for (name, value) in FIELDS {
        fields.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    fields.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
