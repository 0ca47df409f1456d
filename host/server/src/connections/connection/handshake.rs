//! The TLS handshake of a connection, within a time limit.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use annex_auth::CertificateSummary;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use super::beginning::Beginning;
use crate::connections::tls::Tls;
use crate::connections::write_limit::WriteLimited;

/// Time limit for a handshake. The time limit on heads is used instead if it is shorter.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time limit for a client that speaks plain HTTP to read the answer.
const GOODBYE: Duration = Duration::from_secs(1);
/// The maximum number of bytes that are read from a client that speaks plain HTTP.
const MAX_PLAIN_BYTES: u64 = 64 << 10;
/// The answer to a client that speaks plain HTTP.
const PLAIN: &str = "this port speaks HTTPS; call it with https:// instead of http://\n";

/// A connection after its handshake.
pub(super) struct Handshake {
    pub(super) stream: TlsStream<WriteLimited>,
    /// The client's certificate, which was verified.
    pub(super) certificate: Option<Arc<CertificateSummary>>,
    pub(super) speaks_http2: bool,
}

/// Shakes hands within the time limit. `head` and `write` are the time limits of the listener on heads and writes. rustls
/// holds at most 64 KiB of a client that has not finished its handshake.
///
/// # Errors
/// The client speaks no TLS, its certificate is refused, or it takes too long.
pub(super) async fn shake(tls: &Tls, stream: TcpStream, head: Duration, write: Duration) -> io::Result<Handshake> {
    timeout(head.min(HANDSHAKE), accept(tls, stream, write))
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn accept(tls: &Tls, mut stream: TcpStream, write: Duration) -> io::Result<Handshake> {
    let beginning = Beginning::read(&mut stream).await?;
    if !beginning.is_tls() {
        if beginning.is_http1() {
            // The connection is closed in any case.
            let _ = timeout(GOODBYE, refuse_plain(&mut stream)).await;
        }
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the client speaks no TLS"));
    }
    let stream = tls.acceptor().accept(WriteLimited::new(stream, beginning, write)).await?;
    let (_, connection) = stream.get_ref();
    let speaks_http2 = connection.alpn_protocol() == Some(b"h2".as_slice());
    let leaf = connection.peer_certificates().and_then(|chain| chain.first());
    let certificate = leaf.map(|leaf| CertificateSummary::read(leaf)).transpose();
    let certificate = certificate.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?.map(Arc::new);
    // rustls does not verify the certificate of a resumed session again.
    if certificate.as_ref().is_some_and(|certificate| !certificate.is_valid_at(SystemTime::now())) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the client's certificate has ended"));
    }
    Ok(Handshake { stream, certificate, speaks_http2 })
}

/// Answers a client that speaks plain HTTP/1, and reads what the client still sends. If unread bytes were left, closing
/// the connection would destroy the answer on its way.
async fn refuse_plain(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
    let length = PLAIN.len();
    let head = "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close";
    stream.write_all(format!("{head}\r\ncontent-length: {length}\r\n\r\n{PLAIN}").as_bytes()).await?;
    stream.shutdown().await?;
    tokio::io::copy(&mut stream.take(MAX_PLAIN_BYTES), &mut tokio::io::sink()).await.map(drop)
}
