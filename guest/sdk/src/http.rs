//! Requests to others (import `wasi:http/outgoing-handler`, needs the grant `http`, which says to whom). A feature of the
//! SDK, off unless it is named.
//!
//! The host sends what the grant covers, and follows no redirect: an answer with status 3xx is an answer.

use wasip2::http::outgoing_handler;
use wasip2::http::types::{ErrorCode, Fields, IncomingBody, IncomingResponse, OutgoingBody, OutgoingRequest, Scheme};
use wasip2::io::streams::StreamError;

pub use wasip2::http::types::Method;

/// The most that a stream takes at once (`wasi:io/streams`).
const CHUNK: usize = 4096;
/// The bytes of a response that are asked for at once.
const READ: u64 = 64 * 1024;

/// A request.
#[derive(Debug, Clone)]
pub struct Request {
    method: Method,
    url: String,
    fields: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

/// A response, read to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Header fields; names are in lower case.
    pub fields: Vec<(String, Vec<u8>)>,
    /// The body.
    pub body: Vec<u8>,
}

/// The reason for a missing response.
#[derive(Debug)]
pub enum Error {
    /// Not an absolute URL with the scheme `https` or `http`.
    Url,
    /// The host refuses a header field: its name (`Host`, `Connection`, …), its form, or their size.
    Fields(String),
    /// The request was not allowed, failed, took too long, or its answer is too large.
    Failed(ErrorCode),
}

impl std::fmt::Display for Error {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Url => formatter.write_str("the URL is not absolute, or neither https nor http"),
            Self::Fields(reason) => write!(formatter, "the header fields are refused: {reason}"),
            Self::Failed(code) => write!(formatter, "the request failed: {code:?}"),
        }
    }
}

impl std::error::Error for Error {}

impl Request {
    /// A request without a body.
    pub fn new(method: Method, url: impl Into<String>) -> Self {
        Self { method, url: url.into(), fields: Vec::new(), body: Vec::new() }
    }

    /// A GET.
    pub fn get(url: impl Into<String>) -> Self {
        Self::new(Method::Get, url)
    }

    /// A POST.
    pub fn post(url: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self::new(Method::Post, url).body(body)
    }

    /// Sets the body. The host writes its length.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Adds a header field.
    #[must_use]
    pub fn field(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.fields.push((name.to_owned(), value.into()));
        self
    }

    /// Sends the request and waits for the whole response.
    ///
    /// # Errors
    /// When the grant does not cover it, or something goes wrong on the way.
    pub fn send(self) -> Result<Response, Error> {
        let (scheme, authority, path) = split(&self.url).ok_or(Error::Url)?;
        let fields = Fields::from_list(&self.fields).map_err(|error| Error::Fields(error.to_string()))?;
        let request = OutgoingRequest::new(fields);
        let is_set = request.set_method(&self.method).is_ok()
            && request.set_scheme(Some(&scheme)).is_ok()
            && request.set_authority(Some(authority)).is_ok()
            && request.set_path_with_query(Some(path)).is_ok();
        // The body is taken out first: the request is the host's once it is handed over.
        let body = request.body().ok().filter(|_| is_set).ok_or(Error::Url)?;
        let answer = outgoing_handler::handle(request, None).map_err(Error::Failed)?;
        // The host reads the body while it sends, so it is written once the request is on its way.
        write(body, &self.body)?;
        // The outer limit of the turn ends this wait.
        answer.subscribe().block();
        match answer.get() {
            Some(Ok(Ok(response))) => read(&response),
            Some(Ok(Err(code))) => Err(Error::Failed(code)),
            Some(Err(())) | None => Err(Error::Failed(ErrorCode::HttpResponseIncomplete)),
        }
    }
}

/// Scheme, authority, and path with query.
fn split(url: &str) -> Option<(Scheme, &str, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = match scheme {
        "https" => Scheme::Https,
        "http" => Scheme::Http,
        _ => return None,
    };
    // RFC 9110, section 7.1: a fragment is not sent.
    let rest = rest.split('#').next()?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    Some((scheme, authority, if path.is_empty() { "/" } else { path }))
}

fn write(body: OutgoingBody, bytes: &[u8]) -> Result<(), Error> {
    let incomplete = || Error::Failed(ErrorCode::HttpRequestBodySize(None));
    let stream = body.write().map_err(|()| incomplete())?;
    for chunk in bytes.chunks(CHUNK) {
        stream.blocking_write_and_flush(chunk).map_err(|_| incomplete())?;
    }
    // `wasi:http/types`: the stream of a body is dropped before the body is finished.
    drop(stream);
    OutgoingBody::finish(body, None).map_err(Error::Failed)
}

fn read(response: &IncomingResponse) -> Result<Response, Error> {
    let incomplete = || Error::Failed(ErrorCode::HttpResponseIncomplete);
    let body: IncomingBody = response.consume().map_err(|()| incomplete())?;
    let stream = body.stream().map_err(|()| incomplete())?;
    let mut bytes = Vec::new();
    loop {
        match stream.blocking_read(READ) {
            Ok(chunk) => bytes.extend_from_slice(&chunk),
            // In `wasi:io/streams` the end of a stream is an error.
            Err(StreamError::Closed) => break,
            Err(StreamError::LastOperationFailed(error)) => {
                let code = wasip2::http::types::http_error_code(&error);
                let unnamed = || ErrorCode::InternalError(Some(error.to_debug_string()));
                return Err(Error::Failed(code.unwrap_or_else(unnamed)));
            }
        }
    }
    Ok(Response { status: response.status(), fields: response.headers().entries(), body: bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let expected = [
            ("https://a.example", "a.example", "/"),
            ("https://a.example:8443/x?y#z", "a.example:8443", "/x?y"),
            ("https://a.example?y", "a.example", "?y"),
            ("https://[::1]:80/", "[::1]:80", "/"),
        ];
        for (url, authority, path) in expected {
            let (_, found_authority, found_path) = split(url).expect("a URL");
            assert_eq!((found_authority, found_path), (authority, path), "{url}");
        }
        for url in ["a.example/x", "ftp://a.example/", "/x", ""] {
            assert!(split(url).is_none(), "{url}");
        }
    }
}
