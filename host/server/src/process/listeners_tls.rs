//! The TLS of all listeners of a config.

use std::path::Path;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::config::{Config, TlsConfig};
use crate::connections::tls::{Tls, TlsError};

/// The TLS of each listener, `None` for plain HTTP.
#[derive(Clone)]
pub(crate) struct ListenersTls {
    pub(crate) server: Option<Arc<Tls>>,
    /// The TLS of the admin API and of the listener for `/metrics` alone.
    pub(crate) admin: Option<Arc<Tls>>,
}

/// A TLS table of the config whose files cannot be used.
#[derive(Debug)]
pub(crate) struct WrongTls {
    /// The key of the file, such as `server.tls.certificate`.
    pub(crate) key: String,
    pub(crate) error: Box<TlsError>,
}

impl ListenersTls {
    /// Reads the files of the TLS tables. Relative paths start at `folder`.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub(crate) fn load(config: &Config, folder: &Path) -> Result<Self, WrongTls> {
        let [server, admin] = tables(config).map(|table| table.map(|table| load(table, folder)).transpose());
        Ok(Self { server: server?.map(Arc::new), admin: admin?.map(Arc::new) })
    }

    /// The files of the TLS tables that cannot be used, at most one per table. Relative paths start at `folder`.
    pub(crate) fn wrong(config: &Config, folder: &Path) -> Vec<WrongTls> {
        tables(config).into_iter().flatten().filter_map(|table| load(table, folder).err()).collect()
    }

    /// Starts to watch the files of each TLS, until `closed` is cancelled.
    pub(crate) fn follow(&self, closed: &CancellationToken) {
        for (_, tls) in self.named() {
            tokio::spawn(Arc::clone(tls).follow(closed.clone()));
        }
    }

    /// Each TLS with the name of its listener in the metrics.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, &Arc<Tls>)> {
        let all = [("server", &self.server), ("admin", &self.admin)];
        all.into_iter().filter_map(|(name, tls)| Some((name, tls.as_ref()?)))
    }
}

/// Reads the files of a TLS table.
fn load((table, tls): (&'static str, &TlsConfig), folder: &Path) -> Result<Tls, WrongTls> {
    let wrong = |error: TlsError| WrongTls { key: format!("{table}.{}", error.key()), error: Box::new(error) };
    Tls::load(table, tls.files(folder)).map_err(wrong)
}

/// The TLS tables of the server and of the admin API, with their names.
pub(crate) fn tables(config: &Config) -> [Option<(&'static str, &TlsConfig)>; 2] {
    let of_server = config.server.tls.as_ref().map(|tls| ("server.tls", tls));
    let of_admin = config.admin.as_ref().and_then(|admin| admin.tls.as_ref()).map(|tls| ("admin.tls", tls));
    [of_server, of_admin]
}
