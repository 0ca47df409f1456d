//! URLs of issuers.

use std::net::IpAddr;

use reqwest::Url;

/// True if nobody between the two machines can read or change a request to this URL: `https`, or `http` on this machine.
pub(crate) fn is_safe(url: &Url) -> bool {
    url.scheme() == "https" || (url.scheme() == "http" && is_on_this_machine(url))
}

/// The problem of a URL for which [`is_safe`] is false.
pub(crate) const UNSAFE: &str = "must be https, or http on this machine";

/// True if the URL names this machine.
pub(crate) fn is_on_this_machine(url: &Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}
