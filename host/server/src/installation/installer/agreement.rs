//! The state of the agreement with other processes about one agent. It has the served edition, whether this process may
//! serve requests, and the proposal that this process has tried.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use annex_leases::Replica;
use annex_leases::editions::{Edition, Editions};
use annex_leases::wake::Wake;
use annex_operations::extension_set::Bar;

use super::prepared::PreparedChange;

/// The id of the wake-up that tells other processes about a new proposal or edition.
pub(crate) const HINT: &str = "annex-editions";
/// The time that a proposal may take beyond the compiling of one component. [`Agreement::limit`] adds the time limit
/// for that.
const BEYOND_COMPILING: Duration = Duration::from_secs(30);

/// The parts that all installers of a process need for agreements.
#[derive(Clone)]
pub(crate) struct Peers {
    pub(crate) editions: Arc<Editions>,
    pub(crate) wake: Arc<dyn Wake>,
    /// The time limit for compiling a component.
    pub(crate) compiling: Duration,
    /// True if all processes have one public URL, so that they must share their cards.
    pub(crate) share_cards: bool,
}

/// The agreement of this process with other processes about the extensions of one agent.
pub(crate) struct Agreement {
    pub(super) peers: Peers,
    /// Held while an edition is proposed, tried or applied.
    pub(super) door: tokio::sync::Mutex<()>,
    /// Held by a task that follows the editions of other processes, so that only one such task runs at a time.
    pub(crate) work: Arc<tokio::sync::Mutex<()>>,
    standing: Mutex<AgreementStanding>,
}

#[derive(Default)]
struct AgreementStanding {
    /// The served edition. Its number is 0 until the first edition is served.
    served: Edition,
    /// The replica id under which this process is registered. A proposal waits for the reports of all registered
    /// processes.
    joined: Option<Replica>,
    /// Set while this process cannot serve the current edition.
    unable: Option<Inability>,
    tried: Option<TriedProposal>,
}

struct Inability {
    /// The earliest time of the next attempt to serve the edition.
    next: Instant,
}

/// A proposal that this process has loaded and can serve. It is kept until the proposal is concluded or expires.
struct TriedProposal {
    number: u64,
    prepared: PreparedChange,
    until: Instant,
}

/// The pause before another attempt to serve an edition after a failed attempt.
const RETRY: Duration = Duration::from_secs(10);

impl Agreement {
    pub(super) fn new(peers: Peers) -> Self {
        Self { peers, door: tokio::sync::Mutex::default(), work: Arc::default(), standing: Mutex::default() }
    }

    /// The time limit from the proposal of an edition to its conclusion.
    pub(super) fn limit(&self) -> Duration {
        self.peers.compiling + BEYOND_COMPILING
    }

    pub(super) fn served(&self) -> Edition {
        self.lock().served.clone()
    }

    /// The number of the served edition.
    pub(crate) fn number(&self) -> u64 {
        self.lock().served.number
    }

    /// How often the cards of the served edition were made again.
    pub(crate) fn renewals(&self) -> u64 {
        self.lock().served.renewals
    }

    /// Notes that the served edition has other cards. A tried proposal stays.
    pub(super) fn renew(&self, edition: Edition) {
        self.lock().served = edition;
    }

    /// The reason why requests must be refused. `None` if requests may be served. This process serves requests only
    /// while its lease is valid. A change is complete only when all processes with a valid lease serve the new edition.
    pub(crate) fn bar(&self) -> Option<&'static str> {
        let standing = self.lock();
        if standing.unable.is_some() {
            return Some("the extensions that are in force cannot be served by this replica");
        }
        let holds = |joined: &Replica| self.peers.editions.lease().holds(joined);
        let may_serve = standing.joined.as_ref().is_some_and(holds);
        (!may_serve).then_some("this replica has to find out which extensions are in force")
    }

    /// Returns [`bar`](Self::bar) as a function that the handlers of requests can call.
    pub(super) fn as_bar(self: &Arc<Self>) -> Bar {
        let agreement = Arc::clone(self);
        Box::new(move || agreement.bar().map(ToOwned::to_owned))
    }

    pub(crate) fn has_joined(&self, replica: &Replica) -> bool {
        self.lock().joined.as_ref().is_some_and(|joined| joined.id() == replica.id())
    }

    /// Notes that this process is registered as `replica` and serves the current edition. The note is valid until the
    /// lease of `replica` ends.
    pub(crate) fn join(&self, replica: &Replica) {
        self.lock().joined = Some(replica.clone());
    }

    /// Notes that this process serves `edition`, and drops the proposal that it has tried.
    pub(super) fn serve(&self, edition: Edition) {
        let mut standing = self.lock();
        (standing.served, standing.unable, standing.tried) = (edition, None, None);
    }

    /// Notes that this process cannot serve the current edition.
    pub(super) fn give_up(&self) {
        self.lock().unable = Some(Inability { next: Instant::now() + RETRY });
    }

    /// True if it is time for another attempt to serve the current edition.
    pub(crate) fn is_to_try_again(&self) -> bool {
        self.lock().unable.as_ref().is_some_and(|unable| unable.next <= Instant::now())
    }

    pub(super) fn keep_tried(&self, number: u64, prepared: PreparedChange) {
        let until = Instant::now() + self.limit();
        self.lock().tried = Some(TriedProposal { number, prepared, until });
    }

    /// Takes the change that this process prepared when it tried the proposed edition `number`. `None` if this process
    /// has not tried that edition.
    pub(super) fn take_tried(&self, number: u64) -> Option<PreparedChange> {
        self.lock().tried.take_if(|tried| tried.number == number).map(|tried| tried.prepared)
    }

    /// True while a proposal that this process has tried may still be concluded. Drops an expired proposal.
    pub(crate) fn awaits(&self) -> bool {
        let mut standing = self.lock();
        drop(standing.tried.take_if(|tried| tried.until < Instant::now()));
        standing.tried.is_some()
    }

    /// Wakes the other processes, which then query the editions at once.
    pub(super) fn tell(&self, number: u64) {
        self.peers.wake.tell(HINT, number);
    }

    fn lock(&self) -> MutexGuard<'_, AgreementStanding> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
