//! Under which names a listener is called.
//!
//! A web page can point a name of its own at 127.0.0.1 and then call a server there as if it were its own (DNS
//! rebinding). The browser still sends that name, by which such calls are told. A page can also send a POST without a
//! body to 127.0.0.1 itself, which no browser asks about first; it then says where the page is from.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use axum::extract::Request;
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use crate::config::{AdminConfig, Config};

/// The header that tells how the page that sends a request is related to the server (W3C Fetch Metadata). Pages cannot
/// set it.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// The names that are taken besides those of the machine itself.
pub(crate) struct Hosts {
    names: Vec<String>,
    /// The first name that was taken. Nearly all requests bring the same one, which need not be read again.
    first_taken: OnceLock<HeaderValue>,
}

impl Hosts {
    /// The names of the A2A listener. `None` where any name is taken: callers are authenticated, or the server is open
    /// to others by intent.
    pub(crate) fn of(config: &Config) -> Option<Arc<Self>> {
        let guards = config.auth.is_none() && config.server.listen.ip().is_loopback();
        let public = config.server.public_url.as_deref().and_then(|url| url.parse::<Uri>().ok());
        let public = public.and_then(|url| url.host().map(str::to_owned));
        guards.then(|| Arc::new(Self::named(public.into_iter().collect())))
    }

    /// The names of the admin listener: the address that it listens on, and what the config adds.
    pub(crate) fn of_admin(config: &AdminConfig) -> Self {
        let listen = match config.listen.ip() {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        Self::named(config.hosts.iter().cloned().chain([listen]).collect())
    }

    fn named(names: Vec<String>) -> Self {
        Self { names, first_taken: OnceLock::new() }
    }

    /// The answer to a request for a foreign host name, or to one by which a page of another origin would change
    /// something, unless the config allows that page; `None` for all others. A request with neither a name nor an origin
    /// comes from no browser.
    pub(crate) fn refusal<B>(&self, request: &Request<B>, is_allowed_page: bool) -> Option<Response> {
        if let Err(foreign) = self.check(request) {
            return Some(refuse(&foreign));
        }
        if is_allowed_page {
            return None;
        }
        self.check_page(request).err().map(|page| refuse_page(&page))
    }

    /// Checks that the request names no host but those that are taken. An error is the name that is not. A browser
    /// always names one.
    pub(crate) fn check<B>(&self, request: &Request<B>) -> Result<(), String> {
        for line in request.headers().get_all(HOST) {
            if self.first_taken.get() == Some(line) {
                continue;
            }
            // A field that is no text becomes a name that this machine does not have, and is refused.
            let name = line.to_str().unwrap_or("unreadable");
            if !self.takes(name) {
                return Err(name.to_owned());
            }
            // Whoever came first stays.
            let _ = self.first_taken.set(line.clone());
        }
        // HTTP/2 has the name in the URI.
        let foreign = request.uri().authority().map(Authority::as_str).filter(|authority| !self.takes(authority));
        foreign.map_or(Ok(()), |foreign| Err(foreign.to_owned()))
    }

    /// Checks that no page of another origin sends the request. An error is what the browser says of that page. A
    /// request that only reads may be sent by any page, because the browser keeps the answer from it.
    fn check_page<B>(&self, request: &Request<B>) -> Result<(), String> {
        if matches!(*request.method(), Method::GET | Method::HEAD) {
            return Ok(());
        }
        let lines = |name| request.headers().get_all(name).iter().map(|line| line.to_str().unwrap_or("unreadable"));
        // `none` is the user: the address bar or a bookmark.
        let site = lines(SEC_FETCH_SITE).find(|site| !matches!(*site, "same-origin" | "none"));
        // Browsers without Fetch Metadata still name the origin of the page with a POST.
        let origin = || lines(ORIGIN.as_str()).find(|origin| !self.is_own(origin));
        site.or_else(origin).map_or(Ok(()), |foreign| Err(foreign.to_owned()))
    }

    /// True if the origin is this server. Sandboxed pages and files have the origin `null`, which never is.
    fn is_own(&self, origin: &str) -> bool {
        let origin = origin.parse::<Uri>().ok();
        origin.is_some_and(|origin| origin.authority().is_some_and(|authority| self.takes(authority.as_str())))
    }

    /// True if the authority names this server. The port does not matter.
    fn takes(&self, authority: &str) -> bool {
        // The authority is parsed, so that `localhost@evil.example` counts as the host behind the `@`.
        let Ok(authority) = authority.parse::<Authority>() else { return false };
        let host = authority.host();
        is_loopback(host) || self.names.iter().any(|name| name.eq_ignore_ascii_case(host))
    }
}

fn is_loopback(host: &str) -> bool {
    // `localhost.` is the same name, written with its final dot.
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(&name);
    // Names below localhost never leave the machine (RFC 6761 section 6.3).
    name == "localhost"
        || name.ends_with(".localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

fn refuse(host: &str) -> Response {
    let text = format!(
        "this server has no authentication and is called as {host:?}, which is not this machine; if clients reach it \
         under that name, set server.public_url\n"
    );
    (StatusCode::FORBIDDEN, text).into_response()
}

fn refuse_page(page: &str) -> Response {
    let text = format!(
        "this server has no authentication and lets no web page of another origin ({page:?}) change anything; if that \
         page is to use it, list its origin in server.cors_origins, or set [auth]\n"
    );
    (StatusCode::FORBIDDEN, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::Hosts;
    use crate::config::AdminConfig;

    #[test]
    fn only_loopback_names_the_address_and_listed_names_are_taken() {
        let listen = "10.0.0.7:9998".parse().expect("an address");
        let config = AdminConfig { listen, hosts: vec!["annex.internal".to_owned()], ..AdminConfig::default() };
        let hosts = Hosts::of_admin(&config);
        let taken = [
            "localhost",
            "LOCALHOST:1",
            "app.localhost",
            "127.0.0.1:9998",
            "127.1.2.3",
            "[::1]:9998",
            "10.0.0.7:9998",
            "Annex.internal",
        ];
        for name in taken {
            assert!(hosts.takes(name), "{name}");
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
            assert!(!hosts.takes(name), "{name}");
        }
    }
}
