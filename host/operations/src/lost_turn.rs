//! Continues turns of other processes in this process, if those processes have ended or have handed the turns over.
//!
//! A turn that had only waited runs with its stored request. A turn that had begun runs again, like a turn that an
//! extension resumes ([`methods::resumption`](crate::methods)): with the original message and owner, the extensions
//! that were active in the first run, and the current conversation. The operator decides whether the agent runs again
//! or follows the upstream task that the turn had begun.

use std::sync::Arc;
use std::time::Duration;

use annex_agent::TurnStart;
use annex_conversation::{Conversation, Departure, LostTurn, QueuedTurn, Submission};
use annex_protocol::{A2aError, ExtensionUri, Timestamp};
use tokio::time::sleep;

use crate::fault;
use crate::on_lost_turn::{OnLostTurn, RequestToStore, StoredRequest, StoredTurn, span_to_store, stored_span};
use crate::permits::TurnPermit;
use crate::request_handler::RequestHandler;
use crate::send_message::asked::Refused;
use crate::send_message::entered::{Accepted, Entered};
use crate::send_message::incoming::Incoming;
use crate::service_parameters::ServiceParameters;
use crate::tasks::record::TaskRecord;

/// The pause between two attempts to get a permit. When a process ends, all its turns are lost at the same time, so
/// many turns may wait for permits.
const PERMIT_PAUSE: Duration = Duration::from_millis(500);
/// The maximum number of attempts to get a permit.
const PERMIT_ATTEMPTS: usize = 60;

