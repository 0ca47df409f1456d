//! Whether the stores answer, for `/readyz`.

use std::time::Duration;

use annex_operations::request_handler::RequestHandler;
use annex_telemetry::fault;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// The longest that a store may take to answer.
const LIMIT: Duration = Duration::from_secs(2);
/// The time for which an answer counts. However many ask, the stores are asked once in it.
const FRESH: Duration = Duration::from_secs(1);

/// Asks the stores of tasks and sessions when somebody wants to know, and not before.
#[derive(Default)]
pub(crate) struct StoreProbe {
    /// Held while they are asked, so that whoever comes meanwhile gets the same answer.
    last: Mutex<Option<(Instant, bool)>>,
}

impl StoreProbe {
    /// True if both answer, or did so a moment ago.
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

/// The error is the reason, for the log.
async fn ask(handler: &RequestHandler) -> Result<(), String> {
    let both = async {
        handler.tasks.probe().await.map_err(|error| fault::text(&error))?;
        handler.sessions.probe().await.map_err(|error| fault::text(&error))
    };
    timeout(LIMIT, both).await.unwrap_or_else(|_| Err(format!("no answer within {} seconds", LIMIT.as_secs())))
}
