//! Tasks that an extension made wait and takes up again, out of band.
//!
//! The turn that was interrupted is made again: with the message that began it, for its owner, with the extensions that
//! its client had asked for. The message was checked and is in the session, so that is not done again.

use annex_protocol::{A2aError, ExtensionUri, Message, Role, SendMessageRequest, TaskId};
use annex_runtime::{Chain, Entered, TurnRequest};

use crate::accept::{TurnResources, hook_request};
use crate::activation;
use crate::call::Call;
use crate::fault;
use crate::handler::RequestHandler;

/// The operation as the hooks see it.
const OPERATION: &str = "SendMessage";

impl RequestHandler {
    /// Takes the tasks up, each in a turn of its own. What keeps one from it is in the log.
    pub(crate) async fn take_up(&self, tasks: Vec<(TaskId, ExtensionUri)>) {
        for (task, extension) in tasks {
            if let Err(error) = self.resume(&task, &extension).await {
                tracing::warn!(%task, %extension, %error, "a task that waits was not taken up");
            }
        }
    }

    async fn resume(&self, task: &TaskId, extension: &ExtensionUri) -> Result<(), A2aError> {
        let waits = || A2aError::UnsupportedOperation { reason: format!("task {task} waits no longer") };
        let (owner, requested) = self.tasks.pins().interrupted(task, extension).ok_or_else(waits)?;
        let call = Call { requested, owner };
        let record = self.tasks.open(&call.owner, task).await?;
        let snapshot = record.snapshot();
        let is_users = |message: &&Message| message.role == Role::User;
        let message = snapshot.history.iter().rev().find(is_users).cloned().ok_or_else(waits)?;
        let edition = self.editions.current();
        let installed = self.installed_for(&call, &message, &edition);
        let active = activation::negotiate(&installed, &call.requested)?;
        let target = self.target(&call.owner, &message).await?;
        let place = self.places.take(&call.owner)?;
        let session = self.begin_turn(&call.owner, &target).await?;
        // Whoever waited for the conversation may find that a message of the client took the task up.
        target.check_open()?;
        if !record.task_state().is_interrupted() {
            return Err(waits());
        }
        let request = SendMessageRequest { message, ..SendMessageRequest::default() };
        let services = self.services.of_turn(&active, &call.owner, target.of_turn(&session)).await?;
        let hooks =
            TurnRequest { services, resumed: true, ..hook_request(&call, OPERATION, &request, &target, &session) };
        let Entered { chain, .. } = Chain::start(&active, &hooks).await.map_err(fault::of_hook)?;
        let resources = TurnResources { chain, session, place, requested: call.requested.clone(), resumed: true };
        self.start(request, target, resources).await.map(drop)
    }
}
