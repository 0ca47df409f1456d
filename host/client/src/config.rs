//! The settings of a client.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use annex_auth::Jwks;
use annex_egress::Screen;
use reqwest::Url;

use crate::{Binding, Interceptor};

/// The settings of a [`Client`](crate::Client).
#[derive(Clone)]
pub struct ClientConfig {
    /// The bindings that may be used, the preferred one first. Empty: any, in the order of the agent's card.
    pub bindings: Vec<Binding>,
    /// Keys of which one must have signed the card of an agent. `None`: signatures are ignored.
    pub trusted_keys: Option<Jwks>,
    /// The interceptors of each call and each answer: before a call in this order, after it in reverse order.
    pub interceptors: Vec<Arc<dyn Interceptor>>,
    /// The longest time that connecting to an agent may take.
    pub connect_timeout: Duration,
    /// From the request for a card to its last byte.
    pub card_timeout: Duration,
    /// The longest time that an agent may think without sending a byte; [`Duration::MAX`] where whoever calls it counts.
    pub silence: Duration,
    /// The longest answer, and the longest event of a stream, in bytes.
    pub max_bytes: usize,
    /// The number of cards that are kept; the one that was not used for longest goes first.
    pub max_cards: NonZeroUsize,
    /// Hosts, each `name` or `name:port`, whose interfaces may be used besides those at the origin of the card, by its
    /// scheme or `https`. They then get header fields too. `None`: interfaces anywhere may be used, and header fields
    /// go to the origin of the card only.
    pub allowed_hosts: Option<Vec<String>>,
    /// True if redirects to the same origin are followed. All others never are.
    pub follow_redirects: bool,
    /// Looks at each address before it is connected to, where somebody else has chosen the agent. No redirect is followed
    /// then, and no proxy is used. `None`: all addresses may be called.
    pub screen: Option<Screen>,
}

impl ClientConfig {
    /// Tells whether an interface is at the origin of the card, or at a host that is allowed.
    pub(crate) fn trusts(&self, interface: &Url, card: &Url) -> bool {
        let host = interface.host_str().unwrap_or_default();
        let with_port = interface.port_or_known_default().map(|port| format!("{host}:{port}"));
        let is_this = |allowed: &String| allowed == host || Some(allowed) == with_port.as_ref();
        // A host that is allowed is no leave to go from TLS to plain HTTP.
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
