//! The chain of active extensions in a turn, called in order on the way in and in reverse order on the way out.

use std::sync::Arc;

use annex_protocol::{
    A2aError, ContextId, ExtensionUri, Json, JsonObject, Message, Metadata, Part, StreamResponse, TaskId, TaskState,
    TaskStatusUpdateEvent,
};
use uuid::Uuid;

use crate::bindings::SeenRequest;
use crate::chain::participation::PartInTurn;
use crate::chain::reply::ReadyAnswer;
use crate::chain::transition::{BeginOutcome, ChangeOutcome, TransitionVerdict, TurnBeginning};
use crate::contract::Request;
use crate::error::{Fault, HookError};
use crate::extension::Extension;
use crate::hook::{Hook, HookSet};
use crate::recording::recorder::Head;
use crate::turn_view::TurnView;

pub(crate) mod card_read;
pub(crate) mod client_call;
pub(crate) mod entry_decision;
pub(crate) mod interruption;
mod member;
pub(crate) mod method_call;
pub(crate) mod model_parameters;
pub(crate) mod outgoing;
pub(crate) mod output;
pub(crate) mod owned_metadata;
pub(crate) mod participation;
mod parts;
pub(crate) mod read_call;
pub(crate) mod replay;
pub(crate) mod reply;
mod revision;
pub(crate) mod rewriting;
pub(crate) mod steering;
mod steps;
pub(crate) mod task_to_show;
pub(crate) mod transition;

pub(crate) use member::Member;
pub(crate) use method_call::{MethodAnswer, MethodCall};

/// Maximum length of a refusal in the log, in bytes.
const MAX_REFUSAL: usize = 4 << 10;

/// The request of a turn, as input for hooks.
pub struct TurnRequest<'a> {
    /// The A2A operation, or the method of an extension.
    pub operation: &'a str,
    /// Id of the conversation. `None` for a method call.
    pub context_id: Option<&'a ContextId>,
    /// Id of the task that the message continues. `None` if the message begins a new task.
    pub task_id: Option<&'a TaskId>,
    /// Every extension URI that the client requested.
    pub requested: &'a [ExtensionUri],
    /// The message; empty for a method call.
    pub message: &'a Message,
    /// `metadata` of the request.
    pub request: &'a Metadata,
    /// The data and services of the turn. The grants of an extension decide which of these data and services it can
    /// access.
    pub view: Arc<dyn TurnView>,
    /// True if an earlier turn has accepted the message, and this turn resumes its task. On the way in, a resumed turn
    /// runs only the hook `activation`.
    pub resumed: bool,
}

/// The active extensions of a turn. Dropping the chain frees their instances.
///
/// The futures that run hooks are boxed, so that the future of a turn without extensions stays small.
#[derive(Default)]
pub struct Chain {
    members: Vec<Member>,
    /// The extensions that the request activated and that are no members.
    absent: Vec<(Arc<Extension>, PartInTurn)>,
    /// The hooks that any member takes part in. A hook that is not among them costs the turn one bit test.
    wanted: HookSet,
    /// The request, kept for the hooks `transition` and `reply` at the beginning of the turn.
    seen: Option<SeenRequest>,
}

/// The result of the hooks on the way in.
#[derive(Default)]
pub struct RequestOutcome {
    /// The active extensions, for the way out.
    pub chain: Chain,
    /// The merged state deltas. The last extension that writes a key wins.
    pub delta: JsonObject,
    /// The parts of the message, if they were rewritten.
    pub parts: Option<Vec<Part>>,
}

