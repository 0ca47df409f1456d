//! One extension's part of a turn: whether it may run, its instance, its hooks, and what they may leave behind.

use std::mem;
use std::pin::pin;
use std::sync::Arc;

use annex_fairness::Place;
use annex_protocol::{A2aError, FieldViolation, Json};
use annex_schema::Violation;
use annex_text::cut;
use wasmtime::Store;
use wasmtime::component::Instance;

use crate::confinement::breaker::Admission;
use crate::confinement::instance::GuestInstance;
use crate::confinement::limits::LimitReached;
use crate::confinement::store::HostState;
use crate::contract::{ExtensionError, Rejection};
use crate::error::{Fault, HookError};
use crate::extension::Extension;
use crate::hook::Hook;
use crate::observation::log::Log;
use crate::observation::metrics::watch::{CallVerdict, Watch};
use crate::recording::StepResult;
use crate::recording::tape::Tape;
use crate::recording::taps::TappedView;
use crate::turn_view::TurnView;

mod way_in;
mod way_out;

/// Violations of one refusal that the client is told, as many as `json-schema` finds. Each binding writes them several
/// times, so their number and length are bounded here.
const MAX_VIOLATIONS: usize = 64;
/// Bytes of each text of a violation.
const MAX_VIOLATION_TEXT: usize = 1 << 10;
/// Bytes of the message of an extension's own error.
const MAX_ERROR_TEXT: usize = 4 << 10;
/// Bytes of the data of an extension's own error, which each binding writes several times as well.
const MAX_ERROR_DATA: usize = 64 << 10;

pub(crate) struct Member {
    pub(crate) extension: Arc<Extension>,
    instance: Slot,
    view: Arc<dyn TurnView>,
    log: Log,
    admission: Admission,
    /// The call that has just ended, until its result is looked at.
    watch: Option<Watch>,
    /// Notes what it does, where somebody wants to be told.
    tape: Option<Arc<Tape>>,
    /// One of the turns that the extension serves at once.
    _turn: Place,
}

/// A member's instance.
enum Slot {
    /// No hook has run yet.
    Idle,
    Running(GuestInstance),
    /// A hook failed or was broken off, or the member was left out. It takes no further part in the turn.
    Out,
}

impl Member {
    /// Admits a turn to the extension. A quarantined one is refused at once: nothing of it runs, and no turn waits for
    /// it.
    pub(crate) async fn admit(extension: &Arc<Extension>, view: Arc<dyn TurnView>) -> Result<Self, Fault> {
        let uri = || extension.uri().clone();
        let profile = &extension.profile;
        // Before the wait for a place, so that an extension in quarantine costs its requests no time.
        let admission = extension.breaker.admit().map_err(|next_trial| {
            profile.meters.add_quarantined_turn();
            Fault::Quarantined { uri: uri(), next_trial }
        })?;
        let turn = extension.turns.take(&profile.meters).await.ok_or_else(|| {
            profile.meters.add_busy_turn();
            Fault::Busy { uri: uri(), turns: profile.limits.turns }
        })?;
        let extension = Arc::clone(extension);
        let observer = view.observer().or_else(|| extension.observer.get());
        let tape = observer.and_then(|observer| Tape::begin(observer, &extension, &view));
        let view = match &tape {
            Some(tape) => Arc::new(TappedView::new(view, Arc::clone(tape), &extension)),
            None => view,
        };
        let log = Log::new(Arc::clone(profile), Some(Arc::clone(&view)));
        Ok(Self { extension, instance: Slot::Idle, view, log, admission, watch: None, tape, _turn: turn })
    }

    /// Counts the call of the hook that has just ended by what came of it. What was refused before the call counts too.
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

    /// The host's side of its instance, if it has one.
    pub(crate) fn host(&mut self) -> Option<&mut HostState> {
        match &mut self.instance {
            Slot::Running(instance) => Some(instance.host()),
            Slot::Idle | Slot::Out => None,
        }
    }

    /// True when it takes no further part in the turn.
    pub(crate) fn is_out(&self) -> bool {
        matches!(self.instance, Slot::Out)
    }

