//! The upstream's answer, event by event: checked, noted, taken into the session, and sent on.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem;

use annex_agent::{AgentError, AgentEvent, EventSender, TurnContext, UpstreamContext, readable};
use annex_protocol::{
    Artifact, ArtifactId, ContextId, Message, Metadata, Part, PartContent, Role, StreamResponse, Task,
    TaskArtifactUpdateEvent, TaskId, TaskState, TaskStatusUpdateEvent,
};
use annex_session::{Event, StateDelta};

use crate::config::UpstreamConfig;
use crate::failure::Deviation;
use crate::links::Link;

/// The number of events of the largest size that one turn may have. Smaller ones may be more.
const EVENTS_OF_FULL_SIZE: usize = 16;
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
    artifacts: Vec<Relayed>,
    /// The agent's last words beside its artifacts.
    said: String,
    /// The last state that was sent on.
    state: Option<TaskState>,
    /// A waiting state that the upstream showed before anything happened: it may be the one that the message ends.
    stale: Option<TaskStatusUpdateEvent>,
    /// Bytes of the events that have come, roughly.
    bytes: usize,
    /// The number of events that have come, and of those that were sent on.
    taken: usize,
    relayed: usize,
    is_settled: bool,
}

/// The parts of one artifact that were sent on.
struct Relayed {
    id: ArtifactId,
    /// The digest of their contents, by which a snapshot tells a replaced artifact from one that was sent on.
    digest: DefaultHasher,
    text: String,
}

impl Relayed {
    /// The artifact without its text, which is not the conversation's yet.
    fn of(artifact: &Artifact) -> Self {
        let id = artifact.artifact_id.clone();
        let mut relayed = Self { id, digest: DefaultHasher::new(), text: String::new() };
        relayed.add(&artifact.parts);
        relayed
    }