impl Chain {
    /// Runs the hooks of the way in: for each extension in order, `activation`, `message`, then `state`. An optional
    /// extension that fails leaves no changes behind.
    ///
    /// # Errors
    /// An extension refuses the request, or a required extension fails. Nothing has changed then.
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
                outcome.chain.leave_out(extension, PartInTurn::Skipped);
                continue;
            }
            // Each extension checks the message as rewritten by the extensions before it.
            let parts = outcome.parts.as_deref().unwrap_or(&request.message.parts);
            match Member::enter(extension, request, &seen, parts).await {
                Ok(Some((member, changes))) => {
                    outcome.delta.merge(changes.delta);
                    outcome.parts = changes.parts.or(outcome.parts);
                    outcome.chain.wanted.extend(member.hooks());
                    outcome.chain.members.push(member);
                }
                Ok(None) => outcome.chain.leave_out(extension, PartInTurn::Skipped),
                // The delta and parts were dropped with the error, so a skipped extension leaves no changes.
                Err(HookError::Fault(fault)) if extension.may_be_skipped() => {
                    log_skipped(extension, &fault);
                    outcome.chain.leave_out(extension, PartInTurn::Failed);
                }
                Err(error) => return Err(error),
            }
        }
        outcome.chain.seen = Some(seen);
        Ok(outcome)
    }

    /// Notes that an extension of the request does not become a member.
    fn leave_out(&mut self, extension: &Arc<Extension>, part: PartInTurn) {
        self.absent.push((Arc::clone(extension), part));
    }

    /// Asks each extension in order whether the agent may run. The first interruption or veto decides, and later
    /// extensions are not asked.
    ///
    /// # Errors
    /// A required extension fails.
    pub async fn run_beginning_hooks(
        &mut self,
        task_id: &TaskId,
        context_id: &ContextId,
        waits_in: Option<TaskState>,
        resumed: bool,
    ) -> Result<BeginOutcome, Fault> {
        // Taken, because a turn begins once, and the request should not be kept while the agent runs.
        let Some(seen) = self.seen.take() else { return Ok(BeginOutcome::Proceed) };
        let mut outcome = BeginOutcome::Proceed;
        if self.wanted.has(Hook::Transition) {
            let begun = TurnBeginning { task_id, context_id, waits_in, resumed };
            outcome = Box::pin(self.ask_to_begin(&seen, &begun)).await?;
        }
        // The hook `reply` runs next.
        if self.wanted.has(Hook::Reply) {
            self.seen = Some(seen);
        }
        Ok(outcome)
    }

    async fn ask_to_begin(&mut self, seen: &SeenRequest, begun: &TurnBeginning<'_>) -> Result<BeginOutcome, Fault> {
        let mut outcome = BeginOutcome::Proceed;
        let beginning = begun.seen();
        for member in &mut self.members {
            match Self::or_skipped(member.begin(seen, &beginning, begun).await, member)? {
                TransitionVerdict::Agrees => {}
                // Extensions after the objecting one are not asked.
                TransitionVerdict::Interrupts(interruption) => {
                    member.part = PartInTurn::Interrupted;
                    outcome = BeginOutcome::Interrupted(interruption);
                    break;
                }
                TransitionVerdict::Vetoes(reason) => {
                    note_veto(&member.extension);
                    member.part = PartInTurn::Refused;
                    outcome = BeginOutcome::Vetoed(reason);
                    break;
                }
            }
        }
        // A skipped extension may leave others without their dependency.
        self.leave_out_dependents()?;
        Ok(outcome)
    }

    /// Asks each extension in order for an answer in place of the agent. The first answer counts, and later extensions
    /// are not asked. Called once per turn, after the hooks at its beginning.
    ///
    /// # Errors
    /// A required extension fails, or the message is too large for an extension.
    pub async fn run_reply_hooks(&mut self, message: &Message) -> Result<Option<ReadyAnswer>, HookError> {
        if self.wanted.has(Hook::Reply) { Box::pin(self.ask_to_reply(message)).await } else { Ok(None) }
    }

    async fn ask_to_reply(&mut self, message: &Message) -> Result<Option<ReadyAnswer>, HookError> {
        // Taken, because the request should not be kept while the agent runs.
        let Some(seen) = self.seen.take() else { return Ok(None) };
        let mut answer = None;
        for member in &mut self.members {
            match member.reply(&seen, message).await {
                Ok(None) => {}
                Ok(Some(ready)) => {
                    member.part = PartInTurn::Answered;
                    answer = Some(ready);
                    break;
                }
                Err(HookError::Fault(fault)) if member.extension.may_be_skipped() => {
                    log_skipped(&member.extension, &fault);
                }
                Err(error) => return Err(error),
            }
        }
        // A skipped extension may leave others without their dependency.
        self.leave_out_dependents()?;
        Ok(answer)
    }

    /// Asks each extension in order about a change of the task's state. An extension can annotate, interrupt or veto
    /// the change. `update` has the result afterwards: the change with the annotations, or the state that replaces the
    /// change.
    ///
    /// # Errors
    /// A required extension fails. The change must not happen then.
    pub async fn run_transition_hooks(
        &mut self,
        current: TaskState,
        update: &mut TaskStatusUpdateEvent,
    ) -> Result<ChangeOutcome, Fault> {
        if self.wanted.has(Hook::Transition) {
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
                    member.part = PartInTurn::Interrupted;
                    outcome = ChangeOutcome::Interrupted(interruption.by.clone());
                    // The extensions after this one are asked about the new state. No extension is asked twice about
                    // a change, so the host cannot loop.
                    interruption.place(update);
                }
                TransitionVerdict::Vetoes(reason) => {
                    note_veto(&member.extension);
                    member.part = PartInTurn::Refused;
                    outcome = ChangeOutcome::Vetoed;
                    // FAILED is final. The extensions after this one can annotate the change, not stop it.
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

    /// Checks that an extension may stay inactive because its dependency is inactive or was skipped.
    ///
    /// # Errors
    /// The extension is required.
    fn check_optional(extension: &Extension) -> Result<(), Fault> {
        if !extension.is_required() {
            return Ok(());
        }
        let reason = "it is required, and an extension that it depends on stays inactive".to_owned();
        let error_id = Uuid::new_v4();
        Err(Fault::BrokeContract { uri: extension.uri().clone(), error_id, hook: Hook::Activation, reason })
    }

    /// URIs of the active extensions, for the response header. An extension that failed on the way out is not
    /// included.
    pub fn active(&self) -> impl Iterator<Item = &ExtensionUri> {
        self.members.iter().filter(|member| !member.is_out()).map(|member| member.extension.uri())
    }

    /// The extensions that were active at the beginning of the turn.
    pub fn extensions(&self) -> impl Iterator<Item = &Arc<Extension>> {
        self.members.iter().map(|member| &member.extension)
    }

    /// Lets each extension add metadata to an outgoing event, in reverse order. An optional extension that fails adds
    /// nothing to this event and to later events.
    ///
    /// # Errors
    /// A required extension fails, or writes a metadata key of another owner. The event must not be sent then.
    pub async fn run_response_hooks(&mut self, event: &mut StreamResponse) -> Result<(), Fault> {
        if self.wanted.has(Hook::Response) { Box::pin(self.ask_to_respond(event)).await } else { Ok(()) }
    }

    async fn ask_to_respond(&mut self, event: &mut StreamResponse) -> Result<(), Fault> {
        let mut skips = false;
        // In reverse order, so that the first extension to see the request has the last word on the answer.
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

    /// Takes the entries of the task's metadata that extensions have set and that no status has contained yet.
    pub fn take_task_metadata(&mut self) -> Vec<(String, Json)> {
        // Entries of an extension that has failed were dropped with its instance.
        self.members.iter_mut().filter_map(Member::host).flat_map(|host| host.task_entries.take()).collect()
    }

    /// Deactivates extensions that depend on a skipped one, directly or indirectly.
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
            // Other extensions may depend on this one, so the search starts again.
            dependent.leave();
        }
    }
}

