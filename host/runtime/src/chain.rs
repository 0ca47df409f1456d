//! The active extensions of one turn, called in order on the way in and in reverse order on the way out.

use std::sync::Arc;

use annex_protocol::{
    ContextId, ExtensionUri, JsonObject, Message, Metadata, Part, StreamResponse, TaskId, TaskState,
    TaskStatusUpdateEvent,
};
use uuid::Uuid;

use crate::bindings::SeenRequest;
use crate::chain::transition::{BeginOutcome, Begun, ChangeOutcome, TransitionVerdict};
use crate::contract::Request;
use crate::error::{Fault, HookError};
use crate::extension::Extension;
use crate::hook::Hook;
use crate::recording::tape::Head;
use crate::turn_view::TurnView;

pub(crate) mod client_call;
mod member;
pub(crate) mod method_call;
pub(crate) mod outgoing;
pub(crate) mod owned_metadata;
pub(crate) mod replay;
pub(crate) mod rewriting;
pub(crate) mod transition;

pub(crate) use member::Member;
pub(crate) use method_call::{MethodAnswer, MethodCall};

/// The request as the hooks may see it.
pub struct TurnRequest<'a> {
    /// The A2A operation, or the method of an extension.
    pub operation: &'a str,
    /// The conversation, when it is known.
    pub context_id: Option<&'a ContextId>,
    /// The task that the message continues.
    pub task_id: Option<&'a TaskId>,
    /// Every URI that the client asked for.
    pub requested: &'a [ExtensionUri],
    /// The message; that of a method is empty.
    pub message: &'a Message,
    /// `metadata` of the request.
    pub request: &'a Metadata,
    /// The turn, each part of it for extensions with the grant.
    pub view: Arc<dyn TurnView>,
    /// True when the message was taken before, and its task is taken up again. Then only `activation` runs on the way
    /// in.
    pub resumed: bool,
}

/// The extensions that are active in one turn. Dropping it frees their instances.
///
/// The futures that run them are on the heap, so that a turn without extensions stays small when it is moved.
#[derive(Default)]
pub struct Chain {
    members: Vec<Member>,
    /// The request as its `transition` hooks see it when the turn begins.
    seen: Option<SeenRequest>,
}

/// The outcome of the hooks of the way in.
#[derive(Default)]
pub struct RequestOutcome {
    /// The extensions that take part, for the way out.
    pub chain: Chain,
    /// The state delta of all of them; a later one wins a key.
    pub delta: JsonObject,
    /// The message's parts, when they were rewritten.
    pub parts: Option<Vec<Part>>,
}

impl Chain {
    /// Runs the hooks of the way in: each extension in order, `activation`, `message`, then `state`. One that fails and
    /// may be skipped leaves nothing behind.
    ///
    /// # Errors
    /// When an extension refuses the request, or fails and may not be skipped. Nothing has happened then.
    pub async fn run_request_hooks(
        extensions: &[Arc<Extension>],
        request: &TurnRequest<'_>,
    ) -> Result<RequestOutcome, HookError> {
        if extensions.is_empty() {
            Ok(RequestOutcome::default())
        } else {
            Box::pin(Self::enter(extensions, request)).await
        }
    }

    async fn enter(extensions: &[Arc<Extension>], request: &TurnRequest<'_>) -> Result<RequestOutcome, HookError> {
        let mut outcome = RequestOutcome::default();
        let seen = request.seen();
        for extension in extensions {
            if !outcome.chain.has_all(&extension.descriptor.depends_on) {
                Self::check_optional(extension)?;
                continue;
            }
            // Each extension checks the message as those before it have rewritten it.
            let parts = outcome.parts.as_deref().unwrap_or(&request.message.parts);
            match Member::enter(extension, request, &seen, parts).await {
                Ok(Some((member, changes))) => {
                    outcome.delta.merge(changes.delta);
                    outcome.parts = changes.parts.or(outcome.parts);
                    outcome.chain.members.push(member);
                }
                Ok(None) => {}
                // Its delta and its parts went with it, so one that is skipped leaves no trace in the request.
                Err(HookError::Fault(fault)) if extension.may_be_skipped() => log_skipped(extension, &fault),
                Err(error) => return Err(error),
            }
        }
        outcome.chain.seen = Some(seen);
        Ok(outcome)
    }

