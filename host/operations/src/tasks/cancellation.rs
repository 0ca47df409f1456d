//! CancelTask (A2A 1.0 section 3.1.5).
//!
//! A running turn, here or in another process, is cancelled and then cancels its task itself. A waiting task has no
//! turn, so its extensions are started for this one change of its state.

use std::sync::Arc;

use annex_agent::Steps;
use annex_protocol::{A2aError, CancelTaskRequest, Owner, StreamResponse, Task};
use annex_session::TurnSession;

use crate::fault;
use crate::request_handler::RequestHandler;
use crate::send_message::accept::Target;
use crate::service_parameters::ServiceParameters;
use crate::tasks::record::{self, TaskRecord};
use crate::views::scoped_keys::session_key;

/// The name of the operation for the hooks.
const OPERATION: &str = "CancelTask";

impl RequestHandler {
    /// Cancels the task and returns it in its final state.
    pub(crate) async fn cancel_task(
        &self,
        call: &ServiceParameters,
        request: &CancelTaskRequest,
    ) -> Result<Task, A2aError> {
        request.validate()?;
        self.for_tenant(self.try_cancel(call, request)).await
    }

    async fn try_cancel(&self, call: &ServiceParameters, request: &CancelTaskRequest) -> Result<Task, A2aError> {
        let record = self.tasks.open(&call.owner, &request.id).await?;
        self.catch_up_now(call, &record).await;
        if record.is_finished() {
            return Err(A2aError::TaskNotCancelable { task_id: request.id.clone(), state: record.task_state() });
        }
        let waited = !record.is_running() && !record.runs_elsewhere();
        self.cancel(call, &record).await?;
        if let Some(push) = self.push.as_ref().filter(|_| waited) {
            push.send_end(&record);
        }
        self.tasks.leave_if_finished(&record);
        if record.is_finished() { Ok(record.snapshot().into_task()) } else { Err(record::finished(&record)) }
    }

    async fn cancel(&self, call: &ServiceParameters, record: &Arc<TaskRecord>) -> Result<(), A2aError> {
        let mut to_be_taken = None;
        if record.runs_elsewhere() && self.tasks.store().is_shared() {
            to_be_taken = self.tasks.ask_to_cancel(record).await.map_err(fault::of_store)?;
            if record.is_finished() {
                return Ok(());
            }
        }
        let mut canceled = record.canceled();
        if !record.is_running() {
            // A running turn notifies the upstream itself when it ends.
            self.give_up(call, record.context_id(), record.id()).await;
            if let Err(error) = self.show_canceled(&call.owner, record, &mut canceled).await {
                let (tenant, context) = (self.tenant_name(), record.context_id());
                tracing::warn!(target: crate::LOG_TARGET, tenant, %context, task = %record.id(), %error, "a task is cancelled without its extensions");
                // The event is made anew, because an extension may have changed it before another one failed.
                canceled = record.canceled();
            }
        }
        match to_be_taken {
            Some(epoch) => self.tasks.cancel_taken(record, epoch, canceled).await,
            None => record.cancel(canceled).await.map_err(fault::of_store),
        }
    }

    /// Runs the response hooks of the task's extensions on the cancellation, as on any change of its state. The task is
    /// cancelled without the hooks if the conversation is busy with another task or no permit is free.
    async fn show_canceled(
        &self,
        owner: &Owner,
        record: &Arc<TaskRecord>,
        canceled: &mut StreamResponse,
    ) -> Result<(), A2aError> {
        let pinned = self.tasks.pinned(record).await.map_err(fault::of_store)?;
        let StreamResponse::StatusUpdate(update) = canceled else { return Ok(()) };
        if pinned.is_empty() {
            return Ok(());
        }
        let key = session_key(Arc::clone(&self.app), owner, record.context_id());
        let (Some(guard), Ok(_place)) = (self.turns.try_begin(&key), self.turn_limiter.try_take(owner).await) else {
            return Ok(());
        };
        let opened = TurnSession::try_open(&self.sessions, key, guard).await;
        let Some(session) = opened.map_err(|error| fault::of_session(&error))? else { return Ok(()) };
        let requested = pinned.iter().map(|extension| extension.uri().clone()).collect();
        let call = ServiceParameters { requested, owner: owner.clone(), ..ServiceParameters::default() };
        let target = Target::of_task(owner, Arc::clone(record), Steps::default());
        // No agent runs, so the extensions that an upstream requires are not needed.
        let extensions = self.extensions.current()?;
        let (mut chain, _) = self.wake(&call, OPERATION, (&extensions, &[]), &target, &session).await?;
        chain.run_transition_hooks(record.task_state(), update).await.map_err(|fault| fault::of_extension(&fault))?;
        chain.run_response_hooks(canceled).await.map_err(|fault| fault::of_extension(&fault))
    }
}
