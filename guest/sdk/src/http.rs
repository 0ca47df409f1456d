//! HTTP requests to other servers (import `wasi:http/outgoing-handler`; the grant `http` lists the allowed servers). An
//! optional feature of the SDK.
//!
//! The host sends requests that the grant covers, and follows no redirects: a response with status 3xx is returned like
//! any other.

#[cfg(target_arch = "wasm32")]
mod wire;

use wasip2::http::types::Scheme;

#[cfg(not(target_arch = "wasm32"))]
use crate::native::http::exchange;
#[cfg(target_arch = "wasm32")]
use wire::exchange;

pub use wasip2::http::types::{ErrorCode, Method};

/// An outgoing HTTP request.
#[derive(Debug, Clone)]
pub struct Request {
    pub(crate) method: Method,
    pub(crate) url: String,
    pub(crate) fields: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
}

/// A response with its whole body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// Header fields; names are in lower case.
    pub fields: Vec<(String, Vec<u8>)>,
    /// The whole body, at most as large as the grant allows.
    pub body: Vec<u8>,
}

/// The reason why a request has no response.
#[derive(Debug)]
pub enum Error {
    /// The URL or the method cannot be sent; the text has the reason.
    Url(&'static str),
    /// The host refused a header field because of its name (`Host`, `Connection`, …), its form, or the size of all
    /// fields.
    Fields(String),
    /// The request was not allowed, failed or took too long, or its response is too large.
    Failed(ErrorCode),
}

impl std::fmt::Display for Error {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Url(reason) => write!(formatter, "the URL cannot be called: {reason}"),
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

    /// A GET request without a body.
    pub fn get(url: impl Into<String>) -> Self {
        Self::new(Method::Get, url)
    }

    /// A POST request with this body.
    pub fn post(url: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self::new(Method::Post, url).body(body)
    }

    /// Sets the body. The host adds its length.
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
    /// When the grant does not cover the request, or the request fails.
    pub fn send(self) -> Result<Response, Error> {
        exchange(&self)
    }
}

/// Splits a URL into scheme, authority, and path with query.
///
/// # Errors
/// The URL cannot be sent. The error has the reason.
pub(crate) fn split(url: &str) -> Result<(Scheme, &str, &str), Error> {
    let (scheme, rest) = url.split_once("://").ok_or(Error::Url("it is not absolute; begin it with https://"))?;
    let scheme = match scheme {
        _ if scheme.eq_ignore_ascii_case("https") => Scheme::Https,
        _ if scheme.eq_ignore_ascii_case("http") => Scheme::Http,
        _ => return Err(Error::Url("its scheme is neither https nor http")),
    };
    // RFC 9110, section 7.1: a fragment is not sent.
    let rest = rest.split('#').next().unwrap_or_default();
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.is_empty() {
        return Err(Error::Url("it names no host"));
    }
    if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Error::Url("its path or query has characters that have to be percent-encoded"));
    }
    Ok((scheme, authority, if path.is_empty() { "/" } else { path }))
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
    }

    #[test]
    fn a_url_that_cannot_be_called_is_refused_with_its_own_reason() {
        for (url, expected) in [
            ("a.example/x", "not absolute"),
            ("/x", "not absolute"),
            ("", "not absolute"),
            ("ftp://a.example/", "neither https nor http"),
            ("https://", "names no host"),
            ("https:///x", "names no host"),
            ("https://?x", "names no host"),
            ("https://a.example/a b", "percent-encoded"),
            ("https://a.example/\u{e9}", "percent-encoded"),
            ("https://a.example?q=a\n", "percent-encoded"),
        ] {
            let reason = split(url).expect_err(url).to_string();
            assert!(reason.contains(expected), "{url}: {reason}");
        }
        assert!(split("HTTPS://a.example/").is_ok());
    }
}