    /// Asks the extensions in order whether the agent is to run; the first that is against it decides.
    ///
    /// # Errors
    /// When an extension fails and may not be skipped.
    pub async fn run_beginning_hooks(
        &mut self,
        task_id: &TaskId,
        context_id: &ContextId,
        waits_in: Option<TaskState>,
        resumed: bool,
    ) -> Result<BeginOutcome, Fault> {
        // Taken, because a turn begins once: the agent runs without a copy of the request beside it.
        let Some(seen) = self.seen.take() else { return Ok(BeginOutcome::Proceed) };
        if !self.watches_transitions() {
            return Ok(BeginOutcome::Proceed);
        }
        Box::pin(self.ask_to_begin(&seen, &Begun { task_id, context_id, waits_in, resumed })).await
    }

    async fn ask_to_begin(&mut self, seen: &SeenRequest, begun: &Begun<'_>) -> Result<BeginOutcome, Fault> {
        let mut outcome = BeginOutcome::Proceed;
        let beginning = begun.seen();
        for member in &mut self.members {
            match Self::or_skipped(member.begin(seen, &beginning, begun).await, member)? {
                TransitionVerdict::Agrees => {}
                // The extensions after it are not asked about a beginning that does not come about.
                TransitionVerdict::Interrupts(interruption) => {
                    outcome = BeginOutcome::Interrupted(interruption);
                    break;
                }
                TransitionVerdict::Vetoes(reason) => {
                    note_veto(&member.extension);
                    outcome = BeginOutcome::Vetoed(reason);
                    break;
                }
            }
        }
        // One that was skipped above may leave others without their dependency.
        self.leave_out_dependents()?;
        Ok(outcome)
    }

    /// Asks the extensions in order about a change of the task's state. `update` is the change, and what they made of
    /// it afterwards: annotated, or another one.
    ///
    /// # Errors
    /// When an extension fails and may not be skipped; the change must not happen then.
    pub async fn run_transition_hooks(
        &mut self,
        current: TaskState,
        update: &mut TaskStatusUpdateEvent,
    ) -> Result<ChangeOutcome, Fault> {
        if self.watches_transitions() {
            Box::pin(self.ask_to_change(current, update)).await
        } else {
            Ok(ChangeOutcome::Passed)
        }
    }

    async fn ask_to_change(
        &mut self,
        current: TaskState,
        update: &mut TaskStatusUpdateEvent,
    ) -> Result<ChangeOutcome, Fault> {
        let mut outcome = ChangeOutcome::Passed;
        for member in &mut self.members {
            match Self::or_skipped(member.change(current, update).await, member)? {
                TransitionVerdict::Agrees => {}
                TransitionVerdict::Interrupts(interruption) => {
                    outcome = ChangeOutcome::Interrupted(interruption.by.clone());
                    // The extensions after this one are asked about the new state. None is asked twice about a change,
                    // so that no two of them can make the host loop.
                    interruption.place(update);
                }
                TransitionVerdict::Vetoes(reason) => {
                    note_veto(&member.extension);
                    outcome = ChangeOutcome::Vetoed;
                    // FAILED is final, so those that come after can annotate the change and not hold it up.
                    update.status.state = TaskState::Failed;
                    let parts = vec![Part::text(reason)];
                    let context = update.context_id.clone();
                    let task = update.task_id.clone();
                    update.status.message = Some(Message::agent(context, Some(task), parts));
                }
            }
        }
        self.leave_out_dependents()?;
        Ok(outcome)
    }

    /// True when any extension has the hook `transition`.
    fn watches_transitions(&self) -> bool {
        self.members.iter().any(|member| member.extension.program.hooks.has(Hook::Transition))
    }

    fn or_skipped(verdict: Result<TransitionVerdict, Fault>, member: &Member) -> Result<TransitionVerdict, Fault> {
        match verdict {
            Err(fault) if member.extension.may_be_skipped() => {
                log_skipped(&member.extension, &fault);
                Ok(TransitionVerdict::Agrees)
            }
            other => other,
        }
    }

