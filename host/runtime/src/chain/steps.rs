//! Runs the hook `steering`, by which extensions steer the calls of the model and of tools.

use annex_protocol::ExtensionUri;

use super::{Chain, Member, log_skipped, note_veto};
use crate::chain::interruption::Interruption;
use crate::chain::participation::PartInTurn;
use crate::chain::steering::{
    MadeToolCall, ModelOutcome, PlannedModelCall, PlannedToolCall, Steered, SteeringVerdict, StepVerdict, ToolOutcome,
};
use crate::error::Fault;
use crate::hook::Hook;

impl Chain {
    /// True if the hook `steering` of an extension runs or is recorded. Without it, the agent takes its steps unasked.
    #[must_use]
    pub fn steers_steps(&self) -> bool {
        // Each recorded turn has the hook among the wanted ones.
        self.wanted.has(Hook::Steering) && self.members.iter().any(Member::notices_steps)
    }

    /// Asks each extension in order about a call of the model. An extension sees the changes of the extensions before
    /// it. The first refusal decides, and later extensions are not asked.
    ///
    /// # Errors
    /// A required extension fails. The call must not be made then.
    pub async fn run_model_hooks(&mut self, call: &mut PlannedModelCall) -> Result<Steered<ModelOutcome>, Fault> {
        let mut remarks = Vec::new();
        let mut outcome = ModelOutcome::Made;
        let mut skips = false;
        for member in &mut self.members {
            let verdict = or_passes(member.before_model(call).await, member, &mut skips)?;
            remarks.extend(verdict.remark);
            match verdict.verdict {
                SteeringVerdict::Refuses { reason } => {
                    note_veto(&member.extension);
                    member.part = PartInTurn::Refused;
                    outcome = ModelOutcome::Refused { by: member.extension.uri().clone(), reason };
                    break;
                }
                verdict => call.follow(verdict),
            }
        }
        self.without_dependents(skips)?;
        Ok(Steered { outcome, remarks })
    }

    /// Asks each extension in order about a call of a tool. An extension sees the changes of the extensions before it.
    /// The first extension that denies the call or lets the task wait decides, and later extensions are not asked.
    /// The call is denied if an extension of `held_by`, for which the call has waited, does not decide.
    ///
    /// # Errors
    /// A required extension fails. The call must not be made then.
    pub async fn run_tool_hooks(
        &mut self,
        call: &mut PlannedToolCall,
        held_by: &[ExtensionUri],
    ) -> Result<Steered<ToolOutcome>, Fault> {
        let mut remarks = Vec::new();
        let mut outcome = ToolOutcome::Made;
        let mut skips = false;
        let mut undecided: Vec<&ExtensionUri> = held_by.iter().collect();
        for member in &mut self.members {
            let verdict = or_passes(member.before_tool(call).await, member, &mut skips)?;
            if verdict.is_own {
                undecided.retain(|uri| *uri != member.extension.uri());
            }
            remarks.extend(verdict.remark);
            match verdict.verdict {
                SteeringVerdict::ChangesArguments(arguments) => call.arguments = arguments,
                SteeringVerdict::Denies { text } => {
                    member.part = PartInTurn::Refused;
                    outcome = ToolOutcome::Denied(text);
                    break;
                }
                SteeringVerdict::Waits { state, text, metadata } => {
                    member.part = PartInTurn::Interrupted;
                    let by = member.extension.uri().clone();
                    outcome = ToolOutcome::Waits(Interruption { by, state, text, metadata });
                    break;
                }
                _ => {}
            }
        }
        self.without_dependents(skips)?;
        let is_made = matches!(outcome, ToolOutcome::Made);
        if let Some(by) = undecided.first().filter(|_| is_made) {
            let text = format!("the call waited for the extension {by}, which did not decide, so it was not made");
            outcome = ToolOutcome::Denied(text);
        }
        Ok(Steered { outcome, remarks })
    }

    /// Lets each extension in order replace the result of a tool, which the model gets afterwards.
    ///
    /// # Errors
    /// A required extension fails. The model must not get the result then.
    pub async fn run_result_hooks(&mut self, made: &mut MadeToolCall) -> Result<Steered<()>, Fault> {
        let mut remarks = Vec::new();
        let mut skips = false;
        for member in &mut self.members {
            let verdict = or_passes(member.after_tool(made).await, member, &mut skips)?;
            remarks.extend(verdict.remark);
            if let SteeringVerdict::ReplacesResult(output) = verdict.verdict {
                made.output = output;
            }
        }
        self.without_dependents(skips)?;
        Ok(Steered { outcome: (), remarks })
    }

    /// A skipped extension may leave others without their dependency.
    fn without_dependents(&mut self, skips: bool) -> Result<(), Fault> {
        if skips { self.leave_out_dependents() } else { Ok(()) }
    }
}

/// An optional extension that fails lets the step pass.
fn or_passes(verdict: Result<StepVerdict, Fault>, member: &Member, skips: &mut bool) -> Result<StepVerdict, Fault> {
    match verdict {
        Err(fault) if member.extension.may_be_skipped() => {
            log_skipped(&member.extension, &fault);
            *skips = true;
            Ok(StepVerdict::passes())
        }
        other => other,
    }
}
