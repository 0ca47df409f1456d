//! CancelTask (A2A 1.0 section 3.1.5).
//!
//! A turn that runs is stopped, and cancels its task itself. A task that waits has no turn: the extensions that worked on
//! it are woken for this one change of its state.

use std::sync::Arc;

use annex_protocol::{A2aError, CancelTaskRequest, Message, Role, SendMessageRequest, StreamResponse, Task};
use annex_runtime::{Chain, Entered, TurnRequest};
use annex_session::TurnSession;
use annex_tasks::Owner;

use crate::accept::hook_request;
use crate::activation;
use crate::call::Call;
use crate::fault;
use crate::handler::RequestHandler;
use crate::scoped_keys::session_key;
use crate::task_record::TaskRecord;
use crate::turn;

/// The operation as the hooks see it.
const OPERATION: &str = "CancelTask";

impl RequestHandler {
    /// Cancels the task and returns it in its final state.
    pub(crate) async fn cancel_task(&self, call: &Call, request: &CancelTaskRequest) -> Result<Task, A2aError> {
        let (handler, call) = self.serving(call, request.tenant.as_deref())?;
        let record = handler.tasks.open(&call.owner, &request.id).await?;
        if record.is_finished() {
            return Err(A2aError::TaskNotCancelable { task_id: request.id.clone(), state: record.task_state() });
        }
        if !record.is_running() {
            handler.give_up(&call, record.context_id(), record.id()).await;
        }
        handler.cancel(&call.owner, &record).await?;
        handler.tasks.leave_if_finished(&record);
        match record.is_finished() {
            true => Ok(Arc::unwrap_or_clone(record.snapshot())),
            false => Err(turn::finished(&record)),
        }
    }

    async fn cancel(&self, owner: &Owner, record: &TaskRecord) -> Result<(), A2aError> {
        let mut canceled = record.canceled();
        if record.is_running() {
            return record.cancel(canceled).await.map_err(fault::of_store);
        }
        let key = session_key(self.agent.name(), owner, record.context_id());
        // A conversation that is busy with another task holds up no cancellation, and neither does an extension.
        // So do no more extensions than turns may run.
        let (guard, place) = (self.turns.try_begin(&key), self.places.try_take(owner));
        if let (Some(guard), Ok(_place)) = (guard, place)
            && let Ok(session) = TurnSession::open(&self.sessions, key, guard).await
            && let Err(error) = self.show_canceled(owner, record, &session, &mut canceled).await
        {
            tracing::warn!(task = %record.id(), %error, "a task is cancelled without its extensions");
            canceled = record.canceled();
        }
        record.cancel(canceled).await.map_err(fault::of_store)
    }

    /// Lets the extensions that worked on the task make of its cancellation what they make of any change.
    async fn show_canceled(
        &self,
        owner: &Owner,
        record: &TaskRecord,
        session: &TurnSession,
        canceled: &mut StreamResponse,
    ) -> Result<(), A2aError> {
        let pinned = self.tasks.pins().of(owner, record.id());
        let StreamResponse::StatusUpdate(update) = canceled else { return Ok(()) };
        if pinned.is_empty() {
            return Ok(());
        }
        let requested = pinned.iter().map(|extension| extension.uri().clone()).collect();
        let call = Call { requested, owner: owner.clone(), headers: None };
        let snapshot = record.snapshot();
        let is_users = |message: &&Message| message.role == Role::User;
        let message = snapshot.history.iter().rev().find(is_users).cloned().unwrap_or_default();
        let named = Message { task_id: Some(record.id().clone()), ..message };
        let target = self.target(owner, &named).await?;
        let edition = self.editions.current();
        let installed = self.installed_for(&call, &named, &edition);
        let active = activation::negotiate(&installed, &[], &call.requested)?;
        let services = self.services.of_turn(&active, owner, target.of_turn(session)).await?;
        let request = SendMessageRequest { message: named, ..SendMessageRequest::default() };
        let hooks = hook_request(&call, OPERATION, &request, &target, session);
        let hooks = TurnRequest { services, resumed: true, ..hooks };
        let Entered { mut chain, .. } = Chain::start(&active, &hooks).await.map_err(fault::of_hook)?;
        chain.change(snapshot.status.state, update).await.map_err(|fault| fault::internal(&fault))?;
        chain.respond(canceled).await.map_err(|fault| fault::internal(&fault))
    }
}
