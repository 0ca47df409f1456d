//! Timeout of a statement.

use std::future::Future;
use std::time::Duration;

/// Default timeout of a statement. If the machine of the database loses power, the connection stays open, so only a timeout
/// detects the loss.
pub const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of statements that read many rows and that no client waits for.
const LONG_TIMEOUT: Duration = Duration::from_secs(600);

tokio::task_local! {
    static CHOSEN: Duration;
}

/// Runs a future whose statements may each take ten minutes.
pub fn with_long_statements<F: Future>(done: F) -> impl Future<Output = F::Output> {
    CHOSEN.scope(LONG_TIMEOUT, done)
}

pub(crate) fn statement_timeout() -> Duration {
    CHOSEN.try_with(|chosen| *chosen).unwrap_or(STATEMENT_TIMEOUT)
}