/// Logs that an extension was skipped. A quarantine and a revocation have log lines for their beginning and end.
fn log_skipped(extension: &Extension, fault: &Fault) {
    let uri = extension.uri();
    match fault {
        Fault::Quarantined { .. } | Fault::Revoked { .. } => {
            tracing::debug!(extension = %uri, "skipped: {}", fault.text())
        }
        _ => {
            let error_id = fault.error_id().map(tracing::field::display);
            let ids = annex_telemetry::ids();
            let (tenant, context, task) = ids.all();
            tracing::warn!(extension = %uri, error_id, tenant, context, task, "skipped in one turn: {}", fault.text());
        }
    }
}

/// Logs that an extension takes no part in a read, because it refuses the request.
fn log_left_out(extension: &Extension, refusal: &A2aError) {
    // The text may be the guest's.
    let refusal = annex_text::line_within(&refusal.to_string(), MAX_REFUSAL);
    tracing::debug!(extension = %extension.uri(), "takes no part in a read: {refusal}");
}

/// Records in the request's log line that an extension vetoed the request or refused the answer.
fn note_veto(extension: &Extension) {
    annex_telemetry::with(|request| {
        request.refuse("veto");
        request.blame(extension.uri().as_str());
    });
}

impl<'a> TurnRequest<'a> {
    /// The facts about the request that the recording of its turn begins with.
    pub(crate) fn head(&self) -> Head<'a> {
        let Self { operation, context_id, task_id, requested, resumed, .. } = *self;
        Head { operation, context_id, task_id, requested, resumed }
    }

    /// Converts the request for the guests.
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
