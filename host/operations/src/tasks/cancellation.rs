//! CancelTask (A2A 1.0 section 3.1.5).
//!
//! A turn that runs or waits, here or in another process, is cancelled and then cancels its task itself. A waiting task has
//! no turn, so its extensions are started for this one change of its state.

use std::sync::Arc;
use std::time::Duration;

use annex_agent::TurnStart;
use annex_conversation::{AppendError, Arrival, Departure, TurnOfTask};
use annex_fairness::of_same_tenant;
use annex_protocol::{A2aError, CancelTaskRequest, StreamResponse, Task};
use annex_runtime::Chain;
use tokio::time::{Instant, sleep};

use crate::activation::{self, Occasion};
use crate::answer::ShownTask;
use crate::fault;
use crate::request_handler::RequestHandler;
use crate::send_message::installed_with;
use crate::service_parameters::ServiceParameters;
use crate::tasks::Tasks;
use crate::tasks::record::{self, TaskRecord};

/// The name of the operation that the hooks get.
const OPERATION: &str = "CancelTask";
/// The longest wait for another process to cancel its turn.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time between two checks whether the other process has cancelled the task.
const LOOK: Duration = Duration::from_millis(100);

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
        let record = self.process.tasks.open(&call.owner, &request.id).await?;
        self.catch_up_now(call, &record).await;
        if record.is_finished() {
            return Err(not_cancelable(&record));
        }
        // A turn ends with its task, and notifies the upstream itself.
        if !record.cancel_turn().await {
            self.cancel_without_turn(call, &record).await?;
        }
        self.process.tasks.leave_if_finished(&record);
        if !record.is_finished() {
            return Err(record::finished(&record));
        }
        let hidden = self.hidden_on(&Occasion::read(call));
        ShownTask::snapshot(record.snapshot(), None, &hidden).await.into_task()
    }

    async fn cancel_without_turn(&self, call: &ServiceParameters, record: &Arc<TaskRecord>) -> Result<(), A2aError> {
        if record.runs_elsewhere() {
            self.process.tasks.cancel_elsewhere(record).await?;
            if record.is_finished() {
                return Ok(());
            }
        }
        // The remote agent and the extensions take their time, and the client may answer in the meantime.
        let seen = record.numbered();
        if seen.0.state().is_terminal() {
            return Err(not_cancelable(record));
        }
        self.give_up(call, record).await;
        let mut canceled = record.canceled();
        if let Err(error) = self.show_canceled(call, record, &mut canceled).await {
            let (tenant, context) = (self.tenant_name(), record.context_id());
            tracing::warn!(target: crate::LOG_TARGET, tenant, %context, task = %record.id(), %error, "a task is cancelled without its extensions");
            // The event is made anew, because an extension may have changed it before another one failed.
            canceled = record.canceled();
        }
        match self.process.tasks.append_alone(record, seen, canceled).await {
            Ok(()) => {}
            Err(AppendError::Stale { .. }) if record.is_finished() => return Err(not_cancelable(record)),
            Err(AppendError::Stale { .. }) => return Err(record::finished(record)),
            Err(AppendError::Missing) => return Err(A2aError::TaskNotFound { task_id: record.id().clone() }),
            // A turn has begun in between, and is cancelled instead.
            Err(AppendError::Fenced) if record.cancel_turn().await => return Ok(()),
            Err(error) => return Err(fault::of_append(error)),
        }
        if let Some(push) = &self.process.push {
            push.send_end(record);
        }
        Ok(())
    }

    /// Runs the response hooks of the task's extensions on the cancellation, as on any change of its state. The task is
    /// cancelled without the hooks if the conversation is busy with another task or no permit is free.
    async fn show_canceled(
        &self,
        call: &ServiceParameters,
        record: &Arc<TaskRecord>,
        canceled: &mut StreamResponse,
    ) -> Result<(), A2aError> {
        let pinned = self.process.tasks.pinned(record);
        if pinned.is_empty() {
            return Ok(());
        }
        let requested: Vec<_> = pinned.iter().map(|extension| extension.uri().clone()).collect();
        let again = ServiceParameters { requested, owner: call.owner.clone(), ..ServiceParameters::default() };
        let incoming = self.incoming_again(again, (record, TurnStart::Message))?;
        let Ok(_permit) = self.turn_limiter.try_take(&call.owner).await else { return Ok(()) };
        let conversation = match self.enter(&incoming, None, self.process.tasks.process().replica()).await?.0 {
            Arrival::Runs(conversation) => conversation,
            Arrival::Waits(queued) => {
                return queued.leave(Departure::Refused).await.map_err(fault::of_store);
            }
        };
        let extensions = self.extensions.current()?;
        let installed = installed_with(&pinned, &extensions);
        let hooked = async {
            // The extensions see the caller who cancels. No agent runs, so the extensions that an upstream requires are not needed.
            let occasion = Occasion::again(&incoming.call.requested, &incoming.request);
            let active = activation::negotiate(&installed, &[], &occasion)?;
            let view = self.process.views.of_turn(&active, call, incoming.visible(&conversation)).await?;
            let asked = Chain::run_request_hooks(&active, &incoming.for_hooks(OPERATION, view)).await;
            let mut chain = asked.map_err(fault::of_hook)?.chain;
            if let StreamResponse::StatusUpdate(update) = canceled {
                let changed = chain.run_transition_hooks(record.task_state(), update).await;
                changed.map_err(|fault| fault::of_extension(&fault))?;
            }
            chain.run_response_hooks(canceled).await.map_err(|fault| fault::of_extension(&fault))?;
            if let StreamResponse::StatusUpdate(update) = canceled {
                update.metadata.extend(chain.take_task_metadata());
            }
            Ok(())
        };
        let hooked = hooked.await;
        let left = conversation.leave(Departure::Refused).await.map_err(fault::of_store);
        hooked.and(left)
    }
}

fn not_cancelable(record: &TaskRecord) -> A2aError {
    A2aError::TaskNotCancelable { task_id: record.id().clone(), state: record.task_state() }
}

impl Tasks {
    /// Asks the process that works on the task to cancel its turn, so that the hooks of the turn run. If that process has
    /// ended or does not cancel in time, this process takes the turn and ends it.
    async fn cancel_elsewhere(self: &Arc<Self>, record: &Arc<TaskRecord>) -> Result<(), A2aError> {
        let Some(TurnOfTask { fence, is_alive }) = self.store.cancel(record.id()).await.map_err(fault::of_store)?
        else {
            return record.refresh_all().await.map(drop).map_err(fault::of_store);
        };
        let deadline = Instant::now() + PATIENCE;
        while is_alive && Instant::now() < deadline {
            record.refresh().await.map_err(fault::of_store)?;
            if record.is_finished() || !record.runs_elsewhere() {
                return Ok(());
            }
            sleep(LOOK).await;
        }
        let (tasks, record) = (Arc::clone(self), Arc::clone(record));
        // A task of its own: if the client hung up between the two writes, the task would have no turn and no end.
        let canceling = tokio::spawn(of_same_tenant(async move {
            if let Some(lost) = tasks.store.take(record.id(), &fence, &tasks.process.replica()).await? {
                tasks.end_lost_turn(&lost).await;
            }
            record.refresh_all().await.map(drop)
        }));
        canceling.await.map_err(|error| fault::internal(&error))?.map_err(fault::of_store)
    }
}
