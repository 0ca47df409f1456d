//! Has extensions declare their live entries on Agent Cards again when the time of the entries is over.
//!
//! All agents are looked at once a second, and one entry of an agent is declared at a time. So an agent asks its
//! extensions for at most one declaration a second, and its card changes at most once a second. A tenant that is in debt for
//! CPU time is not asked until the debt is paid back.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// The pause between two looks for entries whose time is over.
const LOOK: Duration = Duration::from_secs(1);
/// The maximum number of declarations at the same time, over all agents of the process.
const MAX_AT_ONCE: usize = 8;

/// An agent whose card may have live entries.
pub(crate) trait LiveCard: Send + Sync + 'static {
    /// The time since which an entry is overdue at `now`. `None` if no entry is, or if a declaration is under way.
    fn overdue_since(&self, now: Instant) -> Option<Instant>;

    /// Declares the entry that is overdue for longest.
    fn declare_overdue(&self) -> BoxFuture<'_, ()>;
}

/// Declares overdue entries of the agents until `stop` is cancelled. This also cancels the declarations that run then.
pub(crate) async fn follow<A: LiveCard>(agents: impl Fn() -> Vec<Arc<A>>, stop: CancellationToken) {
    let places = Arc::new(Semaphore::new(MAX_AT_ONCE));
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = looks.tick() => look(agents(), &places, &stop),
        }
    }
}

fn look<A: LiveCard>(agents: Vec<Arc<A>>, places: &Arc<Semaphore>, stop: &CancellationToken) {
    let now = Instant::now();
    let overdue = agents.into_iter().filter_map(|agent| Some((agent.overdue_since(now)?, agent)));
    let mut overdue: Vec<(Instant, Arc<A>)> = overdue.collect();
    // The agent that has waited longest comes first, so that none waits for ever for a place.
    overdue.sort_by_key(|(since, _)| *since);
    for (_, agent) in overdue {
        let Ok(place) = Arc::clone(places).try_acquire_owned() else { return };
        let stop = stop.clone();
        tokio::spawn(async move {
            let _place = place;
            stop.run_until_cancelled(agent.declare_overdue()).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use futures::future::BoxFuture;
    use tokio::time::{Instant, sleep};
    use tokio_util::sync::CancellationToken;

    use super::{LiveCard, MAX_AT_ONCE, follow};

    /// An agent with an entry that holds for `hold` after each declaration.
    struct Agent {
        hold: Duration,
        due: Mutex<Option<Instant>>,
        declared: AtomicU64,
        hangs: bool,
    }

    impl Agent {
        fn new(hold: Duration, hangs: bool) -> Arc<Self> {
            Arc::new(Self { hold, due: Mutex::new(Some(Instant::now())), declared: AtomicU64::new(0), hangs })
        }

        fn declared(&self) -> u64 {
            self.declared.load(Ordering::Relaxed)
        }
    }

    impl LiveCard for Agent {
        fn overdue_since(&self, now: Instant) -> Option<Instant> {
            self.due.lock().expect("the time").filter(|due| *due <= now)
        }

        fn declare_overdue(&self) -> BoxFuture<'_, ()> {
            Box::pin(async {
                self.declared.fetch_add(1, Ordering::Relaxed);
                *self.due.lock().expect("the time") = None;
                if self.hangs {
                    pending::<()>().await;
                }
                *self.due.lock().expect("the time") = Some(Instant::now() + self.hold);
            })
        }
    }

    /// Runs the declarations of the agents for `time`.
    async fn run(agents: &[Arc<Agent>], time: Duration) -> CancellationToken {
        let stop = CancellationToken::new();
        let agents = agents.to_vec();
        tokio::spawn(follow(move || agents.clone(), stop.clone()));
        sleep(time).await;
        stop
    }

    #[tokio::test(start_paused = true)]
    async fn at_most_one_declaration_a_second() {
        let agents = [Agent::new(Duration::ZERO, false), Agent::new(Duration::from_secs(4), false)];
        run(&agents, Duration::from_millis(10_500)).await;
        assert_eq!((agents[0].declared(), agents[1].declared()), (11, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_declaration_that_hangs_holds_up_no_other_agent() {
        let mut agents: Vec<_> = (1..MAX_AT_ONCE).map(|_| Agent::new(Duration::ZERO, true)).collect();
        agents.extend((0..3).map(|_| Agent::new(Duration::from_secs(2), false)));
        run(&agents, Duration::from_millis(30_500)).await;
        let (hanging, others) = agents.split_at(MAX_AT_ONCE - 1);
        assert!(hanging.iter().all(|agent| agent.declared() == 1));
        // One place is left for three agents, one declaration a second.
        let declared: Vec<u64> = others.iter().map(|agent| agent.declared()).collect();
        assert!(declared.iter().all(|declared| *declared >= 10), "{declared:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_declared_after_the_stop() {
        let agents = [Agent::new(Duration::ZERO, false)];
        let stop = run(&agents, Duration::from_millis(1_500)).await;
        stop.cancel();
        sleep(Duration::from_secs(60)).await;
        assert_eq!(agents[0].declared(), 2);
    }
}
