//! The caller of a request, and what the process may hold for it.

use std::sync::Arc;

use annex_operations::service_parameters::Identity;
use annex_protocol::A2aError;

use crate::bindings::answer_body::AnswerBody;
use crate::config::ServerConfig;
use crate::connections::budget::{Budget, Holding};
use crate::connections::network::{CallerKey, Network};
use crate::connections::streams::{StreamPlace, Streams};

use axum::body::Body;

/// Answers up to so many bytes are not counted: hyper holds them for at most one connection or one HTTP/2 stream, whose
/// number is bounded.
pub(crate) const SMALL_ANSWER: usize = 16 << 10;

/// The budgets for what callers make the process hold.
pub(crate) struct Shares {
    /// Bodies of requests that are being read.
    reading: Arc<Budget>,
    /// Answers that are not read yet.
    answers: Arc<Budget>,
    streams: Arc<Streams>,
}

impl Shares {
    /// A caller gets a quarter of each budget, and always room for one body.
    pub(crate) fn new(config: &ServerConfig) -> Arc<Self> {
        let share = share_of_reading(config);
        Arc::new(Self {
            reading: Budget::new("bodies that are being read", config.max_reading_bytes, share),
            answers: Budget::lasting("unread answers", config.max_answer_bytes, config.max_answer_bytes / 4),
            streams: Streams::new(config.max_streams, config.max_streams_per_caller),
        })
    }

    /// Puts the bounds of this config into effect. Streams and bytes beyond them stay, and nothing is added until there are
    /// fewer.
    pub(crate) fn set(&self, config: &ServerConfig) {
        self.reading.set(config.max_reading_bytes, share_of_reading(config));
        self.answers.set(config.max_answer_bytes, config.max_answer_bytes / 4);
        self.streams.set(config.max_streams, config.max_streams_per_caller);
    }
}

fn share_of_reading(config: &ServerConfig) -> usize {
    (config.max_reading_bytes / 4).max(config.max_body_bytes)
}

/// The sender of a request: the authenticated principal, or the network that an anonymous one comes from.
#[derive(Clone)]
pub(crate) struct Caller {
    /// Who it is: the owner of the tasks that it may see and make, and the claims of its token.
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

    /// The body of an answer. A long one counts until the client has read it.
    ///
    /// # Errors
    /// [`A2aError::Overloaded`] when too much is unread already.
    pub(crate) fn answer(&self, text: String) -> Result<Body, A2aError> {
        if text.len() <= SMALL_ANSWER {
            return Ok(Body::from(text));
        }
        Ok(Body::new(AnswerBody::whole(self.clone(), text.into())?))
    }

    /// Checks that there is room for an answer of so many bytes, before the answer is made.
    ///
    /// # Errors
    /// [`A2aError::Overloaded`] when there is none.
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

    /// A place for a stream, before the operation is done whose events it carries.
    ///
    /// # Errors
    /// [`A2aError::Overloaded`] when there are too many.
    pub(crate) fn open_stream(&self) -> Result<StreamPlace, A2aError> {
        self.shares.streams.open(self.key())
    }
}
