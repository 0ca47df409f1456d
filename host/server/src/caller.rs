//! Who sends requests, and what it may make the process hold for it.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use annex_protocol::A2aError;
use annex_tasks::Owner;

use crate::answer_body::AnswerBody;
use crate::budget::{Budget, Holding};
use crate::config::ServerConfig;
use crate::streams::{StreamPlace, Streams};

use axum::body::Body;

/// Answers up to so many bytes are not counted: hyper holds them for at most one connection or one HTTP/2 stream, whose
/// number is bounded.
pub(crate) const SMALL_ANSWER: usize = 16 << 10;

/// The part of the network that an address stands for: itself, in IPv6 the /64 that one customer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Network(IpAddr);

impl Network {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                let prefix = address.to_bits() & (u128::MAX << 64);
                Self(Ipv6Addr::from_bits(prefix).into())
            }
            address @ IpAddr::V4(_) => Self(address),
        }
    }
}

/// Whose share it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CallerKey {
    Principal(String),
    /// Nobody is authenticated.
    Network(Network),
}

/// What callers make the process hold.
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
        let share = (config.max_reading_bytes / 4).max(config.max_body_bytes);
        Arc::new(Self {
            reading: Budget::new("bodies that are being read", config.max_reading_bytes, share),
            answers: Budget::lasting("unread answers", config.max_answer_bytes, config.max_answer_bytes / 4),
            streams: Streams::new(config.max_streams, config.max_streams_per_caller),
        })
    }
}

/// Who sends a request: the authenticated principal, or the network that an anonymous one comes from.
#[derive(Clone)]
pub(crate) struct Caller {
    /// Whose tasks it may see and make.
    pub(crate) owner: Owner,
    network: Network,
    shares: Arc<Shares>,
}

impl Caller {
    pub(crate) fn new(owner: Owner, network: Network, shares: &Arc<Shares>) -> Self {
        Self { owner, network, shares: Arc::clone(shares) }
    }

    pub(crate) fn key(&self) -> CallerKey {
        match self.owner.principal.as_str() {
            "" => CallerKey::Network(self.network),
            principal => CallerKey::Principal(principal.to_owned()),
        }
    }

    /// Counts a body that is being read, from nothing on.
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

    /// Whether there is room for an answer of so many bytes, to be asked before it is made.
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

#[cfg(test)]
mod tests {
    use super::Network;

    #[test]
    fn a_network_is_an_address_or_a_64_of_ipv6() {
        let network = |address: &str| Network::of(address.parse().expect("an address"));
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:0:0:1"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
        assert_eq!(network("192.0.2.1"), network("::ffff:192.0.2.1"), "IPv4 on a listener of IPv6");
    }
}
