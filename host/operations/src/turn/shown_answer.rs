//! The content of a turn, as the agent has sent it and as the client saw it.

use annex_agent::readable;
use annex_conversation::Event;
use annex_protocol::{ArtifactId, Part, Parts, StreamResponse};

/// Maximum size of the texts that are compared with the session. The events of a turn may have more.
const MAX_BYTES: usize = 16 << 20;

/// The sent and the shown content of a turn. Kept only if an extension has the hook `output`.
#[derive(Default)]
pub(crate) struct ShownAnswer {
    artifacts: Vec<(ArtifactId, Content)>,
    /// The last message or status message.
    said: Content,
    /// True if an earlier message was shown differently.
    differed: bool,
    bytes: usize,
}

#[derive(Default)]
struct Content {
    /// The readable text that the agent has sent, without line breaks. The session may join pieces by line breaks.
    sent: String,
    shown: Vec<Part>,
}

impl Content {
    /// The parts that the client saw, if they say something else than the agent.
    fn changed(&self) -> Option<&[Part]> {
        (squeezed(&self.shown) != self.sent).then_some(self.shown.as_slice())
    }
}

impl ShownAnswer {
    pub(super) fn was_sent(&mut self, event: &StreamResponse) {
        let Some(parts) = parts_of(event) else { return };
        let text = squeezed(parts);
        self.bytes = self.bytes.saturating_add(text.len());
        if self.is_full() {
            return;
        }
        match event {
            StreamResponse::ArtifactUpdate(update) => {
                let content = self.artifact(&update.artifact.artifact_id);
                if !update.append {
                    content.sent.clear();
                }
                content.sent.push_str(&text);
            }
            _ => {
                self.differed |= self.said.changed().is_some();
                self.said = Content { sent: text, shown: Vec::new() };
            }
        }
    }

    pub(super) fn was_shown(&mut self, event: &StreamResponse) {
        let Some(parts) = parts_of(event) else { return };
        if self.is_full() {
            return;
        }
        let content = match event {
            StreamResponse::ArtifactUpdate(update) => {
                let content = self.artifact(&update.artifact.artifact_id);
                if !update.append {
                    content.shown.clear();
                }
                content
            }
            _ => &mut self.said,
        };
        content.shown.extend_from_slice(parts);
    }

    fn artifact(&mut self, id: &ArtifactId) -> &mut Content {
        let place = self.artifacts.iter().position(|(known, _)| known == id).unwrap_or(self.artifacts.len());
        if place == self.artifacts.len() {
            self.bytes = self.bytes.saturating_add(id.as_str().len());
            self.artifacts.push((id.clone(), Content::default()));
        }
        // The place exists.
        self.artifacts.get_mut(place).map_or(&mut self.said, |(_, content)| content)
    }

    fn is_full(&self) -> bool {
        self.bytes > MAX_BYTES
    }

    /// The parts that replace those of an event of the session. `None` if the client saw the same.
    pub(super) fn amended(&self, event: &Event, is_complete: bool) -> Option<Parts> {
        let text = squeezed(&event.parts);
        if text.is_empty() {
            return None;
        }
        let mut contents = self.artifacts.iter().map(|(_, content)| content).chain([&self.said]);
        if let Some(content) = contents.find(|content| content.sent == text) {
            return content.changed().map(|parts| Part::joined(parts).into());
        }
        // An answer of several artifacts is one event of the session.
        let sent: String = self.artifacts.iter().map(|(_, content)| content.sent.as_str()).collect();
        let is_known = sent == text || is_complete;
        (self.differs() || !is_known).then(|| Part::joined(&self.all_shown()).into())
    }

    /// The text of a status as the client saw it.
    pub(super) fn text(&self, text: String) -> String {
        let is_said = self.said.sent == text.replace('\n', "");
        match self.said.changed().filter(|_| is_said) {
            Some(parts) => readable(parts),
            None => text,
        }
    }

    fn differs(&self) -> bool {
        let mut contents = self.artifacts.iter().map(|(_, content)| content).chain([&self.said]);
        self.differed || self.is_full() || contents.any(|content| content.changed().is_some())
    }

