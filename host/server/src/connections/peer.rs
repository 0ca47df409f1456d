//! The client at the other end of a connection.

use std::sync::Arc;

use annex_auth::CertificateSummary;

use crate::connections::network::Network;

/// The client at the other end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) network: Network,
    /// The client's certificate, which TLS has verified. `None` for a client without one.
    pub(crate) certificate: Option<Arc<CertificateSummary>>,
}
