//! The caller of a request, and the memory and streams that the process spends on each caller.

use std::sync::Arc;

use annex_operations::service_parameters::Identity;
use annex_protocol::A2aError;

use crate::connections::budget::{Budget, Holding};
use crate::connections::network::{CallerKey, Network};
use crate::connections::streams::{StreamPlace, Streams};

/// The maximum size of an answer that is not counted, in bytes. hyper holds one such answer per connection or HTTP/2
/// stream, and both are limited in number.
pub(crate) const SMALL_ANSWER: usize = 16 << 10;

/// Limits on the memory and streams of all callers together, and of each caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShareLimits {
    /// The maximum size of all unfinished request bodies together, in bytes, over all callers.
    pub(crate) reading_bytes: usize,
    /// The maximum size of all unfinished request bodies of one caller together, in bytes.
    pub(crate) reading_bytes_per_caller: usize,
    /// The maximum size, in bytes, of all answers that clients have not read yet, over all callers.
    pub(crate) answer_bytes: usize,
    /// The maximum size, in bytes, of all answers of one caller that the client has not read yet.
    pub(crate) answer_bytes_per_caller: usize,
    /// The maximum number of open streams, over all callers.
    pub(crate) streams: usize,
    /// The maximum number of open streams of one caller.
    pub(crate) streams_per_caller: usize,
}

/// The counters of bytes and streams per caller, limited by [`ShareLimits`].
pub(crate) struct Shares {
    /// Request bodies that the server waits for.
    reading: Arc<Budget>,
    /// Answers that clients have not read yet.
    answers: Arc<Budget>,
    streams: Arc<Streams>,
}

impl Shares {
    pub(crate) fn new(limits: &ShareLimits) -> Arc<Self> {
        Arc::new(Self {
            reading: Budget::new("bodies that are being read", limits.reading_bytes, limits.reading_bytes_per_caller),
            answers: Budget::lasting("unread answers", limits.answer_bytes, limits.answer_bytes_per_caller),
            streams: Streams::new(limits.streams, limits.streams_per_caller),
        })
    }

    /// Changes the limits. Existing streams and bytes above a new limit stay. New streams are refused until there is
    /// room below the limit. New bytes may evict existing bytes.
    pub(crate) fn set(&self, limits: &ShareLimits) {
        self.reading.set(limits.reading_bytes, limits.reading_bytes_per_caller);
        self.answers.set(limits.answer_bytes, limits.answer_bytes_per_caller);
        self.streams.set(limits.streams, limits.streams_per_caller);
    }
}

/// The sender of a request: the authenticated principal, or the network of an anonymous client.
#[derive(Clone)]
pub(crate) struct Caller {
    /// The owner of the tasks that the caller may see and create, and the claims of the caller's token.
    pub(crate) identity: Identity,
    network: Network,
    shares: Arc<Shares>,
}

impl Caller {
    pub(crate) fn new(identity: Identity, network: Network, shares: &Arc<Shares>) -> Self {
        Self { identity, network, shares: Arc::clone(shares) }
    }

    pub(crate) fn key(&self) -> CallerKey {
        match self.identity.owner.principal.as_str() {
            // Anonymous clients differ only by their address. Clients behind one proxy share one set of limits
            // (SECURITY.md).
            "" => CallerKey::Network(self.network),
            principal => CallerKey::Principal(principal.to_owned()),
        }
    }

    /// Starts to count a request body that the server waits for.
    pub(crate) fn begin_reading(&self) -> Holding {
        self.shares.reading.hold(self.key())
    }

    /// Checks that the budget has room for an answer of `bytes` bytes. Called before the answer is made.
    ///
    /// # Errors
    /// [`A2aError::Overloaded`] when the answer does not fit.
    pub(crate) fn check_room(&self, bytes: usize) -> Result<(), A2aError> {
        if bytes <= SMALL_ANSWER { Ok(()) } else { self.shares.answers.check(&self.key(), bytes) }
    }

    /// Counts an answer that has been made.
    ///
    /// # Errors
    /// [`A2aError::Overloaded`] when the answer does not fit.
    pub(crate) fn hold_answer(&self, bytes: bytes::Bytes) -> Result<Holding, A2aError> {
        let mut holding = self.shares.answers.hold(self.key());
        holding.keep(bytes)?;
        Ok(holding)
    }

    /// Reserves a place for a stream.
    ///
    /// # Errors
    /// [`A2aError::Overloaded`] when too many streams are open.
    pub(crate) fn open_stream(&self) -> Result<StreamPlace, A2aError> {
        self.shares.streams.open(self.key())
    }
}
