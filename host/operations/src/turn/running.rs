//! Runs a turn: first inside the request, and in a tokio task of its own once the turn has to wait.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;

use annex_fairness::of_same_tenant;
use annex_protocol::{A2aError, ExtensionUri};
use annex_telemetry::of_same_request;
use futures::FutureExt;
use tokio::task::JoinHandle;
use tracing::{Instrument, Span};

use super::Turn;
use crate::fault;

/// The result of a turn: the extensions that were active until the end, or the error of storing that end.
pub(crate) type TurnResult = Result<Vec<ExtensionUri>, A2aError>;

/// A turn that has begun.
pub(crate) enum Running {
    /// The turn has ended without waiting.
    Ended(TurnResult),
    Waiting(JoinHandle<TurnResult>),
}

/// The agent panicked.
#[derive(Debug, thiserror::Error)]
#[error("the turn broke off")]
struct BrokeOff;

impl Turn {
    /// Begins the turn. A client that disconnects does not end the turn. A turn that never waits runs to its end in
    /// this call and needs no tokio task of its own.
    pub(crate) fn begin_running(self) -> Running {
        let tracker = self.handler.process.running.clone();
        // The turn may run inside its client's request, which a panic of the agent must not end. Dropping the turn
        // fails its task.
        let turn = of_same_request(of_same_tenant(self.run_in_span())).instrument(Span::current());
        let turn = AssertUnwindSafe(turn).catch_unwind();
        let turn = turn.map(|ended| ended.unwrap_or_else(|_| Err(fault::internal(&BrokeOff))));
        let mut turn: Pin<Box<dyn Future<Output = TurnResult> + Send>> = Box::pin(tracker.track_future(turn));
        match turn.as_mut().now_or_never() {
            Some(ended) => Running::Ended(ended),
            None => Running::Waiting(tokio::spawn(turn)),
        }
    }
}

impl Turn {
    /// Runs the turn in its span.
    fn run_in_span(self) -> impl Future<Output = TurnResult> {
        let mut span = annex_telemetry::turn_span("turn", || None);
        if span.is_recording() {
            span.set_text("a2a.context.id", self.context.context_id.as_str());
            span.set_text("a2a.task.id", self.context.task_id.as_str());
        }
        annex_telemetry::within(&span, self.run()).map(move |ended| {
            if ended.is_err() {
                span.fail("fault");
            }
            ended
        })
    }
}

impl Running {
    /// Waits for the end of the turn.
    ///
    /// # Errors
    /// When the task's last state could not be stored, or the turn broke off.
    pub(crate) async fn ended(self) -> TurnResult {
        match self {
            Self::Ended(result) => result,
            Self::Waiting(turn) => turn.await.map_err(|error| fault::internal(&error))?,
        }
    }
}
