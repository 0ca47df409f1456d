//! The listener: how many connections there may be, and how they end with the server.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::connection::Connections;

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
    /// The longest that a client may leave unread what is sent to it.
    pub(crate) write: Duration,
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
    let connections = Arc::new(Connections::new(limits, router));
    let open = TaskTracker::new();
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
        let (connections, closed) = (Arc::clone(&connections), closed.clone());
        open.spawn(async move {
            connections.serve(stream, closed).await;
            drop(slot);
        });
    }
    drop(listener);
    open.close();
    // A client that neither reads nor hangs up does not keep the process alive.
    let _ = timeout(GOODBYE, open.wait()).await;
    Ok(())
}
