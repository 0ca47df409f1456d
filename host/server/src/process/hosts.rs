//! Protection against web pages, for listeners that a browser reaches without asking its user: those without
//! authentication, and those that ask for client certificates.
//!
//! With DNS rebinding, a web page points its own host name to 127.0.0.1. It then calls a local server as if the server
//! belonged to the page. The browser still sends the page's host name, so the server refuses foreign host names.
//!
//! A page can also send a POST without a body directly to 127.0.0.1, without a preflight request. The browser then
//! sends the page's origin, so the server refuses foreign origins. A browser adds the user's certificate to such a POST.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use axum::extract::Request;
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};

use crate::config::{AdminConfig, Config};

/// The header field in which a browser says whether the sending page belongs to the server (W3C Fetch Metadata). Pages
/// cannot set this field.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// The host names that a listener accepts, in addition to loopback names.
pub(crate) struct Hosts {
    names: Vec<String>,
    /// True if requests may have any host name, and only pages of other origins are refused.
    allows_any_name: bool,
    /// The first accepted `Host` field. Nearly all requests have a field with these bytes, which then needs no further
    /// check.
    first_taken: OnceLock<HeaderValue>,
}

impl Hosts {
    /// The names of the A2A listener: the host of `server.public_url`. The listener accepts any name if callers are
    /// authenticated or other machines can reach the listener. `None` if it also takes changes from any page, because it
    /// asks for no client certificates.
    pub(crate) fn of(config: &Config) -> Option<Arc<Self>> {
        let trusts_machine = config.auth.is_none() && config.server.listen.ip().is_loopback();
        let wants_certificates = config.server.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        let public = config.server.public_url.as_deref().and_then(|url| url.parse::<Uri>().ok());
        let public = public.and_then(|url| url.host().map(str::to_owned));
        let guards = trusts_machine || wants_certificates;
        guards.then(|| Arc::new(Self { allows_any_name: !trusts_machine, ..Self::named(public.into_iter().collect()) }))
    }

    /// The names of the admin listener: its address and `admin.hosts`.
    pub(crate) fn of_admin(config: &AdminConfig) -> Self {
        let listen = match config.listen.ip() {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        Self::named(config.hosts.iter().cloned().chain([listen]).collect())
    }

    fn named(names: Vec<String>) -> Self {
        Self { names, allows_any_name: false, first_taken: OnceLock::new() }
    }

    /// Returns the refusal of a request, or `None` if the request may proceed. Refuses a foreign host name, unless the
    /// listener accepts any. Also refuses a request by which a page of another origin could change something, unless
    /// `is_allowed_page` is true. `is_allowed_page` is true for a page that `server.cors_origins` allows. A request with
    /// neither a host name nor an origin does not come from a browser.
    pub(crate) fn refusal<B>(&self, request: &Request<B>, is_allowed_page: bool) -> Option<Response> {
        if !self.allows_any_name
            && let Err(foreign) = self.check(request)
        {
            return Some(refuse(&foreign));
        }
        if is_allowed_page {
            return None;
        }
        self.check_page(request).err().map(|page| refuse_page(&page))
    }

    /// Checks the host names of the request. A browser always sends a host name.
    ///
    /// # Errors
    /// The first foreign name.
    pub(crate) fn check<B>(&self, request: &Request<B>) -> Result<(), String> {
        for line in request.headers().get_all(HOST) {
            if self.first_taken.get() == Some(line) {
                continue;
            }
            // A field that is not text is replaced by a name that is always refused.
            let name = line.to_str().unwrap_or("unreadable");
            if !self.takes(name) {
                return Err(name.to_owned());
            }
            // Another request may have set the field first, which is just as good.
            let _ = self.first_taken.set(line.clone());
        }
        // In HTTP/2 the host name is in the URI.
        let foreign = request.uri().authority().map(Authority::as_str).filter(|authority| !self.takes(authority));
        foreign.map_or(Ok(()), |foreign| Err(foreign.to_owned()))
    }

    /// Checks that the request does not come from a page of another origin. Any page may send GET and HEAD: these
    /// requests change nothing, and the browser hides the answer from a foreign page.
    ///
    /// # Errors
    /// The value of the field that shows the foreign page.
    pub(crate) fn check_page<B>(&self, request: &Request<B>) -> Result<(), String> {
        if matches!(*request.method(), Method::GET | Method::HEAD) {
            return Ok(());
        }
        let lines = |name| request.headers().get_all(name).iter().map(|line| line.to_str().unwrap_or("unreadable"));
        // `none` stands for the user, through the address bar or a bookmark.
        let site = lines(SEC_FETCH_SITE).find(|site| !matches!(*site, "same-origin" | "none"));
        // Browsers without Fetch Metadata still send the page's origin with a POST.
        let origin = || lines(ORIGIN.as_str()).find(|origin| !self.is_own(origin));
        site.or_else(origin).map_or(Ok(()), |foreign| Err(foreign.to_owned()))
    }

    /// True if the origin is this server. Sandboxed pages and local files have the origin `null`, which is always
    /// foreign.
    fn is_own(&self, origin: &str) -> bool {
        let origin = origin.parse::<Uri>().ok();
        origin.is_some_and(|origin| origin.authority().is_some_and(|authority| self.takes(authority.as_str())))
    }

    /// True if the authority names this server. The port is ignored.
    fn takes(&self, authority: &str) -> bool {
        // Parsing the authority makes the host of `localhost@evil.example` the part after the `@`.
        let Ok(authority) = authority.parse::<Authority>() else { return false };
        let host = authority.host();
        is_loopback(host) || self.names.iter().any(|name| name.eq_ignore_ascii_case(host))
    }
}

fn is_loopback(host: &str) -> bool {
    // `localhost.` with a final dot is the same name.
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(&name);
    // Names below localhost always resolve to this machine (RFC 6761 section 6.3).
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
        "this server lets no web page of another origin ({page:?}) change anything, because a browser calls it without \
         asking its user; if that page is to use this server, list its origin in server.cors_origins\n"
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
