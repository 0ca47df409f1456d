//! Reasons for refusing a URL.

use std::net::IpAddr;

/// Why a URL is refused. The texts are for the author of the URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlRefusal {
    /// The URL is longer than [`Screen::MAX_URL`](super::Screen::MAX_URL).
    #[error("the URL is longer than {limit} bytes")]
    TooLong {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The text is not an absolute URL.
    #[error("the URL cannot be read")]
    Malformed(#[source] url::ParseError),
    /// The scheme is neither https nor http.
    #[error("the URL is neither https nor http")]
    Scheme,
    /// The scheme is http, and only https is allowed.
    #[error("the URL is not https")]
    NotHttps,
    /// The URL contains a user name or a password.
    #[error("the URL contains a user name or a password")]
    UserInfo,
    /// The host is missing or is not a valid host name.
    #[error("the URL has no valid host")]
    NoHost,
    /// The port is below 1024 and neither 80 nor 443. No web server is expected there.
    #[error("port {port} may not be called")]
    Port {
        /// The port of the URL.
        port: u16,
    },
    /// The literal address is not public.
    #[error("address {address} is not public")]
    Address {
        /// The address of the URL.
        address: IpAddr,
    },
    /// The name cannot be resolved now. The text is the same as for [`PrivateName`](Self::PrivateName). With different
    /// texts, clients could find out which names exist in the server's network.
    #[error("host {name} does not resolve to a public address")]
    UnknownName {
        /// The host name.
        name: String,
    },
    /// The name resolves, but to no public address.
    #[error("host {name} does not resolve to a public address")]
    PrivateName {
        /// The host name.
        name: String,
    },
}
