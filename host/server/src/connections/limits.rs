//! The limits of `[server]` on requests, answers and connections. A reload of the config changes them for later
//! requests and connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;

use crate::config::ServerConfig;
use crate::connections::caller::Shares;
use crate::connections::listener::ConnectionLimits;

/// The limits of the admin listener: few clients use the API, and a body may be large.
pub(crate) const OF_ADMIN: ConnectionLimits = ConnectionLimits {
    connections: 256,
    per_address: 256,
    head: Duration::from_secs(5),
    write: Duration::from_secs(30),
    streams: 8,
};

/// The limits of the listener for `/metrics` alone, which has few clients.
pub(crate) const OF_METRICS: ConnectionLimits = ConnectionLimits { connections: 64, per_address: 64, ..OF_ADMIN };

/// The current limits.
pub(crate) struct ServerLimits {
    max_body_bytes: AtomicUsize,
    body_seconds: AtomicU64,
    drain_seconds: AtomicU64,
    /// The counters and limits of the memory and streams of callers.
    pub(crate) shares: Arc<Shares>,
    connections: watch::Sender<ConnectionLimits>,
}

impl ServerLimits {
    pub(crate) fn new(config: &ServerConfig) -> Arc<Self> {
        Arc::new(Self {
            max_body_bytes: AtomicUsize::new(config.max_body_bytes),
            body_seconds: AtomicU64::new(config.body_seconds),
            drain_seconds: AtomicU64::new(config.drain_seconds),
            shares: Shares::new(&config.shares()),
            connections: watch::Sender::new(config.connections()),
        })
    }

    /// Replaces the limits by the limits of this config.
    pub(crate) fn set(&self, config: &ServerConfig) {
        self.max_body_bytes.store(config.max_body_bytes, Ordering::Relaxed);
        self.body_seconds.store(config.body_seconds, Ordering::Relaxed);
        self.drain_seconds.store(config.drain_seconds, Ordering::Relaxed);
        self.shares.set(&config.shares());
        self.connections.send_if_modified(|limits| {
            let before = std::mem::replace(limits, config.connections());
            before != *limits
        });
    }

    /// The maximum size of a request body, in bytes.
    pub(crate) fn max_body_bytes(&self) -> usize {
        self.max_body_bytes.load(Ordering::Relaxed)
    }

    /// Time limit for a client to send a request body.
    pub(crate) fn body_timeout(&self) -> Duration {
        Duration::from_secs(self.body_seconds.load(Ordering::Relaxed))
    }

    /// The time for running turns to finish when the server stops.
    pub(crate) fn drain(&self) -> Duration {
        Duration::from_secs(self.drain_seconds.load(Ordering::Relaxed))
    }

    /// A receiver of the limits on connections, which is notified of changes.
    pub(crate) fn connections(&self) -> watch::Receiver<ConnectionLimits> {
        self.connections.subscribe()
    }
}
