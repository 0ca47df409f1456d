//! Places for loading tenants. Loads take places by what they cost, and a load that is slow leaves the places of quick ones.
//!
//! Work on this machine (files, compiling, instances) is bounded because of its memory, so it has few places. Waiting for peers
//! (the card of an agent elsewhere, the tools of an MCP server) costs next to nothing, so it has many. Thus no tenant waits for
//! the peers of others.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use annex_fairness::FairPlaces;
use tokio::time::{Instant, timeout};

/// The time after which a load is slow.
const SHORT: Duration = Duration::from_secs(1);

/// The places of a process.
#[derive(Clone)]
pub(crate) struct LoadPlaces {
    /// For work on this machine. Each may hold a component of 32 MiB meanwhile.
    pub(crate) work: Stage,
    /// For waiting for peers. Each may hold a connection meanwhile.
    pub(crate) peers: Stage,
}

/// The places of one part of a load.
#[derive(Clone)]
pub(crate) struct Stage {
    quick: FairPlaces,
    /// For loads that took longer than [`SHORT`], and for tenants whose last load failed.
    slow: FairPlaces,
}

/// One attempt to load a tenant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    /// The agent has to be there by then; `None` where it has its full time, which begins when it is asked.
    pub(crate) until: Option<Instant>,
    /// True if the attempt before this one failed.
    pub(crate) failed_before: bool,
}

impl LoadPlaces {
    pub(crate) fn new() -> Self {
        Self { work: Stage::new(8, 24), peers: Stage::new(256, 256) }
    }
}

impl Stage {
    fn new(quick: usize, slow: usize) -> Self {
        Self { quick: FairPlaces::new(quick), slow: FairPlaces::new(slow) }
    }

    /// Does a part of a load of the tenant in a place. A load that becomes slow goes on meanwhile, and gives its quick place
    /// back when there is a slow one for it.
    pub(crate) async fn run<T>(&self, tenant: &Arc<str>, failed_before: bool, part: impl Future<Output = T>) -> T {
        if failed_before {
            let _place = self.slow.take(tenant).await;
            return part.await;
        }
        let place = self.quick.take(tenant).await;
        let mut part = pin!(part);
        if let Ok(done) = timeout(SHORT, &mut part).await {
            return done;
        }
        let _slow = tokio::select! {
            biased;
            done = &mut part => return done,
            slow = self.slow.take(tenant) => slow,
        };
        drop(place);
        part.await
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;

    use futures::future::join_all;
    use tokio::task::yield_now;

    use super::Stage;

    fn name(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    #[tokio::test(start_paused = true)]
    async fn a_load_waits_for_no_load_that_is_slow() {
        let stage = Stage::new(2, 8);
        let silent: Vec<_> = (0..8)
            .map(|number| {
                let (stage, name) = (stage.clone(), name(&format!("silent-{number}")));
                tokio::spawn(async move { stage.run(&name, false, pending::<()>()).await })
            })
            .collect();
        yield_now().await;
        assert_eq!(stage.run(&name("cold"), false, async { "loaded" }).await, "loaded");
        assert!(silent.iter().all(|load| !load.is_finished()), "all others still wait");
    }

    #[tokio::test(start_paused = true)]
    async fn tenants_whose_last_load_failed_take_no_quick_place() {
        let stage = Stage::new(1, 2);
        let failing: Vec<_> = (0..100)
            .map(|number| {
                let (stage, name) = (stage.clone(), name(&format!("failing-{number}")));
                tokio::spawn(async move { stage.run(&name, true, pending::<()>()).await })
            })
            .collect();
        yield_now().await;
        assert_eq!(stage.slow.free(), 0);
        let cold = (0..10).map(|number| {
            let (stage, name) = (stage.clone(), name(&format!("cold-{number}")));
            async move { stage.run(&name, false, async { number }).await }
        });
        assert_eq!(join_all(cold).await, (0..10).collect::<Vec<_>>());
        assert!(failing.iter().all(|load| !load.is_finished()));
    }

    #[tokio::test(start_paused = true)]
    async fn more_slow_loads_than_there_are_places_still_end_one_after_the_other() {
        let stage = Stage::new(1, 1);
        let loads = (0..5).map(|number| {
            let (stage, name) = (stage.clone(), name(&format!("slow-{number}")));
            async move {
                let minute = tokio::time::sleep(super::SHORT * 60);
                stage.run(&name, number % 2 == 0, minute).await;
            }
        });
        join_all(loads).await;
        assert_eq!((stage.quick.free(), stage.slow.free()), (1, 1));
    }
}
