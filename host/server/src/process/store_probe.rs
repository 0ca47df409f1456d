//! The check for `/readyz` that the stores answer.

use std::time::Duration;

use annex_operations::request_handler::RequestHandler;
use annex_telemetry::fault;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// Time limit for the stores to answer.
const LIMIT: Duration = Duration::from_secs(2);
/// The time for which a result is reused. The stores are asked at most once in this time, however many requests come.
const FRESH: Duration = Duration::from_secs(1);

/// Asks the stores of tasks and sessions, only on request.
#[derive(Default)]
pub(crate) struct StoreProbe {
    /// The time and result of the last check. Locked during a check, so that concurrent requests share its result.
    last: Mutex<Option<(Instant, bool)>>,
}

impl StoreProbe {
    /// True if both stores answer now or did within [`FRESH`].
    pub(crate) async fn answers(&self, handler: &RequestHandler) -> bool {
        let mut last = self.last.lock().await;
        if let Some((asked, answered)) = *last
            && asked.elapsed() < FRESH
        {
            return answered;
        }
        let answered = ask(handler).await;
        let was_well = last.is_none_or(|(_, answered)| answered);
        match &answered {
            Err(reason) if was_well => tracing::warn!(%reason, "a store does not answer; the server is not ready"),
            Ok(()) if !was_well => tracing::info!("the stores answer again"),
            _ => {}
        }
        *last = Some((Instant::now(), answered.is_ok()));
        answered.is_ok()
    }
}

/// Asks both stores. The error is the reason, for the log.
async fn ask(handler: &RequestHandler) -> Result<(), String> {
    let both = async {
        handler.tasks.probe().await.map_err(|error| fault::text(&error))?;
        handler.sessions.probe().await.map_err(|error| fault::text(&error))
    };
    timeout(LIMIT, both).await.unwrap_or_else(|_| Err(format!("no answer within {} seconds", LIMIT.as_secs())))
}
