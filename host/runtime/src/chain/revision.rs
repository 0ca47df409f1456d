//! Runs the hook `output`, by which extensions replace, hold back or refuse the content of an event before it goes out.

use annex_protocol::{ArtifactId, StreamResponse};

use super::{Chain, Member, log_skipped, note_veto};
use crate::chain::output::{HeldChunks, OutputOutcome, Revision, completed};
use crate::chain::participation::PartInTurn;
use crate::error::Fault;
use crate::hook::Hook;

impl Chain {
    /// True if the hook `output` of an extension runs or is recorded for outgoing events.
    #[must_use]
    pub fn revises_output(&self) -> bool {
        self.wanted.has(Hook::Output)
    }

    /// True if an extension may change what the client sees of the agent's answer.
    #[must_use]
    pub fn rewrites_answers(&self) -> bool {
        // A recording alone makes `revises_output` true.
        self.revises_output() && self.members.iter().any(|member| member.extension.hook_set.has(Hook::Output))
    }

    /// Lets each extension revise the content of an outgoing event, in reverse order. An optional extension that fails
    /// lets this event and later events through unchanged.
    ///
    /// # Errors
    /// A required extension fails. Nothing of the content may go out then, and no later content of the turn.
    pub async fn run_output_hooks(&mut self, event: StreamResponse) -> Result<OutputOutcome, Fault> {
        if !self.revises_output() {
            return Ok(OutputOutcome::GoesOut(event));
        }
        let all = self.members.len();
        Box::pin(self.ask_to_revise(event, all)).await
    }

    /// Lets an extension that holds back chunks of an artifact revise them as the last chunk. Called before the task
    /// settles, until it returns `None`.
    ///
    /// # Errors
    /// As for [`run_output_hooks`](Self::run_output_hooks).
    pub async fn run_output_hooks_on_held(&mut self) -> Result<Option<OutputOutcome>, Fault> {
        let held = |(place, member): (usize, &Member)| Some((place, member.held.end()?));
        let held = self.members.iter().enumerate().rev().find_map(held);
        let Some((place, end)) = held else { return Ok(None) };
        // The extensions before this one have seen the chunks.
        Box::pin(self.ask_to_revise(StreamResponse::ArtifactUpdate(end), place + 1)).await.map(Some)
    }

    /// True if an extension holds back chunks of the artifact.
    #[must_use]
    pub fn holds_back(&self, artifact: &ArtifactId) -> bool {
        self.revises_output() && self.members.iter().any(|member| member.held.has(artifact))
    }

    /// Drops all held content and ends the hook `output` in this turn. Called when the turn fails, because
    /// only the host's own text goes out from then on.
    pub fn end_output(&mut self) {
        self.wanted.remove(Hook::Output);
        for member in &mut self.members {
            member.held = HeldChunks::default();
        }
    }

    /// Asks the first `count` members in reverse order.
    async fn ask_to_revise(&mut self, event: StreamResponse, count: usize) -> Result<OutputOutcome, Fault> {
        let revised = self.revised(event, count).await;
        if matches!(revised, Err(_) | Ok(OutputOutcome::Refused { .. })) {
            self.end_output();
        }
        revised
    }

    async fn revised(&mut self, mut event: StreamResponse, count: usize) -> Result<OutputOutcome, Fault> {
        let (mut is_revised, mut skips) = (false, false);
        let mut stopped = None;
        // In reverse order as for `response`, so that the first extension in the config has the last word.
        for member in self.members.iter_mut().take(count).rev() {
            match member.revise(&mut event).await {
                Ok(Revision::Leaves) => {}
                Ok(Revision::Revises) => is_revised = true,
                Ok(Revision::Holds) => stopped = Some(OutputOutcome::Withheld),
                Ok(Revision::Refuses(reason)) => {
                    let by = member.extension.uri().clone();
                    note_veto(&member.extension);
                    member.part = PartInTurn::Refused;
                    stopped = Some(OutputOutcome::Refused { by, reason });
                }
                Err(fault) if member.extension.may_be_skipped() => {
                    log_skipped(&member.extension, &fault);
                    skips = true;
                }
                Err(fault) => return Err(fault),
            }
            if stopped.is_some() {
                break;
            }
        }
        if skips {
            self.leave_out_dependents()?;
        }
        Ok(match stopped {
            Some(stopped) => stopped,
            None if is_revised => completed(event),
            None => OutputOutcome::GoesOut(event),
        })
    }
}
