//! The tokio task that sends metrics to a collector from time to time.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::process::readiness_gate::ReadinessGate;

/// The maximum size of the text of an error in the log.
const MAX_ERROR: usize = 512;
/// Time limit for sending the last metrics during shutdown.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The tokio task that sends metrics.
pub(crate) struct MetricsTask {
    stop: CancellationToken,
    sending: JoinHandle<()>,
}

impl MetricsTask {
    /// Starts the task. `None` if the config of the app wants no metrics.
    pub(crate) fn start(gate: Arc<ReadinessGate>) -> Option<Self> {
        gate.loaded()?.metrics_sender()?;
        let stop = CancellationToken::new();
        let sending = tokio::spawn(send_all(gate, stop.clone()));
        Some(Self { stop, sending })
    }

    /// Sends the metrics once more, within five seconds, and stops.
    pub(crate) async fn close(mut self) {
        self.stop.cancel();
        if timeout(CLOSE_TIMEOUT, &mut self.sending).await.is_err() {
            self.sending.abort();
        }
    }
}

async fn send_all(gate: Arc<ReadinessGate>, stop: CancellationToken) {
    let Some(app) = gate.loaded() else { return };
    let Some(sender) = app.metrics_sender() else { return };
    let mut was_sent = true;
    loop {
        let is_over = stop.run_until_cancelled(sleep(sender.interval)).await.is_none();
        let sent = sender.send(app.metric_families(&gate.access_log.numbers)).await;
        // Logged once: a collector that is down for hours would fill the log.
        if let Err(error) = &sent
            && was_sent
        {
            // The collector may have written a part of the text.
            let error = annex_text::line_within(&annex_text::with_causes(&**error), MAX_ERROR);
            tracing::warn!(error, "metrics are lost: the collector of [traces] does not take them");
        }
        was_sent = sent.is_ok();
        if is_over {
            return;
        }
    }
}
