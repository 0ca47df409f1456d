//! The parameters of a request that are read before its body: version, extensions, who calls.

use std::borrow::Cow;
use std::sync::Arc;

use annex_protocol::service::{A2A_EXTENSIONS, A2A_VERSION, VERSION, is_version, parse_extensions};
use annex_protocol::{A2aError, ExtensionUri, JsonObject, Owner};
use http::header::HeaderName;
use http::{HeaderMap, Uri};
use tokio::sync::mpsc::UnboundedSender;

/// The query parameter that stands in for the header (A2A 1.0 section 3.6.1).
const VERSION_PARAMETER: &str = "A2A-Version";

/// The field in which a client of server-sent events names the `id` of the last one that it has.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Who calls.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// The owner whose tasks the caller may see and make. Without authentication it names nobody.
    pub owner: Owner,
    /// The claims of the caller's token; empty without one.
    pub claims: JsonObject,
}

/// The service parameters of one request (A2A 1.0 section 3.2.6).
#[derive(Clone, Debug, Default)]
pub struct ServiceParameters {
    /// The extension URIs that the client asked for: the union of all header lines, in order.
    pub requested: Vec<ExtensionUri>,
    /// The owner whose tasks the caller may see and make. Without authentication it names nobody.
    pub owner: Owner,
    /// The claims of the caller's token, which extensions may be for; empty without one, and in turns that go on without a
    /// request.
    pub claims: JsonObject,
    /// The header fields of the request, where the agent may want some of them.
    pub headers: Option<Arc<HeaderMap>>,
    /// The number of the last event that a reader has who comes back to a stream.
    pub last_event: Option<u64>,
    /// Where a client is told that its message waits for the turn before it, with the extensions that were negotiated.
    pub wait_notice: Option<UnboundedSender<Vec<ExtensionUri>>>,
}

impl ServiceParameters {
    /// Reads the service parameters and checks the version. An absent version means 0.3, which is not served here.
    pub fn of(identity: Identity, headers: &HeaderMap, uri: &Uri) -> Result<Self, A2aError> {
        let version = sent_version(headers, uri);
        let lines = headers.get_all(A2A_EXTENSIONS).into_iter().filter_map(|line| line.to_str().ok());
        let last_event = headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok()?.trim().parse().ok());
        Ok(Self { last_event, ..Self::new(identity, &version, parse_extensions(lines))? })
    }

    /// The same with the header fields of the request.
    pub fn with_headers(self, headers: Option<Arc<HeaderMap>>) -> Self {
        Self { headers, ..self }
    }

    /// A request of this version that asks for these extensions.
    pub fn new(identity: Identity, version: &str, requested: Vec<ExtensionUri>) -> Result<Self, A2aError> {
        if !is_version(version, VERSION) {
            return Err(A2aError::VersionNotSupported { requested: version.to_owned(), supported: &[VERSION] });
        }
        let Identity { owner, claims } = identity;
        Ok(Self { owner, claims, requested, headers: None, last_event: None, wait_notice: None })
    }
}

/// The version that a request names in its header or else in its query; empty when it names none.
pub fn sent_version<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Cow<'a, str> {
    let header = headers.get(A2A_VERSION).map(|value| match String::from_utf8_lossy(value.as_bytes()) {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
        Cow::Owned(text) => Cow::Owned(text.trim().to_owned()),
    });
    let header = header.filter(|version| !version.is_empty());
    header.or_else(|| query_version(uri).map(Cow::Borrowed)).unwrap_or_default()
}

fn query_version(uri: &Uri) -> Option<&str> {
    let pairs = uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(name, _)| name.eq_ignore_ascii_case(VERSION_PARAMETER)).map(|(_, value)| value).next()
}