    fn add(&mut self, parts: &[Part]) {
        for part in parts {
            // A text and a URL of the same letters are not the same part.
            mem::discriminant(&part.content).hash(&mut self.digest);
            part.media_type.hash(&mut self.digest);
            part.filename.hash(&mut self.digest);
            match &part.content {
                PartContent::Text(text) | PartContent::Raw(text) | PartContent::Url(text) => {
                    text.hash(&mut self.digest)
                }
                PartContent::Data(json) => json.get().hash(&mut self.digest),
            }
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        self.id == other.id && self.digest.finish() == other.digest.finish()
    }
}

impl<'a> Relay<'a> {
    pub(crate) fn new(
        (turn, remote): (&'a TurnContext, &'a UpstreamContext),
        config: &'a UpstreamConfig,
        events: EventSender,
        (noted, sent): (Link, &Link),
    ) -> Self {
        let task = sent.waiting_task().cloned();
        let link = Link { context: sent.context.clone(), task: task.clone(), waits: false };
        let artifacts = Vec::new();
        let said = String::new();
        let state = None;
        let stale = None;
        Self {
            turn,
            remote,
            config,
            events,
            noted,
            link,
            task,
            artifacts,
            said,
            state,
            stale,
            bytes: 0,
            taken: 0,
            relayed: 0,
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

    /// The number of events that were sent on.
    pub(crate) fn relayed(&self) -> usize {
        self.relayed
    }

    /// Takes one event.
    pub(crate) async fn take(&mut self, event: StreamResponse) -> Result<(), AgentError> {
        let is_first = self.taken == 0;
        self.taken += 1;
        self.bytes = self.bytes.saturating_add(size(&event));
        // Counted before anything is stored or sent on: an upstream that never stops must not fill the task.
        let room = self.config.max_answer_bytes.saturating_mul(EVENTS_OF_FULL_SIZE);
        if self.bytes > room || self.artifacts.len() > MAX_ARTIFACTS {
            return Err(Deviation::Endless { bytes: self.bytes, artifacts: self.artifacts.len() }.into());
        }
        match event {
            StreamResponse::Task(task) => {
                self.enter(&task.context_id, Some(&task.id)).await?;
                self.snapshot(task).await
            }
            StreamResponse::StatusUpdate(update) => {
                self.enter(&update.context_id, Some(&update.task_id)).await?;
                self.status(update).await
            }
            StreamResponse::ArtifactUpdate(update) => {
                self.enter(&update.context_id, Some(&update.task_id)).await?;
                self.artifact(update).await
            }
            StreamResponse::Message(message) => {
                if !is_first {
                    // A stream with a message has nothing else (A2A 1.0, section 3.1.2).
                    return Err(Deviation::LateMessage.into());
                }
                if let Some(context) = &message.context_id {
                    self.enter(&context.clone(), None).await?;
                }
                self.message(message).await
            }
        }
    }

    /// Takes the task as it is before the message that continues it has had any effect: its artifacts so far count as
    /// sent on.
    pub(crate) async fn take_first(&mut self, event: StreamResponse) -> Result<(), AgentError> {
        let bytes = size(&event);
        match event {
            StreamResponse::Task(task) if self.task.is_some() => {
                self.taken += 1;
                self.enter(&task.context_id, Some(&task.id)).await?;
                self.bytes = self.bytes.saturating_add(bytes);
                self.check_number(&task)?;
                for artifact in &task.artifacts {
                    self.artifacts.retain(|known| known.id != artifact.artifact_id);
                    self.artifacts.push(Relayed::of(artifact));
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

    /// The stream has ended as it should. A waiting state that nothing has followed is what it ended in.
    pub(crate) async fn end(&mut self) -> Result<(), AgentError> {
        match self.stale.take().filter(|_| self.taken == 1) {
            Some(update) => self.status(update).await,
            None => Ok(()),
        }
    }

    /// Checks the ids, and notes them before anybody hears of a task or context that has them.
    async fn enter(&mut self, context: &ContextId, task: Option<&TaskId>) -> Result<(), AgentError> {
        match &self.link.context {
            // An upstream that has no contexts names none.
            _ if context.is_empty() => {}
            Some(sent) if sent != context => {
                return Err(Deviation::OtherContext { sent: sent.to_string(), returned: context.to_string() }.into());
            }
            Some(_) => {}
            None => self.link.context = Some(context.clone()),
        }
        match (&self.task, task) {
            (Some(expected), Some(task)) if expected != task => {
                return Err(Deviation::OtherTask { expected: expected.to_string(), returned: task.to_string() }.into());
            }
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
        for artifact in mem::take(&mut task.artifacts) {
            // The digest is made once, however many are known.
            let shown = Relayed::of(&artifact);
            if !self.artifacts.iter().any(|known| known.is_same(&shown)) {
                let update = TaskArtifactUpdateEvent { artifact, last_chunk: true, ..Default::default() };
                self.artifact(update).await?;
            }
        }
        let update = as_update(task);
        // A task that is read again and again repeats its state, which is no news to the client.
        if self.state == Some(update.status.state) && !ends(update.status.state) {
            return Ok(());
        }
        self.status(update).await
    }

    async fn status(&mut self, mut update: TaskStatusUpdateEvent) -> Result<(), AgentError> {
        let state = update.status.state;
        // This server has announced the task to the client itself.
        let says_nothing = matches!(state, TaskState::Submitted | TaskState::Unspecified);
        if says_nothing && update.status.message.is_none() {
            return Ok(());
        }
        if let Some(message) = &mut update.status.message {
            self.said = message.text();
            self.adopt(message);
        }
        let event = StreamResponse::StatusUpdate(update);
        let delta = self.config.state.received(&event);
        if ends(state) {
            // The client can answer as soon as it gets the event. The ids and the session are stored by then.
            self.link.waits = state.is_interrupted();
            self.note().await?;
            self.remember(delta).await?;
            self.is_settled = true;
        } else {
            self.change(delta).await?;
        }
        self.state = Some(state);
        self.send(event).await
    }

    async fn artifact(&mut self, mut update: TaskArtifactUpdateEvent) -> Result<(), AgentError> {
        let remote = self.remote;
        // Only extensions that were asked of the upstream are passed on: it does not speak for those that run here.
        update.artifact.extensions.retain(|uri| remote.extensions.contains(uri));
        self.count(&update.artifact, update.append);
        let event = StreamResponse::ArtifactUpdate(update);
        // State comes first: whoever hears of the event finds the state that it brings.
        self.change(self.config.state.received(&event)).await?;
        self.send(event).await
    }

    async fn message(&mut self, mut message: Message) -> Result<(), AgentError> {
        self.said = message.text();
        self.adopt(&mut message);
        message.task_id = None;
        let event = StreamResponse::Message(message);
        self.remember(self.config.state.received(&event)).await?;
        self.is_settled = true;
        self.send(event).await
    }

    /// Takes out the ids and extensions that mean something at the upstream only. The role becomes the agent's,
    /// whatever the upstream says.
    fn adopt(&self, message: &mut Message) {
        message.role = Role::Agent;
        message.reference_task_ids.clear();
        message.extensions.retain(|uri| self.remote.extensions.contains(uri));
    }

    fn count(&mut self, artifact: &Artifact, append: bool) {
        let id = &artifact.artifact_id;
        // Without `append` it is the first chunk, or an artifact that takes the place of one with the same id.
        if !append {
            self.artifacts.retain(|known| known.id != *id);
        }
        // These texts become the session's history. Together they are at most as long as one answer may be.
        let kept: usize = self.artifacts.iter().map(|known| known.text.len()).sum();
        let text = readable(&artifact.parts);
        let text = if kept + text.len() > self.config.max_answer_bytes { String::new() } else { text };
        match self.artifacts.iter_mut().find(|known| known.id == *id) {
            Some(known) => {
                known.add(&artifact.parts);
                known.text.push_str(&text);
            }
            None => self.artifacts.push(Relayed { text, ..Relayed::of(artifact) }),
        }
    }

    /// Changes the session's state.
    async fn change(&self, delta: StateDelta) -> Result<(), AgentError> {
        if delta.is_empty() { Ok(()) } else { self.append(Vec::new(), delta).await }
    }

    /// Takes the answer into the session's history, with a last change of its state.
    async fn remember(&self, delta: StateDelta) -> Result<(), AgentError> {
        let texts = self.artifacts.iter().map(|artifact| artifact.text.as_str()).filter(|text| !text.is_empty());
        let answer = texts.collect::<Vec<_>>().join("\n");
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

/// All metadata of an event but that of parts, which are content.
fn metadata_of(event: &mut StreamResponse) -> Vec<&mut Metadata> {
    match event {
        StreamResponse::Message(message) => vec![&mut message.metadata],
        StreamResponse::StatusUpdate(update) => {
            let of_message = update.status.message.as_mut().map(|message| &mut message.metadata);
            of_message.into_iter().chain([&mut update.metadata]).collect()
        }
        StreamResponse::ArtifactUpdate(update) => vec![&mut update.artifact.metadata, &mut update.metadata],
        StreamResponse::Task(task) => vec![&mut task.metadata],
    }
}

/// The bytes that an event takes: its content, and a flat charge for the rest.
fn size(event: &StreamResponse) -> usize {
    // Parts without content take memory too, so a flood of them is charged.
    const OVERHEAD: usize = 256;
    let part = |part: &Part| match &part.content {
        PartContent::Text(text) | PartContent::Raw(text) | PartContent::Url(text) => OVERHEAD + text.len(),
        PartContent::Data(json) => OVERHEAD + json.get().len(),
    };
    let parts = |parts: &[Part]| parts.iter().map(part).sum::<usize>();
    let metadata =
        |metadata: &Metadata| metadata.iter().map(|(key, value)| key.len() + value.get().len()).sum::<usize>();
    let message = |message: &Message| parts(&message.parts) + metadata(&message.metadata);
    let artifact = |artifact: &Artifact| parts(&artifact.parts) + metadata(&artifact.metadata);
    OVERHEAD
        + match event {
            StreamResponse::Message(sent) => message(sent),
            StreamResponse::StatusUpdate(update) => {
                update.status.message.as_ref().map_or(0, message) + metadata(&update.metadata)
            }
            StreamResponse::ArtifactUpdate(update) => artifact(&update.artifact) + metadata(&update.metadata),
            StreamResponse::Task(task) => {
                task.artifacts.iter().map(artifact).sum::<usize>() + task.status.message.as_ref().map_or(0, message)
            }
        }
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
