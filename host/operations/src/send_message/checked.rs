//! Checks that this server can process the request of a message (the stage `Checked`). Later stages check the
//! conversation and the task of the message.

use std::borrow::Cow;
use std::sync::Arc;

use annex_agent::Steps;
use annex_conversation::{Excess, TaskSize};
use annex_protocol::{A2aError, Message, SendMessageRequest};
use annex_runtime::{Extension, Installed};

use crate::activation::{self, Occasion};
use crate::extension_set::ExtensionSet;
use crate::fault;
use crate::request_handler::RequestHandler;
use crate::send_message::forgotten::ForgottenMetadata;
use crate::send_message::incoming::Incoming;
use crate::send_message::request_check;
use crate::service_parameters::ServiceParameters;
use crate::tasks::record::TaskRecord;

/// A checked message with its active extensions, and with its task if the message names a task.
pub(super) struct Checked {
    pub(super) incoming: Incoming,
    pub(super) extensions: Arc<ExtensionSet>,
    pub(super) active: Vec<Arc<Extension>>,
}

impl RequestHandler {
    /// Checks the request, finds the task that the message names, and negotiates the extensions.
    pub(super) async fn checked(
        &self,
        call: &ServiceParameters,
        operation: &'static str,
        mut request: SendMessageRequest,
    ) -> Result<Checked, A2aError> {
        request_check::check(&request)?;
        self.agent.admits(&call.caller_token())?;
        // This check needs a query only for the first message of a caller on a day, so it comes before the other queries.
        self.check_work(&call.owner.principal).await?;
        // One set is used for the whole request, so that a concurrent change is seen as a whole or not at all.
        let extensions = self.extensions.current()?;
        let record = self.record_of(call, &request.message).await;
        let pinned = match &record {
            Ok(Some(record)) => self.process.tasks.pinned(record),
            // `record?` below returns the error.
            Ok(None) | Err(_) => Vec::new(),
        };
        let installed = installed_with(&pinned, &extensions);
        // Negotiated before any task, conversation or guest exists, so that a client without a required extension leaves
        // nothing behind.
        let active = activation::negotiate(&installed, &extensions.passed_on, &Occasion::message(call, &request))?;
        // Taken after the negotiation, which reads the keys, and before anything of the request is stored or sent on. The
        // pinned versions may own other keys than the installed ones.
        let owners = pinned.iter().chain(extensions.installed.iter());
        let forgotten = ForgottenMetadata::take(&mut request, owners, &self.forgotten_keys);
        if let Ok(Some(record)) = &record {
            // A waiting task of a remote agent is brought up to date with that agent.
            self.catch_up_now(call, record).await;
        }
        self.check_push(&request).await?;
        let mut incoming = self.incoming(call, operation, request, record?)?;
        incoming.forgotten = forgotten;
        incoming.steps = self.counted(steps_for(&active), &call.owner.principal);
        incoming.lasting = activation::to_ask_again(&call.requested, &extensions.passed_on, &active);
        self.input_modes.check(&incoming.request.message)?;
        // A named context may already have a conversation. That is known once the conversation is read.
        if incoming.is_new {
            self.check_new_session()?;
        }
        Ok(Checked { incoming, extensions, active })
    }

    /// The task that the message names, if any.
    async fn record_of(
        &self,
        call: &ServiceParameters,
        message: &Message,
    ) -> Result<Option<Arc<TaskRecord>>, A2aError> {
        let Some(task_id) = &message.task_id else { return Ok(None) };
        let record = self.process.tasks.open(&call.owner, task_id).await?;
        // The entries of another process do not say which extension has interrupted the task. The task in the store does.
        if self.process.tasks.process().is_shared() && !record.is_running() {
            record.refresh_all().await.map_err(fault::of_store)?;
        }
        Ok(Some(record))
    }

    /// Checks that the message leaves room in its task for an answer.
    pub(super) fn check_size(&self, incoming: &Incoming) -> Result<(), A2aError> {
        let message = &incoming.request.message;
        let Some(record) = &incoming.record else {
            let too_large = |excess: Excess| {
                let description = format!("is too large for any task: {excess}, of which the answer gets a part");
                A2aError::invalid_field("message", description)
            };
            return self.process.tasks.limits().check_message(&TaskSize::default(), message).map_err(too_large);
        };
        record.check_message(message).map_err(|excess| {
            let task_id = &incoming.task_id;
            let reason = format!(
                "with this message task {task_id} would have {excess}, of which the answer gets a part; send the \
                 message without taskId to go on in the context with a new task"
            );
            A2aError::UnsupportedOperation { reason }
        })
    }
}

/// Returns the installed extensions. If the task has pinned a version of an extension, the result has the pinned version. The
/// current settings decide for which requests each extension is active.
pub(crate) fn installed_with<'a>(pinned: &[Arc<Extension>], extensions: &'a ExtensionSet) -> Cow<'a, Installed> {
    if pinned.is_empty() {
        return Cow::Borrowed(&extensions.installed);
    }
    extensions.installed.with_versions(pinned).map_or_else(
        |error| {
            tracing::warn!(target: crate::LOG_TARGET, %error, "a waiting task continues with the installed versions, because its pinned versions do not fit together");
            Cow::Borrowed(&extensions.installed)
        },
        Cow::Owned,
    )
}

/// A record for the agent's steps. It keeps nothing unless an active extension may read the steps.
pub(crate) fn steps_for(active: &[Arc<Extension>]) -> Steps {
    if active.iter().any(|extension| extension.grants().agent_steps) { Steps::default() } else { Steps::unread() }
}
