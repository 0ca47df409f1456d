//! Turns of a process that has ended, continued in this process.
//!
//! Such a turn is made again like a turn that an extension resumes ([`methods::resumption`](crate::methods)). It has
//! the original message and owner, the extensions that were active then, and the current session. The operator decides
//! whether the agent runs again or follows the upstream task that the turn has begun.

use std::sync::Arc;
use std::time::Duration;

use annex_agent::TurnStart;
use annex_protocol::{A2aError, ExtensionUri};
use annex_tasks::LostTurn;
use tokio::time::sleep;

use crate::fault;
use crate::on_lost_turn::{OnLostTurn, StoredTurn};
use crate::permits::TurnPermit;
use crate::request_handler::RequestHandler;
use crate::service_parameters::ServiceParameters;

/// The pause between two attempts to get a permit. All turns of a process are lost at once, so many may wait.
const PERMIT_PAUSE: Duration = Duration::from_millis(500);
/// The most attempts to get a permit.
const PERMIT_ATTEMPTS: usize = 60;

/// Why this process does not continue a turn.
#[derive(Debug, thiserror::Error)]
enum NotHere {
    #[error("on_lost_turn of the agent has changed since the turn began")]
    Otherwise,
    #[error("the stored data of the turn cannot be read")]
    Unreadable(#[from] serde_json::Error),
    #[error(transparent)]
    Failed(#[from] A2aError),
}

impl RequestHandler {
    /// The text with which another process can continue a turn. `None` if the turn would fail instead, or if there are
    /// no other processes.
    pub(crate) fn stored_turn(&self, requested: &[ExtensionUri]) -> Option<Arc<str>> {
        if self.on_lost_turn == OnLostTurn::Fail || !self.tasks.store().is_shared() {
            return None;
        }
        let turn = StoredTurn { on_lost: self.on_lost_turn, requested: requested.to_vec() };
        // Encoding names and URIs cannot fail.
        serde_json::to_string(&turn).ok().map(Into::into)
    }

    /// Continues a turn that this process has taken over, without a waiting client. If that is impossible, the task
    /// fails and the log has the reason.
    pub fn go_on_with(&self, lost: LostTurn) {
        let Some(handler) = self.me.upgrade() else { return };
        let of_tenant = Arc::clone(&handler);
        let task = lost.task.clone();
        let goes_on = async move {
            tracing::info!(target: crate::LOG_TARGET, task = %lost.task, "continues a turn whose process has ended");
            if let Err(error) = handler.make_again(&lost).await {
                // Another process may continue the turn, or this one once it knows the current extensions.
                if handler.running.is_closed() || handler.extensions.current().is_err() {
                    return handler.tasks.hand_on(&lost).await;
                }
                let error = fault::text(&error);
                let tenant = handler.tenant_name();
                tracing::warn!(target: crate::LOG_TARGET, tenant, task = %lost.task, error, "a turn whose process has ended is not continued");
                handler.tasks.fail_lost_turn(&lost).await;
            }
        };
        self.running.spawn(async move { of_tenant.for_task(&task, goes_on).await });
    }

    async fn make_again(&self, lost: &LostTurn) -> Result<(), NotHere> {
        let StoredTurn { on_lost, requested } = serde_json::from_str(&lost.turn)?;
        if on_lost != self.on_lost_turn {
            return Err(NotHere::Otherwise);
        }
        let owner = lost.owner.clone();
        let record = self.tasks.open(&owner, &lost.task).await?;
        record.adopt(lost.epoch).await;
        let target = self.target_again(&owner, &record);
        let permit = self.permit_of(lost).await?;
        let session = self.begin_turn(&owner, &target).await?;
        self.check_begins()?;
        session.answer_again(lost.task.as_str());
        let call = ServiceParameters { requested, owner, ..ServiceParameters::default() };
        let extensions = self.extensions.current()?;
        Ok(self.begin_again(call, (&extensions, TurnStart::LostTurn), target, (session, permit)).await?)
    }

    async fn permit_of(&self, lost: &LostTurn) -> Result<TurnPermit, NotHere> {
        for _ in 1..PERMIT_ATTEMPTS {
            match self.turn_limiter.try_take(&lost.owner).await {
                Err(A2aError::Overloaded { .. } | A2aError::QuotaExceeded { .. }) if !self.running.is_closed() => {
                    sleep(PERMIT_PAUSE).await
                }
                taken => return Ok(taken?),
            }
        }
        Ok(self.turn_limiter.take(&lost.owner).await?)
    }
}
