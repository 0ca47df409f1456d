//! The hooks on the way out: `transition` and `response`.

use std::sync::Arc;

use annex_protocol::{Json, Metadata, StreamResponse, TaskState, TaskStatusUpdateEvent};

use super::{Member, Slot};
use crate::bindings::{SeenBeginning, SeenRequest};
use crate::chain::interruption::Interruption;
use crate::chain::outgoing;
use crate::chain::transition::{self, TransitionVerdict, TurnBeginning};
use crate::contract::{BeginRuling, ChangeRuling, Wait};
use crate::error::Fault;
use crate::hook::Hook;
use crate::recording::Attention;
use crate::recording::recorder::TurnRecorder;
use crate::recording::step::StepResult;

impl Member {
    /// True if the extension has the hook and still takes part in the turn.
    pub(super) fn takes_part_in(&self, hook: Hook) -> bool {
        self.extension.program.hooks.has(hook) && !self.is_out()
    }

    /// Asks the extension whether the agent may run.
    pub(in crate::chain) async fn begin(
        &mut self,
        seen: &SeenRequest,
        beginning: &SeenBeginning,
        TurnBeginning { task_id, context_id, waits_in, .. }: &TurnBeginning<'_>,
    ) -> Result<TransitionVerdict, Fault> {
        let step = self.noting(|asked| asked.transition, |recorder| recorder.beginning(task_id, context_id, *waits_in));
        let begun = self.ask_to_begin(seen, beginning).await;
        noted(step, &begun, |verdict, _| noted_verdict(verdict, None));
        self.settled(Hook::Transition, begun)
    }

    async fn ask_to_begin(
        &mut self,
        seen: &SeenRequest,
        beginning: &SeenBeginning,
    ) -> Result<TransitionVerdict, Fault> {
        if !self.takes_part_in(Hook::Transition) {
            return Ok(TransitionVerdict::Agrees);
        }
        let extension = Arc::clone(&self.extension);
        let hooks = &extension.program.hooks;
        let entry = self
            .call(Hook::Transition, async |store, component| hooks.begin(store, component, seen, beginning).await)
            .await?;
        match entry.map_err(|message| self.failed(Hook::Transition, &message))? {
            BeginRuling::Proceed => Ok(TransitionVerdict::Agrees),
            BeginRuling::Interrupt(asked) => {
                self.interruption(Hook::Transition, asked).map(TransitionVerdict::Interrupts)
            }
            // The client sees the reason, so it becomes one line without secrets.
            BeginRuling::Veto(reason) => Ok(TransitionVerdict::Vetoes(self.extension.profile.words(&reason))),
        }
    }

    /// Asks the extension about a change of the task's state from `current` to the state in `update`. An annotation by
    /// the extension is added to `update`.
    pub(in crate::chain) async fn change(
        &mut self,
        current: TaskState,
        update: &mut TaskStatusUpdateEvent,
    ) -> Result<TransitionVerdict, Fault> {
        let step = self.noting(|asked| asked.transition, |recorder| recorder.change(current, update));
        let before = step.as_ref().map(|recorder| recorder.own(outgoing::metadata_of_status(update)));
        let changed = self.ask_to_change(current, update).await;
        noted(step, &changed, |verdict, recorder| {
            let after = recorder.own(outgoing::metadata_of_status(update));
            noted_verdict(verdict, Some(added(before.as_ref(), after)).filter(|added| !added.is_empty()))
        });
        self.settled(Hook::Transition, changed)
    }

    async fn ask_to_change(
        &mut self,
        current: TaskState,
        update: &mut TaskStatusUpdateEvent,
    ) -> Result<TransitionVerdict, Fault> {
        if !self.takes_part_in(Hook::Transition) {
            return Ok(TransitionVerdict::Agrees);
        }
        let extension = Arc::clone(&self.extension);
        let hooks = &extension.program.hooks;
        let change = transition::seen_change(current, update, &extension.descriptor);
        self.check_size(change.message.as_ref().map_or(0, String::len))?;
        let ruling =
            self.call(Hook::Transition, async |store, component| hooks.change(store, component, change).await).await?;
        let ruling = ruling.map_err(|message| self.failed(Hook::Transition, &message))?;
        let next = update.status.state;
        // Final states other than COMPLETED cannot be prevented.
        let is_final = matches!(next, TaskState::Failed | TaskState::Canceled | TaskState::Rejected);
        match ruling {
            ChangeRuling::Pass => Ok(TransitionVerdict::Agrees),
            ChangeRuling::Annotate(entries) => {
                let annotated = outgoing::annotate(update, &extension.descriptor, entries);
                annotated.map_err(|reason| self.broke(Hook::Transition, &reason))?;
                Ok(TransitionVerdict::Agrees)
            }
            ChangeRuling::Interrupt(_) | ChangeRuling::Veto(_) if is_final => {
                Err(self.broke(Hook::Transition, &format!("it objects to the change to {next}, which is final")))
            }
            ChangeRuling::Interrupt(asked) => {
                self.interruption(Hook::Transition, asked).map(TransitionVerdict::Interrupts)
            }
            ChangeRuling::Veto(reason) => Ok(TransitionVerdict::Vetoes(self.extension.profile.words(&reason))),
        }
    }

