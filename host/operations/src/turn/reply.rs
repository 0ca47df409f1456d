//! Answers in a turn whose agent does not run, because an extension answers in its place.

use std::collections::BTreeMap;

use annex_agent::AgentError;
use annex_conversation::{Event, StateDelta};
use annex_protocol::{A2aError, Artifact, ArtifactId, Message, Parts, StreamResponse};
use annex_runtime::ReadyAnswer;

use super::{Ending, Settled, Turn};

impl Turn {
    /// Sends the answer of an extension. It takes the same way as an answer of the agent.
    pub(super) async fn reply(&mut self, answer: ReadyAnswer) -> Ending {
        let parts = Parts::from(answer.parts.clone());
        if let Err(error) = self.remember(&answer, parts.clone()).await {
            return Ending::Returned(Err(error), None);
        }
        match self.send_reply(answer, parts).await {
            Ok(settled) => Ending::Returned(Ok(()), settled),
            Err(error) => Ending::Broken(error),
        }
    }

    /// Adds the answer to the session, as an event of the agent.
    async fn remember(&mut self, answer: &ReadyAnswer, parts: Parts) -> Result<(), AgentError> {
        let conversation = &self.context.conversation;
        let author = conversation.key().app.clone();
        let artifacts: BTreeMap<String, Parts> =
            answer.artifact.iter().map(|name| (name.clone(), parts.clone())).collect();
        let event = Event::new(author, self.context.task_id.clone(), parts, StateDelta::new());
        conversation.stage(Event { artifacts, ..event }).await.map_err(AgentError::unstored)
    }

    async fn send_reply(&mut self, answer: ReadyAnswer, parts: Parts) -> Result<Settled, A2aError> {
        let ReadyAnswer { by, state, artifact, metadata, .. } = answer;
        let mut message = None;
        match artifact {
            Some(name) => {
                let artifact = Artifact {
                    artifact_id: ArtifactId::new(name.as_str()),
                    name: Some(name),
                    parts,
                    metadata,
                    extensions: vec![by.clone()],
                    ..Artifact::default()
                };
                let update = self.artifact_update(artifact, false, true);
                self.respond(StreamResponse::ArtifactUpdate(update)).await?;
            }
            None => {
                let said = Message::agent(self.context.context_id.clone(), None, parts);
                message = Some(Message { metadata, extensions: vec![by.clone()], ..said });
            }
        }
        let update = self.status_update(state, message);
        self.change(update, state.is_interrupted().then_some(by)).await
    }
}
