//! The hook `transition`: a change as it is shown to guests, and the outcomes of what they say.

use annex_protocol::{ContextId, ExtensionUri, Message, Metadata, Part, TaskId, TaskState, TaskStatusUpdateEvent};

use crate::bindings::SeenBeginning;
use crate::chain::owned_metadata;
use crate::contract::{Beginning, StateChange};
use crate::load::descriptor::Descriptor;

/// The beginning of a turn.
pub(crate) struct Begun<'a> {
    pub(crate) task_id: &'a TaskId,
    pub(crate) context_id: &'a ContextId,
    /// The state in which the task waited.
    pub(crate) waits_in: Option<TaskState>,
    pub(crate) resumed: bool,
}

impl Begun<'_> {
    /// The beginning as hooks are told it.
    pub(crate) fn seen(&self) -> SeenBeginning {
        let beginning = Beginning {
            task_id: self.task_id.to_string(),
            context_id: self.context_id.to_string(),
            waits_in: self.waits_in.map(|state| state.name().to_owned()),
            resumed: self.resumed,
        };
        beginning.into()
    }
}

/// The verdict of one extension on a change or a beginning.
pub(crate) enum TransitionVerdict {
    Agrees,
    Interrupts(Interruption),
    Vetoes(String),
}

/// The task waits instead of going on.
#[derive(Clone, Debug)]
pub struct Interruption {
    /// The extension that asked for it.
    pub by: ExtensionUri,
    /// `TASK_STATE_INPUT_REQUIRED` or `TASK_STATE_AUTH_REQUIRED`.
    pub state: TaskState,
    /// The text for the client.
    pub text: String,
    /// Entries for the metadata of the message that says so.
    pub metadata: Metadata,
}

impl Interruption {
    /// Makes the task wait where it was about to change.
    pub fn place(self, update: &mut TaskStatusUpdateEvent) {
        // A task that waits for an authorization has to say why in a status message (A2A 1.0 section 7.6).
        let parts = vec![Part::text(self.text)];
        let message = Message::agent(update.context_id.clone(), Some(update.task_id.clone()), parts);
        update.status.state = self.state;
        update.status.message = Some(Message { metadata: self.metadata, extensions: vec![self.by], ..message });
    }
}

/// The outcome of asking whether the agent is to run.
#[derive(Clone, Debug)]
pub enum BeginOutcome {
    /// It does.
    Proceed,
    /// The task waits instead.
    Interrupted(Interruption),
    /// The task is rejected for this reason.
    Vetoed(String),
}

/// The outcome of a change of state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// It happens.
    Passed,
    /// The task waits instead; this extension asked for it.
    Interrupted(ExtensionUri),
    /// The task fails instead.
    Vetoed,
}

/// The change for the guest.
pub(crate) fn seen_change(current: TaskState, update: &TaskStatusUpdateEvent, descriptor: &Descriptor) -> StateChange {
    let message = update.status.message.clone().and_then(|mut message| {
        owned_metadata::retain_in_message(&mut message, &descriptor.metadata_keys);
        serde_json::to_string(&message).ok()
    });
    StateChange {
        task_id: update.task_id.to_string(),
        context_id: update.context_id.to_string(),
        current: current.name().to_owned(),
        next: update.status.state.name().to_owned(),
        message,
    }
}
