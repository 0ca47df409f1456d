//! Relays the upstream's answer. Each event is checked, its ids are stored, the session is updated, and the event is
//! sent to the client.

use std::collections::HashSet;
use std::mem;

use annex_agent::{AgentError, EventSender, TurnContext, UpstreamContext, readable};
use annex_protocol::{
    ContextId, Message, MessageId, Role, StreamResponse, Task, TaskArtifactUpdateEvent, TaskId, TaskState, TaskStatus,
    TaskStatusUpdateEvent,
};

use crate::config::UpstreamConfig;
use crate::failure::Deviation;
use crate::links::Link;

mod artifacts;
mod ids;
mod intake;
mod measure;
mod messages;
mod outlet;

use artifacts::{Artifacts, RelayedArtifact};
use ids::Ids;
use intake::Intake;
use messages::Messages;
use outlet::Outlet;

/// The maximum size of all events of a turn together, as a multiple of the largest allowed event.
pub(crate) const EVENTS_OF_FULL_SIZE: usize = 16;

/// The state of one turn's answer while the answer is relayed.
pub(crate) struct Relay<'a> {
    config: &'a UpstreamConfig,
    ids: Ids<'a>,
    intake: Intake,
    outlet: Outlet<'a>,
    /// True if the turn continues an existing task.
    continues: bool,
    /// The id of the last status message that an earlier turn relayed.
    shown: Option<MessageId>,
    /// True after the first event about the task.
    has_begun: bool,
    artifacts: Artifacts,
    messages: Messages,
    /// The agent's latest text that is not part of an artifact.
    said: String,
    /// The last state that was relayed.
    state: Option<TaskState>,
    /// The status of a waiting task that arrived before any other event. It may be the old status, which the client's
    /// message is about to end.
    stale: Option<TaskStatusUpdateEvent>,
    /// The value of [`Intake::bytes`] when the held message began.
    held_from: usize,
    /// The number of relayed events that only brought a new status message, without a change of the task's state. These
    /// events were found by reading the whole task.
    words: usize,
    is_settled: bool,
}

impl<'a> Relay<'a> {
    pub(crate) fn new(
        (turn, remote): (&'a TurnContext, &'a UpstreamContext),
        config: &'a UpstreamConfig,
        events: EventSender,
        (noted, sent): (Link, &Link),
    ) -> Self {
        let shown = noted.shown.clone();
        let ids = Ids::new(remote, noted, sent);
        let room = config.max_answer_bytes.saturating_mul(EVENTS_OF_FULL_SIZE);
        Self {
            config,
            continues: ids.task().is_some(),
            artifacts: Artifacts::after(ids.known()),
            ids,
            intake: Intake::new(room),
            outlet: Outlet::new(turn, remote, &config.name, events),
            shown,
            has_begun: false,
            messages: Messages::default(),
            said: String::new(),
            state: None,
            stale: None,
            held_from: 0,
            words: 0,
            is_settled: false,
        }
    }

    /// Tells whether the turn is over.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// The id of the upstream's task. `None` until the upstream names the task.
    pub(crate) fn task(&self) -> Option<&TaskId> {
        self.ids.task()
    }

    /// The number of received events.
    pub(crate) fn taken(&self) -> usize {
        self.intake.taken()
    }

    /// The number of relayed events. Events that only brought a new status message, without a change of the task's
    /// state, are not counted. A task that reports its progress in this way is thus not read more often.
    pub(crate) fn relayed(&self) -> usize {
        self.outlet.sent().saturating_sub(self.words)
    }

    /// True if only messages have arrived. They are the whole answer unless a task follows.
    pub(crate) fn may_be_over(&self) -> bool {
        !self.has_begun && self.messages.is_waiting()
    }

    /// True if a message event about the task is held until its next piece arrives.
    pub(crate) fn is_holding(&self) -> bool {
        self.messages.is_holding()
    }

    /// Processes one event.
    pub(crate) async fn take(&mut self, mut event: StreamResponse) -> Result<(), AgentError> {
        self.intake.take(&mut event, self.artifacts.len())?;
        match event {
            StreamResponse::Task(task) => self.take_task(task).await,
            StreamResponse::StatusUpdate(update) => {
                self.enter(&update.context_id, Some(&update.task_id)).await?;
                self.say_waiting().await?;
                self.status(update).await
            }
            StreamResponse::ArtifactUpdate(update) => {
                self.enter(&update.context_id, Some(&update.task_id)).await?;
                self.say_waiting().await?;
                self.artifact(update).await
            }
            StreamResponse::Message(message) => {
                if let Some(context) = &message.context_id {
                    self.enter(&context.clone(), None).await?;
                }
                self.message(message).await
            }
        }
    }

    /// Processes a whole task that was read by a request, or that a resumed stream repeats. Only the growth of the task
    /// counts against the limit on bytes.
    pub(crate) async fn take_asked(&mut self, task: Task) -> Result<(), AgentError> {
        let mut event = StreamResponse::Task(task);
        self.intake.take_asked(&mut event, self.artifacts.len())?;
        let StreamResponse::Task(task) = event else { return Ok(()) };
        self.take_task(task).await
    }

