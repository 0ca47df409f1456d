//! Accepts connections up to the limits on their number, and ends them when the server stops.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annex_fairness::resize;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connections::connection::Connections;
use crate::connections::network::Network;
use crate::connections::site::Site;
use crate::connections::tls::Tls;
use crate::connections::warnings::Warnings;

/// The pause before the next attempt to accept a connection, after the kernel has refused one. The process may have no
/// file descriptor left, for instance.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The time for connections to finish after the listener closes.
const GOODBYE: Duration = Duration::from_secs(5);

/// The limits on the clients of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionLimits {
    /// The maximum number of connections at the same time. Further clients wait until a connection closes.
    pub(crate) connections: usize,
    /// The maximum number of connections at the same time from one address, or from one /64 of IPv6. Further
    /// connections are closed.
    pub(crate) per_address: usize,
    /// Time limit for a client to send the head of a request. A connection that is idle for this time is closed.
    pub(crate) head: Duration,
    /// Time limit for a client to read. A client that reads nothing for this time is disconnected.
    pub(crate) write: Duration,
    /// The maximum number of requests at the same time on one HTTP/2 connection.
    pub(crate) streams: u32,
}

/// A bound listener, and its TLS. Without TLS it speaks plain HTTP.
pub(crate) struct BoundListener {
    pub(crate) socket: TcpListener,
    pub(crate) tls: Option<Arc<Tls>>,
}

/// Serves connections until `closed` is cancelled. Then running requests get [`GOODBYE`] to finish. A connection keeps
/// the limits that applied when it was accepted.
///
/// The future of an `async fn` is compiled by the crate that polls it. This function spawns the future, so all code
/// that serves requests is compiled once, by this crate, and not by each program that runs a server.
pub(crate) fn spawn(
    listener: BoundListener,
    site: impl Site,
    limits: watch::Receiver<ConnectionLimits>,
    closed: CancellationToken,
) -> JoinHandle<io::Result<()>> {
    tokio::spawn(serve(listener, site, limits, closed))
}

async fn serve(
    listener: BoundListener,
    site: impl Site,
    limits: watch::Receiver<ConnectionLimits>,
    closed: CancellationToken,
) -> io::Result<()> {
    let BoundListener { socket: listener, tls } = listener;
    let mut current = CurrentLimits::new(limits, site, tls);
    let addresses = Arc::new(Addresses::default());
    let mut failures = Warnings::default();
    let mut refusals = Warnings::default();
    let open = TaskTracker::new();
    loop {
        // A slot is taken before a connection is accepted. Clients above the limit wait in the queue of the kernel.
        let slot = tokio::select! {
            // The semaphore is never closed, so the result is always `Ok`.
            Ok(slot) = Arc::clone(&current.slots).acquire_owned() => slot,
            // A changed limit may add slots.
            Ok(()) = current.changes.changed() => {
                current.update();
                continue;
            }
            () = closed.cancelled() => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = closed.cancelled() => break,
        };
        // The limits may have changed during the wait.
        current.update();
        let (stream, peer) = match accepted {
            Ok((stream, peer)) => (stream, peer.ip()),
            Err(error) => {
                if let Some(times) = failures.due() {
                    tracing::warn!(%error, times, "cannot accept connections");
                }
                // The connection is still in the queue, so trying again at once would spin.
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // Dropping the stream closes the connection and frees its slot for another address.
        let Some(address) = addresses.enter(peer, current.limits.per_address) else {
            if let Some(times) = refusals.due() {
                let most = current.limits.per_address;
                tracing::warn!(%peer, most, times, "closed connections of an address that has too many");
            }
            continue;
        };
        let connections = Arc::clone(&current.connections);
        let closed = closed.clone();
        open.spawn(async move {
            connections.serve(stream, peer, closed).await;
            // The slot and the address count until the connection ends.
            drop((slot, address));
        });
    }
    // New connections are refused from here on, while the open ones finish.
    drop(listener);
    open.close();
    // A client that neither reads nor closes its connection does not keep the process alive.
    let _ = timeout(GOODBYE, open.wait()).await;
    Ok(())
}

/// The current limits, and the state that depends on the limits.
struct CurrentLimits<S> {
    changes: watch::Receiver<ConnectionLimits>,
    limits: ConnectionLimits,
    slots: Arc<Semaphore>,
    site: S,
    tls: Option<Arc<Tls>>,
    connections: Arc<Connections<S>>,
}

impl<S: Site> CurrentLimits<S> {
    fn new(mut changes: watch::Receiver<ConnectionLimits>, site: S, tls: Option<Arc<Tls>>) -> Self {
        let limits = *changes.borrow_and_update();
        let slots = Arc::new(Semaphore::new(limits.slots()));
        let connections = Arc::new(Connections::new(limits, site.clone(), tls.clone()));
        Self { changes, limits, slots, site, tls, connections }
    }

    /// Applies changed limits. Open connections keep their time limits.
    fn update(&mut self) {
        let now = *self.changes.borrow_and_update();
        if now == self.limits {
            return;
        }
        resize(&self.slots, self.limits.slots(), now.slots());
        self.connections = Arc::new(Connections::new(now, self.site.clone(), self.tls.clone()));
        self.limits = now;
    }
}

impl ConnectionLimits {
    /// The number of connections in the config, but at most the maximum of tokio's semaphore. Above its maximum, the
    /// semaphore panics.
    fn slots(&self) -> usize {
        self.connections.min(Semaphore::MAX_PERMITS)
    }
}

/// Counts connections per network.
#[derive(Default)]
struct Addresses {
    open: Mutex<HashMap<Network, usize>>,
}

/// A counted connection. Dropping this value ends the count.
struct Address {
    addresses: Arc<Addresses>,
    network: Network,
}

impl Addresses {
    /// Counts a connection from `peer`. `None` if the network of `peer` has `most` connections already.
    fn enter(self: &Arc<Self>, peer: IpAddr, most: usize) -> Option<Address> {
        let network = Network::of(peer);
        let mut open = self.lock();
        let own = open.entry(network).or_default();
        // The bound is at least 1 (`config/bounds.rs`), so a refusal leaves no empty entry in the map.
        if *own >= most {
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
