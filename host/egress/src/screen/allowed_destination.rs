//! Hosts and addresses that the operator allows even if they are not public.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use url::Host;

/// A host or a range of addresses that may be called even if it is not public. Parsed from a host name
/// (`hooks.internal`), an address (`10.0.0.7`, `[::1]`) or a range (`10.0.0.0/8`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedDestination {
    /// A host name in lower case without a final dot. It allows all addresses of this host, but no subdomains.
    Host(String),
    /// One address, or a range of addresses.
    Addresses(IpNet),
}

/// The text is neither a host name nor an address nor a range of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is neither a host name nor an address nor a range of addresses")]
pub struct InvalidDestination {
    /// The invalid text.
    pub text: String,
}

impl AllowedDestination {
    pub(crate) fn covers(&self, address: IpAddr, name: Option<&str>) -> bool {
        match self {
            Self::Host(host) => name.is_some_and(|name| name == host),
            Self::Addresses(addresses) => addresses.contains(&address),
        }
    }

    /// True if this destination is exactly `address`. Only such a destination allows the address of a metadata service.
    /// An operator who allows a range or a name does not intend to expose the credentials of the machine.
    pub(crate) fn is_exactly(&self, address: IpAddr) -> bool {
        match self {
            Self::Host(_) => false,
            Self::Addresses(addresses) => *addresses == IpNet::from(address),
        }
    }
}

/// The text form that [`FromStr`] accepts.
impl fmt::Display for AllowedDestination {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => formatter.write_str(host),
            Self::Addresses(addresses) => addresses.fmt(formatter),
        }
    }
}

impl From<IpAddr> for AllowedDestination {
    fn from(address: IpAddr) -> Self {
        Self::Addresses(address.to_canonical().into())
    }
}

impl FromStr for AllowedDestination {
    type Err = InvalidDestination;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(range) = text.parse::<IpNet>() {
            return Ok(Self::Addresses(range.trunc()));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Addresses(address.to_canonical().into()));
        }
        match Host::parse(text.strip_suffix('.').unwrap_or(text)) {
            Ok(Host::Domain(name)) if !name.contains('*') => Ok(Self::Host(name)),
            Ok(Host::Ipv4(address)) => Ok(Self::Addresses(IpAddr::V4(address).into())),
            Ok(Host::Ipv6(address)) => Ok(Self::Addresses(IpAddr::V6(address).to_canonical().into())),
            Ok(Host::Domain(_)) | Err(_) => Err(InvalidDestination { text: text.to_owned() }),
        }
    }
}
