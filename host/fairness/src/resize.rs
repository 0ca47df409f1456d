//! Changes the number of permits of a semaphore that is in use.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Changes the number of permits of a semaphore from `from` to `to`. Permits in use stay valid. If more than `to`
/// permits are in use, no permit is granted until enough permits were returned. Both numbers are at most
/// [`Semaphore::MAX_PERMITS`].
pub fn resize(permits: &Arc<Semaphore>, from: usize, to: usize) {
    if to >= from {
        permits.add_permits(to - from);
        return;
    }
    let in_use = (from - to) - permits.forget_permits(from - to);
    let Ok(in_use) = u32::try_from(in_use) else { return };
    if in_use > 0 {
        let permits = Arc::clone(permits);
        // This request precedes all later ones in the semaphore's queue, so they wait until the surplus is removed.
        tokio::spawn(async move {
            if let Ok(surplus) = permits.acquire_many_owned(in_use).await {
                surplus.forget();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Semaphore;
    use tokio::task::yield_now;

    use super::resize;

    #[tokio::test]
    async fn permits_in_use_stay_valid_and_none_is_granted_until_enough_are_returned() {
        let permits = Arc::new(Semaphore::new(3));
        let mut taken: Vec<_> = (0..3).map(|_| permits.try_acquire().expect("a permit")).collect();
        resize(&permits, 3, 1);
        yield_now().await;
        for _ in 0..2 {
            drop(taken.pop());
            yield_now().await;
            assert!(permits.try_acquire().is_err());
        }
        drop(taken);
        yield_now().await;
        let one = permits.try_acquire().expect("a permit");
        assert!(permits.try_acquire().is_err());
        resize(&permits, 1, 2);
        assert!(permits.try_acquire().is_ok());
        drop(one);
    }
}
