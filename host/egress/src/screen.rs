//! Decides whether a request to a URL that somebody else chose may be made.
//!
//! A server that requests URLs of others lends them its place in the network. So only public addresses are called,
//! unless the operator allows others. The rule holds for the address that is connected to, not only for the one that
//! the name resolved to when the URL was registered.

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
mod allowed;
mod refused;

pub use allowed::{Allowed, InvalidAllowed};
pub use refused::Refused;

/// The settings of a [`Screen`]. By default it lets https and http to public addresses through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScreenConfig {
    /// Hosts and addresses that may be called although they are not public.
    pub allow: Vec<Allowed>,
    /// Refuses plain http, also to what is allowed.
    pub https_only: bool,
}

/// Tells URLs and addresses that may be called from those that may not. Clones share their resolver.
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
    /// The longest URL that is accepted, in bytes.
    pub const MAX_URL: usize = 2048;
    const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
    /// The most addresses of one name that are tried.
    const MAX_ADDRESSES: usize = 16;

    /// A screen that asks the resolver of the operating system.
    pub fn new(config: ScreenConfig) -> Self {
        Self::with_resolver(config, Arc::new(SystemResolver::default()))
    }

    /// A screen that asks another resolver.
    pub fn with_resolver(config: ScreenConfig, resolver: Arc<dyn Resolver>) -> Self {
        Self { config: Arc::new(config), resolver }
    }

    /// Checks that a URL may be called as things are now, for the moment of its registration. It takes up to 5 seconds.
    ///
    /// # Errors
    /// The fault of the URL, in words that its author may read.
    pub async fn check(&self, url: &str) -> Result<(), Refused> {
        let url = self.parse(url)?;
        match url.host() {
            Some(Host::Domain(name)) => self.addresses(name).await.map(drop),
            // `parse` has judged literal addresses.
            Some(Host::Ipv4(_) | Host::Ipv6(_)) | None => Ok(()),
        }
    }

    /// Reads a URL and checks all of it except what its host name resolves to. A client of [`Screen::guard`] needs
    /// this before each request: it connects to a literal address without asking any resolver.
    ///
    /// # Errors
    /// The fault of the URL, in words that its author may read.
    pub fn parse(&self, url: &str) -> Result<Url, Refused> {
        if url.len() > Self::MAX_URL {
            return Err(Refused::TooLong { limit: Self::MAX_URL });
        }
        let url = Url::parse(url).map_err(Refused::Malformed)?;
        match url.scheme() {
            "https" => {}
            "http" if !self.config.https_only => {}
            "http" => return Err(Refused::NotHttps),
            _ => return Err(Refused::Scheme),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Refused::UserInfo);
        }
        self.check_host(&url)?;
        check_port(&url)?;
        Ok(url)
    }

    /// Lets a client connect by name only to addresses that may be called, directly, and without following redirects.
    /// Every URL must go through [`Screen::parse`] before it is requested.
    pub fn guard(&self, client: ClientBuilder) -> ClientBuilder {
        // A redirect or a proxy would lead to an address that the screen has not seen.
        client
            .dns_resolver(self.clone())
            .redirect(redirect::Policy::none())
            .no_proxy()
            .referer(false)
            .retry(retry::never())
            .https_only(self.config.https_only)
    }

    fn check_host(&self, url: &Url) -> Result<(), Refused> {
        let address = match url.host() {
            Some(Host::Domain(name)) => return check_name(name),
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
            None => return Err(Refused::NoHost),
        };
        if self.admits(address, None) { Ok(()) } else { Err(Refused::Address { address }) }
    }

    /// The addresses of a host name that may be called, at least one.
    async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, Refused> {
        let name = without_final_dot(name).to_ascii_lowercase();
        let mut addresses = self.resolve(&name).await?;
        addresses.retain(|address| self.admits(*address, Some(&name)));
        addresses.truncate(Self::MAX_ADDRESSES);
        if addresses.is_empty() { Err(Refused::PrivateName { name }) } else { Ok(addresses) }
    }

    async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, Refused> {
        // RFC 6761: these names are never asked for.
        if name == "localhost" || name.ends_with(".localhost") {
            return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
        }
        match timeout(Self::LOOKUP_TIMEOUT, self.resolver.resolve(name)).await {
            Ok(Ok(addresses)) if !addresses.is_empty() => Ok(addresses),
            Ok(Ok(_) | Err(_)) | Err(_) => Err(Refused::UnknownName { name: name.to_owned() }),
        }
    }

    /// True if an address, found under `name` or written out in the URL, may be connected to.
    fn admits(&self, address: IpAddr, name: Option<&str>) -> bool {
        let address = address.to_canonical();
        // These come first: one of them is a public address, and others may lie in a range that is allowed.
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
            // The client puts the port of the URL in the place of 0.
            let addresses = addresses.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as Addrs)
        })
    }
}

fn check_name(name: &str) -> Result<(), Refused> {
    let name = without_final_dot(name);
    if name.is_empty() || name.len() > 253 || name.split('.').any(|label| label.is_empty() || label.len() > 63) {
        return Err(Refused::NoHost);
    }
    Ok(())
}

/// Refuses ports below 1024 other than those of web servers. What listens there speaks other protocols, and could take
/// a posted body for a command.
fn check_port(url: &Url) -> Result<(), Refused> {
    match url.port_or_known_default() {
        Some(80 | 443 | 1024..) => Ok(()),
        Some(port) => Err(Refused::Port { port }),
        None => Err(Refused::Scheme),
    }
}

fn without_final_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}
