//! A connection with a time limit on writes: a client that reads nothing is disconnected. The first reads of it return
//! the bytes of [`Beginning`] again.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use crate::connections::connection::beginning::Beginning;

/// A stream whose writes fail when the peer has read nothing for `timeout`.
pub(crate) struct WriteLimited {
    stream: TcpStream,
    beginning: Beginning,
    timeout: Duration,
    /// The time at which the waiting write fails. `None` while no write waits.
    deadline: Option<Pin<Box<Sleep>>>,
}

impl WriteLimited {
    pub(crate) fn new(stream: TcpStream, beginning: Beginning, timeout: Duration) -> Self {
        Self { stream, beginning, timeout, deadline: None }
    }

    /// Returns the result of a write, or an error if the write has waited for `timeout`.
    fn limit<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.deadline = None;
            return written;
        }
        // The time starts when a write first has to wait, and any progress resets it.
        let deadline = self.deadline.get_or_insert_with(|| Box::pin(sleep(self.timeout)));
        ready!(deadline.as_mut().poll(context));
        let reason = format!("the client has read nothing for {} seconds", self.timeout.as_secs());
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, reason)))
    }
}

impl AsyncRead for WriteLimited {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.beginning.replay(buffer) {
            // Bytes that have come since are added, so that hyper gets the request in one read. A pending or failed
            // result is ignored here, because the next read returns it again.
            let _ = Pin::new(&mut self.stream).poll_read(context, buffer);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for WriteLimited {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.limit(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.limit(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Flushing a TCP socket does nothing, so it never waits and needs no limit. The same holds for the shutdown
        // below.
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
