//! One connection: which version of HTTP it speaks, and when it is hung up on.

mod activity;

use std::io;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use futures::TryFutureExt;
use hyper::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tower::{ServiceExt, service_fn};

use crate::listener::ConnectionLimits;
use crate::write_limit::WriteLimited;
use activity::Activity;

/// Bytes per HTTP/2 request that wait in memory for a client that is slow to read.
const SEND_BUFFER: usize = 64 << 10;

type Ended = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Serves connections, each with the builder for its version of HTTP: telling the versions apart by the first bytes is
/// done here, where it has a time limit.
pub(crate) struct Connections {
    http1: auto::Builder<TokioExecutor>,
    http2: auto::Builder<TokioExecutor>,
    limits: ConnectionLimits,
    router: Router,
}

impl Connections {
    pub(crate) fn new(limits: ConnectionLimits, router: Router) -> Self {
        let mut http1 = auto::Builder::new(TokioExecutor::new()).http1_only();
        http1.http1().timer(TokioTimer::new()).header_read_timeout(limits.head);
        let mut http2 = auto::Builder::new(TokioExecutor::new()).http2_only();
        http2
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.streams)
            .max_send_buf_size(SEND_BUFFER)
            // A peer that is gone without a word is noticed.
            .keep_alive_interval(Some(limits.head))
            .keep_alive_timeout(limits.head);
        Self { http1, http2, limits, router }
    }

    /// Serves one connection to its end. When `closed` fires, requests that are under way are finished first.
    pub(crate) async fn serve(&self, stream: TcpStream, closed: CancellationToken) {
        // Small answers go out at once.
        let _ = stream.set_nodelay(true);
        let version = tokio::select! {
            version = timeout(self.limits.head, speaks_http2(&stream)) => version,
            () = closed.cancelled() => return,
        };
        let stream = TokioIo::new(WriteLimited::new(stream, self.limits.write));
        let ended = match version {
            Ok(Ok(true)) => self.serve_http2(stream, closed).await,
            Ok(Ok(false)) => self.serve_http1(stream, closed).await,
            // It says nothing in time, or nothing at all.
            Ok(Err(_)) | Err(_) => return,
        };
        if let Err(error) = ended {
            tracing::debug!(error, "a connection broke");
        }
    }

    /// The time limit on heads closes idle connections, and the one on writes those that do not read.
    async fn serve_http1(&self, stream: TokioIo<WriteLimited>, closed: CancellationToken) -> Ended {
        let router = self.router.clone().map_request(|request: Request<Incoming>| request.map(Body::new));
        let mut connection = pin!(self.http1.serve_connection(stream, TowerToHyperService::new(router)));
        tokio::select! {
            ended = connection.as_mut() => return ended,
            () = closed.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        connection.await
    }

    async fn serve_http2(&self, stream: TokioIo<WriteLimited>, closed: CancellationToken) -> Ended {
        let ConnectionLimits { head, write, .. } = self.limits;
        let (activity, router) = (Activity::new(), self.router.clone());
        let watched = activity.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let (open, router) = (watched.begin(), router.clone());
            let answer = router.oneshot(request.map(Body::new));
            answer.map_ok(|answer| answer.map(|body| open.watch(body)))
        });
        let mut connection = pin!(self.http2.serve_connection(stream, TowerToHyperService::new(service)));
        let mut looks = interval(head.min(write));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut leaves = false;
        loop {
            tokio::select! {
                ended = connection.as_mut() => return ended,
                () = closed.cancelled(), if !leaves => {
                    connection.as_mut().graceful_shutdown();
                    leaves = true;
                }
                _ = looks.tick() => {
                    if activity.is_stalled_for(write) {
                        return Err(unread(write).into());
                    }
                    if !leaves && activity.is_idle_for(head) {
                        connection.as_mut().graceful_shutdown();
                        leaves = true;
                    }
                }
            }
        }
    }
}

fn unread(time: Duration) -> io::Error {
    let reason = format!("the client has left an answer unread for {} seconds", time.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, reason)
}

/// How a client begins that speaks HTTP/2 without having asked (RFC 9113 section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Between looks at a client that has sent only the beginning of the preface.
const PREFACE_PAUSE: Duration = Duration::from_millis(10);

async fn speaks_http2(stream: &TcpStream) -> io::Result<bool> {
    let mut seen = [0; HTTP2_PREFACE.len()];
    loop {
        let count = stream.peek(&mut seen).await?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match HTTP2_PREFACE.strip_prefix(seen.get(..count).unwrap_or_default()) {
            None => return Ok(false),
            Some([]) => return Ok(true),
            Some(_) => tokio::time::sleep(PREFACE_PAUSE).await,
        }
    }
}
