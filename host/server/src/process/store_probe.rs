//! Checks for `/readyz` whether the store answers.

use std::time::Duration;

use annex_operations::tasks::Tasks;
use annex_telemetry::fault;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// Time limit for the store to answer.
const LIMIT: Duration = Duration::from_secs(2);
/// The time for which a result is reused. The store gets at most one query in this time, for any number of requests.
const FRESH: Duration = Duration::from_secs(1);

/// Checks whether the store of conversations and tasks answers, but only when a request asks for the result.
#[derive(Default)]
pub(crate) struct StoreProbe {
    /// The time and the result of the last check. Locked during a check, so that concurrent requests share one result.
    last: Mutex<Option<(Instant, bool)>>,
}

impl StoreProbe {
    /// True if the store answers. If the last check is younger than [`FRESH`], returns its result instead of checking.
    pub(crate) async fn answers(&self, tasks: &Tasks) -> bool {
        let mut last = self.last.lock().await;
        if let Some((asked, answered)) = *last
            && asked.elapsed() < FRESH
        {
            return answered;
        }
        let answered = ask(tasks).await;
        let was_well = last.is_none_or(|(_, answered)| answered);
        match &answered {
            Err(reason) if was_well => tracing::warn!(%reason, "the store does not answer; the server is not ready"),
            Ok(()) if !was_well => tracing::info!("the store answers again"),
            _ => {}
        }
        *last = Some((Instant::now(), answered.is_ok()));
        answered.is_ok()
    }
}

/// Reads from the store. The error is the reason that is logged.
async fn ask(tasks: &Tasks) -> Result<(), String> {
    let asked = async { tasks.probe().await.map_err(|error| fault::text(&error)) };
    timeout(LIMIT, asked).await.unwrap_or_else(|_| Err(format!("no answer within {} seconds", LIMIT.as_secs())))
}
