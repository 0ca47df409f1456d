//! The caller of a request, and what the process may hold for it.

use std::sync::Arc;

use annex_operations::service_parameters::Identity;
use annex_protocol::A2aError;

use crate::connections::budget::{Budget, Holding};
use crate::connections::network::{CallerKey, Network};
use crate::connections::streams::{StreamPlace, Streams};

/// Answers of at most this many bytes are not counted. hyper holds one per connection or HTTP/2 stream, and the number of
/// these is bounded.
pub(crate) const SMALL_ANSWER: usize = 16 << 10;

/// The bounds on what all callers together, and each of them, make the process hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShareLimits {
    /// Bytes of bodies that are being read, of all callers.
    pub(crate) reading_bytes: usize,
    /// The same of one caller.
    pub(crate) reading_bytes_per_caller: usize,
    /// Bytes of answers that are not read yet, of all callers.
    pub(crate) answer_bytes: usize,
    /// The same of one caller.
    pub(crate) answer_bytes_per_caller: usize,
    /// Open streams of all callers.
    pub(crate) streams: usize,
    /// The same of one caller.
    pub(crate) streams_per_caller: usize,
}

/// What callers make the process hold, counted against [`ShareLimits`].
pub(crate) struct Shares {
    /// Bodies of requests that are being read.
    reading: Arc<Budget>,
    /// Answers that are not read yet.
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

    /// Puts other limits into effect. Streams and bytes beyond them stay, and nothing is added until there are fewer.
    pub(crate) fn set(&self, limits: &ShareLimits) {
        self.reading.set(limits.reading_bytes, limits.reading_bytes_per_caller);
        self.answers.set(limits.answer_bytes, limits.answer_bytes_per_caller);
        self.streams.set(limits.streams, limits.streams_per_caller);
    }
}

/// The sender of a request: the authenticated principal, or the network that an anonymous one comes from.
#[derive(Clone)]
pub(crate) struct Caller {
    /// The owner of the tasks that the caller may see and make, and the claims of its token.
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
            // Only the address tells anonymous clients apart. Those behind one proxy share what it may hold
            // (SECURITY.md).
            "" => CallerKey::Network(self.network),
            principal => CallerKey::Principal(principal.to_owned()),
        }
    }

    /// Begins to count a body that is being read.
    pub(crate) fn begin_reading(&self) -> Holding {
        self.shares.reading.hold(self.key())
    }

    /// Checks that there is room for an answer of this length, before the answer is made.
    ///
    /// # Errors
    /// [`A2aError::Overloaded`] when there is no room.
    pub(crate) fn check_room(&self, bytes: usize) -> Result<(), A2aError> {
        if bytes <= SMALL_ANSWER { Ok(()) } else { self.shares.answers.check(&self.key(), bytes) }
    }

    /// Counts an answer that has been made.
    ///
    /// # Errors
    /// As [`Caller::check_room`].
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
