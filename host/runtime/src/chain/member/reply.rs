//! The hook `reply`.

use std::sync::Arc;

use annex_protocol::{A2aError, Message};

use super::Member;
use super::way_out::noted;
use crate::bindings::SeenRequest;
use crate::chain::reply::ReadyAnswer;
use crate::chain::rewriting;
use crate::error::HookError;
use crate::hook::Hook;
use crate::recording::step::StepResult;

impl Member {
    /// Asks the extension for an answer to the message in place of the agent.
    pub(in crate::chain) async fn reply(
        &mut self,
        seen: &SeenRequest,
        message: &Message,
    ) -> Result<Option<ReadyAnswer>, HookError> {
        let step = self.noting(|asked| asked.reply, |recorder| recorder.reply(message));
        let replied = self.ask_to_reply(seen, message).await;
        noted(step, &replied, |answer, _| noted_answer(answer.as_ref()));
        let replied = self.counted(Hook::Reply, replied);
        self.fails_by(&replied);
        replied
    }

    async fn ask_to_reply(&mut self, seen: &SeenRequest, message: &Message) -> Result<Option<ReadyAnswer>, HookError> {
        if !self.takes_part_in(Hook::Reply) {
            return Ok(None);
        }
        let extension = Arc::clone(&self.extension);
        let hooks = &extension.program.hooks;
        let shown = rewriting::shown(message, &message.parts, &extension.descriptor);
        self.check_message_size(&shown)?;
        let answered = self
            .call(Hook::Reply, async |store, component| hooks.before_agent(store, component, seen, shown).await)
            .await?;
        let Some(answer) = answered.map_err(|message| self.failed(Hook::Reply, &message))? else { return Ok(None) };
        let checked = ReadyAnswer::checked(answer, &extension.descriptor);
        Ok(Some(checked.map_err(|reason| self.broke(Hook::Reply, &reason))?))
    }

    /// Checks a message that a hook is about to get.
    ///
    /// # Errors
    /// The message exceeds the extension's limit. The client can send a smaller one.
    pub(super) fn check_message_size(&self, message: &str) -> Result<(), A2aError> {
        let limit = self.extension.profile.limits.input;
        if message.len() <= limit {
            return Ok(());
        }
        let description = format!("extension {} takes messages of at most {limit} bytes", self.extension.uri());
        Err(A2aError::invalid_field("/message", description))
    }
}

fn noted_answer(answer: Option<&ReadyAnswer>) -> StepResult {
    match answer {
        None => StepResult::Agrees { metadata: None },
        Some(ReadyAnswer { state, parts, artifact, metadata, .. }) => StepResult::Answers {
            state: *state,
            parts: parts.clone(),
            artifact: artifact.clone(),
            metadata: metadata.clone(),
        },
    }
}