    /// The artifacts that the client saw, or the message if there are none.
    fn all_shown(&self) -> Vec<Part> {
        match self.artifacts.is_empty() {
            true => self.said.shown.clone(),
            false => self.artifacts.iter().flat_map(|(_, content)| content.shown.iter().cloned()).collect(),
        }
    }
}

/// The parts of an event with content.
fn parts_of(event: &StreamResponse) -> Option<&[Part]> {
    match event {
        StreamResponse::Message(message) => Some(message.parts.as_slice()),
        StreamResponse::StatusUpdate(update) => Some(update.status.message.as_ref()?.parts.as_slice()),
        StreamResponse::ArtifactUpdate(update) => Some(update.artifact.parts.as_slice()),
        StreamResponse::Task(_) => None,
    }
}

/// The readable text of parts, without line breaks.
fn squeezed(parts: &[Part]) -> String {
    readable(parts).replace('\n', "")
}

#[cfg(test)]
mod tests {
    use annex_conversation::{Event, StateDelta};
    use annex_protocol::{
        Artifact, Message, Part, Parts, StreamResponse, TaskArtifactUpdateEvent, TaskState, TaskStatus,
        TaskStatusUpdateEvent,
    };

    use super::ShownAnswer;

    fn chunk(id: &str, text: &str, append: bool) -> StreamResponse {
        let artifact = Artifact { artifact_id: id.into(), parts: vec![Part::text(text)].into(), ..Artifact::default() };
        StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent { artifact, append, ..Default::default() })
    }

    fn said(text: &str) -> StreamResponse {
        let message = Message { parts: vec![Part::text(text)].into(), ..Message::default() };
        let status = TaskStatus { state: TaskState::Working, message: Some(message), ..TaskStatus::default() };
        StreamResponse::StatusUpdate(TaskStatusUpdateEvent { status, ..Default::default() })
    }

    /// The answer to a client that saw the second event of each pair in place of the first.
    fn answer(events: &[(StreamResponse, Option<StreamResponse>)]) -> ShownAnswer {
        let mut answer = ShownAnswer::default();
        for (sent, shown) in events {
            answer.was_sent(sent);
            shown.iter().for_each(|shown| answer.was_shown(shown));
        }
        answer
    }

    fn amended(answer: &ShownAnswer, text: &str, is_complete: bool) -> Option<Parts> {
        answer.amended(&Event::new("agent", "t", vec![Part::text(text)], StateDelta::new()), is_complete)
    }

    #[test]
    fn an_event_of_the_session_gets_the_parts_that_the_client_saw() {
        let pieces = [
            (chunk("a", "card 41", false), None),
            (chunk("a", "11!", true), Some(chunk("a", "card (hidden)!", false))),
            (said("done"), Some(said("done"))),
        ];
        let answer = answer(&pieces);
        assert_eq!(amended(&answer, "card 4111!", true), Some(vec![Part::text("card (hidden)!")].into()));
        assert_eq!(amended(&answer, "done", true), None);
    }

    #[test]
    fn a_text_of_several_artifacts_gets_all_that_was_shown() {
        let pieces = [
            (chunk("a", "one", false), Some(chunk("a", "1", false))),
            (chunk("b", "two", false), Some(chunk("b", "two", false))),
        ];
        assert_eq!(amended(&answer(&pieces), "one\ntwo", true), Some(vec![Part::text("1two")].into()));
    }

    #[test]
    fn an_answer_that_was_not_shown_is_not_in_the_session() {
        let unchanged = [(chunk("a", "one", false), Some(chunk("a", "one", false)))];
        let answer = answer(&unchanged);
        assert_eq!(amended(&answer, "other words", true), None);
        assert_eq!(amended(&answer, "one and the unsent rest", false), Some(vec![Part::text("one")].into()));
        assert_eq!(amended(&ShownAnswer::default(), "unsent", false), Some(Parts::default()));
    }

    #[test]
    fn a_chunk_that_replaces_its_artifact_replaces_what_was_sent_and_shown() {
        let pieces = [
            (chunk("a", "I look.", false), Some(chunk("a", "I look.", false))),
            (chunk("a", "found", false), Some(chunk("a", "FOUND", false))),
        ];
        assert_eq!(amended(&answer(&pieces), "found", true), Some(vec![Part::text("FOUND")].into()));
    }
}
