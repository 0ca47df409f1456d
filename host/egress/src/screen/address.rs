//! Classifies addresses as public or not (IANA special-purpose address registries, RFC 6890).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

/// IPv4 ranges that are not public.
const NOT_PUBLIC_V4: [Ipv4Net; 15] = [
    v4([0, 0, 0, 0], 8),       // this network
    v4([10, 0, 0, 0], 8),      // private
    v4([100, 64, 0, 0], 10),   // shared by customers of a provider
    v4([127, 0, 0, 0], 8),     // loopback
    v4([169, 254, 0, 0], 16),  // link-local
    v4([172, 16, 0, 0], 12),   // private
    v4([192, 0, 0, 0], 24),    // protocol assignments
    v4([192, 0, 2, 0], 24),    // documentation
    v4([192, 88, 99, 0], 24),  // 6to4 relays
    v4([192, 168, 0, 0], 16),  // private
    v4([198, 18, 0, 0], 15),   // benchmarks
    v4([198, 51, 100, 0], 24), // documentation
    v4([203, 0, 113, 0], 24),  // documentation
    v4([224, 0, 0, 0], 4),     // multicast
    v4([240, 0, 0, 0], 4),     // reserved, and broadcast
];

/// The range of public IPv6 addresses. Loopback, private, link-local and multicast addresses lie outside.
const GLOBAL_V6: Ipv6Net = v6([0x2000, 0, 0], 3);

/// Parts of the global range that are not public. Teredo (in the first range) and 6to4 carry IPv4 addresses.
const NOT_PUBLIC_V6: [Ipv6Net; 5] = [
    v6([0x2001, 0, 0], 23),     // protocol assignments
    v6([0x2001, 0xdb8, 0], 32), // documentation
    v6([0x2002, 0, 0], 16),     // 6to4
    v6([0x3ffe, 0, 0], 16),     // the former 6bone
    v6([0x3fff, 0, 0], 20),     // documentation
];

/// The prefix of IPv6 addresses that stand for an IPv4 address, in networks that only have IPv6 (RFC 6052). Such an
/// address is public if its IPv4 address is public.
const NAT64: Ipv6Net = v6([0x64, 0xff9b, 0], 96);

/// Addresses of cloud metadata services, which return the credentials of the machine that asks.
const METADATA: [IpAddr; 5] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];

/// True if a canonical address belongs to the public internet.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) if NAT64.contains(&address) => is_public_v4(embedded_v4(address)),
        IpAddr::V6(address) => {
            GLOBAL_V6.contains(&address) && !NOT_PUBLIC_V6.iter().any(|range| range.contains(&address))
        }
    }
}

/// True if a canonical address is that of a metadata service.
pub(crate) fn is_metadata(address: IpAddr) -> bool {
    let address = match address {
        // A network with NAT64 also reaches the service under this address.
        IpAddr::V6(address) if NAT64.contains(&address) => embedded_v4(address).into(),
        IpAddr::V4(_) | IpAddr::V6(_) => address,
    };
    METADATA.contains(&address)
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    !NOT_PUBLIC_V4.iter().any(|range| range.contains(&address))
}

fn embedded_v4(address: Ipv6Addr) -> Ipv4Addr {
    let [.., a, b, c, d] = address.octets();
    Ipv4Addr::new(a, b, c, d)
}

const fn v4([a, b, c, d]: [u8; 4], prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6([a, b, c]: [u16; 3], prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0), prefix)
}
