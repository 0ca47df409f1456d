//! The upstream's answer, event by event: checked, noted, taken into the session, and sent on.

use std::collections::HashSet;
use std::mem;

use annex_agent::{AgentError, AgentEvent, EventSender, TurnContext, UpstreamContext, readable};
use annex_protocol::{
    ContextId, Message, MessageId, Part, Role, StreamResponse, Task, TaskArtifactUpdateEvent, TaskId, TaskState,
    TaskStatus, TaskStatusUpdateEvent,
};
use annex_session::{Event, StateDelta};

use crate::config::UpstreamConfig;
use crate::failure::Deviation;
use crate::links::Link;

mod artifacts;
mod measure;
mod messages;

use artifacts::{Artifacts, Relayed};
use measure::{metadata_of, replace_unreadable, size};
use messages::Messages;

/// The number of events of the largest size that one turn may have. Smaller ones may be more.
pub(crate) const EVENTS_OF_FULL_SIZE: usize = 16;
/// Artifacts of one turn.
const MAX_ARTIFACTS: usize = 1_000;

/// One turn's answer on its way.
pub(crate) struct Relay<'a> {
    turn: &'a TurnContext,
    remote: &'a UpstreamContext,
    config: &'a UpstreamConfig,
    events: EventSender,
    /// The ids as they are noted.
    noted: Link,
    /// The ids as they are known.
    link: Link,
    /// The task of this turn, once the upstream has named it.
    task: Option<TaskId>,
    /// True if the task was there before this turn.
    continues: bool,
    /// The last message about the task that an earlier turn has shown.
    shown: Option<MessageId>,
    /// True once an event about the task has come.
    has_begun: bool,
    artifacts: Artifacts,
    messages: Messages,
    /// The agent's last words beside its artifacts.
    said: String,
    /// The last state that was sent on.
    state: Option<TaskState>,
    /// A waiting state that the upstream showed before anything happened: it may be the one that the message ends.
    stale: Option<TaskStatusUpdateEvent>,
    /// Bytes of the events that have come, roughly.
    bytes: usize,
    /// Bytes that had come when the message began that is held.
    held_from: usize,
    /// Bytes of the largest form in which the task has come as a whole.
    task_bytes: usize,
    /// The number of events that have come, and of those that were sent on.
    taken: usize,
    relayed: usize,
    /// The number of those that only had new words, in a task that was looked at as a whole.
    words: usize,
    /// The number of events in which bytes were not base64.
    unreadable: usize,
    is_settled: bool,
}

impl<'a> Relay<'a> {
    pub(crate) fn new(
        (turn, remote): (&'a TurnContext, &'a UpstreamContext),
        config: &'a UpstreamConfig,
        events: EventSender,
        (noted, sent): (Link, &Link),
    ) -> Self {
        let task = sent.waiting_task().cloned();
        let mut link = Link { context: sent.context.clone(), task: task.clone(), ..Link::default() };
        if task.is_some() {
            link.artifacts.clone_from(&sent.artifacts);
            link.unnamed = sent.unnamed;
        }
        let artifacts = Artifacts::after(&link);
        Self {
            turn,
            remote,
            config,
            events,
            link,
            continues: task.is_some(),
            task,
            shown: noted.shown.clone(),
            noted,
            has_begun: false,
            artifacts,
            messages: Messages::default(),
            said: String::new(),
            state: None,
            stale: None,
            bytes: 0,
            held_from: 0,
            task_bytes: 0,
            taken: 0,
            relayed: 0,
            words: 0,
            unreadable: 0,
            is_settled: false,
        }
    }

    /// Tells whether the turn is over.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// The upstream's task, once it is known.
    pub(crate) fn task(&self) -> Option<&TaskId> {
        self.task.as_ref()
    }

    /// The number of events that have come.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// The number of events that were sent on, without new words in the same state: a task that counts its steps is not asked
    /// for more often because of that.
    pub(crate) fn relayed(&self) -> usize {
        self.relayed.saturating_sub(self.words)
    }

    /// True if what has come is the answer as soon as nothing more follows.
    pub(crate) fn may_be_over(&self) -> bool {
        !self.has_begun && self.messages.is_waiting()
    }

    /// True if a message beside the task is held, of which further pieces may come.
    pub(crate) fn is_holding(&self) -> bool {
        self.messages.is_holding()
    }

