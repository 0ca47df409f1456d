//! Records a turn while it runs.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annex_keyvalue::{Scope, ScopeKind};
use annex_protocol::{
    AgentExtension, ContextId, ExtensionUri, Json, Message, Metadata, Part, Parts, StreamResponse, TaskId, TaskState,
    TaskStatusUpdateEvent, Timestamp,
};

use super::host_call::{HostCall, Octets};
use super::step::{HookTime, RecordedStep, StepInput, StepResult};
use super::{Attention, KnownKey, RecordedTurn, TurnObserver};
use crate::chain::owned_metadata;
use crate::chain::task_to_show::TaskToShow;
use crate::confinement::grants::GrantNeeded;
use crate::confinement::imports::session::visible_session;
use crate::extension::Extension;
use crate::hook::Hook;
use crate::turn_view::TurnView;

/// Maximum size of a recorded turn, in approximate bytes of JSON.
const MAX_BYTES: usize = 1 << 20;
/// Maximum number of recorded steps of a turn. A stream may have any number of events.
const MAX_STEPS: usize = 1_000;

/// Records one turn of one extension for an observer.
pub(crate) struct TurnRecorder {
    observer: Arc<dyn TurnObserver>,
    extension: Arc<Extension>,
    /// The events and data that the extension or its shadow receives.
    asked: Attention,
    /// The view of the turn, from which session state, task and agent steps are recorded.
    view: Arc<dyn TurnView>,
    /// True if the recorded turn was dropped, because it is too large or must not be recorded. Nothing more is recorded.
    is_dropped: AtomicBool,
    state: Mutex<OngoingTurn>,
}

struct OngoingTurn {
    turn: RecordedTurn,
    /// The current step.
    step: Option<RecordedStep>,
    /// Keys whose value before the turn has been recorded.
    known: HashSet<(ScopeKind, String)>,
    bytes: usize,
    /// The last recorded values. A value that has not changed since is not recorded again.
    last: LastValues,
}

#[derive(Default)]
struct LastValues {
    session: Option<String>,
    task: Option<String>,
    agent_steps: Option<String>,
}

impl TurnRecorder {
    /// Begins to record a turn, if the observer wants it.
    pub(crate) fn begin(
        observer: Arc<dyn TurnObserver>,
        extension: &Arc<Extension>,
        view: &Arc<dyn TurnView>,
    ) -> Option<Arc<Self>> {
        if !observer.wants() {
            return None;
        }
        let mut turn = RecordedTurn::at(Timestamp::now(), view.ids());
        if let (Some(grant), Some(caller)) = (&extension.profile.grants.caller, view.caller()) {
            // A caller that is too large is an error for the extension, and an error again in a replay.
            turn.caller = caller.shown_by(grant).ok();
        }
        // The shadow may open buckets that this version does not.
        if observer.beside().is_some() && extension.profile.grants.allow(GrantNeeded::KeyValue) {
            turn.scopes = ScopeKind::ALL.into_iter().filter_map(|kind| view.key_scope(kind)).collect();
        }
        let state = OngoingTurn { turn, step: None, known: HashSet::new(), bytes: 0, last: LastValues::default() };
        Some(Arc::new(Self {
            asked: both(extension.attention(), observer.beside()),
            observer,
            extension: Arc::clone(extension),
            view: Arc::clone(view),
            is_dropped: AtomicBool::new(false),
            state: Mutex::new(state),
        }))
    }

    /// Begins the step of the way in. `parts` are the parts of the message after the extensions before this one have
    /// rewritten them.
    pub(crate) fn request(&self, head: Head<'_>, (message, metadata): (&Message, &Metadata), parts: &[Part]) {
        self.head(head);
        self.step(|| {
            let mut message = Message { parts: Parts::default(), ..message.clone() };
            if self.asked.message {
                message.parts = parts.to_vec().into();
            }
            self.retain(&mut message.metadata);
            let mut metadata = metadata.clone();
            self.retain(&mut metadata);
            StepInput::Request { message, metadata }
        });
    }

    /// Begins the step of a method call.
    pub(crate) fn call(&self, head: Head<'_>, params: &Json) {
        self.head(head);
        self.step(|| StepInput::Call { params: params.clone() });
    }

    /// Begins the step of a read of tasks.
    pub(crate) fn read(&self, head: Head<'_>, tasks: &[TaskToShow]) {
        self.head(head);
        self.step(|| {
            let mut tasks = tasks.to_vec();
            tasks.iter_mut().for_each(|task| self.retain(&mut task.metadata));
            StepInput::Read { tasks }
        });
    }

    /// Begins the step of a read of the extended card.
    pub(crate) fn extended_card(&self, head: Head<'_>, entry: &AgentExtension) {
        self.head(head);
        self.step(|| StepInput::ExtendedCard(entry.clone()));
    }

