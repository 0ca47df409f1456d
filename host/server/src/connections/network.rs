//! The keys by which budgets and limits tell callers apart.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr};

/// The network of an address. For IPv4 the network is the address itself. For IPv6 it is the /64 of the address, which
/// belongs to one customer. Two IPv6 addresses in the same /64 give equal networks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    part: IpAddr,
    address: IpAddr,
}

impl Network {
    pub(crate) fn of(address: IpAddr) -> Self {
        // On a listener of IPv6, clients of IPv4 have mapped addresses (`::ffff:192.0.2.1`), which all lie in one /64.
        let address = address.to_canonical();
        let part = match address {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
            IpAddr::V4(_) => address,
        };
        Self { part, address }
    }

    /// The part of the address that equal networks share: the IPv4 address, or the first address of the /64.
    pub(crate) fn part(&self) -> IpAddr {
        self.part
    }

    /// The full address, for logs.
    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }
}

impl PartialEq for Network {
    fn eq(&self, other: &Self) -> bool {
        self.part == other.part
    }
}

impl Eq for Network {}

impl Hash for Network {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.part.hash(state);
    }
}

/// The identity by which counters tell callers apart: a principal or a network.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CallerKey {
    Principal(String),
    /// An anonymous client.
    Network(Network),
}

#[cfg(test)]
mod tests {
    use super::Network;

    #[test]
    fn a_network_is_an_address_or_a_64_of_ipv6() {
        let network = |address: &str| Network::of(address.parse().expect("an address"));
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:0:0:1"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
        assert_eq!(network("192.0.2.1"), network("::ffff:192.0.2.1"), "IPv4 on a listener of IPv6");
    }
}