    /// Takes one event.
    pub(crate) async fn take(&mut self, mut event: StreamResponse) -> Result<(), AgentError> {
        self.make_readable(&mut event);
        let bytes = size(&event);
        if matches!(event, StreamResponse::Task(_)) {
            self.task_bytes = self.task_bytes.max(bytes);
        }
        self.count(bytes)?;
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

    /// Takes the task as it is when it is asked for, or when a stream of it begins. It repeats what it had before, which counts
    /// once: the pauses between such requests bound how often it comes.
    pub(crate) async fn take_asked(&mut self, task: Task) -> Result<(), AgentError> {
        let mut event = StreamResponse::Task(task);
        self.make_readable(&mut event);
        let bytes = size(&event);
        let before = self.task_bytes;
        self.task_bytes = before.max(bytes);
        self.count(bytes.saturating_sub(before))?;
        let StreamResponse::Task(task) = event else { return Ok(()) };
        self.take_task(task).await
    }

    async fn take_task(&mut self, task: Task) -> Result<(), AgentError> {
        self.enter(&task.context_id, Some(&task.id)).await?;
        self.say_waiting().await?;
        self.snapshot(task).await
    }

    /// Replaces what no client could read. The log tells it once for the turn.
    fn make_readable(&mut self, event: &mut StreamResponse) {
        if !replace_unreadable(event) {
            return;
        }
        self.unreadable += 1;
        if self.unreadable == 1 {
            tracing::warn!("the upstream agent sent bytes that are not base64; they were replaced");
        }
    }

    /// Counts an event before anything is stored or sent on: an upstream that never stops must not fill the task.
    fn count(&mut self, bytes: usize) -> Result<(), AgentError> {
        self.taken += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        let room = self.config.max_answer_bytes.saturating_mul(EVENTS_OF_FULL_SIZE);
        let artifacts = self.artifacts.len();
        if self.bytes > room || artifacts > MAX_ARTIFACTS {
            return Err(Deviation::Endless { bytes: self.bytes, artifacts }.into());
        }
        Ok(())
    }

    /// Takes the task as it is before the message that continues it has had any effect: its artifacts so far count as
    /// sent on.
    pub(crate) async fn take_first(&mut self, mut event: StreamResponse) -> Result<(), AgentError> {
        self.make_readable(&mut event);
        let bytes = size(&event);
        match event {
            StreamResponse::Task(mut task) if self.task.is_some() => {
                self.taken += 1;
                self.enter(&task.context_id, Some(&task.id)).await?;
                self.bytes = self.bytes.saturating_add(bytes);
                self.task_bytes = bytes;
                self.check_number(&task)?;
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

    fn check_number(&self, task: &Task) -> Result<(), AgentError> {
        let artifacts = task.artifacts.len();
        let endless = Deviation::Endless { bytes: self.bytes, artifacts };
        if artifacts > MAX_ARTIFACTS { Err(endless.into()) } else { Ok(()) }
    }

    /// The answer has ended as it should. Messages are the answer where there is no task, and a waiting state that nothing has
    /// followed is what it ended in.
    pub(crate) async fn end(&mut self) -> Result<(), AgentError> {
        if let Some(update) = self.stale.take().filter(|_| self.taken == 1) {
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

    /// Checks the ids, and notes them before anybody hears of a task or context that has them.
    async fn enter(&mut self, context: &ContextId, task: Option<&TaskId>) -> Result<(), AgentError> {
        self.has_begun |= task.is_some();
        match &self.link.context {
            // An upstream that has no contexts names none.
            _ if context.is_empty() => {}
            Some(sent) if sent != context => {
                return Err(Deviation::OtherContext { sent: sent.to_string(), returned: context.to_string() }.into());
            }
            Some(_) => {}
            None => self.link.context = Some(context.clone()),
        }
        // An event without the id of its task is about the one of this turn.
        match (&self.task, task.filter(|task| !task.is_empty())) {
            (Some(expected), Some(task)) if expected != task => return Err(other_task(expected, task)),
            (None, Some(task)) => {
                self.task = Some(task.clone());
                self.link.task = Some(task.clone());
            }
            _ => {}
        }
        self.note().await
    }

    async fn note(&mut self) -> Result<(), AgentError> {
        if self.link != self.noted {
            self.link.keep(self.remote, &self.noted).await.map_err(AgentError::internal)?;
            self.noted = self.link.clone();
        }
        Ok(())
    }

    /// The whole task: the parts of it that are new become events.
    async fn snapshot(&mut self, mut task: Task) -> Result<(), AgentError> {
        // Each is compared with all that are known, so their number is looked at before any of them.
        self.check_number(&task)?;
        let mut artifacts = mem::take(&mut task.artifacts);
        self.artifacts.name_all(&mut artifacts);
        let mut unseen = self.messages.unseen(mem::take(&mut task.history), self.shown.as_ref(), self.continues);
        let status_text = task.status.message.as_ref().map(Message::text);
        // Made once, however many messages are compared with them, and not at all where there are none.
        let compared = artifacts.iter().filter(|_| !unseen.is_empty());
        let artifact_texts: HashSet<String> = compared.map(|artifact| readable(&artifact.parts)).collect();
        unseen.retain(|message| {
            let text = message.text();
            let is_artifact = artifact_texts.contains(&text);
            if is_artifact {
                // It is not compared again at the next look. What only the status says may be told later.
                self.messages.note(message);
            }
            !is_artifact && status_text.as_ref() != Some(&text)
        });
        // Whoever has the task here has what an earlier turn has sent on.
        artifacts.retain(|artifact| !self.artifacts.is_earlier(artifact));
        let state = task.status.state;
        // A task that ends without a word of its own has said its answer before.
        if ends(state) && task.status.message.is_none() && artifacts.is_empty() && self.artifacts.len() == 0 {
            task.status.message = unseen.pop();
        }
        for message in unseen {
            self.say(message).await?;
        }
        for artifact in artifacts {
            // The digest is made once, however many are known.
            if !self.artifacts.has(&Relayed::of(&artifact)) {
                let update = TaskArtifactUpdateEvent { artifact, last_chunk: true, ..Default::default() };
                self.artifact(update).await?;
            }
        }
        // A task that is read again and again repeats its state, which is no news to the client.
        let has_news = task.status.message.as_ref().is_some_and(|message| self.is_news(message));
        if self.state == Some(state) && !ends(state) {
            if !has_news {
                return Ok(());
            }
            self.words += 1;
        }
        self.status(as_update(task)).await
    }

    /// True if a status message says something new. An agent may make a new id for the same words each time that it is asked.
    fn is_news(&self, message: &Message) -> bool {
        let is_of_agent = message.role != Role::User && !message.parts.is_empty();
        is_of_agent && !self.messages.was_sent(message) && message.text() != self.said
    }

    async fn status(&mut self, mut update: TaskStatusUpdateEvent) -> Result<(), AgentError> {
        update.status.message = update.status.message.and_then(|message| self.adopted(message));
        let state = match update.status.state {
            // The client gets its task now, and hears of it when there is something to tell.
            TaskState::Submitted | TaskState::Unspecified if update.status.message.is_none() => {
                return self.begin().await;
            }
            // Whoever says something works.
            TaskState::Unspecified => TaskState::Working,
            state => state,
        };
        update.status.state = state;
        // Whoever reads the task finds the whole answer, also one that came in pieces.
        if ends(state) && update.status.message.is_none() && self.artifacts.len() == 0 {
            update.status.message = self.messages.take_beside();
        }
        if let Some(message) = &update.status.message {
            self.said = message.text();
            self.messages.note(message);
        }
        let shown = update.status.message.as_ref().map(|message| message.message_id.clone());
        let event = StreamResponse::StatusUpdate(update);
        let delta = self.config.state.received(&event);
        if ends(state) {
            // The client can answer as soon as it gets the event. The ids and the session are stored by then.
            self.link.waits = state.is_interrupted();
            self.link.waits_in = Some(state).filter(|_| self.link.waits);
            self.link.shown = shown.filter(|_| self.link.waits);
            if self.link.waits {
                self.link.artifacts = self.artifacts.digests();
                self.link.unnamed = self.artifacts.unnamed();
            }
            self.note().await?;
            self.remember(delta).await?;
            self.is_settled = true;
        } else {
            self.change(delta).await?;
        }
        self.state = Some(state);
        self.send(event).await
    }

    /// The upstream has taken the message, and says nothing else yet.
    async fn begin(&mut self) -> Result<(), AgentError> {
        if self.relayed > 0 || self.state.is_some() {
            return Ok(());
        }
        self.state = Some(TaskState::Submitted);
        self.events.send(AgentEvent::Begun).await
    }

    async fn artifact(&mut self, mut update: TaskArtifactUpdateEvent) -> Result<(), AgentError> {
        let remote = self.remote;
        // Only extensions that were asked of the upstream are passed on: it does not speak for those that run here.
        update.artifact.extensions.retain(|uri| remote.extensions.contains(uri));
        self.artifacts.name(&mut update.artifact, update.append);
        self.artifacts.add(&update.artifact, update.append, self.config.max_answer_bytes);
        let event = StreamResponse::ArtifactUpdate(update);
        // State comes first: whoever hears of the event finds the state that it brings.
        self.change(self.config.state.received(&event)).await?;
        self.send(event).await
    }

    /// A message: the answer or a piece of it while there is no task, and a word about the task once there is one.
    async fn message(&mut self, message: Message) -> Result<(), AgentError> {
        if message.parts.is_empty() {
            self.messages.leave_out();
            return Ok(());
        }
        if !self.has_begun {
            self.messages.wait(message);
            return Ok(());
        }
        match (&self.task, message.task_id.as_ref().filter(|task| !task.is_empty())) {
            (Some(expected), Some(task)) if expected != task => Err(other_task(expected, task)),
            _ => self.hold(message).await,
        }
    }

    /// Messages that came before their task are words about it.
    async fn say_waiting(&mut self) -> Result<(), AgentError> {
        for message in self.messages.take_waiting() {
            self.hold(message).await?;
        }
        self.say_held().await
    }

    /// Holds a message about the task until it is known whether a further piece of it comes: an agent may send each word
    /// by itself, and a task cannot have as many statuses.
    async fn hold(&mut self, message: Message) -> Result<(), AgentError> {
        let is_full = self.bytes.saturating_sub(self.held_from) > self.config.max_answer_bytes;
        if is_full || !self.messages.is_piece(&message) {
            self.say_held().await?;
            self.held_from = self.bytes;
        }
        // The task's history may have the pieces one by one.
        if message.role != Role::User {
            self.messages.note(&message);
        }
        self.messages.hold(message);
        Ok(())
    }

    /// Sends on the message that is held.
    pub(crate) async fn say_held(&mut self) -> Result<(), AgentError> {
        match self.messages.take_held() {
            Some(message) => self.say(message).await,
            None => Ok(()),
        }
    }

    /// Sends a message on as a status of the task, which goes on.
    async fn say(&mut self, message: Message) -> Result<(), AgentError> {
        let Some(message) = self.adopted(message) else { return Ok(()) };
        self.messages.add_beside(&message);
        let status = TaskStatus { state: TaskState::Working, message: Some(message), timestamp: None };
        self.status(TaskStatusUpdateEvent { status, ..TaskStatusUpdateEvent::default() }).await
    }

    /// Answers with a message instead of a task. Its role becomes the agent's, whatever the upstream says.
    async fn answer(&mut self, mut message: Message) -> Result<(), AgentError> {
        self.said = message.text();
        message.role = Role::Agent;
        self.strip(&mut message);
        message.task_id = None;
        let event = StreamResponse::Message(message);
        self.remember(self.config.state.received(&event)).await?;
        self.is_settled = true;
        self.send(event).await
    }

    /// A message about the task as the agent's; `None` for one that repeats what the user said, and for one without parts.
    fn adopted(&self, mut message: Message) -> Option<Message> {
        if message.role == Role::User || message.parts.is_empty() {
            tracing::debug!(
                "a status of the upstream agent has a message of the user, or without parts; it is left out"
            );
            return None;
        }
        message.role = Role::Agent;
        self.strip(&mut message);
        Some(message)
    }

    /// Takes out the ids and extensions that mean something at the upstream only, and makes an id where there is none.
    fn strip(&self, message: &mut Message) {
        if message.message_id.is_empty() {
            message.message_id = MessageId::generate();
        }
        message.reference_task_ids.clear();
        message.extensions.retain(|uri| self.remote.extensions.contains(uri));
    }

    /// Changes the session's state.
    async fn change(&self, delta: StateDelta) -> Result<(), AgentError> {
        if delta.is_empty() { Ok(()) } else { self.append(Vec::new(), delta).await }
    }

    /// Takes the answer into the session's history, with a last change of its state.
    async fn remember(&self, delta: StateDelta) -> Result<(), AgentError> {
        let answer = self.artifacts.texts().collect::<Vec<_>>().join("\n");
        let answer = if answer.is_empty() { self.said.clone() } else { answer };
        let parts = if answer.is_empty() { Vec::new() } else { vec![Part::text(answer)] };
        self.turn.session.append_last(self.event(parts, delta)).await.map_err(AgentError::unstored)
    }

    async fn append(&self, parts: Vec<Part>, delta: StateDelta) -> Result<(), AgentError> {
        self.turn.session.append(self.event(parts, delta)).await.map_err(AgentError::unstored)
    }

    fn event(&self, parts: Vec<Part>, delta: StateDelta) -> Event {
        Event::new(self.config.name.as_str(), self.turn.task_id.clone(), parts, delta)
    }

    /// Sends it on without metadata under the keys of extensions that run here, because nobody else writes there.
    async fn send(&mut self, mut event: StreamResponse) -> Result<(), AgentError> {
        self.relayed += 1;
        let own = &self.remote.own_keys;
        for metadata in metadata_of(&mut event) {
            metadata.retain_keys(|key| !own.iter().any(|own| own == key));
        }
        self.events.send(AgentEvent::Relayed(Box::new(event))).await
    }
}

fn other_task(expected: &TaskId, returned: &TaskId) -> AgentError {
    Deviation::OtherTask { expected: expected.to_string(), returned: returned.to_string() }.into()
}

/// Tells whether the turn is over in this state.
fn ends(state: TaskState) -> bool {
    state.is_terminal() || state.is_interrupted()
}

/// The task's status as an event.
fn as_update(task: Task) -> TaskStatusUpdateEvent {
    let Task { id, context_id, status, metadata, .. } = task;
    TaskStatusUpdateEvent { task_id: id, context_id, status, metadata }
}
