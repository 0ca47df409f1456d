//! URLs of issuers.

use std::net::IpAddr;

use reqwest::Url;

/// True if the URL names this machine.
pub(crate) fn is_on_this_machine(url: &Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}
