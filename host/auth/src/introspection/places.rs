//! The places for questions about tokens.
//!
//! Anyone can send tokens. Tokens of which nothing is known share their places by the networks that they come from. Tokens
//! that were accepted lately have places of their own, so that strangers cannot keep their callers out.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annex_fairness::{FairPlaces, Place};
use tokio::time::timeout;

/// The time that a question waits for its place.
const PLACE_TIMEOUT: Duration = Duration::from_secs(2);
/// The bounds for tokens that were accepted lately, and again for all other tokens.
const ALL: Bounds = Bounds { questions: 1_024, at_once: 16 };
/// The bounds for tokens from one network of which nothing is known.
const OF_NETWORK: Bounds = Bounds { questions: 64, at_once: 8 };

#[derive(Clone, Copy)]
struct Bounds {
    /// The maximum number of questions that are sent or wait.
    questions: usize,
    /// The maximum number of questions that are sent at the same time.
    at_once: usize,
}

/// The sender of a token.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin {
    /// A caller whose token was accepted lately.
    Known,
    /// Anybody in this network.
    Stranger(IpAddr),
}

/// The places of all questions.
pub(super) struct Places {
    known: Pool,
    strangers: Pool,
    /// The networks from which strangers have sent the tokens that are asked about now.
    networks: Mutex<HashMap<IpAddr, Pool>>,
}

#[derive(Clone)]
struct Pool {
    /// A place for each question that is sent or waits.
    questions: FairPlaces,
    /// A place for each question that is sent.
    sent: FairPlaces,
}

/// Admits one question. Dropping this value ends the question.
pub(super) struct Admission {
    sent: FairPlaces,
    _question: Place,
    of_network: Option<OfNetwork>,
}

/// The part of a network in the question of a stranger.
struct OfNetwork {
    places: Arc<Places>,
    network: IpAddr,
    sent: FairPlaces,
    question: Option<Place>,
}

/// The places of a question that is sent.
pub(super) struct Sending {
    _of_network: Option<Place>,
    _of_all: Place,
}

impl Pool {
    fn new(bounds: Bounds) -> Self {
        Self { questions: FairPlaces::new(bounds.questions), sent: FairPlaces::new(bounds.at_once) }
    }
}

impl Places {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { known: Pool::new(ALL), strangers: Pool::new(ALL), networks: Mutex::default() })
    }

    /// Admits a question about a token. `None` if too many questions are under way.
    pub(super) fn admit(self: &Arc<Self>, origin: Origin) -> Option<Admission> {
        let (pool, of_network) = match origin {
            Origin::Known => (&self.known, None),
            Origin::Stranger(network) => (&self.strangers, Some(self.admit_network(network)?)),
        };
        Some(Admission { _question: pool.questions.try_take()?, sent: pool.sent.clone(), of_network })
    }

    fn admit_network(self: &Arc<Self>, network: IpAddr) -> Option<OfNetwork> {
        let mut networks = self.networks();
        let pool = networks.entry(network).or_insert_with(|| Pool::new(OF_NETWORK));
        // The bound is at least 1, so a refusal leaves no unused entry in the map.
        let question = Some(pool.questions.try_take()?);
        let sent = pool.sent.clone();
        drop(networks);
        Some(OfNetwork { places: Arc::clone(self), network, sent, question })
    }

    fn networks(&self) -> MutexGuard<'_, HashMap<IpAddr, Pool>> {
        self.networks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Admission {
    /// Waits until the question can be sent. `None` if that takes too long. Networks get places in rotation.
    pub(super) async fn sending(&self) -> Option<Sending> {
        let taking = async {
            let Some(OfNetwork { sent, network, .. }) = &self.of_network else {
                return Sending { _of_network: None, _of_all: self.sent.take(&Arc::default()).await };
            };
            let name: Arc<str> = Arc::from(network.to_string());
            let of_network = sent.take(&name).await;
            Sending { _of_network: Some(of_network), _of_all: self.sent.take(&name).await }
        };
        timeout(PLACE_TIMEOUT, taking).await.ok()
    }
}

impl Drop for OfNetwork {
    fn drop(&mut self) {
        let mut networks = self.places.networks();
        drop(self.question.take());
        // Otherwise the addresses of all who ever sent a token would fill the map.
        if networks.get(&self.network).is_some_and(|pool| pool.questions.free() == OF_NETWORK.questions) {
            networks.remove(&self.network);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::{ALL, Admission, OF_NETWORK, Origin, Places};

    fn network(number: u8) -> Origin {
        Origin::Stranger(IpAddr::V4(Ipv4Addr::new(192, 0, 2, number)))
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_of_all_networks_together_leave_the_places_of_known_tokens_free() {
        let places = Places::new();
        let mut admitted: Vec<Admission> = Vec::new();
        for number in 0..=u8::MAX {
            let of_one: Vec<_> = std::iter::from_fn(|| places.admit(network(number))).collect();
            assert!(of_one.len() <= OF_NETWORK.questions, "{number}");
            admitted.extend(of_one);
        }
        assert_eq!(admitted.len(), ALL.questions);
        let mut sending = Vec::new();
        for admission in admitted.iter().step_by(OF_NETWORK.questions / OF_NETWORK.at_once) {
            sending.extend(admission.sending().await);
        }
        assert_eq!(sending.len(), ALL.at_once);
        let known = places.admit(Origin::Known).expect("room for a known token");
        assert!(known.sending().await.is_some());
        drop((sending, admitted));
        assert!(places.networks().is_empty(), "networks without questions are forgotten");
        assert!(places.admit(network(1)).is_some());
    }
}
