//! Polling: repeated queries for changes that other processes make.

use std::error::Error;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::fault;

/// Runs `look` at once and then after each pause, until `stop` resolves. If `stop` resolves during a query, the query is
/// completed. While the database is unavailable, only the first error is logged.
pub async fn look_until<E: Error + 'static, F: Future<Output = Result<(), E>>>(
    stop: impl Future<Output = ()>,
    pause: Duration,
    mut look: impl FnMut() -> F,
) {
    let mut stop = pin!(stop);
    let mut looks = interval(pause);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_well = true;
    loop {
        tokio::select! {
            biased;
            () = &mut stop => return,
            _ = looks.tick() => {}
        }
        let looked = look().await;
        if let Err(error) = &looked
            && is_well
        {
            fault::log(error);
        }
        is_well = looked.is_ok();
    }
}
