//! The source of the addresses of a host name.

use std::io;
use std::net::IpAddr;

use annex_fairness::{FairPlaces, current_tenant};
use async_trait::async_trait;
use tokio::net::lookup_host;

/// Finds the addresses of host names.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// The addresses of a host name, in the order in which they should be tried.
    ///
    /// # Errors
    /// The name is unknown, or could not be looked up now.
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the operating system.
pub struct SystemResolver {
    /// Tenants that wait get them in turn.
    lookups: FairPlaces,
}

impl SystemResolver {
    /// A look-up holds a thread for as long as the name servers of the name please, and whoever chose the name may own
    /// those servers. So many threads at once, out of the 512 that all blocking work of the process shares.
    const MAX_LOOKUPS: usize = 64;
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self { lookups: FairPlaces::new(Self::MAX_LOOKUPS) }
    }
}

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let permit = self.lookups.take(&current_tenant()).await;
        let host = host.to_owned();
        // The thread goes on when the caller gives up, so the permit must not end with the caller.
        let lookup = tokio::spawn(async move {
            let _permit = permit;
            Ok(lookup_host((host.as_str(), 0)).await?.map(|address| address.ip()).collect())
        });
        lookup.await.map_err(io::Error::other)?
    }
}
