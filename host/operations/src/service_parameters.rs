//! The parameters of a request that are read before its body: version, extensions and caller.

use std::borrow::Cow;
use std::sync::Arc;

use annex_agent::CallerToken;
use annex_protocol::service::{A2A_EXTENSIONS, A2A_VERSION, VERSION, is_version, parse_extensions};
use annex_protocol::{A2aError, ExtensionUri, JsonObject, Owner, Secret};
use annex_runtime::{Caller, Presence};
use http::header::HeaderName;
use http::{HeaderMap, Uri};

/// The query parameter that replaces the header (A2A 1.0 section 3.6.1).
const VERSION_PARAMETER: &str = "A2A-Version";

/// The header field with the `id` of the last event that a client of server-sent events has received.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The identity of a caller.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// The owner of the tasks that the caller may read and create. Without authentication its principal is empty.
    pub owner: Owner,
    /// The claims of the caller's token. Empty without a token.
    pub claims: JsonObject,
    /// The verified bearer token of the caller. `None` if the caller is anonymous or has an API key.
    pub token: Option<Secret>,
    /// The header field that carries API keys. `None` if the server takes none.
    pub key_header: Option<HeaderName>,
}

impl Identity {
    /// How this server knows the caller of a request with this identity.
    pub fn presence(&self) -> Presence {
        if self.owner.principal.is_empty() { Presence::Anonymous } else { Presence::Authenticated }
    }
}

/// The service parameters of one request (A2A 1.0 section 3.2.6).
#[derive(Clone, Debug, Default)]
pub struct ServiceParameters {
    /// The extension URIs that the client requested: the union of all header lines, in order.
    pub requested: Vec<ExtensionUri>,
    /// The owner of the tasks that the caller may read and create. Without authentication its principal is empty.
    pub owner: Owner,
    /// The claims of the caller's token, which decide whether an extension applies to the caller. Empty without a token, and
    /// for turns without a request.
    pub claims: JsonObject,
    /// The verified bearer token of the caller. Only a remote agent gets the token, to exchange it. No extension and no store
    /// gets it.
    pub token: Option<Secret>,
    /// How this server knows the caller. The default is that of a turn without a request.
    pub presence: Presence,
    /// The header fields of the request that the agent or an extension may see. `None` if nobody may see any. Extensions do
    /// not see them in a turn without a request.
    pub headers: Option<Arc<HeaderMap>>,
    /// The header field that carries API keys. The agent and extensions never see it.
    pub key_header: Option<HeaderName>,
    /// The number of the last event that a returning reader of a stream has received.
    pub last_event: Option<u64>,
}

impl ServiceParameters {
    /// Reads the service parameters and checks the version. A request that names no version is a request of 0.3, which this
    /// function refuses.
    pub fn of(identity: Identity, headers: &HeaderMap, uri: &Uri) -> Result<Self, A2aError> {
        let version = sent_version(headers, uri);
        let lines = headers.get_all(A2A_EXTENSIONS).into_iter().filter_map(|line| line.to_str().ok());
        let last_event = headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok()?.trim().parse().ok());
        Ok(Self { last_event, ..Self::new(identity, &version, parse_extensions(lines))? })
    }

    /// Adds the header fields of the request.
    pub fn with_headers(self, headers: Option<Arc<HeaderMap>>) -> Self {
        Self { headers, ..self }
    }

    /// The parameters of a request with this version and these extensions.
    pub fn new(identity: Identity, version: &str, requested: Vec<ExtensionUri>) -> Result<Self, A2aError> {
        if !is_version(version, VERSION) {
            return Err(A2aError::VersionNotSupported { requested: version.to_owned(), supported: &[VERSION] });
        }
        let presence = identity.presence();
        let Identity { owner, claims, token, key_header } = identity;
        Ok(Self { owner, claims, token, requested, presence, headers: None, key_header, last_event: None })
    }

    /// The parameters of a turn that this request starts on a task without a message of the client. The turn belongs to the
    /// owner of the task. The header fields and the token stay for the agent, and no extension sees them.
    pub(crate) fn of_earlier(self, owner: Owner, requested: Vec<ExtensionUri>) -> Self {
        Self { requested, owner, headers: self.headers, token: self.token, ..Self::default() }
    }

    /// The bearer token of the caller, for an agent.
    pub(crate) fn caller_token(&self) -> CallerToken {
        match (&self.token, self.presence) {
            (Some(token), _) => CallerToken::Verified(token.clone()),
            (None, Presence::Earlier) => CallerToken::Gone,
            (None, Presence::Anonymous | Presence::Authenticated) => CallerToken::Absent,
        }
    }

    /// The caller, for extensions with the grant `caller`.
    pub(crate) fn caller(&self) -> Caller {
        let is_earlier = self.presence == Presence::Earlier;
        Caller {
            presence: self.presence,
            principal: Some(self.owner.principal.clone()).filter(|principal| !principal.is_empty()),
            claims: self.claims.clone(),
            headers: self.headers.clone().filter(|_| !is_earlier),
        }
    }
}

/// The version in the header, or else in the query. Empty if the request names none.
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
