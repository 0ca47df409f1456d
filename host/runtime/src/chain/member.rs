//! A member of the chain: one active extension in one turn. It admits the turn, has the instance, calls the hooks and
//! checks their results.

use std::mem;
use std::pin::pin;
use std::sync::Arc;

use annex_fairness::Place;
use annex_protocol::{A2aError, FieldViolation, Json};
use annex_schema::Violation;
use annex_text::cut;
use wasmtime::Store;
use wasmtime::component::Instance;

use crate::chain::output::HeldChunks;
use crate::chain::participation::PartInTurn;
use crate::confinement::breaker::Admission;
use crate::confinement::instance::GuestInstance;
use crate::confinement::limits::LimitReached;
use crate::confinement::store::HostState;
use crate::contract::{ExtensionError, Rejection};
use crate::error::{Fault, HookError};
use crate::extension::Extension;
use crate::hook::{Hook, HookSet};
use crate::observation::log::Log;
use crate::observation::metrics::watch::{CallVerdict, Watch};
use crate::recording::recorder::TurnRecorder;
use crate::recording::recording_view::RecordingView;
use crate::recording::step::StepResult;
use crate::turn_view::TurnView;

mod extended_card;
mod output;
mod reads;
mod reply;
mod steering;
mod way_in;
mod way_out;

/// Maximum number of violations that a refusal reports to the client. The import `json-schema` has the same limit. Each
/// binding writes the violations several times, so their number and length are limited.
const MAX_VIOLATIONS: usize = 64;
/// Maximum length of a text in a violation, in bytes. A longer text is cut.
const MAX_VIOLATION_TEXT: usize = 1 << 10;
/// Maximum length of the message in an extension's error, in bytes. A longer message is cut.
const MAX_ERROR_TEXT: usize = 4 << 10;
/// Maximum size of the data in an extension's error, in bytes. Each binding writes the data several times. More data is
/// a fault of the extension.
const MAX_ERROR_DATA: usize = 64 << 10;

pub(crate) struct Member {
    pub(crate) extension: Arc<Extension>,
    instance: Slot,
    /// The part in the turn until now.
    pub(in crate::chain) part: PartInTurn,
    /// The chunks that the extension holds back in the hook `output`.
    pub(in crate::chain) held: HeldChunks,
    /// The number of remarks of the hook `steering`.
    remarks: u32,
    view: Arc<dyn TurnView>,
    log: Log,
    admission: Admission,
    /// Measurement of the last call, from the call until the host has checked its result.
    watch: Option<Watch>,
    /// Records the member's steps, if an observer wants them.
    recorder: Option<Arc<TurnRecorder>>,
    /// The place in the extension's limit on concurrent turns. Dropping it frees the place.
    _turn: Place,
}

/// The state of a member's instance.
enum Slot {
    /// No hook has run yet.
    Idle,
    Running(GuestInstance),
    /// The member takes no further part in the turn: a hook failed or was cancelled, or the member has left the turn.
    Out,
}

impl Member {
    /// Admits a turn to the extension. If the extension is quarantined or revoked, this fails at once: the extension
    /// does not run, and the turn does not wait for a place.
    pub(crate) async fn admit(extension: &Arc<Extension>, view: Arc<dyn TurnView>) -> Result<Self, Fault> {
        let uri = || extension.uri().clone();
        let profile = &extension.profile;
        // Checked before waiting for a place, so that a quarantined extension does not delay requests.
        let admission = extension.breaker.admit().map_err(|refusal| {
            profile.meters.add_quarantined_turn();
            refusal.fault(extension.uri())
        })?;
        let turn = extension.turns.take(&profile.meters).await.ok_or_else(|| {
            profile.meters.add_busy_turn();
            Fault::Busy { uri: uri(), turns: profile.limits.turns }
        })?;
        let extension = Arc::clone(extension);
        let observer = view.observer().or_else(|| extension.observer.get());
        let recorder = observer.and_then(|observer| TurnRecorder::begin(observer, &extension, &view));
        let view = match &recorder {
            Some(recorder) => Arc::new(RecordingView::new(view, Arc::clone(recorder), &extension)),
            None => view,
        };
        let log = Log::new(Arc::clone(profile), Some(Arc::clone(&view)));
        let held = HeldChunks::default();
        let (instance, part) = (Slot::Idle, PartInTurn::Active);
        Ok(Self {
            extension,
            instance,
            part,
            held,
            remarks: 0,
            view,
            log,
            admission,
            watch: None,
            recorder,
            _turn: turn,
        })
    }

