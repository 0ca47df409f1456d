//! The standing that an installer shares with those of other processes that serve the same agent: the edition that it serves,
//! whether it may, and the proposals that it has tried.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use annex_leases::Replica;
use annex_leases::editions::{Edition, Editions};
use annex_leases::wake::Wake;
use annex_operations::extension_set::Bar;

use super::prepared::Prepared;

/// The id of the hint that something is proposed or in force.
pub(crate) const HINT: &str = "annex-editions";
/// The time that an edition may take beyond compiling one component.
const BEYOND_COMPILING: Duration = Duration::from_secs(30);

/// The parts that all installers of a process need to agree with those of others.
#[derive(Clone)]
pub(crate) struct Peers {
    pub(crate) editions: Arc<Editions>,
    pub(crate) wake: Arc<dyn Wake>,
    /// The longest that compiling a component may take.
    pub(crate) compiling: Duration,
    /// True if the cards lead to no single process, so that all show the same.
    pub(crate) share_cards: bool,
}

/// The agreement on one agent.
pub(crate) struct Agreement {
    pub(super) peers: Peers,
    /// Held while an edition is proposed, tried or taken.
    pub(super) door: tokio::sync::Mutex<()>,
    /// Held by the work that follows the others, one piece at a time.
    pub(crate) work: Arc<tokio::sync::Mutex<()>>,
    standing: Mutex<AgreementStanding>,
}

#[derive(Default)]
struct AgreementStanding {
    /// The edition that is served; 0 before the first.
    served: Edition,
    /// The replica as which this process serves it and is asked about others.
    joined: Option<Replica>,
    /// Set while the edition in force cannot be served.
    unable: Option<Inability>,
    tried: Option<Tried>,
}

struct Inability {
    /// Tried again from then on.
    next: Instant,
}

/// A proposal that can be served, until it is in force or its time is up.
struct Tried {
    number: u64,
    prepared: Prepared,
    until: Instant,
}

/// The pause before an edition is tried again that could not be served.
const RETRY: Duration = Duration::from_secs(10);

impl Agreement {
    pub(super) fn new(peers: Peers) -> Self {
        Self { peers, door: tokio::sync::Mutex::default(), work: Arc::default(), standing: Mutex::default() }
    }

    /// The longest that an edition may take from its proposal on.
    pub(super) fn limit(&self) -> Duration {
        self.peers.compiling + BEYOND_COMPILING
    }

    pub(super) fn served(&self) -> Edition {
        self.lock().served.clone()
    }

    /// The number of the edition that is served.
    pub(crate) fn number(&self) -> u64 {
        self.lock().served.number
    }

    /// Why requests must not be served; `None` where they may. While a lease holds, the others wait for this process before
    /// they tell anybody that a newer edition is in force.
    pub(crate) fn bar(&self) -> Option<&'static str> {
        let standing = self.lock();
        if standing.unable.is_some() {
            return Some("the extensions that are in force cannot be served by this replica");
        }
        let holds = |joined: &Replica| self.peers.editions.lease().holds(joined);
        let may_serve = standing.joined.as_ref().is_some_and(holds);
        (!may_serve).then_some("this replica has to find out which extensions are in force")
    }

    /// The same for those who serve requests.
    pub(super) fn as_bar(self: &Arc<Self>) -> Bar {
        let agreement = Arc::clone(self);
        Box::new(move || agreement.bar().map(ToOwned::to_owned))
    }

    pub(crate) fn has_joined(&self, replica: &Replica) -> bool {
        self.lock().joined.as_ref().is_some_and(|joined| joined.id() == replica.id())
    }

    /// The edition that is served is the one in force, as long as the lease of this replica holds.
    pub(crate) fn join(&self, replica: &Replica) {
        self.lock().joined = Some(replica.clone());
    }

    /// The edition is served now. What was tried is of no use any more.
    pub(super) fn serve(&self, edition: Edition) {
        let mut standing = self.lock();
        (standing.served, standing.unable, standing.tried) = (edition, None, None);
    }

    /// The edition in force cannot be served.
    pub(super) fn give_up(&self) {
        self.lock().unable = Some(Inability { next: Instant::now() + RETRY });
    }

    /// True if an edition that could not be served is to be tried again.
    pub(crate) fn is_to_try_again(&self) -> bool {
        self.lock().unable.as_ref().is_some_and(|unable| unable.next <= Instant::now())
    }

    pub(super) fn keep_tried(&self, number: u64, prepared: Prepared) {
        let until = Instant::now() + self.limit();
        self.lock().tried = Some(Tried { number, prepared, until });
    }

    /// The change that was prepared when the edition was proposed.
    pub(super) fn take_tried(&self, number: u64) -> Option<Prepared> {
        self.lock().tried.take_if(|tried| tried.number == number).map(|tried| tried.prepared)
    }

    /// True while a proposal that was tried may come in force. Lets go of one whose time is up.
    pub(crate) fn awaits(&self) -> bool {
        let mut standing = self.lock();
        drop(standing.tried.take_if(|tried| tried.until < Instant::now()));
        standing.tried.is_some()
    }

    /// Has the others look.
    pub(super) fn tell(&self, number: u64) {
        self.peers.wake.tell(HINT, number);
    }

    fn lock(&self) -> MutexGuard<'_, AgreementStanding> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
