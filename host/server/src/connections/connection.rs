//! One connection: which version of HTTP it speaks, and when it is hung up on.

mod activity;
mod beginning;

use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::connections::listener::ConnectionLimits;
use crate::connections::network::Network;
use crate::connections::site::Site;
use crate::connections::write_limit::WriteLimited;
use activity::Activity;
pub(crate) use beginning::Beginning;

/// Bytes per HTTP/2 request that wait in memory for a client that is slow to read.
const SEND_BUFFER: usize = 16 << 10;
/// Bytes per HTTP/1 connection that wait in memory, of the head of a request and of an answer that is not read.
const HTTP1_BUFFER: usize = 64 << 10;

type Ended = Result<(), Box<dyn Error + Send + Sync>>;

/// Serves connections, each with the builder for its version of HTTP: telling the versions apart by the first bytes is
/// done here, where it has a time limit.
pub(crate) struct Connections<S> {
    http1: auto::Builder<TokioExecutor>,
    http2: auto::Builder<TokioExecutor>,
    limits: ConnectionLimits,
    site: S,
}

impl<S: Site> Connections<S> {
    pub(crate) fn new(limits: ConnectionLimits, site: S) -> Self {
        let mut http1 = auto::Builder::new(TokioExecutor::new()).http1_only();
        http1.http1().timer(TokioTimer::new()).header_read_timeout(limits.head).max_buf_size(HTTP1_BUFFER);
        let mut http2 = auto::Builder::new(TokioExecutor::new()).http2_only();
        http2
            .http2()
            .timer(TokioTimer::new())
            // Each request may leave as much unread as its buffer below takes, and no budget counts that.
            .max_concurrent_streams(limits.streams)
            .max_send_buf_size(SEND_BUFFER)
            // PINGs find a peer that is gone without a word.
            .keep_alive_interval(Some(limits.head))
            .keep_alive_timeout(limits.head);
        Self { http1, http2, limits, site }
    }

    /// Serves one connection to its end. When `closed` fires, requests that are under way are finished first.
    pub(crate) async fn serve(&self, mut stream: TcpStream, peer: IpAddr, closed: CancellationToken) {
        // Small answers go out at once.
        let _ = stream.set_nodelay(true);
        let read = tokio::select! {
            read = timeout(self.limits.head, Beginning::read(&mut stream)) => read,
            // No request has begun on this connection, so nothing is broken off.
            () = closed.cancelled() => return,
        };
        // The client has sent nothing in time, or has hung up before its version was clear.
        let Ok(Ok(beginning)) = read else { return };
        let speaks_http2 = beginning.is_http2();
        let stream = TokioIo::new(WriteLimited::new(stream, beginning, self.limits.write));
        let network = Network::of(peer);
        let ended = if speaks_http2 {
            self.serve_http2(stream, network, closed).await
        } else {
            self.serve_http1(stream, network, closed).await
        };
        if let Err(error) = ended {
            if is_malformed(&*error) {
                self.site.refuse_malformed(network);
            }
            tracing::debug!(error, "a connection broke");
        }
    }

    /// The time limit on heads closes idle connections, and the one on writes those that do not read.
    async fn serve_http1(&self, stream: TokioIo<WriteLimited>, network: Network, closed: CancellationToken) -> Ended {
        let site = self.site.clone();
        let service = service_fn(move |request| {
            let site = site.clone();
            async move { Ok::<_, Infallible>(site.answer(request, network).await) }
        });
        let mut connection = pin!(self.http1.serve_connection(stream, service));
        tokio::select! {
            ended = connection.as_mut() => return ended,
            // hyper finishes the request that is under way and takes no further one.
            () = closed.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        connection.await
    }

    async fn serve_http2(&self, stream: TokioIo<WriteLimited>, network: Network, closed: CancellationToken) -> Ended {
        let ConnectionLimits { head, write, .. } = self.limits;
        let activity = Activity::new();
        let site = self.site.clone();
        let watched = activity.clone();
        let service = service_fn(move |request| {
            let open = watched.begin();
            let site = site.clone();
            async move { Ok::<_, Infallible>(site.answer(request, network).await.map(|body| open.watch(body))) }
        });
        let mut connection = pin!(self.http2.serve_connection(stream, service));
        // A client that answers PINGs keeps a connection without requests open, and one that shuts its windows blocks
        // no write on the socket. Neither is seen by a time limit of hyper or of the socket, so the activity is looked
        // at.
        // An idle connection costs one look per period, and a limit is exceeded by one period at most.
        let mut looks = interval(head.min(write));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut leaves = false;
        loop {
            tokio::select! {
                ended = connection.as_mut() => return ended,
                // A cancelled token is always ready, so it is asked once.
                () = closed.cancelled(), if !leaves => {
                    connection.as_mut().graceful_shutdown();
                    leaves = true;
                }
                _ = looks.tick() => {
                    if activity.is_stalled_for(write) {
                        // This drops the connection, and with it the answers that it holds.
                        return Err(unread(write).into());
                    }
                    // The end is graceful, because a request may be on its way already.
                    if !leaves && activity.is_idle_for(head) {
                        connection.as_mut().graceful_shutdown();
                        leaves = true;
                    }
                }
            }
        }
    }
}

/// True if a connection ended because what the client sent is not HTTP, or because the head of a request is too large.
fn is_malformed(error: &(dyn Error + 'static)) -> bool {
    let Some(error) = error.downcast_ref::<hyper::Error>() else { return false };
    let of_http2 = || error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
    error.is_parse() || of_http2().is_some_and(h2::Error::is_library)
}

fn unread(time: Duration) -> io::Error {
    let reason = format!("the client has left an answer unread for {} seconds", time.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, reason)
}
