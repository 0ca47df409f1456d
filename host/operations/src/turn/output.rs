//! Runs the output hooks on the events of a turn, and amends the session to match the content that the client saw.

use annex_conversation::{Entry, Event};
use annex_protocol::{A2aError, Artifact, ArtifactId, Parts, StreamResponse};
use annex_runtime::{Fault, OutputOutcome};
use tokio::sync::oneshot;

use super::Turn;
use crate::fault;

/// The code of the error by which a turn ends whose content or step an extension refuses. No client gets the code: the error becomes the
/// text of the status.
pub(super) const REFUSED: i32 = 0;

impl Turn {
    /// Runs the output hooks on the event. Returns `None` if the event does not go out.
    pub(super) async fn revised(&mut self, event: StreamResponse) -> Result<Option<StreamResponse>, A2aError> {
        if let Some(shown) = &mut self.shown {
            shown.was_sent(&event);
        }
        let outcome = self.chain.run_output_hooks(event).await;
        self.left(outcome).await
    }

    /// Runs the output hooks on content that does not go out as this event. Returns what the extensions leave of it.
    pub(super) async fn output(&mut self, event: StreamResponse) -> Result<Option<StreamResponse>, A2aError> {
        went_out(self.chain.run_output_hooks(event).await)
    }

    /// Sends the content that extensions still hold back. Called before the task settles.
    pub(super) async fn release_held(&mut self) -> Result<(), A2aError> {
        while let Some(outcome) = self.chain.run_output_hooks_on_held().await.transpose() {
            if let Some(event) = self.left(outcome).await? {
                self.annotated(event).await?;
            }
        }
        Ok(())
    }

    /// Lets the extensions revise parts that are stored in the session and not sent to the client.
    pub(super) async fn answer_unsent(&mut self, parts: Parts, answer: oneshot::Sender<Parts>) -> Result<(), A2aError> {
        // Under an id of its own, because it is no chunk of an artifact that the client gets.
        let artifact = Artifact { artifact_id: ArtifactId::generate(), parts, ..Artifact::default() };
        let update = self.artifact_update(artifact, false, true);
        let left = match self.output(StreamResponse::ArtifactUpdate(update)).await? {
            Some(StreamResponse::ArtifactUpdate(update)) => update.artifact.parts,
            _ => Parts::default(),
        };
        // An agent that has gone needs no answer.
        let _ = answer.send(left);
        Ok(())
    }

    /// The event that goes out. It is noted as the content that the client saw.
    async fn left(&mut self, outcome: Result<OutputOutcome, Fault>) -> Result<Option<StreamResponse>, A2aError> {
        let left = went_out(outcome)?;
        if let (Some(shown), Some(event)) = (&mut self.shown, &left) {
            shown.was_shown(event);
        }
        if let Some(event) = left.as_ref().filter(|_| self.relays && self.context.is_revised) {
            self.take_state(event).await?;
        }
        Ok(left)
    }

    /// Stores the change of the session's state that the content of an upstream's event makes. The change comes before the
    /// event, so that a client that gets the event can read the state that belongs to it.
    async fn take_state(&mut self, event: &StreamResponse) -> Result<(), A2aError> {
        let delta = self.handler.agent.state_in_content(event);
        if delta.is_empty() {
            return Ok(());
        }
        // The last change is stored together with the end of the turn.
        let is_last = match event {
            StreamResponse::Message(_) => true,
            StreamResponse::StatusUpdate(update) => {
                update.status.state.is_terminal() || update.status.state.is_interrupted()
            }
            StreamResponse::ArtifactUpdate(_) | StreamResponse::Task(_) => false,
        };
        let conversation = &self.context.conversation;
        let author = conversation.key().app.clone();
        let change = Event::new(author, self.context.task_id.clone(), Parts::default(), delta);
        let stored = match is_last {
            true => conversation.stage(change).await,
            false => conversation.append([Entry::from(change)]).await.map(drop),
        };
        stored.map_err(fault::of_append)
    }

    /// Amends the staged events of the session to match the content that the client saw.
    pub(super) async fn amend_session(&mut self) {
        if let Some(shown) = &self.shown {
            self.context.conversation.amend_staged(|event| shown.amended(event)).await;
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
