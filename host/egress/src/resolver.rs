//! Name resolution.

use std::io;
use std::net::IpAddr;

use annex_fairness::{FairPlaces, current_tenant};
use async_trait::async_trait;
use tokio::net::lookup_host;

/// Resolves host names.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// The addresses of a host name, in the order in which to try them.
    ///
    /// # Errors
    /// The name is unknown or cannot be looked up now.
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the operating system.
pub struct SystemResolver {
    /// One place per running look-up. Waiting tenants are served round robin.
    lookups: FairPlaces,
}

impl SystemResolver {
    /// Most look-ups at the same time. Each look-up holds a thread until the name server answers, and an attacker may
    /// own the name server. The process has 512 threads for all blocking work.
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
        // The look-up continues after the caller gives up, so its permit must outlive the caller.
        let lookup = tokio::spawn(async move {
            let _permit = permit;
            Ok(lookup_host((host.as_str(), 0)).await?.map(|address| address.ip()).collect())
        });
        lookup.await.map_err(io::Error::other)?
    }
}
