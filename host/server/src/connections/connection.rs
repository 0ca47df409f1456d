//! One connection: its version of HTTP, and the time limits after which it is closed.

mod activity;
pub(crate) mod beginning;
mod handshake;

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::connections::listener::ConnectionLimits;
use crate::connections::network::Network;
use crate::connections::peer::Peer;
use crate::connections::site::Site;
use crate::connections::tls::Tls;
use crate::connections::write_limit::WriteLimited;
use activity::Activity;
use beginning::Beginning;
use handshake::Handshake;

/// The maximum number of bytes that wait in memory for a slow client, for each answer over HTTP/2.
const SEND_BUFFER: usize = 16 << 10;
/// The maximum size of the buffer of an HTTP/1 connection, in bytes. The buffer holds the head of a request or an
/// unread answer.
const HTTP1_BUFFER: usize = 64 << 10;

type ServeResult = Result<(), Box<dyn Error + Send + Sync>>;

/// Serves connections, each with the builder for its version of HTTP. The version is detected here and not by hyper,
/// which has no time limit for this step.
pub(crate) struct Connections<S> {
    http1: auto::Builder<TokioExecutor>,
    http2: auto::Builder<TokioExecutor>,
    limits: ConnectionLimits,
    site: S,
    /// `None` for plain HTTP.
    tls: Option<Arc<Tls>>,
}

impl<S: Site> Connections<S> {
    pub(crate) fn new(limits: ConnectionLimits, site: S, tls: Option<Arc<Tls>>) -> Self {
        let mut http1 = auto::Builder::new(TokioExecutor::new()).http1_only();
        http1.http1().timer(TokioTimer::new()).header_read_timeout(limits.head).max_buf_size(HTTP1_BUFFER);
        let mut http2 = auto::Builder::new(TokioExecutor::new()).http2_only();
        http2
            .http2()
            .timer(TokioTimer::new())
            // The client may leave one send buffer per request unread, and no budget counts these bytes.
            .max_concurrent_streams(limits.streams)
            .max_send_buf_size(SEND_BUFFER)
            // PINGs detect a peer that vanished without closing the connection.
            .keep_alive_interval(Some(limits.head))
            .keep_alive_timeout(limits.head);
        Self { http1, http2, limits, site, tls }
    }

    /// Serves one connection to its end. After `closed` is cancelled, running requests are finished and no new requests
    /// are accepted.
    pub(crate) async fn serve(&self, stream: TcpStream, address: IpAddr, closed: CancellationToken) {
        // Without Nagle's algorithm, small answers are sent at once.
        let _ = stream.set_nodelay(true);
        let network = Network::of(address);
        match &self.tls {
            // The future is large, so it is boxed. Plain connections do not pay for its size.
            Some(tls) => Box::pin(self.serve_tls(tls, stream, network, closed)).await,
            None => self.serve_plain(stream, network, closed).await,
        }
    }

    /// Serves a connection after its TLS handshake. The client chooses the version of HTTP by ALPN.
    async fn serve_tls(&self, tls: &Tls, stream: TcpStream, network: Network, closed: CancellationToken) {
        let ConnectionLimits { head, write, .. } = self.limits;
        let handshake = tokio::select! {
            handshake = handshake::shake(tls, stream, head, write) => handshake,
            // No request has begun on this connection, so nothing is broken off.
            () = closed.cancelled() => return,
        };
        match handshake {
            Ok(Handshake { stream, certificate, speaks_http2 }) => {
                let left = certificate.as_ref().map(|certificate| certificate.not_after());
                let left = left.map(|end| end.duration_since(SystemTime::now()).unwrap_or_default());
                let peer = Peer { network, certificate };
                let closed = closed.child_token();
                let serving = pin!(self.serve_http(TokioIo::new(stream), peer, speaks_http2, closed.clone()));
                close_after(left, &closed, serving).await;
            }
            Err(error) => {
                tls.count_failed_handshake();
                tracing::debug!(%error, "a TLS handshake failed");
            }
        }
    }