    /// Records `result` in the metrics as the result of the last call. If the host refused the request without calling
    /// the hook, the refusal is recorded as a call of `hook`.
    pub(crate) fn counted<T, E>(&mut self, hook: Hook, result: Result<T, E>) -> Result<T, E>
    where
        for<'a> CallVerdict<'a>: From<&'a E>,
    {
        let refused = || result.is_err().then(|| Watch::new(&self.extension, hook));
        if let Some(watch) = self.watch.take().or_else(refused) {
            watch.end(&result.as_ref().map_or_else(CallVerdict::from, |_| CallVerdict::Passed));
        }
        result
    }

    /// The host's state of the instance, if there is an instance.
    pub(crate) fn host(&mut self) -> Option<&mut HostState> {
        match &mut self.instance {
            Slot::Running(instance) => Some(instance.host()),
            Slot::Idle | Slot::Out => None,
        }
    }

    /// The hooks whose steps the member runs or records.
    pub(crate) fn hooks(&self) -> HookSet {
        // A recording has the steps of the shadow too, which may export other hooks than this version.
        if self.recorder.is_some() { HookSet::of(&Hook::ALL) } else { self.extension.hook_set }
    }

    /// True if the member takes no further part in the turn.
    pub(crate) fn is_out(&self) -> bool {
        matches!(self.instance, Slot::Out)
    }

    /// Leaves the turn without a fault. If a hook has run, the turn counts as a success of the extension.
    pub(crate) fn leave(&mut self) {
        if !self.is_out() && self.part == PartInTurn::Active {
            self.part = PartInTurn::Skipped;
        }
        if let Slot::Running(instance) = mem::replace(&mut self.instance, Slot::Out) {
            self.extension.breaker.succeeded(self.admission);
            instance.end();
        }
    }

    /// Marks the member as failed if the result is a fault.
    pub(crate) fn fails_by<T>(&mut self, result: &Result<T, HookError>) {
        if let Err(HookError::Fault(fault)) = result {
            self.fail(fault);
        }
    }

    /// Drops the instance. The member takes no further part in the turn.
    fn fail(&mut self, fault: &Fault) {
        self.instance = Slot::Out;
        self.part = PartInTurn::Failed;
        // Only faults of the guest count towards a quarantine.
        if fault.is_of_guest() {
            self.extension.breaker.failed(self.admission, fault);
        }
    }

    /// Begins a step of the recording. Does nothing if the turn is not recorded.
    pub(crate) fn notes(&self, step: impl FnOnce(&TurnRecorder)) {
        if let Some(recorder) = &self.recorder {
            step(recorder);
        }
    }

    /// Ends the current step of the recording. Does nothing if the turn is not recorded.
    pub(crate) fn noted<T>(&self, result: &Result<T, HookError>, passed: impl FnOnce(&T) -> StepResult) {
        if let Some(recorder) = &self.recorder {
            recorder.ended(result.as_ref().map_or_else(StepResult::from, passed));
        }
    }

    /// Calls a hook and measures it.
    pub(crate) async fn call<T>(
        &mut self,
        hook: Hook,
        body: impl AsyncFnOnce(&mut Store<HostState>, &Instance) -> wasmtime::Result<T>,
    ) -> Result<T, Fault> {
        let mut watch = Watch::new(&self.extension, hook);
        let called = watch.run(pin!(self.run(hook, body))).await;
        if let Some(recorder) = &self.recorder {
            recorder.took(hook, watch.busy());
        }
        self.watch = Some(watch);
        called
    }

