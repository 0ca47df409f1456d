//! Follows the editions that all processes on one database agree on: applies concluded editions, and tries proposed
//! ones.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use annex_leases::Replica;
use annex_leases::editions::{Editions, EditionsError, News};
use annex_telemetry::fault;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::installation::installer::{Agreement, HINT, Installer, Peers};

/// The pause between two queries for new proposals and editions. One query covers all agents. A hint from another
/// process ends the pause early.
const LOOK: Duration = Duration::from_millis(500);
/// The pause between two queries while a proposal that this process has tried may be concluded.
const SOON: Duration = Duration::from_millis(50);
/// The interval at which old editions and components are deleted.
const SWEEP: Duration = Duration::from_secs(60);
/// If this process does not know the agent of a proposal or edition, it ignores the proposal or edition for this time,
/// because the agent may be loading. Afterwards this process reports that it does not serve the agent.
const UNKNOWN: Duration = Duration::from_secs(10);

/// Follows the editions of the other processes until `stop` is cancelled. `serving` returns the installers of all agents
/// that this process serves.
pub(crate) async fn follow(serving: impl Fn() -> Vec<Arc<Installer>>, peers: Peers, stop: CancellationToken) {
    let mut hints = peers.wake.hints();
    let mut swept = Instant::now();
    let mut is_well = true;
    let mut unknown = HashMap::new();
    loop {
        let awaits = serving().iter().filter_map(|installer| installer.agreement()).any(|one| one.awaits());
        tokio::select! {
            () = stop.cancelled() => return,
            () = hints.of(HINT) => {}
            () = sleep(if awaits { SOON } else { LOOK }) => {}
        }
        let mut looked = look(&serving(), &peers, &mut unknown).await;
        if looked.is_ok() && swept.elapsed() >= SWEEP {
            swept = Instant::now();
            looked = peers.editions.sweep().await;
        }
        if let Err(error) = &looked
            && is_well
        {
            fault::log(error);
        }
        is_well = looked.is_ok();
    }
}

async fn look(
    serving: &[Arc<Installer>],
    peers: &Peers,
    unknown: &mut HashMap<String, Instant>,
) -> Result<(), EditionsError> {
    let editions = &peers.editions;
    let replica = editions.lease().replica();
    let agreed: Vec<(&Arc<Installer>, &Arc<Agreement>)> =
        serving.iter().filter_map(|installer| Some((installer, installer.agreement()?))).collect();
    // After a lapse of its lease this process has a new replica id, which no proposal has asked yet.
    let lapsed = agreed.iter().filter(|(_, agreement)| !agreement.has_joined(&replica));
    let lapsed: Vec<_> = lapsed.map(|(installer, agreement)| (installer.tenant(), agreement.number())).collect();
    if !lapsed.is_empty() && !editions.join(&replica, &lapsed).await? {
        return Ok(());
    }
    let mut news: HashMap<String, PendingWork> = HashMap::new();
    for News { tenant, number, is_in_force } in editions.news(&replica).await? {
        let work_left = news.entry(tenant).or_default();
        if is_in_force {
            work_left.is_behind = true;
        } else {
            work_left.proposed = Some(number);
        }
    }
    let renewed = renewed(editions, &replica, &agreed).await?;
    for (installer, agreement) in agreed {
        let mut work_left = news.remove(installer.tenant()).unwrap_or_default();
        work_left.is_renewed = renewed.iter().any(|tenant| tenant == installer.tenant());
        if !work_left.is_behind && !agreement.has_joined(&replica) {
            agreement.join(&replica);
        }
        if work_left.is_any() || agreement.is_to_try_again() {
            work(installer, agreement, &replica, work_left);
        }
    }
    unknown.retain(|tenant, _| news.contains_key(tenant));
    for tenant in news.into_keys() {
        if unknown.entry(tenant.clone()).or_insert_with(Instant::now).elapsed() >= UNKNOWN {
            editions.leave(&replica, &tenant).await?;
        }
    }
    Ok(())
}

/// The tenants of the agents whose cards another process has made again, because a live entry was declared.
async fn renewed(
    editions: &Editions,
    replica: &Replica,
    agreed: &[(&Arc<Installer>, &Arc<Agreement>)],
) -> Result<Vec<String>, EditionsError> {
    let is_live = |(installer, _): &(&Arc<Installer>, &Arc<Agreement>)| installer.has_live_entries();
    if !agreed.iter().any(is_live) {
        return Ok(Vec::new());
    }
    let mut rounds = editions.renewed(replica).await?;
    rounds.retain(|(tenant, number, renewals)| {
        let served = agreed.iter().find(|(installer, _)| installer.tenant() == tenant);
        served.is_some_and(|(_, served)| served.number() == *number && served.renewals() < *renewals)
    });
    Ok(rounds.into_iter().map(|(tenant, ..)| tenant).collect())
}

/// The pending work for one agent.
#[derive(Clone, Copy, Default)]
struct PendingWork {
    /// True if an edition later than the served one was concluded.
    is_behind: bool,
    proposed: Option<u64>,
    /// True if another process has made the cards of the served edition again.
    is_renewed: bool,
}

impl PendingWork {
    fn is_any(self) -> bool {
        self.is_behind || self.proposed.is_some() || self.is_renewed
    }
}

/// Starts the work for one agent in a task of its own, because compiling may take long and must not delay other agents.
fn work(installer: &Arc<Installer>, agreement: &Arc<Agreement>, replica: &Replica, work_left: PendingWork) {
    // If work on the agent is still running, the next query reports the rest again.
    let Ok(working) = Arc::clone(&agreement.work).try_lock_owned() else { return };
    let installer = Arc::clone(installer);
    let agreement = Arc::clone(agreement);
    let replica = replica.clone();
    tokio::spawn(async move {
        let _working = working;
        let done = match work_left.proposed {
            _ if work_left.is_behind || agreement.is_to_try_again() => installer.follow(&agreement, &replica).await,
            Some(number) => installer.try_proposed(&agreement, (&replica, number)).await,
            None => installer.adopt_renewed(&agreement).await,
        };
        if let Err(error) = done {
            tracing::debug!(tenant = installer.tenant(), %error, "the editions of other replicas cannot be read");
        }
    });
}