    async fn take_task(&mut self, task: Task) -> Result<(), AgentError> {
        self.enter(&task.context_id, Some(&task.id)).await?;
        self.say_waiting().await?;
        self.snapshot(task).await
    }

    /// Processes the first event of a stream. In a turn that continues a task, the first event is the whole task as it was
    /// before the client's message. The artifacts of that task count as relayed.
    pub(crate) async fn take_first(&mut self, mut event: StreamResponse) -> Result<(), AgentError> {
        let is_known = self.continues && matches!(event, StreamResponse::Task(_));
        if is_known {
            self.intake.take_first(&mut event);
        }
        match event {
            StreamResponse::Task(mut task) if is_known => {
                self.enter(&task.context_id, Some(&task.id)).await?;
                self.intake.check_number(task.artifacts.len())?;
                self.artifacts.name_all(&mut task.artifacts);
                for artifact in &task.artifacts {
                    self.artifacts.mark(artifact);
                }
                let state = task.status.state;
                let update = as_update(task);
                if !state.is_interrupted() {
                    return self.status(update).await;
                }
                self.stale = Some(update);
                Ok(())
            }
            other => self.take(other).await,
        }
    }

    /// Processes the end of a stream or of the only answer. If no task was named, the messages are the answer. A
    /// waiting status that no event followed is relayed as the turn's last state.
    pub(crate) async fn end(&mut self) -> Result<(), AgentError> {
        if let Some(update) = self.stale.take().filter(|_| self.intake.taken() == 1) {
            return self.status(update).await;
        }
        if self.has_begun {
            return self.say_held().await;
        }
        match self.messages.answer() {
            Some(message) => self.answer(message).await,
            None if self.messages.had_empty() => Err(Deviation::EmptyAnswer.into()),
            None => Ok(()),
        }
    }

    /// Checks the ids of an event. New ids are stored before the event is relayed.
    async fn enter(&mut self, context: &ContextId, task: Option<&TaskId>) -> Result<(), AgentError> {
        self.has_begun |= task.is_some();
        self.ids.enter(context, task).await
    }

    /// Compares a whole task with the events that were relayed. Relays the difference as events.
    async fn snapshot(&mut self, mut task: Task) -> Result<(), AgentError> {
        // Each artifact is compared with all known ones, so their number is checked first.
        self.intake.check_number(task.artifacts.len())?;
        let mut artifacts = mem::take(&mut task.artifacts);
        self.artifacts.name_all(&mut artifacts);
        let mut unseen = self.messages.unseen(mem::take(&mut task.history), self.shown.as_ref(), self.continues);
        let status_text = task.status.message.as_ref().map(Message::text);
        // Computed once for all messages, and only if there are messages to compare.
        let compared = artifacts.iter().filter(|_| !unseen.is_empty());
        let artifact_texts: HashSet<String> = compared.map(|artifact| readable(&artifact.parts)).collect();
        unseen.retain(|message| {
            let text = message.text();
            let is_artifact = artifact_texts.contains(&text);
            if is_artifact {
                // Recorded, so that it is not compared again at the next read. A text that is only in the status may be
                // relayed later.
                self.messages.note(message);
            }
            !is_artifact && status_text.as_ref() != Some(&text)
        });
        // The client already has the artifacts that an earlier turn relayed.
        artifacts.retain(|artifact| !self.artifacts.is_earlier(artifact));
        let state = task.status.state;
        // If a task ends without a status message, its answer came earlier.
        if ends(state) && task.status.message.is_none() && artifacts.is_empty() && self.artifacts.len() == 0 {
            task.status.message = unseen.pop();
        }
        for message in unseen {
            self.say(message).await?;
        }
        for artifact in artifacts {
            // The digest is computed once, however many artifacts are known.
            if !self.artifacts.has(&RelayedArtifact::of(&artifact)) {
                let update = TaskArtifactUpdateEvent { artifact, last_chunk: true, ..Default::default() };
                self.artifact(update).await?;
            }
        }
        // A task that is read repeatedly has the same state, which is not news to the client.
        let has_news = task.status.message.as_ref().is_some_and(|message| self.is_news(message));
        if self.state == Some(state) && !ends(state) {
            if !has_news {
                return Ok(());
            }
            self.words += 1;
        }
        self.status(as_update(task)).await
    }

    /// True if a status message is new, which depends on its text. The id is ignored, because an agent may make a new id for
    /// the same text at each request.
    fn is_news(&self, message: &Message) -> bool {
        let is_of_agent = message.role != Role::User && !message.parts.is_empty();
        is_of_agent && !self.messages.was_sent(message) && message.text() != self.said
    }

