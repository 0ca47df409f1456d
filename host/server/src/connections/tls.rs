//! The TLS of a listener (TLS 1.2 and 1.3): the certificate in use, which a changed file replaces for later connections,
//! and counters for the metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use tokio_rustls::TlsAcceptor;

mod error;
mod files;
mod watch;

pub use error::TlsError;
pub(crate) use files::{LoadedTls, TlsFiles};

/// The TLS of the listeners of one config table.
pub(crate) struct Tls {
    /// The config table, such as `server.tls`.
    table: &'static str,
    files: TlsFiles,
    loaded: RwLock<Arc<LoadedTls>>,
    numbers: TlsNumbers,
}

/// The counters of one [`Tls`].
#[derive(Default)]
pub(crate) struct TlsNumbers {
    /// Changed files that are in use.
    pub(crate) reloads: AtomicU64,
    /// Changed files that cannot be used.
    pub(crate) refused_reloads: AtomicU64,
    /// Connections that ended before their handshake did.
    pub(crate) failed_handshakes: AtomicU64,
}

impl Tls {
    /// Reads the files of the table `table`.
    ///
    /// # Errors
    /// A file cannot be read or used.
    pub(crate) fn load(table: &'static str, files: TlsFiles) -> Result<Self, TlsError> {
        let loaded = files.read()?.load(&files)?;
        Ok(Self { table, files, loaded: RwLock::new(Arc::new(loaded)), numbers: TlsNumbers::default() })
    }

    /// The acceptor for the next connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.loaded().acceptor.clone()
    }

    pub(crate) fn numbers(&self) -> &TlsNumbers {
        &self.numbers
    }

    /// The end of the certificate in use, in seconds since 1970.
    pub(crate) fn ends_at(&self) -> u64 {
        let since_1970 = self.loaded().certificate.not_after().duration_since(SystemTime::UNIX_EPOCH);
        since_1970.as_ref().map_or(0, Duration::as_secs)
    }

    pub(crate) fn count_failed_handshake(&self) {
        self.numbers.failed_handshakes.fetch_add(1, Ordering::Relaxed);
    }

    fn loaded(&self) -> Arc<LoadedTls> {
        Arc::clone(&self.loaded.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Uses `loaded` for later connections. Open connections keep their keys.
    fn replace(&self, loaded: LoadedTls) {
        *self.loaded.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(loaded);
    }
}