    fn head(&self, Head { operation, context_id, task_id, requested, resumed }: Head<'_>) {
        let turn = &mut self.lock().turn;
        operation.clone_into(&mut turn.operation);
        turn.context_id = context_id.cloned();
        turn.task_id = task_id.cloned();
        turn.requested = requested.to_vec();
        turn.resumed = resumed;
    }

    /// Begins the step of `transition.begin`.
    pub(crate) fn beginning(&self, task_id: &TaskId, context_id: &ContextId, waits_in: Option<TaskState>) {
        self.step(|| StepInput::Begin { task_id: task_id.clone(), context_id: context_id.clone(), waits_in });
    }

    /// Begins the step of `transition.change`.
    pub(crate) fn change(&self, current: TaskState, update: &TaskStatusUpdateEvent) {
        self.step(|| {
            let mut update = update.clone();
            self.retain(&mut update.metadata);
            if let Some(message) = &mut update.status.message {
                self.retain(&mut message.metadata);
            }
            StepInput::Change { current, update }
        });
    }

    /// Begins the step of `reply.before-agent`.
    pub(crate) fn reply(&self, message: &Message) {
        self.step(|| {
            let mut message = message.clone();
            self.retain(&mut message.metadata);
            StepInput::Reply { message }
        });
    }

    /// Begins the step of `output.revise`. The event has the parts that the extensions before this one have left.
    pub(crate) fn output(&self, event: &StreamResponse) {
        self.step(|| {
            let mut event = event.clone();
            owned_metadata::retain(&mut event, self.keys());
            StepInput::Output(event)
        });
    }

    /// Begins the step of an event.
    pub(crate) fn event(&self, event: &StreamResponse) {
        self.step(|| {
            let mut event = event.clone();
            owned_metadata::retain(&mut event, self.keys());
            if !self.asked.payload {
                strip(&mut event);
            }
            StepInput::Event(event)
        });
    }

    /// Begins a step. A step without [`TurnRecorder::ended`] was cancelled and is dropped.
    pub(crate) fn step(&self, input: impl FnOnce() -> StepInput) {
        if self.is_dropped() {
            return;
        }
        // Called before locking, because the view is code of the host.
        let input = input();
        let grants = &self.extension.profile.grants;
        let session = grants.allow(GrantNeeded::SessionState).then(|| visible_session(self.view.as_ref(), grants));
        let task = grants.allow(GrantNeeded::Task).then(|| self.view.task()).flatten();
        let agent_steps = grants.allow(GrantNeeded::AgentSteps).then(|| self.view.agent_steps());
        let mut state = self.lock();
        let last = &mut state.last;
        let session = changed(&mut last.session, session.map(|session| session.to_json_string()));
        let task = changed(&mut last.task, task);
        let agent_steps = changed(&mut last.agent_steps, agent_steps);
        let session = session.and_then(|session| session.to().ok());
        let step = RecordedStep { input, session, task, agent_steps, ..RecordedStep::default() };
        self.add(&mut state, serde_json::to_vec(&step).map_or(MAX_BYTES, |json| json.len()));
        state.step = Some(step);
    }

    /// Records the thread time of a hook in this step.
    pub(crate) fn took(&self, hook: Hook, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        if let Some(step) = &mut self.lock().step {
            step.times.push(HookTime { hook: hook.name().to_owned(), micros });
        }
    }

    /// Records a call of the guest. `bytes` is the size of the call's arguments and answer.
    pub(crate) fn called(&self, bytes: usize, call: impl FnOnce() -> HostCall) {
        let mut state = self.lock();
        self.add(&mut state, bytes);
        if self.is_dropped() {
            return;
        }
        // An answer that the guest reads in a later hook may end between two steps.
        let OngoingTurn { step, turn, .. } = &mut *state;
        if let Some(step) = step.as_mut().or_else(|| turn.steps.last_mut()) {
            step.calls.push(call());
        }
    }

    /// True if the recorded turn was dropped. Nothing more is recorded.
    pub(crate) fn is_dropped(&self) -> bool {
        self.is_dropped.load(Ordering::Relaxed)
    }

    /// True if the key's value before the turn is not recorded yet.
    pub(crate) fn is_unknown(&self, kind: ScopeKind, key: &str) -> bool {
        !self.is_dropped() && !self.lock().known.contains(&(kind, key.to_owned()))
    }

    /// Records the value that the key had before the turn.
    pub(crate) fn knows(&self, scope: &Scope, key: &str, value: Option<&[u8]>) {
        if !self.is_unknown(scope.kind, key) {
            return;
        }
        let mut state = self.lock();
        self.add(&mut state, 2 * key.len() + value.map_or(0, <[u8]>::len));
        if self.is_dropped() {
            return;
        }
        state.known.insert((scope.kind, key.to_owned()));
        let bucket = scope.kind.name().to_owned();
        state.turn.keys.push(KnownKey { bucket, key: key.to_owned(), value: value.map(Octets::from) });
        if !state.turn.scopes.contains(scope) {
            state.turn.scopes.push(scope.clone());
        }
    }

