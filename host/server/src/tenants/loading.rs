//! The limits on concurrent loads of tenants.
//!
//! Work on this machine (files, compiling, instances) takes memory, so its limit is low. Waiting for peers (the card of
//! an upstream agent, the tools of an MCP server) costs next to nothing, so its limit is high. Thus no tenant waits for
//! the peers of other tenants. A load that takes long moves to a second set of places, and its first place becomes free
//! for a quick load.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use annex_fairness::FairPlaces;
use tokio::time::{Instant, timeout};

/// The time after which a load counts as slow.
const SHORT: Duration = Duration::from_secs(1);

/// The places for loads in this process, by the kind of work.
#[derive(Clone)]
pub(crate) struct LoadPlaces {
    /// The places for loads that work on this machine. Each such load may hold a component of 32 MiB in memory.
    pub(crate) work: Stage,
    /// The places for loads that wait for peers. Each such load may hold a connection.
    pub(crate) peers: Stage,
}

/// The places for one kind of work.
#[derive(Clone)]
pub(crate) struct Stage {
    quick: FairPlaces,
    /// Places for loads that took longer than [`SHORT`], and for tenants whose last load failed.
    slow: FairPlaces,
}

/// One attempt to load a tenant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    /// The time at which the agent must be ready, even if the load still waits for a place. `None` if only the usual
    /// time limit applies, which starts when the load gets a place.
    pub(crate) until: Option<Instant>,
    /// True if the previous attempt failed.
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

    /// Runs one step of a tenant's load, `part`, in a quick place. If the step takes longer than [`SHORT`], it moves to
    /// a slow place as soon as one is free, and runs on meanwhile. If the previous load failed, the step starts in a
    /// slow place.
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
