//! Runs the output hooks on the events of a turn, and amends the session to match the content that the client saw.

use annex_agent::Question;
use annex_protocol::{A2aError, Artifact, ArtifactId, Parts, StreamResponse, TaskArtifactUpdateEvent};
use annex_runtime::{Fault, OutputOutcome};

use super::Turn;
use crate::fault;

/// The code of the error by which a turn ends whose content an extension refuses. No client gets the code: the error becomes the
/// text of the status.
const REFUSED: i32 = 0;

impl Turn {
    /// Runs the output hooks on the event. Returns `None` if the event does not go out.
    pub(super) async fn revised(&mut self, event: StreamResponse) -> Result<Option<StreamResponse>, A2aError> {
        if let Some(shown) = &mut self.shown {
            shown.was_sent(&event);
        }
        let outcome = self.chain.run_output_hooks(event).await;
        self.left(outcome)
    }

    /// Sends the content that extensions still hold back. Called before the task settles.
    pub(super) async fn release_held(&mut self) -> Result<(), A2aError> {
        while let Some(outcome) = self.chain.run_output_hooks_on_held().await.transpose() {
            if let Some(event) = self.left(outcome)? {
                self.annotated(event).await?;
            }
        }
        Ok(())
    }

    /// Answers a question of the agent.
    pub(super) async fn answer_question(&mut self, question: Question) -> Result<(), A2aError> {
        let Question::Unsent { parts, answer } = question;
        // Under an id of its own, because it is no chunk of an artifact that the client gets.
        let artifact = Artifact { artifact_id: ArtifactId::generate(), parts, ..Artifact::default() };
        let update = TaskArtifactUpdateEvent {
            task_id: self.context.task_id.clone(),
            context_id: self.context.context_id.clone(),
            artifact,
            last_chunk: true,
            ..TaskArtifactUpdateEvent::default()
        };
        let outcome = self.chain.run_output_hooks(StreamResponse::ArtifactUpdate(update)).await;
        let left = match went_out(outcome)? {
            Some(StreamResponse::ArtifactUpdate(update)) => update.artifact.parts,
            _ => Parts::default(),
        };
        // An agent that has gone needs no answer.
        let _ = answer.send(left);
        Ok(())
    }

    /// The event that goes out. It is noted as the content that the client saw.
    fn left(&mut self, outcome: Result<OutputOutcome, Fault>) -> Result<Option<StreamResponse>, A2aError> {
        let left = went_out(outcome)?;
        if let (Some(shown), Some(event)) = (&mut self.shown, &left) {
            shown.was_shown(event);
        }
        Ok(left)
    }

    /// Amends the staged events of the session to match the content that the client saw. `is_complete` tells whether the client
    /// saw all that the agent has sent.
    pub(super) async fn amend_session(&mut self, is_complete: bool) {
        if let Some(shown) = &self.shown {
            self.context.conversation.amend_staged(|event| shown.amended(event, is_complete)).await;
        }
    }
}

/// The event that goes out. `None` if it is withheld.
fn went_out(outcome: Result<OutputOutcome, Fault>) -> Result<Option<StreamResponse>, A2aError> {
    match outcome.map_err(|fault| fault::of_extension(&fault))? {
        OutputOutcome::GoesOut(event) => Ok(Some(event)),
        OutputOutcome::Withheld => Ok(None),
        // The turn ends by this error, and the task fails with its text.
        OutputOutcome::Refused { by, reason } => {
            Err(A2aError::Extension { uri: by, code: REFUSED, message: reason, data: None })
        }
    }
}