    fn has_all(&self, uris: &[ExtensionUri]) -> bool {
        uris.iter().all(|uri| self.active().any(|active| active == uri))
    }

    /// An extension whose dependency stays inactive or is skipped stays inactive too, unless the operator requires it.
    fn check_optional(extension: &Extension) -> Result<(), Fault> {
        if !extension.is_required() {
            return Ok(());
        }
        let reason = "it is required, and an extension that it depends on stays inactive".to_owned();
        let error_id = Uuid::new_v4();
        Err(Fault::BrokeContract { uri: extension.uri().clone(), error_id, hook: Hook::Activation, reason })
    }

    /// The URIs that are active, for the echo. One that failed on the way out is no longer among them.
    pub fn active(&self) -> impl Iterator<Item = &ExtensionUri> {
        self.members.iter().filter(|member| !member.is_out()).map(|member| member.extension.uri())
    }

    /// The extensions that are active.
    pub fn extensions(&self) -> impl Iterator<Item = &Arc<Extension>> {
        self.members.iter().map(|member| &member.extension)
    }

    /// Lets each extension add its metadata to an outgoing event, in reverse order. One that fails and may be skipped
    /// adds nothing, to this event and to all later ones.
    ///
    /// # Errors
    /// When an extension fails or writes what is not its own, and may not be skipped; the event must not be sent then.
    pub async fn run_response_hooks(&mut self, event: &mut StreamResponse) -> Result<(), Fault> {
        if self.members.is_empty() { Ok(()) } else { Box::pin(self.ask_to_respond(event)).await }
    }

    async fn ask_to_respond(&mut self, event: &mut StreamResponse) -> Result<(), Fault> {
        let mut skips = false;
        // In reverse, so that the first to see the request has the last word on what goes out.
        for member in self.members.iter_mut().rev() {
            match member.respond(event).await {
                Err(fault) if member.extension.may_be_skipped() => {
                    log_skipped(&member.extension, &fault);
                    skips = true;
                }
                other => other?,
            }
        }
        if skips { self.leave_out_dependents() } else { Ok(()) }
    }

    /// Leaves out the extensions that depend on a skipped one, and those that depend on them in turn.
    fn leave_out_dependents(&mut self) -> Result<(), Fault> {
        loop {
            // Copied, because one of the members is changed below.
            let active: Vec<ExtensionUri> = self.active().cloned().collect();
            let lacks =
                |member: &&mut Member| member.extension.descriptor.depends_on.iter().any(|uri| !active.contains(uri));
            let Some(dependent) = self.members.iter_mut().filter(|member| !member.is_out()).find(lacks) else {
                return Ok(());
            };
            Self::check_optional(&dependent.extension)?;
            // Others may depend on the one that leaves, so the search begins again.
            dependent.leave();
        }
    }
}

/// A quarantine has its own lines in the log, when it begins and when it ends.
fn log_skipped(extension: &Extension, fault: &Fault) {
    let uri = extension.uri();
    match fault {
        Fault::Quarantined { .. } => tracing::debug!(extension = %uri, "skipped: {}", fault.text()),
        _ => {
            let error_id = fault.error_id().map(tracing::field::display);
            let ids = annex_telemetry::ids();
            let (tenant, context, task) = ids.all();
            tracing::warn!(extension = %uri, error_id, tenant, context, task, "skipped in one turn: {}", fault.text());
        }
    }
}

/// The request is not answered as it was meant to be, which is the extension's decision.
fn note_veto(extension: &Extension) {
    annex_telemetry::with(|request| {
        request.refuse("veto");
        request.blame(extension.uri().as_str());
    });
}

impl<'a> TurnRequest<'a> {
    /// The part of it that a recording begins with.
    pub(crate) fn head(&self) -> Head<'a> {
        let Self { operation, context_id, task_id, requested, resumed, .. } = *self;
        Head { operation, context_id, task_id, requested, resumed }
    }

    /// The request as guests see it.
    pub(crate) fn seen(&self) -> SeenRequest {
        let request = Request {
            operation: self.operation.to_owned(),
            context_id: self.context_id.map(ToString::to_string),
            task_id: self.task_id.map(ToString::to_string),
            requested: self.requested.iter().map(ToString::to_string).collect(),
        };
        request.into()
    }
}
