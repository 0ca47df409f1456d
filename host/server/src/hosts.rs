//! Under which names a server is called that trusts whoever reaches it.
//!
//! A web page can point a name of its own at 127.0.0.1 and then call a server there as if it were its own (DNS
//! rebinding). The browser still sends that name, by which such calls are told.

use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::http::{Request, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::config::Config;

/// The names that are taken besides those of the machine itself.
pub(crate) struct Hosts {
    /// The host of `server.public_url`.
    public: Option<String>,
}

impl Hosts {
    /// `None` where any name is taken: callers are authenticated, or the server is open to others by intent.
    pub(crate) fn of(config: &Config) -> Option<Arc<Self>> {
        let guards = config.auth.is_none() && config.server.listen.ip().is_loopback();
        let public = config.server.public_url.as_deref().and_then(|url| url.parse::<Uri>().ok());
        let public = public.and_then(|url| url.host().map(str::to_owned));
        guards.then(|| Arc::new(Self { public }))
    }

    fn takes(&self, host: &str) -> bool {
        is_loopback(host) || self.public.as_deref().is_some_and(|public| public.eq_ignore_ascii_case(host))
    }
}

/// Refuses a request that was sent to another's name. One without a name comes from no browser.
pub(crate) async fn check(State(hosts): State<Arc<Hosts>>, request: Request<Body>, next: Next) -> Response {
    let named = request.headers().get_all(HOST).iter().map(|value| value.to_str().ok().and_then(host));
    let asked = request.uri().host().map(|host| Some(host.to_owned()));
    match named.chain(asked).find(|host| !host.as_deref().is_some_and(|host| hosts.takes(host))) {
        Some(host) => refuse(host.as_deref().unwrap_or("unreadable")),
        None => next.run(request).await,
    }
}

fn host(authority: &str) -> Option<String> {
    authority.parse::<Authority>().ok().map(|authority| authority.host().to_owned())
}

fn is_loopback(host: &str) -> bool {
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
