//! The state of the task after an answer, derived from the events of the answer.

use annex_protocol::{
    ContextId, ExtensionUri, Json, Message, Metadata, StreamResponse, Task, TaskId, TaskState, TaskStatus,
};
use anyhow::{anyhow, ensure};

use crate::exit::Failure;
use crate::pretty::pretty;
use crate::{output, state};

/// The task and the conversation, as the events so far describe them.
#[derive(Default)]
pub(crate) struct Outcome {
    context: Option<ContextId>,
    task: Option<TaskId>,
    status: TaskStatus,
    /// True if the agent's answer was a message and not a task.
    answered: bool,
    /// The metadata of all events. A later value replaces an earlier value with the same key.
    metadata: Metadata,
}

impl Outcome {
    pub(crate) fn follow(&mut self, event: &StreamResponse) {
        match event {
            StreamResponse::Task(task) => self.follow_task(task),
            StreamResponse::Message(message) => {
                self.answered = true;
                self.identify(message.task_id.as_ref(), message.context_id.as_ref());
                self.collect(&message.metadata);
            }
            StreamResponse::StatusUpdate(update) => {
                self.identify(Some(&update.task_id), Some(&update.context_id));
                self.collect(&update.metadata);
                self.follow_status(&update.status);
            }
            StreamResponse::ArtifactUpdate(update) => {
                self.identify(Some(&update.task_id), Some(&update.context_id));
                self.collect(&update.metadata);
                self.collect(&update.artifact.metadata);
            }
        }
    }

    fn follow_task(&mut self, task: &Task) {
        self.identify(Some(&task.id), Some(&task.context_id));
        self.collect(&task.metadata);
        for artifact in &task.artifacts {
            self.collect(&artifact.metadata);
        }
        self.follow_status(&task.status);
    }

    fn follow_status(&mut self, status: &TaskStatus) {
        if let Some(message) = &status.message {
            self.collect(&message.metadata);
        }
        self.status = status.clone();
    }

    fn identify(&mut self, task: Option<&TaskId>, context: Option<&ContextId>) {
        // An event without an id does not change the known id.
        self.task = task.filter(|id| !id.is_empty()).cloned().or(self.task.take());
        self.context = context.filter(|id| !id.is_empty()).cloned().or(self.context.take());
    }

    fn collect(&mut self, metadata: &Metadata) {
        self.metadata.extend(metadata.clone());
    }

    /// The id of the task; `None` if no event named a task.
    pub(crate) fn task(&self) -> Option<&TaskId> {
        self.task.as_ref()
    }

    /// Prints remarks: the task, and the option that continues the conversation.
    pub(crate) fn name_ids(&self) {
        if let Some(task) = &self.task {
            output::note(&format!("task     {task}  {}", self.status.state));
        }
        if let Some(context) = &self.context {
            output::note(&format!("context  {context}  (continue it with --context)"));
        }
    }

    /// Prints remarks: the active extensions and the returned states.
    pub(crate) fn summarize(&self, requested: &[ExtensionUri], active: &[ExtensionUri]) {
        for uri in active {
            output::note(&format!("active   {uri}"));
        }
        super::note_inactive(requested, active);
        for state in self.returned_states(requested) {
            output::note(&format!("state    {}", pretty(state)));
        }
    }

    /// The states that the requested extensions returned.
    pub(crate) fn returned_states(&self, requested: &[ExtensionUri]) -> impl Iterator<Item = &Json> {
        requested.iter().filter_map(|uri| self.metadata.get(&state::key(uri)))
    }

    /// What the task expects from the client, such as an answer; `None` if the task does not wait for the client.
    pub(crate) fn wanted(&self) -> Option<&'static str> {
        match self.status.state {
            TaskState::InputRequired => Some("an answer"),
            TaskState::AuthRequired => Some("credentials, which it takes as the agent says"),
            TaskState::Unspecified
            | TaskState::Submitted
            | TaskState::Working
            | TaskState::Completed
            | TaskState::Failed
            | TaskState::Canceled
            | TaskState::Rejected => None,
        }
    }

    /// Checks that a stream did not end before the task.
    ///
    /// # Errors
    /// When the agent's answer was no message, and the last state of the task is neither final nor a state in which the
    /// task waits for the client.
    pub(crate) fn check_settled(&self) -> anyhow::Result<()> {
        let state = self.status.state;
        // A stream may end with a message, a final state, or one that waits for the client (A2A 1.0 section 11.7).
        let is_settled = self.answered || state.is_terminal() || state.is_interrupted();
        ensure!(is_settled, "the stream ended too early: the last state of the task was {state}");
        Ok(())
    }

    /// Checks how the task ended.
    ///
    /// # Errors
    /// When the task failed, was canceled or was rejected. The error contains the agent's reason.
    pub(crate) fn verdict(&self) -> anyhow::Result<()> {
        let state = self.status.state;
        if !matches!(state, TaskState::Failed | TaskState::Canceled | TaskState::Rejected) {
            return Ok(());
        }
        let reason = self.status.message.as_ref().map(Message::text).unwrap_or_default();
        let reason = if reason.is_empty() { "the agent does not say why" } else { &reason };
        let ended = format!("the task ended as {state}: {reason}");
        Err(if state == TaskState::Rejected { Failure::Refused.error(ended) } else { anyhow!(ended) })
    }
}
