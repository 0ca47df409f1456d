//! Waits for conditions that no event announces, by polling.

use std::time::{Duration, Instant};

/// Polls until `is_so` returns true, for example after a change that another process makes.
///
/// # Panics
/// `is_so` still returns false after a minute. The message of the panic is `what`.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so().await {
        assert!(Instant::now() < deadline, "{what}");
        // Real time, because the clock of sockets and processes cannot be paused.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