    /// Checks an extension's demand that the task has to wait.
    pub(super) fn interruption(&self, hook: Hook, asked: Wait) -> Result<Interruption, Fault> {
        let checked = outgoing::checked_entries("status.message", &self.extension.descriptor, asked.metadata, None);
        Ok(Interruption {
            by: self.extension.uri().clone(),
            state: asked.state,
            text: self.extension.profile.without_secrets(&asked.text).into_owned(),
            metadata: checked.map_err(|reason| self.broke(hook, &reason))?.into_iter().collect(),
        })
    }

    /// Lets the extension add metadata to an event. After a failure the extension takes no further part in the turn.
    pub(in crate::chain) async fn respond(&mut self, event: &mut StreamResponse) -> Result<(), Fault> {
        let step = self.noting(|asked| outgoing::is_among(event, asked.events), |recorder| recorder.event(event));
        let before = step.as_ref().map(|recorder| recorder.own(outgoing::metadata_of(event)));
        let responded = self.add_to(event).await;
        noted(step, &responded, |(), recorder| {
            StepResult::Adds(added(before.as_ref(), recorder.own(outgoing::metadata_of(event))))
        });
        self.settled(Hook::Response, responded)
    }

    /// Begins a step of the recording. `is_asked` tells whether an extension needs the step. Returns `None` and begins
    /// no step if the turn is not recorded, or if neither this extension nor its shadow needs the step.
    pub(super) fn noting(
        &self,
        is_asked: impl Fn(&Attention) -> bool,
        step: impl FnOnce(&TurnRecorder),
    ) -> Option<Arc<TurnRecorder>> {
        let recorder = self.recorder.as_ref().filter(|recorder| !self.is_out() && recorder.notes(is_asked))?;
        step(recorder);
        Some(Arc::clone(recorder))
    }

    /// Records the result in the metrics. After a failure the member takes no further part in the turn.
    pub(super) fn settled<T>(&mut self, hook: Hook, result: Result<T, Fault>) -> Result<T, Fault> {
        let result = self.counted(hook, result);
        if let Err(fault) = &result {
            self.fail(fault);
        }
        result
    }

    async fn add_to(&mut self, event: &mut StreamResponse) -> Result<(), Fault> {
        if !self.takes_part_in(Hook::Response) {
            return Ok(());
        }
        let extension = Arc::clone(&self.extension);
        let hooks = &extension.program.hooks;
        let Some(seen) = outgoing::seen_event(event, &extension.descriptor) else { return Ok(()) };
        self.check_size(seen.payload.as_ref().map_or(0, String::len))?;
        let patch =
            self.call(Hook::Response, async |store, component| hooks.respond(store, component, seen).await).await?;
        let patch = patch.map_err(|message| self.failed(Hook::Response, &message))?;
        let Some(patch) = patch else { return Ok(()) };
        let shown = match &mut self.instance {
            Slot::Running(instance) => instance.take_shown(),
            Slot::Idle | Slot::Out => None,
        };
        outgoing::apply_patch(event, &extension.descriptor, patch, shown)
            .map_err(|reason| self.broke(Hook::Response, &reason))
    }

    /// Checks that the extension may get data of `size` bytes.
    pub(crate) fn check_size(&self, size: usize) -> Result<(), Fault> {
        let limit = self.extension.profile.limits.input;
        if size > limit { Err(Fault::EventTooLarge { uri: self.extension.uri().clone(), size, limit }) } else { Ok(()) }
    }
}

/// Ends the step with `result`. Does nothing if no step was begun.
pub(super) fn noted<T, E>(
    step: Option<Arc<TurnRecorder>>,
    result: &Result<T, E>,
    passed: impl FnOnce(&T, &TurnRecorder) -> StepResult,
) where
    for<'a> StepResult: From<&'a E>,
{
    if let Some(recorder) = step {
        recorder.ended(result.as_ref().map_or_else(StepResult::from, |value| passed(value, &recorder)));
    }
}

/// Entries that are new or changed since `before`.
fn added(before: Option<&Metadata>, mut after: Metadata) -> Metadata {
    let is_new = |key: &str, value: &Json| before.and_then(|before| before.get(key)) != Some(value);
    let added: Vec<String> =
        after.iter().filter(|(key, value)| is_new(key, value)).map(|(key, _)| key.to_owned()).collect();
    after.retain_keys(|key| added.iter().any(|added| added == key));
    after
}

fn noted_verdict(verdict: &TransitionVerdict, metadata: Option<Metadata>) -> StepResult {
    match verdict {
        TransitionVerdict::Agrees => StepResult::Agrees { metadata },
        TransitionVerdict::Interrupts(Interruption { state, text, metadata, .. }) => {
            StepResult::Interrupts { state: *state, text: text.clone(), metadata: metadata.clone() }
        }
        TransitionVerdict::Vetoes(reason) => StepResult::Vetoes { reason: reason.clone() },
    }
}