    async fn serve_plain(&self, mut stream: TcpStream, network: Network, closed: CancellationToken) {
        let read = tokio::select! {
            read = timeout(self.limits.head, Beginning::read(&mut stream)) => read,
            // No request has begun on this connection, so nothing is broken off.
            () = closed.cancelled() => return,
        };
        // The client sent nothing within the time limit, or closed the connection before its version was clear.
        let Ok(Ok(beginning)) = read else { return };
        let speaks_http2 = beginning.is_http2();
        let stream = TokioIo::new(WriteLimited::new(stream, beginning, self.limits.write));
        self.serve_http(stream, Peer { network, certificate: None }, speaks_http2, closed).await;
    }

    async fn serve_http<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: TokioIo<I>,
        peer: Peer,
        speaks_http2: bool,
        closed: CancellationToken,
    ) {
        let network = peer.network;
        let ended = if speaks_http2 {
            self.serve_http2(stream, peer, closed).await
        } else {
            self.serve_http1(stream, peer, closed).await
        };
        if let Err(error) = ended {
            if is_malformed(&*error) {
                self.site.refuse_malformed(network);
            }
            tracing::debug!(error, "a connection broke");
        }
    }

    /// Serves HTTP/1. Idle connections are closed by the time limit on heads. Connections whose client does not read
    /// are closed by the time limit on writes.
    async fn serve_http1<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: TokioIo<I>,
        peer: Peer,
        closed: CancellationToken,
    ) -> ServeResult {
        let site = self.site.clone();
        let service = service_fn(move |request| {
            let (site, peer) = (site.clone(), peer.clone());
            async move { Ok::<_, Infallible>(site.answer(request, peer).await) }
        });
        let mut connection = pin!(self.http1.serve_connection(stream, service));
        tokio::select! {
            ended = connection.as_mut() => return ended,
            // hyper finishes the request that is under way and takes no further one.
            () = closed.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        connection.await
    }

    async fn serve_http2<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &self,
        stream: TokioIo<I>,
        peer: Peer,
        closed: CancellationToken,
    ) -> ServeResult {
        let ConnectionLimits { head, write, .. } = self.limits;
        let activity = Activity::new();
        let site = self.site.clone();
        let watched = activity.clone();
        let service = service_fn(move |request| {
            let open = watched.begin();
            let (site, peer) = (site.clone(), peer.clone());
            async move { Ok::<_, Infallible>(site.answer(request, peer).await.map(|body| open.watch(body))) }
        });
        let mut connection = pin!(self.http2.serve_connection(stream, service));
        // Two kinds of clients escape the time limits of hyper and of the socket. One answers PINGs and so keeps a
        // connection without requests open. The other closes its HTTP/2 windows, so that no write on the socket blocks.
        // Both show in `activity`, which is checked once per period. A limit is exceeded by at most one period.
        let mut looks = interval(head.min(write));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut leaves = false;
        loop {
            tokio::select! {
                ended = connection.as_mut() => return ended,
                // A cancelled token is always ready, so this branch is disabled after the first time.
                () = closed.cancelled(), if !leaves => {
                    connection.as_mut().graceful_shutdown();
                    leaves = true;
                }
                _ = looks.tick() => {
                    if activity.is_stalled_for(write) {
                        // This drops the connection with all its unread answers.
                        return Err(unread(write).into());
                    }
                    // The shutdown is graceful, because a request may be on its way already.
                    if !leaves && activity.is_idle_for(head) {
                        connection.as_mut().graceful_shutdown();
                        leaves = true;
                    }
                }
            }
        }
    }
}

/// Serves a connection to its end. After the time that the client's certificate has left, running requests are finished and
/// no new requests are accepted. `left` is `None` for a client without a certificate.
async fn close_after(
    left: Option<Duration>,
    closed: &CancellationToken,
    mut serving: Pin<&mut impl Future<Output = ()>>,
) {
    let Some(left) = left else { return serving.await };
    tokio::select! {
        () = serving.as_mut() => return,
        () = sleep(left) => closed.cancel(),
    }
    serving.await;
}

/// True if a connection ended because the client did not speak HTTP, or because the head of a request was too large.
fn is_malformed(error: &(dyn Error + 'static)) -> bool {
    let Some(error) = error.downcast_ref::<hyper::Error>() else { return false };
    let of_http2 = || error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
    error.is_parse() || of_http2().is_some_and(h2::Error::is_library)
}

fn unread(time: Duration) -> io::Error {
    let reason = format!("the client has left an answer unread for {} seconds", time.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, reason)
}
