//! The Agent Card as HTTP serves it: encoded once, with an ETag over its bytes (A2A 1.0 section 8.6).

use std::sync::Arc;

use annex_protocol::{AgentCard, v0_3};
use annex_runtime::Digest;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;

/// The longest time, in seconds, for which clients may use the card without revalidation.
pub(crate) const MAX_AGE: u64 = 60;

/// An encoded card, with its `ETag` and `Last-Modified` fields.
pub(crate) struct EncodedCard {
    body: Bytes,
    etag: HeaderValue,
    modified: Timestamp,
    /// The date of the card. `None` if the previous card was made in the second in which this card was made: their
    /// dates would be equal.
    last_modified: Option<HeaderValue>,
}

impl EncodedCard {
    /// Encodes a card. A card with interfaces of 0.3 also gets the fields of 0.3.
    pub(crate) fn encode(card: &AgentCard) -> Result<String, serde_json::Error> {
        serde_json::to_string(&v0_3::MergedAgentCard::from(card))
    }

    /// Makes the encoded card from its JSON `body`. Returns `previous` instead if it has the same JSON.
    pub(crate) fn new(body: String, previous: Option<&Arc<Self>>) -> Arc<Self> {
        // Equal bytes keep their date as well, so that a change which does not affect the card costs no client a
        // download.
        if let Some(same) = previous.filter(|previous| previous.body == body) {
            return Arc::clone(same);
        }
        let value = |text: &str| HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static(""));
        let modified = Timestamp::now();
        let is_dated = previous.is_none_or(|previous| previous.modified.as_second() < modified.as_second());
        let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&modified).unwrap_or_default();
        let etag = value(&format!("\"{}\"", &Digest::of(body.as_bytes()).hex()));
        Arc::new(Self { etag, modified, last_modified: is_dated.then(|| value(&date)), body: body.into() })
    }

    /// The card that was encoded, without the fields of 0.3.
    ///
    /// # Errors
    /// None for a card of this server.
    pub(crate) fn decoded(&self) -> Result<AgentCard, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }

    /// Answers with the card, or with 304 if the client already has the card. The client may use the card for `max_age`
    /// seconds.
    pub(crate) fn respond(&self, request: &HeaderMap, max_age: u64) -> Response {
        let mut response = if self.is_known_to(request) {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            let json = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
            (json, Body::from(self.body.clone())).into_response()
        };
        let headers = response.headers_mut();
        headers.insert(header::ETAG, self.etag.clone());
        let caching = HeaderValue::from_str(&format!("public, max-age={max_age}"));
        headers.insert(header::CACHE_CONTROL, caching.unwrap_or(HeaderValue::from_static("no-cache")));
        if let Some(date) = &self.last_modified {
            headers.insert(header::LAST_MODIFIED, date.clone());
        }
        response
    }

    /// True if the client has this card. `If-Modified-Since` counts only without `If-None-Match` (RFC 9110 section
    /// 13.1.3).
    fn is_known_to(&self, request: &HeaderMap) -> bool {
        let Some(tags) = request.get(header::IF_NONE_MATCH) else {
            let since = request.get(header::IF_MODIFIED_SINCE);
            return since.is_some() && since == self.last_modified.as_ref();
        };
        let (Ok(tags), Ok(etag)) = (tags.to_str(), self.etag.to_str()) else { return false };
        // `If-None-Match` compares weakly (RFC 9110 section 13.1.2), so a prefix `W/` is ignored.
        tags.split(',').map(|tag| tag.trim().trim_start_matches("W/")).any(|tag| tag == etag || tag == "*")
    }
}
