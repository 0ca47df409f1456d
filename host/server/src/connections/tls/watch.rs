//! Watches the files of a TLS table, and warns before the certificate ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use annex_telemetry::fault;
use sha2::{Digest, Sha256};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::Tls;
use super::error::TlsError;
use super::files::{FilesDigest, LoadedTls, TlsBytes};

/// The time between two looks at the files. The files are read each time, because a mounted secret changes by a symbolic
/// link, of which no event tells.
const PAUSE: Duration = Duration::from_secs(1);
/// The time before the end of a certificate from which on warnings are logged.
const NEAR_END: Duration = Duration::from_secs(30 * DAY.as_secs());
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The state of the watch.
struct Watch {
    /// The files at the last look.
    last: FilesDigest,
    /// The files that were last loaded or refused.
    judged: FilesDigest,
    warned: Option<Instant>,
}

impl Tls {
    /// Uses changed files for later connections, until `stop` is cancelled. Broken files are logged, and the files before
    /// stay in use.
    pub(crate) async fn follow(self: Arc<Self>, stop: CancellationToken) {
        let digest = self.loaded().digest;
        let mut watch = Watch { last: digest, judged: digest, warned: None };
        loop {
            self.warn_before_end(&mut watch.warned);
            if stop.run_until_cancelled(sleep(PAUSE)).await.is_none() {
                return;
            }
            let this = Arc::clone(&self);
            // The task of reading is never aborted, so it fails only by a panic. The next look reads again.
            let Ok(read) = spawn_blocking(move || this.files.read()).await else { continue };
            self.look(&mut watch, read);
        }
    }

    /// Loads the files if they differ from those that were judged. Certificate and key are written one after the other, so
    /// files count only if the look before found them, too.
    fn look(&self, watch: &mut Watch, read: Result<TlsBytes, TlsError>) {
        let digest = match &read {
            Ok(bytes) => bytes.digest(),
            Err(error) => Sha256::digest(fault::text(error)).into(),
        };
        let is_settled = std::mem::replace(&mut watch.last, digest) == digest;
        if !is_settled || watch.judged == digest {
            return;
        }
        watch.judged = digest;
        let loaded = read.and_then(|bytes| bytes.load(&self.files)).and_then(|loaded| self.unless_ended(loaded));
        match loaded {
            Ok(loaded) => {
                self.replace(loaded);
                watch.warned = None;
                self.numbers.reloads.fetch_add(1, Ordering::Relaxed);
                tracing::info!(table = self.table, "changed TLS files are in use for new connections");
            }
            Err(error) => {
                self.numbers.refused_reloads.fetch_add(1, Ordering::Relaxed);
                let (key, error) = (error.key(), fault::text(&error));
                tracing::error!(
                    table = self.table,
                    key,
                    error,
                    "changed TLS files cannot be used; the files before them stay in use"
                );
            }
        }
    }

    /// Refuses a certificate that has ended. The certificate in use may still be valid.
    fn unless_ended(&self, loaded: LoadedTls) -> Result<LoadedTls, TlsError> {
        let has_ended = loaded.certificate.not_after() < SystemTime::now();
        if has_ended { Err(TlsError::Ended { path: self.files.certificate.clone() }) } else { Ok(loaded) }
    }

    /// The time until the certificate ends, if it ends within thirty days. Zero if it has ended.
    pub(crate) fn near_end(&self) -> Option<Duration> {
        let left = self.loaded().certificate.not_after().duration_since(SystemTime::now()).unwrap_or_default();
        (left <= NEAR_END).then_some(left)
    }

    /// Logs a warning if the certificate ends within thirty days, at most once a day.
    fn warn_before_end(&self, warned: &mut Option<Instant>) {
        let is_due = warned.is_none_or(|warned| warned.elapsed() >= DAY);
        let left = self.loaded().certificate.not_after().duration_since(SystemTime::now());
        if !is_due || left.as_ref().is_ok_and(|left| *left > NEAR_END) {
            return;
        }
        *warned = Some(Instant::now());
        let (table, path) = (self.table, self.files.certificate.display());
        match left {
            Ok(left) => {
                let days = left.as_secs() / DAY.as_secs();
                tracing::warn!(table, certificate = %path, days, "the certificate of the listener ends soon; renew it");
            }
            Err(_) => {
                tracing::warn!(table, certificate = %path, "the certificate of the listener has ended; renew it");
            }
        }
    }
}
