//! The reasons for which a URL is not called.

use std::net::IpAddr;

/// The reason for which a URL is not called. The texts are for whoever chose the URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The URL is longer than anybody needs.
    #[error("the URL is longer than {limit} bytes")]
    TooLong {
        /// The longest URL that is accepted, in bytes.
        limit: usize,
    },
    /// It is no absolute URL.
    #[error("the URL cannot be read")]
    Malformed(#[source] url::ParseError),
    /// Neither https nor http.
    #[error("the URL is neither https nor http")]
    Scheme,
    /// Plain http where it is not accepted.
    #[error("the URL is not https")]
    NotHttps,
    /// A user name or password in the URL.
    #[error("the URL contains a user name or a password")]
    UserInfo,
    /// The host is missing, or cannot be a host name.
    #[error("the URL has no valid host")]
    NoHost,
    /// A port where no web server is expected: below 1024, other than 80 and 443.
    #[error("port {port} may not be called")]
    Port {
        /// The port.
        port: u16,
    },
    /// A literal address that is not public.
    #[error("address {address} is not public")]
    Address {
        /// The address.
        address: IpAddr,
    },
    /// The name cannot be resolved now. The text does not differ from the next one, or clients could find out which
    /// names exist in the network of the server.
    #[error("host {name} does not resolve to a public address")]
    UnknownName {
        /// The host.
        name: String,
    },
    /// The name resolves, but to no address that is public.
    #[error("host {name} does not resolve to a public address")]
    PrivateName {
        /// The host.
        name: String,
    },
}
