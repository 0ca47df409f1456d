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

/// The permit for long work. Dropping it releases the permit. It must not be held across an await of something else.
pub(crate) struct LongWork {
    _permit: Place,
}

impl LongWork {
    /// Waits for a permit to work on `bytes`. Tenants get permits round robin. `None` for small work, which needs no
    /// permit.
    pub(crate) async fn begin(bytes: usize) -> Option<Self> {
        if bytes <= SHORT {
            return None;
        }
        let permit = PERMITS.take(&current_tenant()).await;
        // Releasing the permit schedules this task before all others. Yielding lets the others run first.
        tokio::task::yield_now().await;
        Some(Self { _permit: permit })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::{LongWork, PERMITS, SHORT, permits};

    #[tokio::test]
    async fn little_work_begins_while_long_work_waits_for_a_permit() {
        let held: Vec<_> = (0..permits()).map_while(|_| PERMITS.try_take()).collect();
        let mut long = Box::pin(LongWork::begin(SHORT + 1));
        assert!(long.as_mut().now_or_never().is_none(), "all permits are taken");
        assert!(LongWork::begin(SHORT).await.is_none());
        drop(held);
        assert!(long.await.is_some());
    }
}
