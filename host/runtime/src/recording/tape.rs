//! Notes a turn while it runs.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annex_keyvalue::{Scope, ScopeKind};
use annex_protocol::{ContextId, Json, Message, Metadata, Part, StreamResponse, TaskId, TaskState, Timestamp};

use super::{HookTime, HostCall, KnownKey, Octets, RecordedStep, RecordedTurn, StepInput, StepResult, TurnObserver};
use crate::chain::TurnRequest;
use crate::chain::owned_metadata;
use crate::confinement::grants::GrantNeeded;
use crate::confinement::imports::session::visible_session;
use crate::extension::Extension;
use crate::hook::Hook;
use crate::turn_view::TurnView;

/// The most bytes that are noted of a turn, as JSON.
const MAX_BYTES: usize = 1 << 20;
/// The most steps that are noted of a turn: a stream may have any number of events.
const MAX_STEPS: usize = 1_000;

/// The observer of an extension, if it has one. Turns look at the flag alone while there is none.
#[derive(Default)]
pub(crate) struct ObserverSlot {
    is_set: AtomicBool,
    observer: Mutex<Option<Arc<dyn TurnObserver>>>,
}

impl ObserverSlot {
    /// Returns false when there is an observer already.
    pub(crate) fn set(&self, observer: Arc<dyn TurnObserver>) -> bool {
        let mut slot = self.lock();
        if slot.is_some() {
            return false;
        }
        *slot = Some(observer);
        self.is_set.store(true, Ordering::Relaxed);
        true
    }

    pub(crate) fn clear(&self) {
        self.is_set.store(false, Ordering::Relaxed);
        *self.lock() = None;
    }

