//! Waiting for what no event tells a test of.

use std::time::{Duration, Instant};

/// Asks until it is so: for what another process does, what follows an answer, or what takes its time.
///
/// # Panics
/// When it is not so after a minute.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so().await {
        assert!(Instant::now() < deadline, "{what}");
        // In real time, as the clock of sockets and processes cannot be paused.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
