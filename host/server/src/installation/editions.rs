//! Follows what the processes on one database agree on, for all agents that are served here: editions that are in force are
//! taken, and those that are proposed are tried.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use annex_leases::Replica;
use annex_leases::editions::{EditionsError, News};
use annex_telemetry::fault;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::installation::installer::{Agreement, HINT, Installer, Peers};
use crate::tenants::Installers;

/// The pause between two looks, each one statement for all agents. A hint ends it early.
const LOOK: Duration = Duration::from_millis(500);
/// The same while a proposal may come in force at any moment.
const SOON: Duration = Duration::from_millis(50);
/// The pause between two sweeps.
const SWEEP: Duration = Duration::from_secs(60);
/// The time for which an agent may be unknown that this process is asked about: it is being loaded. After that nothing serves
/// it here any more.
const UNKNOWN: Duration = Duration::from_secs(10);

/// Follows the others until it is told to stop.
pub(crate) async fn follow(installers: Arc<Installers>, peers: Peers, stop: CancellationToken) {
    let mut hints = peers.wake.hints();
    let mut swept = Instant::now();
    let mut is_well = true;
    let mut unknown = HashMap::new();
    loop {
        let awaits = installers.serving().iter().filter_map(|installer| installer.agreement()).any(|one| one.awaits());
        tokio::select! {
            () = stop.cancelled() => return,
            () = hints.of(HINT) => {}
            () = sleep(if awaits { SOON } else { LOOK }) => {}
        }
        let mut looked = look(&installers, &peers, &mut unknown).await;
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
    installers: &Installers,
    peers: &Peers,
    unknown: &mut HashMap<String, Instant>,
) -> Result<(), EditionsError> {
    let editions = &peers.editions;
    let replica = editions.lease().replica();
    let serving = installers.serving();
    let agreed: Vec<(&Arc<Installer>, &Arc<Agreement>)> =
        serving.iter().filter_map(|installer| Some((installer, installer.agreement()?))).collect();
    // After a time without a lease this process is another replica, whom nobody has asked.
    let lapsed = agreed.iter().filter(|(_, agreement)| !agreement.has_joined(&replica));
    let lapsed: Vec<_> = lapsed.map(|(installer, agreement)| (installer.tenant(), agreement.number())).collect();
    if !lapsed.is_empty() && !editions.join(&replica, &lapsed).await? {
        return Ok(());
    }
    let mut news: HashMap<String, Told> = HashMap::new();
    for News { tenant, number, is_in_force } in editions.news(&replica).await? {
        let told = news.entry(tenant).or_default();
        if is_in_force {
            told.is_behind = true;
        } else {
            told.proposed = Some(number);
        }
    }
    for (installer, agreement) in agreed {
        let told = news.remove(installer.tenant()).unwrap_or_default();
        if !told.is_behind && !agreement.has_joined(&replica) {
            agreement.join(&replica);
        }
        if told.is_behind || told.proposed.is_some() || agreement.is_to_try_again() {
            work(installer, agreement, &replica, told);
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

/// The work of a process for one agent.
#[derive(Clone, Copy, Default)]
struct Told {
    /// True if a later edition than the one that is served is in force.
    is_behind: bool,
    proposed: Option<u64>,
}

/// Compiling may take long, and one agent must not keep others waiting.
fn work(installer: &Arc<Installer>, agreement: &Arc<Agreement>, replica: &Replica, told: Told) {
    // Whatever is left of it is told again by the next look.
    let Ok(working) = Arc::clone(&agreement.work).try_lock_owned() else { return };
    let installer = Arc::clone(installer);
    let agreement = Arc::clone(agreement);
    let replica = replica.clone();
    tokio::spawn(async move {
        let _working = working;
        let done = match told.proposed {
            Some(number) if !told.is_behind && !agreement.is_to_try_again() => {
                installer.try_proposed(&agreement, (&replica, number)).await
            }
            _ => installer.follow(&agreement, &replica).await,
        };
        if let Err(error) = done {
            tracing::debug!(tenant = installer.tenant(), %error, "what others have installed cannot be read");
        }
    });
}
