//! Decides whether a URL that a stranger chose may be requested.
//!
//! Such requests come from inside the server's network and could reach private services (server-side request
//! forgery). Therefore only public addresses are called, unless the operator allows others. The address of each
//! connection is checked, not only the one that the name had when the URL was registered.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{ClientBuilder, redirect, retry};
use tokio::time::timeout;
use url::{Host, Url};

use crate::resolver::{Resolver, SystemResolver};

mod address;
mod allowed_destination;
mod url_refusal;

pub use allowed_destination::{AllowedDestination, InvalidDestination};
pub use url_refusal::UrlRefusal;

/// Settings of a [`Screen`]. The default allows https and http to public addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScreenConfig {
    /// Hosts and addresses that may be called even if they are not public.
    pub allow: Vec<AllowedDestination>,
    /// True if plain http is refused, even for addresses in `allow`.
    pub https_only: bool,
}

/// Decides which URLs and addresses may be called. Clones share the resolver.
#[derive(Clone)]
pub struct Screen {
    config: Arc<ScreenConfig>,
    resolver: Arc<dyn Resolver>,
}

impl fmt::Debug for Screen {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Screen").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Screen {
    /// Maximum length of an accepted URL, in bytes.
    pub const MAX_URL: usize = 2048;
    const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
    /// Maximum number of addresses of one name that are tried.
    const MAX_ADDRESSES: usize = 16;

    /// Creates a screen with the resolver of the operating system.
    pub fn new(config: ScreenConfig) -> Self {
        Self::with_resolver(config, Arc::new(SystemResolver::default()))
    }

    /// Creates a screen with a given resolver.
    pub fn with_resolver(config: ScreenConfig, resolver: Arc<dyn Resolver>) -> Self {
        Self { config: Arc::new(config), resolver }
    }

    /// Checks that a URL may be called now. Call this when a URL is registered. Takes up to 5 seconds.
    ///
    /// # Errors
    /// The URL is refused. The error has the reason, as text for the author of the URL.
    pub async fn check(&self, url: &str) -> Result<(), UrlRefusal> {
        let url = self.parse(url)?;
        match url.host() {
            Some(Host::Domain(name)) => self.addresses(name).await.map(drop),
            // `parse` has checked literal addresses.
            Some(Host::Ipv4(_) | Host::Ipv6(_)) | None => Ok(()),
        }
    }

    /// Parses a URL and checks everything except the addresses that its host name resolves to. Call this before each
    /// request by a client of [`Screen::guard`]: such a client does not check an IP address in the URL, because it
    /// needs no resolver to connect.
    ///
    /// # Errors
    /// The URL is refused. The error has the reason, as text for the author of the URL.
    pub fn parse(&self, url: &str) -> Result<Url, UrlRefusal> {
        if url.len() > Self::MAX_URL {
            return Err(UrlRefusal::TooLong { limit: Self::MAX_URL });
        }
        let url = Url::parse(url).map_err(UrlRefusal::Malformed)?;
        match url.scheme() {
            "https" => {}
            "http" if !self.config.https_only => {}
            "http" => return Err(UrlRefusal::NotHttps),
            _ => return Err(UrlRefusal::Scheme),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(UrlRefusal::UserInfo);
        }
        self.check_host(&url)?;
        check_port(&url)?;
        Ok(url)
    }

    /// Restricts a client. The restricted client connects only to addresses that may be called, uses no proxy, and
    /// follows no redirects. Pass every URL through [`Screen::parse`] before requesting it.
    pub fn guard(&self, client: ClientBuilder) -> ClientBuilder {
        // A redirect or a proxy would lead to an address that the screen has not checked.
        client
            .dns_resolver(self.clone())
            .redirect(redirect::Policy::none())
            .no_proxy()
            .referer(false)
            .retry(retry::never())
            .https_only(self.config.https_only)
    }

    fn check_host(&self, url: &Url) -> Result<(), UrlRefusal> {
        let address = match url.host() {
            Some(Host::Domain(name)) => return check_name(name),
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
            None => return Err(UrlRefusal::NoHost),
        };
        if self.admits(address, None) { Ok(()) } else { Err(UrlRefusal::Address { address }) }
    }

    /// The addresses of a host name that may be called; at least one.
    async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, UrlRefusal> {
        let name = without_final_dot(name).to_ascii_lowercase();
        let mut addresses = self.resolve(&name).await?;
        addresses.retain(|address| self.admits(*address, Some(&name)));
        addresses.truncate(Self::MAX_ADDRESSES);
        if addresses.is_empty() { Err(UrlRefusal::PrivateName { name }) } else { Ok(addresses) }
    }

    async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, UrlRefusal> {
        // RFC 6761: these names are never looked up.
        if name == "localhost" || name.ends_with(".localhost") {
            return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
        }
        match timeout(Self::LOOKUP_TIMEOUT, self.resolver.resolve(name)).await {
            Ok(Ok(addresses)) if !addresses.is_empty() => Ok(addresses),
            Ok(Ok(_) | Err(_)) | Err(_) => Err(UrlRefusal::UnknownName { name: name.to_owned() }),
        }
    }

    /// True if the address may be connected to. `name` is the host name that resolved to the address, or `None` for a
    /// literal address.
    fn admits(&self, address: IpAddr, name: Option<&str>) -> bool {
        let address = address.to_canonical();
        // Metadata services first: one of them has a public address, and others may lie in an allowed range.
        if address::is_metadata(address) {
            return self.config.allow.iter().any(|allowed| allowed.is_exactly(address));
        }
        address::is_public(address) || self.config.allow.iter().any(|allowed| allowed.covers(address, name))
    }
}

impl Resolve for Screen {
    fn resolve(&self, name: Name) -> Resolving {
        let screen = self.clone();
        Box::pin(async move {
            let addresses = screen.addresses(name.as_str()).await?;
            // The HTTP client replaces port 0 by the port of the URL.
            let addresses = addresses.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as Addrs)
        })
    }
}

fn check_name(name: &str) -> Result<(), UrlRefusal> {
    let name = without_final_dot(name);
    if name.is_empty() || name.len() > 253 || name.split('.').any(|label| label.is_empty() || label.len() > 63) {
        return Err(UrlRefusal::NoHost);
    }
    Ok(())
}

/// Refuses ports below 1024 other than 80 and 443. Services on those ports speak other protocols and could interpret
/// a posted body as commands.
fn check_port(url: &Url) -> Result<(), UrlRefusal> {
    match url.port_or_known_default() {
        Some(80 | 443 | 1024..) => Ok(()),
        Some(port) => Err(UrlRefusal::Port { port }),
        None => Err(UrlRefusal::Scheme),
    }
}

fn without_final_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}
