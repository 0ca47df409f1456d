//! Services beyond the turn, which a turn can bring in place of the host's own: tests and replays have a clock that stands,
//! numbers that come again, keys of their own, and answers to requests that nobody sends.

use std::sync::Arc;
use std::time::Duration;

use annex_keyvalue::KeyValueStore;
use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};

/// The services that a turn brings. The host's own serve where there is none.
#[derive(Clone, Default)]
pub struct Outside {
    /// The store of keys.
    pub keyvalue: Option<Arc<dyn KeyValueStore>>,
    /// The clocks.
    pub clock: Option<Arc<dyn Clock>>,
    /// The source of random bytes.
    pub random: Option<Arc<dyn Random>>,
    /// The client that sends the requests which the grant covers.
    pub http: Option<Arc<dyn HttpClient>>,
    /// A listener to each request and its answer, as far as the guest has read it.
    pub http_listener: Option<Arc<dyn HttpListener>>,
}

/// The clocks of `wasi:clocks`, as they are read. Waiting takes the time that it takes.
pub trait Clock: Send + Sync {
    /// The time since 1970.
    fn now(&self) -> Duration;

    /// The time since some moment, which never goes back.
    fn monotonic(&self) -> Duration;
}

/// A source of random bytes, for all of `wasi:random`.
pub trait Random: Send + Sync {
    /// Fills the bytes.
    fn fill(&self, bytes: &mut [u8]);
}

/// Sends requests of extensions.
#[async_trait]
pub trait HttpClient: Send + Sync {
    /// Sends one request, which the grant covers.
    ///
    /// # Errors
    /// The request is answered as one whose destination cannot be reached.
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Unreachable>;
}

/// Is told of the requests of extensions.
pub trait HttpListener: Send + Sync {
    /// A request was sent: its method and URL, its body, and the answer, if there was one. The guest has read its body, or
    /// has let it go.
    fn exchanged(&self, request: &str, body: &Bytes, answer: Option<&Response<Bytes>>);
}

/// Answers nobody.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nobody;

#[async_trait]
impl HttpClient for Nobody {
    async fn send(&self, _: Request<Bytes>) -> Result<Response<Bytes>, Unreachable> {
        Err(Unreachable)
    }
}

/// There is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreachable;