    /// Ends the current step.
    pub(crate) fn ended(&self, result: StepResult) {
        let mut state = self.lock();
        let Some(mut step) = state.step.take() else { return };
        self.add(&mut state, serde_json::to_vec(&result).map_or(MAX_BYTES, |json| json.len()));
        step.result = result;
        if state.turn.steps.len() >= MAX_STEPS {
            self.add(&mut state, MAX_BYTES);
        }
        if !self.is_dropped() {
            state.turn.steps.push(step);
        }
    }

    /// Adds to the size of the recorded turn. If the turn is then too large, the whole turn is dropped, because an
    /// incomplete turn could not be replayed.
    fn add(&self, state: &mut OngoingTurn, bytes: usize) {
        state.bytes = state.bytes.saturating_add(bytes);
        if state.bytes > MAX_BYTES {
            self.drop_turn(state);
        }
    }

    /// Drops the whole turn, and records nothing more of it.
    fn drop_turn(&self, state: &mut OngoingTurn) {
        if !self.is_dropped.swap(true, Ordering::Relaxed) {
            state.step = None;
            state.turn.steps = Vec::new();
            state.turn.keys = Vec::new();
            state.last = LastValues::default();
        }
    }

    /// Leaves the turn out of the recording, because its message has metadata that the host forgets. The extension may have
    /// written values from this metadata anywhere. A replay goes on: its result stays in memory.
    pub(crate) fn leave_out(&self) {
        if !self.observer.wants_all_steps() {
            self.drop_turn(&mut self.lock());
        }
    }

    /// Metadata under the extension's own keys.
    pub(crate) fn own(&self, metadata: &Metadata) -> Metadata {
        let mut own = metadata.clone();
        own.retain_keys(|key| self.extension.descriptor.metadata_keys.iter().any(|own| own == key));
        own
    }

    fn retain(&self, metadata: &mut Metadata) {
        metadata.retain_keys(|key| self.keys().iter().any(|own| own == key));
    }

    /// Metadata keys of the extension and of its shadow.
    pub(crate) fn keys(&self) -> &[String] {
        &self.asked.metadata_keys
    }

    /// True if the step is recorded: the extension or its shadow takes part, or the observer wants all steps.
    pub(crate) fn notes(&self, is_asked: impl Fn(&Attention) -> bool) -> bool {
        self.observer.wants_all_steps() || is_asked(&self.asked)
    }

    fn lock(&self) -> MutexGuard<'_, OngoingTurn> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the recording.
    pub(crate) fn finish(&self) {
        let mut state = self.lock();
        let ids = state.turn.ids.clone();
        let empty = RecordedTurn::at(state.turn.at, ids);
        let turn = std::mem::replace(&mut state.turn, empty);
        drop(state);
        // A turn that was cancelled in its first step cannot be replayed.
        if self.is_dropped() || turn.steps.is_empty() { self.observer.left_out() } else { self.observer.ended(turn) }
    }
}

/// The fields that a recorded turn begins with.
pub(crate) struct Head<'a> {
    pub(crate) operation: &'a str,
    pub(crate) context_id: Option<&'a ContextId>,
    pub(crate) task_id: Option<&'a TaskId>,
    pub(crate) requested: &'a [ExtensionUri],
    pub(crate) resumed: bool,
}

/// The union of events and data for two versions.
fn both(mut own: Attention, beside: Option<&Attention>) -> Attention {
    let Some(beside) = beside else { return own };
    own.metadata_keys.extend(beside.metadata_keys.iter().cloned());
    own.message |= beside.message;
    own.transition |= beside.transition;
    own.reply |= beside.reply;
    own.steering |= beside.steering;
    own.payload |= beside.payload;
    own.output = own.output.or(beside.output);
    own.events = own.events.or(beside.events);
    own
}

/// Removes the content of an event that extensions without `payload` do not see.
fn strip(event: &mut StreamResponse) {
    match event {
        StreamResponse::Message(message) => message.parts.clear(),
        StreamResponse::StatusUpdate(update) => {
            if let Some(message) = &mut update.status.message {
                message.parts.clear();
            }
        }
        StreamResponse::ArtifactUpdate(update) => {
            update.artifact.parts.clear();
            update.artifact.name.take();
            update.artifact.description.take();
        }
        // Extensions do not see whole tasks.
        StreamResponse::Task(task) => *task = annex_protocol::Task::default(),
    }
}

/// Returns the text as JSON, or `None` if the text equals the last recorded text.
fn changed(last: &mut Option<String>, now: Option<String>) -> Option<Json> {
    if now.is_none() || *last == now {
        return None;
    }
    last.clone_from(&now);
    Json::parse(now?).ok()
}