    pub(crate) fn get(&self) -> Option<Arc<dyn TurnObserver>> {
        // A turn that begins while this changes may be noted or not, so no order is needed.
        if self.is_set.load(Ordering::Relaxed) { self.lock().clone() } else { None }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<dyn TurnObserver>>> {
        self.observer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notes one turn of one extension, for an observer.
pub(crate) struct Tape {
    observer: Arc<dyn TurnObserver>,
    extension: Arc<Extension>,
    /// The turn as it is, of which the session, the task and the agent's steps are noted.
    view: Arc<dyn TurnView>,
    state: Mutex<State>,
}

struct State {
    turn: RecordedTurn,
    /// The step that runs.
    step: Option<RecordedStep>,
    /// The keys of which it is known what they were.
    known: HashSet<(ScopeKind, String)>,
    bytes: usize,
    is_too_large: bool,
    /// As they were noted last, so that they are not noted twice.
    last: (Option<String>, Option<String>, Option<String>),
}

impl Tape {
    /// Begins to note a turn, if the observer wants it.
    pub(crate) fn begin(
        observer: Arc<dyn TurnObserver>,
        extension: &Arc<Extension>,
        view: &Arc<dyn TurnView>,
    ) -> Option<Arc<Self>> {
        if !observer.wants() {
            return None;
        }
        let turn = RecordedTurn {
            at: Timestamp::now(),
            operation: String::new(),
            ids: view.ids(),
            context_id: None,
            task_id: None,
            requested: Vec::new(),
            resumed: false,
            keys: Vec::new(),
            steps: Vec::new(),
            scopes: Vec::new(),
        };
        let state =
            State { turn, step: None, known: HashSet::new(), bytes: 0, is_too_large: false, last: (None, None, None) };
        Some(Arc::new(Self {
            observer,
            extension: Arc::clone(extension),
            view: Arc::clone(view),
            state: Mutex::new(state),
        }))
    }

    /// The way in begins, with the parts as those before the extension have rewritten them.
    pub(crate) fn request(&self, request: &TurnRequest<'_>, parts: &[Part]) {
        let shows_parts = self.shown_to(|extension| extension.program.hooks.has(Hook::Message));
        let mut message = Message { parts: Vec::new(), ..request.message.clone() };
        if shows_parts {
            message.parts = parts.to_vec();
        }
        self.retain(&mut message.metadata);
        let mut metadata = request.request.clone();
        self.retain(&mut metadata);
        self.head(request);
        self.step(StepInput::Request { message, metadata });
    }

    /// A method is called.
    pub(crate) fn call(&self, request: &TurnRequest<'_>, params: &Json) {
        self.head(request);
        self.step(StepInput::Call { params: params.clone() });
    }

    fn head(&self, request: &TurnRequest<'_>) {
        let turn = &mut self.lock().turn;
        request.operation.clone_into(&mut turn.operation);
        turn.context_id = request.context_id.cloned();
        turn.task_id = request.task_id.cloned();
        turn.requested = request.requested.to_vec();
        turn.resumed = request.resumed;
    }

    /// The extension is asked whether the agent is to run.
    pub(crate) fn beginning(&self, task_id: &TaskId, context_id: &ContextId, waits_in: Option<TaskState>) {
        self.step(StepInput::Begin { task_id: task_id.clone(), context_id: context_id.clone(), waits_in });
    }

    /// The extension is asked about a change of state.
    pub(crate) fn change(&self, current: TaskState, update: &annex_protocol::TaskStatusUpdateEvent) {
        let mut event = StreamResponse::StatusUpdate(update.clone());
        owned_metadata::retain(&mut event, &self.keys());
        if let StreamResponse::StatusUpdate(update) = event {
            self.step(StepInput::Change { current, update });
        }
    }

    /// The extension is shown an event.
    pub(crate) fn event(&self, event: &StreamResponse) {
        let mut event = event.clone();
        owned_metadata::retain(&mut event, &self.keys());
        if !self.shown_to(|extension| extension.descriptor.payload) {
            match &mut event {
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
                // No extension is shown a whole task.
                StreamResponse::Task(_) => return,
            }
        }
        self.step(StepInput::Event(event));
    }

    /// A step begins. One that is not ended by [`Tape::ended`] was broken off and leaves nothing.
    pub(crate) fn step(&self, input: StepInput) {
        // Before the lock: the view is the host's, and answers as it likes.
        let grants = &self.extension.profile.grants;
        let session = grants.allow(GrantNeeded::SessionState).then(|| visible_session(self.view.as_ref(), grants));
        let task = grants.allow(GrantNeeded::Task).then(|| self.view.task()).flatten();
        let agent_steps = grants.allow(GrantNeeded::AgentSteps).then(|| self.view.agent_steps());
        let mut state = self.lock();
        let State { last, .. } = &mut *state;
        let session = changed(&mut last.0, session.map(|session| session.to_json_string()));
        let task = changed(&mut last.1, task);
        let agent_steps = changed(&mut last.2, agent_steps);
        state.step = Some(RecordedStep {
            input,
            session: session.and_then(|session| session.to().ok()),
            task,
            agent_steps,
            calls: Vec::new(),
            result: StepResult::Inactive,
            times: Vec::new(),
        });
    }

    /// A hook ran in the step.
    pub(crate) fn took(&self, hook: Hook, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        if let Some(step) = &mut self.lock().step {
            step.times.push(HookTime { hook: hook.name().to_owned(), micros });
        }
    }

    /// The guest called the host.
    pub(crate) fn called(&self, call: HostCall) {
        if let Some(step) = &mut self.lock().step {
            step.calls.push(call);
        }
    }

    /// True when it is not known yet what the key was before the turn.
    pub(crate) fn is_unknown(&self, kind: ScopeKind, key: &str) -> bool {
        !self.lock().known.contains(&(kind, key.to_owned()))
    }

    /// Notes what a key was before the turn.
    pub(crate) fn knows(&self, scope: &Scope, key: &str, value: Option<&[u8]>) {
        let mut state = self.lock();
        if state.known.insert((scope.kind, key.to_owned())) {
            let value = value.map(Octets::from);
            state.bytes = state.bytes.saturating_add(key.len()).saturating_add(value.as_ref().map_or(0, Octets::len));
            state.turn.keys.push(KnownKey { bucket: scope.kind.name().to_owned(), key: key.to_owned(), value });
        }
        if !state.turn.scopes.contains(scope) {
            state.turn.scopes.push(scope.clone());
        }
    }

    /// The step is over.
    pub(crate) fn ended(&self, result: StepResult) {
        let mut state = self.lock();
        let Some(mut step) = state.step.take() else { return };
        step.result = result;
        let bytes = serde_json::to_vec(&step).map_or(MAX_BYTES, |json| json.len());
        state.bytes = state.bytes.saturating_add(bytes);
        if state.bytes > MAX_BYTES || state.turn.steps.len() >= MAX_STEPS {
            state.is_too_large = true;
            state.turn.steps.clear();
        }
        // What is too large is left out as a whole: a part of a turn could not be played.
        if !state.is_too_large {
            state.turn.steps.push(step);
        }
    }

    /// The entries under the keys that the tape's extensions own.
    pub(crate) fn own(&self, metadata: &Metadata) -> Metadata {
        let mut own = metadata.clone();
        own.retain_keys(|key| self.extension.descriptor.metadata_keys.iter().any(|own| own == key));
        own
    }

    fn retain(&self, metadata: &mut Metadata) {
        let keys = self.keys();
        metadata.retain_keys(|key| keys.iter().any(|own| own == key));
    }

    /// The metadata keys of the extension, and of the one beside it.
    fn keys(&self) -> Vec<String> {
        let beside = self.observer.beside().map(|beside| beside.descriptor.metadata_keys.as_slice());
        self.extension.descriptor.metadata_keys.iter().chain(beside.unwrap_or_default()).cloned().collect()
    }

    /// True when the extension is shown something, or the one beside it.
    fn shown_to(&self, is_shown: impl Fn(&Extension) -> bool) -> bool {
        is_shown(&self.extension) || self.observer.beside().is_some_and(|beside| is_shown(beside))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turn is over.
    pub(crate) fn finish(&self) {
        let mut state = self.lock();
        if state.is_too_large {
            return self.observer.left_out();
        }
        let empty = RecordedTurn { steps: Vec::new(), keys: Vec::new(), ..state.turn.clone() };
        let turn = std::mem::replace(&mut state.turn, empty);
        drop(state);
        self.observer.ended(turn);
    }
}

/// The text as JSON, if it is not what was noted last.
fn changed(last: &mut Option<String>, now: Option<String>) -> Option<Json> {
    if now.is_none() || *last == now {
        return None;
    }
    last.clone_from(&now);
    Json::parse(now?).ok()
}

impl Octets {
    fn len(&self) -> usize {
        match self {
            Self::Text(text) | Self::Hex(text) => text.len(),
        }
    }
}
