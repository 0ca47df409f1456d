//! The upstream's ids of a turn. Each id is checked, and is stored before an event with this id is relayed.

use annex_agent::{AgentError, UpstreamContext};
use annex_protocol::{ContextId, MessageId, TaskId, TaskState};

use super::artifacts::Artifacts;
use crate::failure::Deviation;
use crate::links::Link;

pub(super) struct Ids<'a> {
    remote: &'a UpstreamContext,
    /// The ids that are stored.
    noted: Link,
    /// The ids of this turn. The task is `None` until the upstream names it.
    known: Link,
}

impl<'a> Ids<'a> {
    /// The ids at the beginning of a turn. `noted` is the stored link. `sent` contains the context and the waiting task
    /// to which the message was sent.
    pub(super) fn new(remote: &'a UpstreamContext, noted: Link, sent: &Link) -> Self {
        let mut known = Link { context: sent.context.clone(), task: sent.waiting_task().cloned(), ..Link::default() };
        if known.task.is_some() {
            known.artifacts.clone_from(&sent.artifacts);
            known.unnamed = sent.unnamed;
        }
        Self { remote, noted, known }
    }

    /// The ids of this turn so far.
    pub(super) fn known(&self) -> &Link {
        &self.known
    }

    /// The upstream's task of this turn; `None` until the upstream names it.
    pub(super) fn task(&self) -> Option<&TaskId> {
        self.known.task.as_ref()
    }

    /// Checks the ids of an event. Stores the ids that were not known yet.
    pub(super) async fn enter(&mut self, context: &ContextId, task: Option<&TaskId>) -> Result<(), AgentError> {
        match &self.known.context {
            // An upstream that has no contexts names none.
            _ if context.is_empty() => {}
            Some(sent) if sent != context => {
                return Err(Deviation::OtherContext { sent: sent.to_string(), returned: context.to_string() }.into());
            }
            Some(_) => {}
            None => self.known.context = Some(context.clone()),
        }
        self.check_task(task)?;
        if self.known.task.is_none() {
            self.known.task = task.filter(|task| !task.is_empty()).cloned();
        }
        self.note().await
    }

    /// Checks the task id of an event. An event without a task id is about the task of this turn.
    pub(super) fn check_task(&self, task: Option<&TaskId>) -> Result<(), Deviation> {
        match (&self.known.task, task.filter(|task| !task.is_empty())) {
            (Some(expected), Some(task)) if expected != task => {
                Err(Deviation::OtherTask { expected: expected.to_string(), returned: task.to_string() })
            }
            _ => Ok(()),
        }
    }

    /// Stores the state in which the turn ended. If the task waits, also stores its artifacts and `shown`, the id of its last
    /// status message. The next turn compares the task with these artifacts and this message.
    pub(super) async fn note_end(
        &mut self,
        state: TaskState,
        shown: Option<MessageId>,
        artifacts: &Artifacts,
    ) -> Result<(), AgentError> {
        let waits = state.is_interrupted();
        self.known.waits = waits;
        self.known.waits_in = Some(state).filter(|_| waits);
        self.known.shown = shown.filter(|_| waits);
        if waits {
            self.known.artifacts = artifacts.digests();
            self.known.unnamed = artifacts.unnamed();
        }
        self.note().await
    }

    async fn note(&mut self) -> Result<(), AgentError> {
        if self.known != self.noted {
            self.known.keep(self.remote, &self.noted).await.map_err(AgentError::internal)?;
            self.noted = self.known.clone();
        }
        Ok(())
    }
}
