//! The listener: how many connections there may be, and how they end with the server.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connections::connection::Connections;
use crate::connections::network::Network;
use crate::connections::site::Site;

/// The pause after the machine refused a connection, for instance because no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A reason to refuse connections is logged at most this often.
const WARNING_PAUSE: Duration = Duration::from_secs(10);
/// The time that connections get to finish when the listener closes.
const GOODBYE: Duration = Duration::from_secs(5);

/// Bounds on connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    /// Connections at once; more wait to be accepted.
    pub(crate) connections: usize,
    /// Connections at once from one address, or from one /64 of IPv6; more are closed.
    pub(crate) per_address: usize,
    /// The longest that a client may take to send the head of a request. Connections idle for so long are closed.
    pub(crate) head: Duration,
    /// The longest that a client may leave unread what is sent to it.
    pub(crate) write: Duration,
    /// Requests at once on one HTTP/2 connection.
    pub(crate) streams: u32,
}

/// Serves connections until `closed` fires, then lets those that are busy finish, but not for long.
///
/// The future of an `async fn` is compiled by the crate that polls it. Spawned here, all that serves requests is compiled by
/// this crate, once, and not again by each program that runs a server.
pub(crate) fn spawn(
    listener: TcpListener,
    site: impl Site,
    limits: ConnectionLimits,
    closed: CancellationToken,
) -> JoinHandle<io::Result<()>> {
    tokio::spawn(serve(listener, site, limits, closed))
}

async fn serve(
    listener: TcpListener,
    site: impl Site,
    limits: ConnectionLimits,
    closed: CancellationToken,
) -> io::Result<()> {
    // tokio panics above its own maximum, and the config takes any number.
    let slots = Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS)));
    let connections = Arc::new(Connections::new(limits, site));
    let addresses = Arc::new(Addresses { most: limits.per_address, open: Mutex::default() });
    let mut failures = Warnings::default();
    let mut refusals = Warnings::default();
    let open = TaskTracker::new();
    loop {
        // A slot is taken before a connection is accepted: clients beyond the bound wait in the queue of the kernel.
        let slot = tokio::select! {
            // The semaphore is never closed, so a slot comes.
            Ok(slot) = Arc::clone(&slots).acquire_owned() => slot,
            () = closed.cancelled() => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = closed.cancelled() => break,
        };
        let (stream, peer) = match accepted {
            Ok((stream, peer)) => (stream, peer.ip()),
            Err(error) => {
                if let Some(times) = failures.due() {
                    tracing::warn!(%error, times, "connections could not be accepted");
                }
                // The connection is still in the queue, so trying again at once would spin.
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Dropping the stream closes the connection, and its slot is free for another address.
        let Some(address) = addresses.enter(peer) else {
            if let Some(times) = refusals.due() {
                let most = limits.per_address;
                tracing::warn!(%peer, most, times, "connections are closed, because their address has too many");
            }
            continue;
        };
        let connections = Arc::clone(&connections);
        let closed = closed.clone();
        open.spawn(async move {
            connections.serve(stream, peer, closed).await;
            // Both count until the connection is over.
            drop((slot, address));
        });
    }
    // New connections are refused from here on, while the open ones finish.
    drop(listener);
    open.close();
    // A client that neither reads nor hangs up does not keep the process alive.
    let _ = timeout(GOODBYE, open.wait()).await;
    Ok(())
}

/// Counts connections by where they come from.
struct Addresses {
    most: usize,
    open: Mutex<HashMap<Network, usize>>,
}

/// One connection of an address, until it is dropped.
struct Address {
    addresses: Arc<Addresses>,
    network: Network,
}

impl Addresses {
    /// `None` when the address has as many as it may.
    fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<Address> {
        let network = Network::of(peer);
        let mut open = self.lock();
        let own = open.entry(network).or_default();
        // The bound is at least 1 (`config/bounds.rs`), so a refusal leaves no empty entry in the map.
        if *own >= self.most {
            return None;
        }
        *own += 1;
        Some(Address { addresses: Arc::clone(self), network })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Network, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Address {
    fn drop(&mut self) {
        let mut open = self.addresses.lock();
        let Some(own) = open.get_mut(&self.network) else { return };
        *own -= 1;
        if *own == 0 {
            open.remove(&self.network);
        }
    }
}

/// A warning for what can happen many times a second.
#[derive(Default)]
struct Warnings {
    last: Option<Instant>,
    /// Times since then.
    times: usize,
}

impl Warnings {
    /// Counts once more. Returns how often it was since the last warning, when one is due.
    fn due(&mut self) -> Option<usize> {
        self.times += 1;
        if self.last.is_some_and(|last| last.elapsed() < WARNING_PAUSE) {
            return None;
        }
        self.last = Some(Instant::now());
        Some(std::mem::take(&mut self.times))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Warnings;

    #[tokio::test(start_paused = true)]
    async fn what_happens_often_is_logged_once_in_a_while_and_counted() {
        let mut warnings = Warnings::default();
        assert_eq!(warnings.due(), Some(1));
        for _ in 0..98 {
            tokio::time::advance(Duration::from_millis(100)).await;
            assert_eq!(warnings.due(), None);
        }
        tokio::time::advance(Duration::from_millis(200)).await;
        assert_eq!(warnings.due(), Some(99));
        assert_eq!(warnings.due(), None);
    }
}
