//! The tokio task that sends metrics to a collector from time to time.

use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::process::readiness_gate::ReadinessGate;
use crate::traces::{CLOSE_TIMEOUT, MAX_ERROR};

/// The tokio task that sends metrics. Dropping this value stops the task.
pub(crate) struct MetricsTask {
    stop: DropGuard,
    sending: JoinHandle<()>,
}

impl MetricsTask {
    /// Starts the task. `None` if the config of the app wants no metrics.
    pub(crate) fn start(gate: Arc<ReadinessGate>) -> Option<Self> {
        gate.loaded()?.metrics_sender()?;
        let stop = CancellationToken::new();
        let sending = tokio::spawn(send_all(gate, stop.clone()));
        Some(Self { stop: stop.drop_guard(), sending })
    }

    /// Sends the metrics once more, within five seconds, and stops.
    pub(crate) async fn close(self) {
        let Self { stop, mut sending } = self;
        drop(stop);
        if timeout(CLOSE_TIMEOUT, &mut sending).await.is_err() {
            sending.abort();
        }
    }
}

async fn send_all(gate: Arc<ReadinessGate>, stop: CancellationToken) {
    let Some(app) = gate.loaded() else { return };
    let Some(sender) = app.metrics_sender() else { return };
    let mut was_sent = true;
    loop {
        let is_over = stop.run_until_cancelled(sleep(sender.interval)).await.is_none();
        let sent = sender.send(app.metric_families(&gate.access_log.numbers, &gate.tls)).await;
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
