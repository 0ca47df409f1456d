//! A limit on work that grows with data of clients, such as encoding a large task.
//!
//! This work runs on the threads that serve all requests. Without the limit, a hundred clients that each read a large
//! task would occupy all threads, and all other requests would wait.

use std::sync::LazyLock;
use std::thread::available_parallelism;

use annex_fairness::{FairPlaces, Place, current_tenant};

/// The number of bytes that are copied and encoded in about a millisecond.
const SHORT: usize = 256 << 10;

/// At most half of the threads do long work.
static PERMITS: LazyLock<FairPlaces> = LazyLock::new(|| FairPlaces::new(permits()));

fn permits() -> usize {
    available_parallelism().map_or(1, |threads| threads.get() / 2).max(1)
}

/// The permit for long work. Dropping it releases the permit. It must not be held while other work is awaited.
pub(crate) struct LongWork {
    _permit: Place,
}

impl LongWork {
    /// Waits for a permit to work on `bytes`. Tenants get permits round robin. `None` for small work, which needs no
    /// permit.
    pub(crate) async fn begin(bytes: usize) -> Option<Self> {
        Self::begin_in(&PERMITS, bytes).await
    }

    async fn begin_in(permits: &FairPlaces, bytes: usize) -> Option<Self> {
        if bytes <= SHORT {
            return None;
        }
        let permit = permits.take(&current_tenant()).await;
        // Releasing the permit schedules this task before all others. Yielding lets the others run first.
        tokio::task::yield_now().await;
        Some(Self { _permit: permit })
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use annex_fairness::FairPlaces;
    use futures::FutureExt;

    use super::{LongWork, SHORT};

    #[tokio::test]
    async fn little_work_begins_while_long_work_waits_for_a_permit() {
        let permits = FairPlaces::new(1);
        let held = permits.try_take().expect("a free permit");
        let mut long = pin!(LongWork::begin_in(&permits, SHORT + 1));
        // With a free permit, the second poll would end: the first yields to other tasks.
        for _ in 0..3 {
            assert!(long.as_mut().now_or_never().is_none(), "the only permit is taken");
        }
        assert!(matches!(LongWork::begin_in(&permits, SHORT).now_or_never(), Some(None)), "little work waits");
        drop(held);
        assert!(long.await.is_some());
    }
}
