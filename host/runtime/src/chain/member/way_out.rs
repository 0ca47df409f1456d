//! The hooks that follow the agent's work: `transition` and `response`.

use std::sync::Arc;

use annex_protocol::{ContextId, Json, Metadata, StreamResponse, TaskId, TaskState, TaskStatusUpdateEvent};

use super::{Member, Slot};
use crate::bindings::{SeenBeginning, SeenRequest};
use crate::chain::outgoing;
use crate::chain::transition::{self, Interruption, TransitionVerdict};
use crate::contract::{BeginRuling, ChangeRuling, Wait};
use crate::error::Fault;
use crate::hook::Hook;
use crate::recording::StepResult;

impl Member {
    /// Notes the beginning that it is asked about next.
    pub(in crate::chain) fn notes_beginning(
        &self,
        task_id: &TaskId,
        context_id: &ContextId,
        waits_in: Option<TaskState>,
    ) {
        if self.takes_part_in(Hook::Transition) {
            self.notes(|tape| tape.beginning(task_id, context_id, waits_in));
        }
    }

    /// True when it is asked by the hook.
    fn takes_part_in(&self, hook: Hook) -> bool {
        self.extension.program.hooks.has(hook) && !self.is_out()
    }

    /// Asks whether the agent is to run.
    pub(in crate::chain) async fn begin(
        &mut self,
        seen: &SeenRequest,
        beginning: &SeenBeginning,
    ) -> Result<TransitionVerdict, Fault> {
        let begun = self.ask_to_begin(seen, beginning).await;
        self.noted(&begun, |verdict, _| noted_verdict(verdict, None));
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
            BeginRuling::Interrupt(asked) => self.interruption(asked).map(TransitionVerdict::Interrupts),
            // The reason is shown to the client, so it is made one line without secrets.
            BeginRuling::Veto(reason) => Ok(TransitionVerdict::Vetoes(self.extension.profile.words(&reason))),
        }
    }

    /// Asks about a change of the task's state from `current`. An annotation is on `update` afterwards.
    pub(in crate::chain) async fn change(
        &mut self,
        current: TaskState,
        update: &mut TaskStatusUpdateEvent,
    ) -> Result<TransitionVerdict, Fault> {
        if self.takes_part_in(Hook::Transition) {
            self.notes(|tape| tape.change(current, update));
        }
        let before = self.own_metadata_of_status(update);
        let changed = self.ask_to_change(current, update).await;
        self.noted(&changed, |verdict, tape| {
            let after = tape.own(outgoing::metadata_of_status(update));
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
        self.check_size(change.message.as_deref())?;
        let ruling =
            self.call(Hook::Transition, async |store, component| hooks.change(store, component, change).await).await?;
        let ruling = ruling.map_err(|message| self.failed(Hook::Transition, &message))?;
        let next = update.status.state;
        // Ends that are bad for the client cannot be held up.
        let is_final = matches!(next, TaskState::Failed | TaskState::Canceled | TaskState::Rejected);
        match ruling {
            ChangeRuling::Pass => Ok(TransitionVerdict::Agrees),
            ChangeRuling::Annotate(entries) => {
                let annotated = outgoing::annotate(update, &extension.descriptor, entries);
                annotated.map_err(|reason| self.broke(Hook::Transition, &reason))?;
                Ok(TransitionVerdict::Agrees)
            }
            ChangeRuling::Interrupt(_) | ChangeRuling::Veto(_) if is_final => {
                Err(self.broke(Hook::Transition, &format!("it stands against the change to {next}, which is final")))
            }
            ChangeRuling::Interrupt(asked) => self.interruption(asked).map(TransitionVerdict::Interrupts),
            ChangeRuling::Veto(reason) => Ok(TransitionVerdict::Vetoes(self.extension.profile.words(&reason))),
        }
    }

    fn interruption(&self, asked: Wait) -> Result<Interruption, Fault> {
        let checked = outgoing::checked_entries("status.message", &self.extension.descriptor, asked.metadata, None);
        Ok(Interruption {
            by: self.extension.uri().clone(),
            state: asked.state,
            text: self.extension.profile.without_secrets(&asked.text).into_owned(),
            metadata: checked.map_err(|reason| self.broke(Hook::Transition, &reason))?.into_iter().collect(),
        })
    }

    /// Lets it add its metadata to an event. After a failure it takes no further part in the turn.
    pub(in crate::chain) async fn respond(&mut self, event: &mut StreamResponse) -> Result<(), Fault> {
        let before = self.notes_event(event);
        let responded = self.add_to(event).await;
        self.noted(&responded, |(), tape| {
            StepResult::Adds(added(before.as_ref(), tape.own(outgoing::metadata_of(event))))
        });
        self.settled(Hook::Response, responded)
    }

    /// Begins the step of an event that it is shown. Returns its metadata as it is, where it is noted.
    fn notes_event(&self, event: &StreamResponse) -> Option<Metadata> {
        let tape = self.tape.as_ref()?;
        let is_shown = self.takes_part_in(Hook::Response) && outgoing::is_shown(event, &self.extension.descriptor);
        is_shown.then(|| {
            tape.event(event);
            tape.own(outgoing::metadata_of(event))
        })
    }

    fn own_metadata_of_status(&self, update: &TaskStatusUpdateEvent) -> Option<Metadata> {
        self.tape.as_ref().map(|tape| tape.own(outgoing::metadata_of_status(update)))
    }

    /// Counts the call; after a failure the member takes no further part in the turn.
    fn settled<T>(&mut self, hook: Hook, result: Result<T, Fault>) -> Result<T, Fault> {
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
        self.check_size(seen.payload.as_deref())?;
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

    pub(crate) fn check_size(&self, payload: Option<&str>) -> Result<(), Fault> {
        let size = payload.map_or(0, str::len);
        let limit = self.extension.profile.limits.input;
        if size > limit { Err(Fault::EventTooLarge { uri: self.extension.uri().clone(), size, limit }) } else { Ok(()) }
    }
}

/// The entries that are new or others than before.
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