/// The reason why this process does not continue a turn.
#[derive(Debug, thiserror::Error)]
enum NotHere {
    #[error("on_lost_turn of the agent has changed since the turn began")]
    Otherwise,
    #[error("the turn is not continued, because its task is finished or cancelled, or it has no attempt left")]
    Over,
    #[error("the stored data of the turn cannot be read")]
    Unreadable(#[from] serde_json::Error),
    #[error(transparent)]
    Failed(#[from] A2aError),
}

impl RequestHandler {
    /// The JSON of the [`StoredTurn`] to store with a turn that has begun, so that another process can continue the
    /// turn. `None` if the operator wants lost turns to fail, or if no other process shares the store.
    pub(crate) fn stored_turn(&self, requested: &[ExtensionUri]) -> Option<Arc<str>> {
        if self.on_lost_turn == OnLostTurn::Fail || !self.process.tasks.process().is_shared() {
            return None;
        }
        let requested = requested.to_vec();
        let turn = StoredTurn { on_lost: self.on_lost_turn, requested, traceparent: span_to_store() };
        // Encoding names and URIs cannot fail.
        serde_json::to_string(&turn).ok().map(Into::into)
    }

    /// The JSON of the [`RequestToStore`] to store with a turn while it waits, so that any process can run the turn.
    /// `None` for a turn that needs no stored request, for one of these reasons:
    ///
    /// - The conversation is new, so the turn never waits.
    /// - The turn has no message of the client.
    /// - The store ends with this process.
    pub(crate) fn stored_request(&self, incoming: &Incoming) -> Option<Arc<str>> {
        if incoming.is_new || incoming.again.is_some() || !self.process.tasks.process().store_outlives() {
            return None;
        }
        let request = RequestToStore {
            requested: &incoming.lasting,
            message: &incoming.request.message,
            metadata: &incoming.request.metadata,
            accepted_output_modes: &incoming.request.configuration.accepted_output_modes,
            asked: incoming.asked,
            traceparent: span_to_store(),
        };
        serde_json::to_string(&request).ok().map(Into::into)
    }

    /// Continues a turn that this process has taken over, without a waiting client. If that is impossible, the task
    /// fails and the log has the reason.
    pub fn go_on_with(&self, lost: LostTurn) {
        let Some(handler) = self.me.upgrade() else { return };
        let of_tenant = Arc::clone(&handler);
        let task = lost.task.clone();
        let goes_on = async move {
            let span = annex_telemetry::turn_span("lost_turn", || lost.resume.as_deref().and_then(stored_span));
            let continued =
                async { if lost.has_begun { handler.make_again(&lost).await } else { handler.make(&lost).await } };
            let Err(error) = annex_telemetry::within(&span, continued).await else { return };
            // Another process may continue the turn, or this one once it knows the current extensions.
            if handler.process.running.is_closed() || handler.extensions.current().is_err() {
                return handler.process.tasks.hand_on(&lost).await;
            }
            if !matches!(error, NotHere::Over) {
                let error = fault::text(&error);
                let tenant = handler.tenant_name();
                tracing::warn!(target: crate::LOG_TARGET, tenant, task = %lost.task, error, "a turn whose process has ended is not continued");
            }
            handler.process.tasks.end_lost_turn(&lost).await;
        };
        self.process.running.spawn(async move { of_tenant.for_task(&task, goes_on).await });
    }

    /// Runs a turn that had only waited in its queue, from its stored request.
    async fn make(&self, lost: &LostTurn) -> Result<(), NotHere> {
        if lost.is_cancelled {
            return Err(NotHere::Over);
        }
        let Some(text) = &lost.resume else {
            // A turn without a message of the client: its task keeps waiting.
            let left = self.process.tasks.store().leave(&lost.key, &lost.fence, Departure::Refused).await;
            return Ok(left.map_err(fault::of_store)?);
        };
        if !lost.may_go_on() {
            return Err(NotHere::Over);
        }
        let stored: StoredRequest = serde_json::from_str(text)?;
        let asked = stored.asked;
        let (request, requested) = stored.into_request();
        tell(lost);
        let owner = lost.key.owner().clone();
        let record = self.process.tasks.open(&owner, &lost.task).await?;
        let extensions = self.extensions.current()?;
        let call = ServiceParameters { requested: requested.clone(), owner, ..ServiceParameters::default() };
        let incoming = Incoming::of_task((call, "SendMessage", request), Arc::clone(&record));
        let active = self.active_again(&incoming, &extensions)?;
        let permit = self.permit_of(lost).await?;
        let principal = &incoming.call.owner.principal;
        let steps = self.counted(crate::send_message::steps_for(&active), principal);
        let incoming = Incoming { lasting: requested, asked, steps, ..incoming };
        let (queued, counted) = (Box::new(self.resumed(lost, &record)), self.process.running.token());
        self.forward(&record).await;
        self.wait_again(Accepted { incoming, extensions, active, permit, queued, counted })?;
        Ok(())
    }

    /// Runs a turn again that had begun in another process.
    async fn make_again(&self, lost: &LostTurn) -> Result<(), NotHere> {
        let Some(text) = lost.resume.as_ref().filter(|_| lost.may_go_on()) else { return Err(NotHere::Over) };
        let StoredTurn { on_lost, requested, .. } = serde_json::from_str(text)?;
        if on_lost != self.on_lost_turn {
            return Err(NotHere::Otherwise);
        }
        let owner = lost.key.owner().clone();
        let record = self.process.tasks.open(&owner, &lost.task).await?;
        if record.is_finished() {
            // The last event of the agent is stored, but the turn has not left the queue.
            return Err(NotHere::Over);
        }
        tell(lost);
        let call = ServiceParameters { requested, owner, ..ServiceParameters::default() };
        let incoming = self.incoming_again(call, (&record, TurnStart::LostTurn))?;
        let extensions = self.extensions.current()?;
        let active = self.active_again(&incoming, &extensions)?;
        let permit = self.permit_of(lost).await?;
        let counted = self.process.running.token();
        let queued = self.resumed(lost, &record);
        let conversation = queued.runs().await.map_err(fault::of_append)?;
        let entered =
            Entered { incoming, extensions, active, claim: None, permit, conversation, counted, waited: None };
        if let Err(error) = entered.follow_task(&record).await {
            self.reject(Refused { entered, error }).await;
            return Ok(());
        }
        match self.asked_and_begun(entered).await {
            Ok(begun) => {
                self.forward(&record).await;
                // The turn logs and stores its own end.
                let _ = begun.run_to_the_end().await;
            }
            Err(refused) => self.reject(*refused).await,
        }
        Ok(())
    }

    /// Makes the queued turn under its new fence, which this process got when it took the turn over.
    fn resumed(&self, lost: &LostTurn, record: &TaskRecord) -> QueuedTurn {
        let submission = Submission {
            replica: lost.fence.replica.clone(),
            task: lost.task.clone(),
            since: record.opens().unwrap_or_else(Timestamp::now),
            message: None,
            request: lost.resume.clone().filter(|_| !lost.has_begun),
            resume: lost.resume.clone().filter(|_| lost.has_begun),
            max_waiting: usize::MAX,
        };
        let beginning = self.beginning(Some(record));
        Conversation::resume(self.process.tasks.store(), lost.key.clone(), (lost.fence.clone(), submission), beginning)
    }

    async fn permit_of(&self, lost: &LostTurn) -> Result<TurnPermit, NotHere> {
        let owner = lost.key.owner();
        for _ in 1..PERMIT_ATTEMPTS {
            match self.turn_limiter.try_take(owner).await {
                Err(A2aError::Overloaded { .. } | A2aError::QuotaExceeded { .. })
                    if !self.process.running.is_closed() =>
                {
                    sleep(PERMIT_PAUSE).await;
                }
                taken => return Ok(taken?),
            }
        }
        Ok(self.turn_limiter.take(owner).await?)
    }
}

fn tell(lost: &LostTurn) {
    tracing::info!(target: crate::LOG_TARGET, task = %lost.task, "continues a turn whose process has ended");
}
