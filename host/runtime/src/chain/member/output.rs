//! The hook `output`.

use std::sync::Arc;

use annex_protocol::{Part, StreamResponse};
use annex_text::cut;

use super::Member;
use super::way_out::noted;
use crate::chain::output::{self, Revision};
use crate::chain::{outgoing, rewriting};
use crate::contract::{LogLevel, OutputVerdict, Replacement};
use crate::error::Fault;
use crate::extension::Extension;
use crate::hook::Hook;
use crate::recording::step::StepResult;

/// Maximum length of the reason why metadata of others is left out, in bytes. A longer reason is cut.
const MAX_DROP_REASON: usize = 256;

impl Member {
    /// Lets the extension revise the content of an event. Chunks that the extension has held back become part of the
    /// event, also if the extension takes no further part in the turn.
    pub(in crate::chain) async fn revise(&mut self, event: &mut StreamResponse) -> Result<Revision, Fault> {
        let step = self.noting(|asked| outgoing::is_among(event, asked.output), |recorder| recorder.output(event));
        let held = self.held.rejoin(event);
        if self.is_out() {
            return self.check_left_out(event);
        }
        let revised = self.ask_to_revise(event, held).await;
        noted(step, &revised, |revision, _| match revision {
            Revision::Leaves => StepResult::Agrees { metadata: None },
            Revision::Revises => StepResult::Revises { parts: output::parts_of(event).to_vec() },
            Revision::Holds => StepResult::Holds,
            Revision::Refuses(reason) => StepResult::RefusesContent { reason: reason.clone() },
        });
        self.settled(Hook::Output, revised)
    }

    async fn ask_to_revise(&mut self, event: &mut StreamResponse, held: u32) -> Result<Revision, Fault> {
        let extension = Arc::clone(&self.extension);
        let hooks = &extension.program.hooks;
        if !self.revises(event) {
            return Ok(Revision::Leaves);
        }
        let parts = Part::joined(output::parts_of(event));
        let json = serde_json::to_string(&parts).unwrap_or_default();
        self.check_size(json.len())?;
        let bytes = json.len();
        let Some(content) = output::content(event, json, held) else { return Ok(Revision::Leaves) };
        let verdict =
            self.call(Hook::Output, async |store, component| hooks.revise(store, component, content).await).await?;
        match verdict.map_err(|message| self.failed(Hook::Output, &message))? {
            OutputVerdict::Leave => Ok(Revision::Leaves),
            OutputVerdict::Replace(replacements) if replacements.is_empty() => Ok(Revision::Leaves),
            OutputVerdict::Replace(replacements) => {
                let revised = self.replaced(&parts, replacements)?;
                output::replace(event, revised, extension.uri());
                Ok(Revision::Revises)
            }
            OutputVerdict::Hold => self.hold(event, parts, (held, bytes)),
            OutputVerdict::Refuse(reason) => match output::bad_end(event) {
                Some(state) => {
                    let reason = format!("it refuses the content of the change to {state}, which is final");
                    Err(self.broke(Hook::Output, &reason))
                }
                // The client sees the reason, so it becomes one line without secrets.
                None => Ok(Revision::Refuses(extension.profile.words(&reason))),
            },
        }
    }

    /// True if the extension has the hook and revises events of this kind.
    fn revises(&self, event: &StreamResponse) -> bool {
        let Extension { program, descriptor, .. } = &*self.extension;
        program.hooks.has(Hook::Output) && outgoing::is_among(event, descriptor.events)
    }

    /// An extension that takes no further part in the turn lets content through, unless requests must not skip it.
    fn check_left_out(&self, event: &StreamResponse) -> Result<Revision, Fault> {
        if self.extension.may_be_skipped() || !self.revises(event) {
            return Ok(Revision::Leaves);
        }
        Err(self.broke(Hook::Output, "it failed earlier in the turn, and nothing may go out without it"))
    }

    fn replaced(&self, parts: &[Part], replacements: Vec<Replacement>) -> Result<Vec<Part>, Fault> {
        let keys = &self.extension.descriptor.metadata_keys;
        let (revised, dropped) =
            rewriting::revise(parts, replacements, keys).map_err(|reason| self.broke(Hook::Output, &reason))?;
        for (part, reason) in dropped {
            let reason = cut(reason, MAX_DROP_REASON);
            let line = format!("metadata of others on part {part} is left out: {reason}");
            self.log.write(LogLevel::Info, "output", &line);
        }
        Ok(revised)
    }

    /// Holds back a chunk, whose parts with the parts that were held before are `parts`.
    fn hold(
        &mut self,
        event: &mut StreamResponse,
        parts: Vec<Part>,
        (chunks, bytes): (u32, usize),
    ) -> Result<Revision, Fault> {
        let update = match event {
            StreamResponse::ArtifactUpdate(update) if !update.last_chunk => update,
            StreamResponse::ArtifactUpdate(_) => {
                return Err(self.broke(Hook::Output, "it holds back the last chunk of an artifact"));
            }
            StreamResponse::Message(_) | StreamResponse::StatusUpdate(_) | StreamResponse::Task(_) => {
                return Err(self.broke(Hook::Output, "it holds back content that is no chunk of an artifact"));
            }
        };
        let limit = self.extension.profile.limits.input;
        // The joined parts take less memory than many short ones.
        update.artifact.parts = parts.into();
        if self.held.hold(update, (chunks, bytes), limit) {
            Ok(Revision::Holds)
        } else {
            // An optional extension is skipped, and the event goes on with all of its parts.
            Err(Fault::HoldsTooMuch { uri: self.extension.uri().clone() })
        }
    }
}