    async fn status(&mut self, mut update: TaskStatusUpdateEvent) -> Result<(), AgentError> {
        update.status.message = update.status.message.and_then(|message| self.outlet.adopted(message));
        let state = match update.status.state {
            TaskState::Submitted | TaskState::Unspecified if update.status.message.is_none() => {
                if self.outlet.sent() > 0 || self.state.is_some() {
                    return Ok(());
                }
                if !self.continues {
                    return self.begin().await;
                }
                // The client must not believe that the task still waits: another message would wait for the end of this
                // turn.
                TaskState::Working
            }
            // An agent that sends a message is working.
            TaskState::Unspecified => TaskState::Working,
            state => state,
        };
        update.status.state = state;
        // A reader of the task should find the whole answer, also if it came in pieces.
        if ends(state) && update.status.message.is_none() && self.artifacts.len() == 0 {
            update.status.message = self.messages.take_beside();
        }
        if let Some(message) = &update.status.message {
            self.said = message.text();
            self.messages.note(message);
        }
        let shown = update.status.message.as_ref().map(|message| message.message_id.clone());
        let event = StreamResponse::StatusUpdate(update);
        let delta = self.outlet.received(&self.config.state, &event);
        if ends(state) {
            // The client can answer as soon as it gets the event. The ids and the session are stored by then.
            self.ids.note_end(state, shown, &self.artifacts).await?;
            self.outlet.remember(self.words_of_agent(), delta).await?;
            self.is_settled = true;
        } else {
            self.outlet.change(delta).await?;
        }
        self.state = Some(state);
        self.outlet.send(event).await
    }

    /// Tells the client that the turn has begun, so that the client gets its task before the upstream sends any event.
    async fn begin(&mut self) -> Result<(), AgentError> {
        self.state = Some(TaskState::Submitted);
        self.outlet.begin().await
    }

    async fn artifact(&mut self, mut update: TaskArtifactUpdateEvent) -> Result<(), AgentError> {
        self.outlet.retain_asked(&mut update.artifact.extensions);
        self.artifacts.name(&mut update.artifact, update.append);
        self.artifacts.add(&update.artifact, update.append, self.config.max_answer_bytes);
        let event = StreamResponse::ArtifactUpdate(update);
        // The state comes first, so that a client that gets the event can read the state that belongs to it.
        self.outlet.change(self.outlet.received(&self.config.state, &event)).await?;
        self.outlet.send(event).await
    }

    /// Processes a message. If no task was named yet, the message is the answer or a piece of it. Otherwise it becomes
    /// a status message.
    async fn message(&mut self, message: Message) -> Result<(), AgentError> {
        if message.parts.is_empty() {
            self.messages.leave_out();
            return Ok(());
        }
        if !self.has_begun {
            self.messages.wait(message);
            return Ok(());
        }
        self.ids.check_task(message.task_id.as_ref())?;
        self.hold(message).await
    }

    /// Relays the messages that arrived before their task. They become status messages.
    async fn say_waiting(&mut self) -> Result<(), AgentError> {
        for message in self.messages.take_waiting() {
            self.hold(message).await?;
        }
        self.say_held().await
    }

    /// Holds a message about the task until its next piece arrives or the wait is over. An agent may send each word as
    /// a message, and a task cannot have that many status messages.
    async fn hold(&mut self, message: Message) -> Result<(), AgentError> {
        let is_full = self.intake.bytes().saturating_sub(self.held_from) > self.config.max_answer_bytes;
        if is_full || !self.messages.is_piece(&message) {
            self.say_held().await?;
            self.held_from = self.intake.bytes();
        }
        // The task's history may have the pieces one by one.
        if message.role != Role::User {
            self.messages.note(&message);
        }
        self.messages.hold(message);
        Ok(())
    }

    /// Relays the held message.
    pub(crate) async fn say_held(&mut self) -> Result<(), AgentError> {
        match self.messages.take_held() {
            Some(message) => self.say(message).await,
            None => Ok(()),
        }
    }

    /// Relays a message as a status update with the state `working`.
    async fn say(&mut self, message: Message) -> Result<(), AgentError> {
        let Some(message) = self.outlet.adopted(message) else { return Ok(()) };
        self.messages.add_beside(&message);
        let status = TaskStatus { state: TaskState::Working, message: Some(message), timestamp: None };
        self.status(TaskStatusUpdateEvent { status, ..TaskStatusUpdateEvent::default() }).await
    }

    /// Relays a message as the answer of a turn without a task. The message gets the agent's role.
    async fn answer(&mut self, message: Message) -> Result<(), AgentError> {
        self.said = message.text();
        let message = Message { task_id: None, ..self.outlet.as_agents(message) };
        let event = StreamResponse::Message(message);
        self.outlet.remember(self.words_of_agent(), self.outlet.received(&self.config.state, &event)).await?;
        self.is_settled = true;
        self.outlet.send(event).await
    }

    /// The agent's answer as text, for the session's history.
    fn words_of_agent(&self) -> String {
        let answer = self.artifacts.texts().collect::<Vec<_>>().join("\n");
        if answer.is_empty() { self.said.clone() } else { answer }
    }
}

/// Tells whether the turn ends in this state.
fn ends(state: TaskState) -> bool {
    state.is_terminal() || state.is_interrupted()
}

/// Converts the task's status to a status update.
fn as_update(task: Task) -> TaskStatusUpdateEvent {
    let Task { id, context_id, status, metadata, .. } = task;
    TaskStatusUpdateEvent { task_id: id, context_id, status, metadata }
}
