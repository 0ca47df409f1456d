//! The longest wait for the answer to a statement.

use std::future::Future;
use std::time::Duration;

/// A machine that is gone without a word does not break its connections.
const PATIENCE: Duration = Duration::from_secs(30);
/// For statements that go through many rows, and that nobody waits for.
const LONG: Duration = Duration::from_secs(600);

tokio::task_local! {
    static CHOSEN: Duration;
}

/// Does something whose statements may each take ten minutes.
pub fn with_long_statements<F: Future>(done: F) -> impl Future<Output = F::Output> {
    CHOSEN.scope(LONG, done)
}

pub(crate) fn patience() -> Duration {
    CHOSEN.try_with(|chosen| *chosen).unwrap_or(PATIENCE)
}
