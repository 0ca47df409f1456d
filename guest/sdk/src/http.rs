//! Requests to others (import `wasi:http/outgoing-handler`, needs the grant `http`, which says to whom). A feature of the
//! SDK, off unless it is named.
//!
//! The host sends what the grant covers, and follows no redirect: an answer with status 3xx is an answer.

#[cfg(target_arch = "wasm32")]
mod wire;

use wasip2::http::types::Scheme;

#[cfg(not(target_arch = "wasm32"))]
use crate::native::http::exchange;
#[cfg(target_arch = "wasm32")]
use wire::exchange;

pub use wasip2::http::types::{ErrorCode, Method};

/// A request.
#[derive(Debug, Clone)]
pub struct Request {
    pub(crate) method: Method,
    pub(crate) url: String,
    pub(crate) fields: Vec<(String, Vec<u8>)>,
    pub(crate) body: Vec<u8>,
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
        exchange(&self)
    }
}

/// Scheme, authority, and path with query.
pub(crate) fn split(url: &str) -> Option<(Scheme, &str, &str)> {
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
