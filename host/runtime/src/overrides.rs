//! Replacements of host services. Tests and replays use them for a fixed clock, reproducible random numbers, their
//! own keys, and recorded HTTP answers.

use std::sync::Arc;
use std::time::Duration;

use annex_keyvalue::KeyValueStore;
use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};

/// Replacements of host services in one turn. `None` means the usual service of the host.
#[derive(Clone, Default)]
pub struct ServiceOverrides {
    /// The key-value store.
    pub keyvalue: Option<Arc<dyn KeyValueStore>>,
    /// The wall clock and the monotonic clock.
    pub clock: Option<Arc<dyn Clock>>,
    /// The source of random bytes.
    pub random: Option<Arc<dyn Random>>,
    /// The HTTP client for requests that the grant allows.
    pub http: Option<Arc<dyn HttpClient>>,
    /// Receives each request and its answer, as far as the guest has read it.
    pub http_listener: Option<Arc<dyn HttpListener>>,
}

/// The clocks of `wasi:clocks`. Only reading is replaced; waiting takes real time.
pub trait Clock: Send + Sync {
    /// The time since 1970.
    fn now(&self) -> Duration;

    /// A monotonic time since an arbitrary moment.
    fn monotonic(&self) -> Duration;
}

/// A source of random bytes for `wasi:random`.
pub trait Random: Send + Sync {
    /// Fills `bytes` with random bytes.
    fn fill(&self, bytes: &mut [u8]);
}

/// Sends HTTP requests of extensions.
#[async_trait]
pub trait HttpClient: Send + Sync {
    /// Sends a request that the grant allows.
    ///
    /// # Errors
    /// [`Unreachable`]: the guest gets the error for a destination that cannot be reached.
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Unreachable>;
}

/// Receives the HTTP requests of extensions.
pub trait HttpListener: Send + Sync {
    /// Called for each request after the guest has read or dropped the body of the answer. `request` is the method and
    /// the URL, `body` is the body of the request. `answer` is `None` if there was no answer.
    fn exchanged(&self, request: &str, body: &Bytes, answer: Option<&Response<Bytes>>);
}

/// A client for which every destination is unreachable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnreachableClient;

#[async_trait]
impl HttpClient for UnreachableClient {
    async fn send(&self, _: Request<Bytes>) -> Result<Response<Bytes>, Unreachable> {
        Err(Unreachable)
    }
}

/// The destination cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreachable;
