//! The demand of an extension that a task waits.

use annex_protocol::{ExtensionUri, Message, Metadata, Part, TaskState, TaskStatusUpdateEvent};

/// An extension's demand: the task has to wait for input or authorization from the client.
#[derive(Clone, Debug)]
pub struct Interruption {
    /// The extension that interrupts.
    pub by: ExtensionUri,
    /// The waiting state: `TASK_STATE_INPUT_REQUIRED` or `TASK_STATE_AUTH_REQUIRED`.
    pub state: TaskState,
    /// The text of the status message, for the client.
    pub text: String,
    /// Metadata of the status message.
    pub metadata: Metadata,
}

impl Interruption {
    /// Puts the waiting state and its status message into `update`.
    pub fn place(self, update: &mut TaskStatusUpdateEvent) {
        // A task that waits for authorization must say why in a status message (A2A 1.0 section 7.6).
        let parts = vec![Part::text(self.text)];
        let message = Message::agent(update.context_id.clone(), Some(update.task_id.clone()), parts);
        update.status.state = self.state;
        update.status.message = Some(Message { metadata: self.metadata, extensions: vec![self.by], ..message });
    }
}
