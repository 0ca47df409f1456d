//! Tasks, their status and their artifacts (specification sections 4.1.1 to 4.1.3 and 4.1.7).

use crate::proto_json::{message, proto_enum};
use crate::{
    ArtifactId, ContextId, ExtensionUri, Message, Metadata, Parts, TaskArtifactUpdateEvent, TaskId,
    TaskStatusUpdateEvent, Timestamp,
};

proto_enum! {
    /// The state of a task: the agent works, the task waits for the client, or the task has ended.
    pub enum TaskState {
        /// The state is not known.
        #[default]
        Unspecified => "TASK_STATE_UNSPECIFIED",
        /// The task is accepted, and the agent has not begun it.
        Submitted => "TASK_STATE_SUBMITTED",
        /// The agent works on the task.
        Working => "TASK_STATE_WORKING",
        /// The task is done. A terminal state.
        Completed => "TASK_STATE_COMPLETED",
        /// The task has failed. A terminal state.
        Failed => "TASK_STATE_FAILED",
        /// The client has cancelled the task. A terminal state.
        Canceled => "TASK_STATE_CANCELED",
        /// The task waits for another message of the client. An interrupted state.
        InputRequired => "TASK_STATE_INPUT_REQUIRED",
        /// The agent has refused the task. A terminal state.
        Rejected => "TASK_STATE_REJECTED",
        /// The task waits for credentials. An interrupted state.
        AuthRequired => "TASK_STATE_AUTH_REQUIRED",
    }
}

impl TaskState {
    /// Tells whether the task has ended and never changes again.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled | Self::Rejected)
    }

    /// Tells whether the task waits for the client.
    pub fn is_interrupted(self) -> bool {
        matches!(self, Self::InputRequired | Self::AuthRequired)
    }
}

message! {
    /// A unit of work. It may outlive the request that began it.
    pub struct Task {
        /// The id of the task, which the server creates.
        pub id: TaskId => "id" required,
        /// The conversation that the task belongs to.
        pub context_id: ContextId => "contextId",
        /// The present status of the task.
        pub status: TaskStatus => "status" required,
        /// The artifacts so far.
        pub artifacts: Vec<Artifact> => "artifacts",
        /// The messages so far, oldest first. The message in `status` is not included.
        pub history: Vec<Message> => "history",
        /// Free-form metadata of the task.
        pub metadata: Metadata => "metadata",
    }

    /// The state of a task, the time at which it was reached, and the agent's message about it.
    pub struct TaskStatus {
        /// The state that the task is in.
        pub state: TaskState => "state" required,
        /// The agent's message about the state.
        pub message: Option<Message> => "message",
        /// The time at which the state was reached.
        pub timestamp: Option<Timestamp> => "timestamp" optional,
    }

    /// A result of a task.
    pub struct Artifact {
        /// The id of the artifact, unique within its task.
        pub artifact_id: ArtifactId => "artifactId" required,
        /// The name of the artifact, for people to read.
        pub name: Option<String> => "name",
        /// A description of the artifact, for people to read.
        pub description: Option<String> => "description",
        /// The content; at least one part.
        pub parts: Parts => "parts" required,
        /// Free-form metadata, mostly of extensions.
        pub metadata: Metadata => "metadata",
        /// The extensions that contributed to the artifact.
        pub extensions: Vec<ExtensionUri> => "extensions",
    }
}

impl Task {
    /// Applies the client's next message to the task. The agent's message in the status moves into the history first.
    pub fn apply_message(&mut self, message: Message) {
        // The agent's question moves before the client's answer in the history, and is no longer in the status.
        self.history.extend(self.status.message.take());
        self.history.push(message);
    }

    /// Applies a status update: the message of the previous status moves into the history, and the metadata of the event
    /// is added to the task.
    pub fn apply_status(&mut self, event: &TaskStatusUpdateEvent) {
        // The message of a status joins the history only when the next status comes, so that no reader finds it twice.
        let previous = std::mem::replace(&mut self.status, event.status.clone());
        self.history.extend(previous.message);
        self.metadata.extend(event.metadata.clone());
    }

    /// Applies an artifact update. A chunk with `append` is added to the artifact of the same id. Any other update replaces the
    /// artifact of the same id, or adds a new artifact.
    pub fn apply_artifact(&mut self, event: &TaskArtifactUpdateEvent) {
        let update = event.artifact.clone();
        let present = self.artifacts.iter_mut().find(|artifact| artifact.artifact_id == update.artifact_id);
        match present {
            Some(artifact) if event.append => artifact.append(update),
            // Agents replace an artifact this way: the text before a tool call makes way for the answer.
            Some(artifact) => *artifact = update,
            None => self.artifacts.push(update),
        }
    }
}

impl Artifact {
    /// Adds a chunk of the same artifact.
    pub fn append(&mut self, chunk: Self) {
        // A chunk need not repeat name and description: those of the chunks before stay.
        self.name = chunk.name.or(self.name.take());
        self.description = chunk.description.or(self.description.take());
        self.parts.extend(chunk.parts);
        self.metadata.extend(chunk.metadata);
        for uri in chunk.extensions {
            // Each chunk names its extensions anew.
            if !self.extensions.contains(&uri) {
                self.extensions.push(uri);
            }
        }
    }
}
