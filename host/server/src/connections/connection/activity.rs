//! The activity on one HTTP/2 connection: open requests, and answers that the client does not read.
//!
//! HTTP/2 has a flow-control window per request. A client could keep its connection alive and still keep the windows
//! closed. The answers would then stay in memory for ever, and no time limit on the socket would notice.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Duration, Instant};

/// The maximum size of a chunk that is handed to HTTP/2, in bytes.
const CHUNK: usize = 16 << 10;

/// The open requests of one connection.
pub(super) struct Activity {
    state: Mutex<OpenRequests>,
}

struct OpenRequests {
    /// The number of the latest request.
    next: u64,
    open: usize,
    /// The time at which the last open request ended.
    idle_since: Instant,
    /// The answers with unsent chunks, by the number of the request.
    waiting: HashMap<u64, UnsentChunks>,
}

/// The chunks of one answer that HTTP/2 has received but not sent.
struct UnsentChunks {
    chunks: usize,
    /// The time at which a chunk of the answer was last sent. If none was sent yet, the time at which HTTP/2 received
    /// the first chunk.
    since: Instant,
}

impl Activity {
    pub(super) fn new() -> Arc<Self> {
        let state = OpenRequests { next: 0, open: 0, idle_since: Instant::now(), waiting: HashMap::new() };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// Counts a new request.
    pub(super) fn begin(self: &Arc<Self>) -> Open {
        let mut state = self.lock();
        state.next += 1;
        state.open += 1;
        Open { activity: Arc::clone(self), number: state.next }
    }

    /// True if the connection has had no open request for at least `time`.
    pub(super) fn is_idle_for(&self, time: Duration) -> bool {
        let state = self.lock();
        state.open == 0 && state.idle_since.elapsed() >= time
    }

    /// True if the client has read no byte of some answer for at least `time`.
    pub(super) fn is_stalled_for(&self, time: Duration) -> bool {
        self.lock().waiting.values().any(|waiting| waiting.since.elapsed() >= time)
    }

    fn lock(&self) -> MutexGuard<'_, OpenRequests> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An open request. Dropping this value ends the request.
pub(super) struct Open {
    activity: Arc<Activity>,
    number: u64,
}

impl Open {
    /// Wraps the answer's body, so that the request is open until the body ends.
    pub(super) fn watch(self, body: Body) -> WatchedBody {
        WatchedBody { body, rest: Bytes::new(), open: self }
    }

    /// Wraps a chunk for HTTP/2. The request counts as open until the chunk is sent.
    fn hand_over(&self, chunk: Bytes) -> Bytes {
        let mut state = self.activity.lock();
        state.open += 1;
        let first = || UnsentChunks { chunks: 0, since: Instant::now() };
        state.waiting.entry(self.number).or_insert_with(first).chunks += 1;
        drop(state);
        // HTTP/2 drops the chunk when it is sent or discarded. Nothing else shows that the client has taken the chunk.
        Bytes::from_owner(Chunk { chunk, activity: Arc::clone(&self.activity), number: self.number })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.activity.lock().end_one();
    }
}

impl OpenRequests {
    fn end_one(&mut self) {
        self.open -= 1;
        self.idle_since = Instant::now();
    }
}

/// A chunk that HTTP/2 has received. HTTP/2 drops the chunk after sending or discarding it.
struct Chunk {
    chunk: Bytes,
    activity: Arc<Activity>,
    number: u64,
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        &self.chunk
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        let mut state = self.activity.lock();
        state.end_one();
        let Some(waiting) = state.waiting.get_mut(&self.number) else { return };
        waiting.chunks -= 1;
        waiting.since = Instant::now();
        if waiting.chunks == 0 {
            state.waiting.remove(&self.number);
        }
    }
}

/// A body in chunks of at most [`CHUNK`] bytes. HTTP/2 holds a chunk until the client has room for the bytes.
pub(super) struct WatchedBody {
    body: Body,
    /// The bytes of the last frame that were not handed to HTTP/2 yet.
    rest: Bytes,
    open: Open,
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                other => return other,
            }
        }
        let length = self.rest.len().min(CHUNK);
        let chunk = self.rest.split_to(length);
        Poll::Ready(Some(Ok(Frame::data(self.open.hand_over(chunk)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.body.size_hint();
        let rest = self.rest.len() as u64;
        let mut whole = SizeHint::new();
        whole.set_lower(hint.lower().saturating_add(rest));
        if let Some(upper) = hint.upper() {
            whole.set_upper(upper.saturating_add(rest));
        }
        whole
    }
}
