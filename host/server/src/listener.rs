//! Connections: how many there may be, and how long a client may take to send.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

/// How long to wait after the machine refused a connection, for instance because no file descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// What connections get to finish when the listener closes.
const GOODBYE: Duration = Duration::from_secs(5);

/// Bounds on connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    /// Connections at once; more wait to be accepted.
    pub(crate) connections: usize,
    /// The longest that a client may take to send the head of a request. Connections idle for so long are closed.
    pub(crate) head: Duration,
    /// Requests at once on one HTTP/2 connection.
    pub(crate) streams: u32,
}

/// Serves connections until `closed` fires, then lets those that are busy finish, but not for long.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: ConnectionLimits,
    closed: CancellationToken,
) -> io::Result<()> {
    let slots = Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS)));
    let graceful = GracefulShutdown::new();
    let builders = Arc::new(Builders::new(limits));
    loop {
        let slot = tokio::select! {
            // The semaphore is never closed, so a slot comes.
            Ok(slot) = Arc::clone(&slots).acquire_owned() => slot,
            () = closed.cancelled() => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = closed.cancelled() => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let watcher = graceful.watcher();
        let (builders, router) = (Arc::clone(&builders), router.clone());
        tokio::spawn(async move {
            connection(&builders, stream, router, watcher).await;
            drop(slot);
        });
    }
    drop(listener);
    // A client that neither reads nor hangs up does not keep the process alive.
    let _ = timeout(GOODBYE, graceful.shutdown()).await;
    Ok(())
}

/// One builder per version of HTTP: telling them apart by the first bytes is done here, where it has a time limit.
struct Builders {
    http1: auto::Builder<TokioExecutor>,
    http2: auto::Builder<TokioExecutor>,
    head: Duration,
}

impl Builders {
    fn new(limits: ConnectionLimits) -> Self {
        let mut http1 = auto::Builder::new(TokioExecutor::new()).http1_only();
        http1.http1().timer(TokioTimer::new()).header_read_timeout(limits.head);
        let mut http2 = auto::Builder::new(TokioExecutor::new()).http2_only();
        http2
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.streams)
            // A peer that is gone without a word is noticed.
            .keep_alive_interval(Some(limits.head))
            .keep_alive_timeout(limits.head);
        Self { http1, http2, head: limits.head }
    }

    /// The builder for what the client speaks; `None` when it says nothing in time.
    async fn for_client(&self, stream: &TcpStream) -> Option<&auto::Builder<TokioExecutor>> {
        match timeout(self.head, speaks_http2(stream)).await {
            Ok(Ok(true)) => Some(&self.http2),
            Ok(Ok(false)) => Some(&self.http1),
            Ok(Err(_)) | Err(_) => None,
        }
    }
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

async fn connection(builders: &Builders, stream: TcpStream, router: Router, watcher: Watcher) {
    // Small answers go out at once.
    let _ = stream.set_nodelay(true);
    let Some(builder) = builders.for_client(&stream).await else { return };
    let service = TowerToHyperService::new(router.map_request(|request: Request<Incoming>| request.map(Body::new)));
    let serving = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    if let Err(error) = watcher.watch(serving).await {
        tracing::debug!(%error, "a connection broke");
    }
}
