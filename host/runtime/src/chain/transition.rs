//! The hook `transition`: its input and its outcomes.

use annex_protocol::{ContextId, ExtensionUri, TaskId, TaskState, TaskStatusUpdateEvent};

use crate::bindings::SeenBeginning;
use crate::chain::interruption::Interruption;
use crate::chain::owned_metadata;
use crate::chain::reply::ReadyAnswer;
use crate::contract::{Beginning, StateChange};
use crate::load::descriptor::Descriptor;

/// The task that a turn works on, as input for the function `begin` of the hook `transition`.
pub(crate) struct TurnBeginning<'a> {
    pub(crate) task_id: &'a TaskId,
    pub(crate) context_id: &'a ContextId,
    /// The state in which the task waited. `None` if the task did not wait.
    pub(crate) waits_in: Option<TaskState>,
    pub(crate) resumed: bool,
}

impl TurnBeginning<'_> {
    /// Converts the beginning to the form that the hook gets.
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

/// The verdict of one extension on a change of state or on a beginning.
pub(crate) enum TransitionVerdict {
    Agrees,
    Interrupts(Interruption),
    Vetoes(String),
}

/// The outcome of the hooks at the beginning of a turn.
#[derive(Clone, Debug)]
pub enum BeginOutcome {
    /// The agent runs.
    Proceed,
    /// An extension answers in place of the agent. Only the hook `reply` has this outcome.
    Answered(Box<ReadyAnswer>),
    /// The task waits for the client, and the agent does not run.
    Interrupted(Interruption),
    /// The task is rejected for this reason.
    Vetoed(String),
}

/// The outcome of the hooks for a change of state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// The change happens.
    Passed,
    /// The task waits for the client, because this extension interrupts it.
    Interrupted(ExtensionUri),
    /// The task fails, because an extension refuses the change.
    Vetoed,
}

/// Converts a change of state for the guest.
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
