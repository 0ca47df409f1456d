//! Undoes changes whose answer from the database was lost. The database may still make such a change after its caller
//! has given up.

use std::time::Duration;

use annex_database::STATEMENT_TIMEOUT;
use annex_leases::Replica;
use tokio::time::sleep;

use crate::error::StoreError;

/// The pauses before the attempts to undo a change. The first attempt is made at once. Before the last attempt, any
/// statement that was under way has reached its timeout.
const PAUSES: [Duration; 4] = [Duration::ZERO, Duration::from_secs(5), Duration::from_secs(10), STATEMENT_TIMEOUT];
/// The pause after a failed attempt.
const AGAIN: Duration = Duration::from_millis(500);

/// Undoes a change of this process, which does not know whether the database has made the change. A failed attempt is
/// repeated until the lease of `replica` ends. After that other processes undo the change.
pub(super) fn undo<F: Future<Output = Result<(), StoreError>> + Send>(
    replica: Replica,
    undo: impl Fn() -> F + Send + 'static,
) {
    tokio::spawn(async move {
        for pause in PAUSES {
            sleep(pause).await;
            while let Err(error) = undo().await {
                if replica.is_over() {
                    return;
                }
                tracing::debug!(%error, "a change whose answer was lost is not undone yet");
                sleep(AGAIN).await;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_is_undone_at_once_and_after_its_statement_must_have_ended() {
        let began = Instant::now();
        let looks = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&looks);
        undo("one".into(), move || {
            told.lock().unwrap().push(began.elapsed());
            async { Ok(()) }
        });
        sleep(Duration::from_secs(600)).await;
        let looks = looks.lock().unwrap();
        assert!(looks[0] < Duration::from_secs(1) && *looks.last().unwrap() > STATEMENT_TIMEOUT, "{looks:?}");
    }
}