    /// Leaves the turn through no fault of its own. It did its part if a hook has run and none has failed.
    pub(crate) fn leave(&mut self) {
        if let Slot::Running(instance) = mem::replace(&mut self.instance, Slot::Out) {
            self.extension.breaker.succeeded(self.admission);
            instance.end();
        }
    }

    /// After a failure it takes no further part in the turn.
    pub(crate) fn fails_by<T>(&mut self, result: &Result<T, HookError>) {
        if let Err(HookError::Fault(fault)) = result {
            self.fail(fault);
        }
    }

    /// Its instance is dropped with its store, and it takes no further part in the turn.
    fn fail(&mut self, fault: &Fault) {
        self.instance = Slot::Out;
        // A failure that is not the guest's fault must neither begin nor prolong a quarantine.
        if fault.is_of_guest() {
            self.extension.breaker.failed(self.admission, fault);
        }
    }

    /// Begins a step on the tape, if there is one.
    pub(crate) fn notes(&self, step: impl FnOnce(&Tape)) {
        if let Some(tape) = &self.tape {
            step(tape);
        }
    }

    /// Ends the step on the tape, if there is one.
    pub(crate) fn noted<T>(&self, result: &Result<T, HookError>, passed: impl FnOnce(&T) -> StepResult) {
        if let Some(tape) = &self.tape {
            tape.ended(result.as_ref().map_or_else(StepResult::from, passed));
        }
    }

    /// Runs one hook and measures it.
    pub(crate) async fn call<T>(
        &mut self,
        hook: Hook,
        body: impl AsyncFnOnce(&mut Store<HostState>, &Instance) -> wasmtime::Result<T>,
    ) -> Result<T, Fault> {
        let mut watch = Watch::new(&self.extension, hook);
        let called = watch.run(pin!(self.run(hook, body))).await;
        if let Some(tape) = &self.tape {
            tape.took(hook, watch.busy());
        }
        self.watch = Some(watch);
        called
    }

    /// Runs one hook in the member's instance, which is started by the first. A hook that fails or is broken off
    /// leaves no instance behind.
    async fn run<T>(
        &mut self,
        hook: Hook,
        body: impl AsyncFnOnce(&mut Store<HostState>, &Instance) -> wasmtime::Result<T>,
    ) -> Result<T, Fault> {
        // The member is out while the hook runs, so a call whose future is dropped leaves no instance to enter again.
        let mut instance = match mem::replace(&mut self.instance, Slot::Out) {
            Slot::Running(instance) => instance,
            // No caller asks a member that is out, so this is its first hook.
            Slot::Idle | Slot::Out => {
                let Extension { program, profile, .. } = &*self.extension;
                GuestInstance::for_turn(program, profile, Arc::clone(&self.view), self.log.clone(), hook).await?
            }
        };
        let value = instance.call(hook, body).await?;
        self.instance = Slot::Running(instance);
        Ok(value)
    }

    /// The error of a rejection, for the client.
    pub(crate) fn refusal(&self, hook: Hook, rejection: Rejection) -> Result<A2aError, Fault> {
        match rejection {
            Rejection::Error(error) => self.own_error(hook, error),
            // The client could not tell what to mend.
            Rejection::Violations(violations) if violations.is_empty() => {
                Err(self.broke(hook, "it refused the request without naming a violation"))
            }
            Rejection::Violations(violations) => {
                let violations = violations.into_iter().take(MAX_VIOLATIONS).map(told);
                Ok(A2aError::InvalidParams { violations: violations.collect() })
            }
        }
    }

    /// An extension may answer with an error of its own, never with one that the protocol owns.
    fn own_error(&self, hook: Hook, error: ExtensionError) -> Result<A2aError, Fault> {
        // The codes of JSON-RPC and of A2A. An error with one of them would pass for one of the server's own.
        // The codes between the two ranges stay open, because published extensions use them: AGP has -32200 to -32202.
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

/// A turn that ended without a fault counts as a success. One that was broken off does not count.
impl Drop for Member {
    fn drop(&mut self) {
        self.leave();
        if let Some(tape) = &self.tape {
            tape.finish();
        }
    }
}
