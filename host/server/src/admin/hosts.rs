//! The names by which the admin API may be reached.
//!
//! A web page can make a browser send requests to a loopback address under the page's own name (DNS rebinding); that
//! name is in the Host header.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::header::HOST;
use axum::http::uri::Authority;

use crate::config::AdminConfig;

pub(super) struct Hosts {
    listen: IpAddr,
    names: Vec<String>,
}

impl Hosts {
    pub(super) fn new(config: &AdminConfig) -> Self {
        Self { listen: config.listen.ip(), names: config.hosts.clone() }
    }

    /// Whether the request names a host, and none but those that are allowed.
    pub(super) fn allow(&self, request: &Request) -> bool {
        let lines = request.headers().get_all(HOST).iter().map(|line| line.to_str().unwrap_or_default());
        // HTTP/2 has the name in the URI.
        let named: Vec<&str> = lines.chain(request.uri().authority().map(Authority::as_str)).collect();
        !named.is_empty() && named.iter().all(|name| self.allow_name(name))
    }

    /// The port does not matter.
    fn allow_name(&self, authority: &str) -> bool {
        let Ok(authority) = authority.parse::<Authority>() else { return false };
        if authority.as_str().contains('@') {
            return false;
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        match host.parse::<IpAddr>() {
            Ok(address) => address.is_loopback() || address == self.listen || self.is_listed(host),
            Err(_) => host.eq_ignore_ascii_case("localhost") || self.is_listed(host),
        }
    }

    fn is_listed(&self, host: &str) -> bool {
        self.names.iter().any(|name| name.eq_ignore_ascii_case(host))
    }
}

#[cfg(test)]
mod tests {
    use super::Hosts;
    use crate::config::AdminConfig;

    #[test]
    fn only_loopback_names_the_address_and_listed_names_are_allowed() {
        let listen = "10.0.0.7:9998".parse().expect("an address");
        let config = AdminConfig { listen, hosts: vec!["annex.internal".to_owned()], ..AdminConfig::default() };
        let hosts = Hosts::new(&config);
        let allowed = [
            "localhost",
            "LOCALHOST:1",
            "127.0.0.1:9998",
            "127.1.2.3",
            "[::1]:9998",
            "10.0.0.7:9998",
            "Annex.internal",
        ];
        for name in allowed {
            assert!(hosts.allow_name(name), "{name}");
        }
        let foreign = [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.8",
            "localhost@evil.example",
        ];
        for name in foreign {
            assert!(!hosts.allow_name(name), "{name}");
        }
    }
}
