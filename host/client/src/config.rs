//! The settings of a client.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use annex_auth::Jwks;
use annex_egress::Screen;
use annex_protocol::Secret;
use reqwest::Url;

use crate::{Binding, Interceptor};

/// The settings of a [`Client`](crate::Client).
#[derive(Clone)]
pub struct ClientConfig {
    /// The allowed bindings, in order of preference. Empty: all bindings, in the order of the agent's card.
    pub bindings: Vec<Binding>,
    /// The trusted keys. A card must be signed with one of these keys. `None`: signatures are ignored.
    pub trusted_keys: Option<Jwks>,
    /// The interceptors of each call and each answer. They run in this order before a call, in reverse order after it.
    pub interceptors: Vec<Arc<dyn Interceptor>>,
    /// The timeout for opening a connection.
    pub connect_timeout: Duration,
    /// The timeout for reading a card, from the request to the last byte.
    pub card_timeout: Duration,
    /// A call fails if no byte arrives from the agent for this long. [`Duration::MAX`] switches this limit off, for a
    /// caller with its own timeout.
    pub silence: Duration,
    /// The largest answer, and the largest event of a stream, in bytes.
    pub max_bytes: usize,
    /// The maximum number of cached cards. When the cache is full, the card that was unused for longest is removed.
    pub max_cards: NonZeroUsize,
    /// Hosts, each as `name` or `name:port`. Interfaces at these hosts may be used in addition to interfaces at the card's
    /// origin. Such an interface must have the card's scheme or `https`. Header fields are sent to these hosts too.
    ///
    /// `None`: all interfaces may be used, and header fields are sent to the card's origin only.
    pub allowed_hosts: Option<Vec<String>>,
    /// True to follow redirects to the same origin. Other redirects are never followed.
    pub follow_redirects: bool,
    /// The screen that checks each address before a connection is opened. Set a screen if a tenant, not the operator,
    /// chose the agent. With a screen no redirect is followed and no proxy is used. `None`: all addresses are allowed.
    pub screen: Option<Screen>,
    /// The TLS of connections to agents.
    pub tls: ClientTls,
}

/// The TLS of connections to agents.
#[derive(Clone, Default)]
pub struct ClientTls {
    /// Certificates in PEM of authorities that are trusted, in addition to those of the system.
    pub authorities: Option<String>,
    /// The client's private key and its certificate, both in PEM. The client shows the certificate to an agent that asks for
    /// one.
    pub identity: Option<Secret>,
}

impl ClientConfig {
    /// Tells whether an interface is at the card's origin or at an allowed host.
    pub(crate) fn trusts(&self, interface: &Url, card: &Url) -> bool {
        let host = interface.host_str().unwrap_or_default();
        let with_port = interface.port_or_known_default().map(|port| format!("{host}:{port}"));
        let is_this = |allowed: &String| allowed == host || Some(allowed) == with_port.as_ref();
        // An allowed host does not permit a downgrade from TLS to plain HTTP.
        let is_as_safe = interface.scheme() == card.scheme() || interface.scheme() == "https";
        interface.origin() == card.origin() || (is_as_safe && self.allowed_hosts.iter().flatten().any(is_this))
    }
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            bindings: Vec::new(),
            trusted_keys: None,
            interceptors: Vec::new(),
            connect_timeout: Duration::from_secs(5),
            card_timeout: Duration::from_secs(10),
            silence: Duration::from_secs(300),
            max_bytes: 16 << 20,
            // 64, written so because a literal would need an unwrap.
            max_cards: NonZeroUsize::MIN.saturating_add(63),
            allowed_hosts: None,
            follow_redirects: true,
            screen: None,
            tls: ClientTls::default(),
        }
    }
}

impl fmt::Debug for ClientConfig {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("ClientConfig");
        debug.field("bindings", &self.bindings).field("trusted_keys", &self.trusted_keys);
        debug.field("interceptors", &self.interceptors.len()).finish_non_exhaustive()
    }
}