    /// Calls a hook in the member's instance, which the first call creates. If the hook fails or is cancelled, the
    /// instance is dropped. So is it if the extension was revoked after the turn began.
    async fn run<T>(
        &mut self,
        hook: Hook,
        body: impl AsyncFnOnce(&mut Store<HostState>, &Instance) -> wasmtime::Result<T>,
    ) -> Result<T, Fault> {
        // The member is out while the hook runs, so a cancelled call leaves no instance to enter again.
        let slot = mem::replace(&mut self.instance, Slot::Out);
        self.extension.check_in_service()?;
        let mut instance = match slot {
            Slot::Running(instance) => instance,
            // Members that are out are not called, so this is the first hook.
            Slot::Idle | Slot::Out => {
                let Extension { program, profile, .. } = &*self.extension;
                GuestInstance::for_turn(program, profile, Arc::clone(&self.view), self.log.clone(), hook).await?
            }
        };
        let value = instance.call(hook, body).await?;
        self.instance = Slot::Running(instance);
        Ok(value)
    }

    /// Converts a rejection into an error for the client.
    pub(crate) fn refusal(&self, hook: Hook, rejection: Rejection) -> Result<A2aError, Fault> {
        match rejection {
            Rejection::Error(error) => self.own_error(hook, error),
            // Without a violation the client could not know what to change.
            Rejection::Violations(violations) if violations.is_empty() => {
                Err(self.broke(hook, "it refused the request without naming a violation"))
            }
            Rejection::Violations(violations) => {
                let violations = violations.into_iter().take(MAX_VIOLATIONS).map(told);
                Ok(A2aError::InvalidParams { violations: violations.collect() })
            }
        }
    }

    /// Converts an error of the extension into an error for the client. Its code must not belong to JSON-RPC or A2A.
    fn own_error(&self, hook: Hook, error: ExtensionError) -> Result<A2aError, Fault> {
        // The codes of JSON-RPC and of A2A, which would look like an error of the server. Codes between the two
        // ranges are allowed, because published extensions use them: AGP has -32200 to -32202.
        let core = (-32_768..=-32_600).contains(&error.code) || (-32_099..=-32_000).contains(&error.code);
        if core {
            return Err(self.broke(hook, &format!("it forged the core error code {}", error.code)));
        }
        if error.data.as_ref().is_some_and(|data| data.len() > MAX_ERROR_DATA) {
            return Err(self.broke(hook, &format!("the error's data has more than {MAX_ERROR_DATA} bytes")));
        }
        let data = error.data.map(Json::parse).transpose();
        let data = data.map_err(|reason| self.broke(hook, &format!("the error's data is not JSON: {reason}")))?;
        let message = cut(error.message, MAX_ERROR_TEXT);
        Ok(A2aError::Extension { uri: self.extension.uri().clone(), code: error.code, message, data })
    }

    pub(crate) fn broke(&self, hook: Hook, reason: &str) -> Fault {
        let reason = self.extension.profile.words(reason);
        Fault::BrokeContract { uri: self.extension.uri().clone(), error_id: self.log.error_id(), hook, reason }
    }

    pub(crate) fn failed(&self, hook: Hook, message: &str) -> Fault {
        let message = self.extension.profile.words(message);
        Fault::Failed { uri: self.extension.uri().clone(), error_id: self.log.error_id(), hook, message }
    }

    pub(crate) fn limit_reached(&self, hook: Hook, limit: LimitReached) -> Fault {
        Fault::LimitReached { uri: self.extension.uri().clone(), error_id: self.log.error_id(), hook, limit }
    }
}

fn told(violation: Violation) -> FieldViolation {
    FieldViolation {
        field: cut(violation.pointer, MAX_VIOLATION_TEXT),
        description: cut(violation.message, MAX_VIOLATION_TEXT),
    }
}

/// Leaves the turn. The turn counts as a success of the extension if hooks ran and none failed. A cancelled turn counts
/// neither as a success nor as a failure.
impl Drop for Member {
    fn drop(&mut self) {
        self.leave();
        if let Some(recorder) = &self.recorder {
            recorder.finish();
        }
    }
}
