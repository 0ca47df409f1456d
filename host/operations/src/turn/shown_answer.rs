//! The content of a turn, as the agent has sent it and as the client saw it.

use annex_agent::{is_note, readable};
use annex_conversation::Event;
use annex_protocol::{ArtifactId, Part, PartContent, Parts, StreamResponse};

/// Maximum size of the texts that are compared with the session. The events of a turn may have more.
const MAX_BYTES: usize = 16 << 20;

/// The sent and the shown content of a turn. Kept only if an extension has the hook `output`.
#[derive(Default)]
pub(crate) struct ShownAnswer {
    artifacts: Vec<(ArtifactId, Content)>,
    /// The last message or status message.
    said: Content,
    /// True if an earlier message, or an artifact that was replaced, was shown differently.
    differed: bool,
    bytes: usize,
}

/// The parts of a message or of an artifact. The chunks share them with the events.
#[derive(Default)]
struct Content {
    sent: Vec<Parts>,
    shown: Vec<Parts>,
}

impl Content {
    fn is_changed(&self) -> bool {
        joined(&self.sent) != joined(&self.shown)
    }

    /// The parts that belong in the place of those of an event of the session, and whether the client saw the event's own.
    /// `None` if the event has other content. `text` is the readable text of the event.
    fn amended(&self, event: &Event, text: &str) -> Option<(Vec<Part>, bool)> {
        let (sent, shown) = (joined(&self.sent), joined(&self.shown));
        if sent == Part::joined(&event.parts) {
            let is_seen = sent == shown;
            return Some((shown, is_seen));
        }
        // The session may have the readable text of the content alone, or the text of its text parts alone.
        let forms: [fn(&[Part]) -> String; 2] = [all_texts, text_parts];
        for form in forms {
            let told = without_breaks(&form(&sent));
            if !text.is_empty() && told == text {
                let shown = form(&shown);
                let is_seen = is_plain(&event.parts) && without_breaks(&shown) == told;
                let parts = if shown.is_empty() { Vec::new() } else { vec![Part::text(shown)] };
                return Some((parts, is_seen));
            }
        }
        None
    }
}

impl ShownAnswer {
    pub(super) fn was_sent(&mut self, event: &StreamResponse) {
        let Some(parts) = parts_of(event) else { return };
        self.bytes = self.bytes.saturating_add(all_texts(parts).len());
        if self.is_full() {
            return;
        }
        match event {
            StreamResponse::ArtifactUpdate(update) => {
                let content = self.artifact(&update.artifact.artifact_id);
                let mut differed = false;
                if !update.append {
                    differed = content.is_changed();
                    content.sent.clear();
                }
                content.sent.push(parts.clone());
                self.differed |= differed;
            }
            _ => {
                self.differed |= self.said.is_changed();
                self.said = Content { sent: vec![parts.clone()], shown: Vec::new() };
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
        content.shown.push(parts.clone());
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

    /// True if the agent has sent an artifact.
    pub(super) fn has_artifacts(&self) -> bool {
        !self.artifacts.is_empty() || self.is_full()
    }

    fn is_full(&self) -> bool {
        self.bytes > MAX_BYTES
    }

    /// The parts that replace those of an event of the session. `None` if the client saw the same. An event that the client
    /// did not see at all has not passed the extensions, so it gets all that the client saw.
    pub(super) fn amended(&self, event: &Event) -> Option<Parts> {
        // The notes of the agent about its calls are read in the next turn.
        if !event.parts.is_empty() && event.parts.iter().all(is_note) {
            return None;
        }
        let is_plain = is_plain(&event.parts);
        let text = without_breaks(&all_texts(&event.parts));
        if is_plain && text.is_empty() {
            return None;
        }
        if let Some((parts, is_seen)) = self.contents().find_map(|content| content.amended(event, &text)) {
            return (!is_seen).then(|| parts.into());
        }
        // An answer of several artifacts is one event of the session, which may have lost the rest of a long text.
        let sent: String = self.artifacts.iter().map(|(_, content)| all_texts(&joined(&content.sent))).collect();
        let is_known = is_plain && without_breaks(&sent).starts_with(&text);
        (self.differs() || !is_known).then(|| Part::joined(&self.all_shown()).into())
    }

    /// The text of a status as the client saw it.
    pub(super) fn text(&self, text: String) -> String {
        let is_said = without_breaks(&all_texts(&joined(&self.said.sent))) == without_breaks(&text);
        if is_said && self.said.is_changed() { all_texts(&joined(&self.said.shown)) } else { text }
    }

    fn contents(&self) -> impl Iterator<Item = &Content> {
        self.artifacts.iter().map(|(_, content)| content).chain([&self.said])
    }

    fn differs(&self) -> bool {
        self.differed || self.is_full() || self.contents().any(Content::is_changed)
    }

    /// The artifacts that the client saw, or the message if there are none.
    fn all_shown(&self) -> Vec<Part> {
        match self.artifacts.is_empty() {
            true => joined(&self.said.shown),
            false => self.artifacts.iter().flat_map(|(_, content)| joined(&content.shown)).collect(),
        }
    }
}

/// The parts of an event with content.
fn parts_of(event: &StreamResponse) -> Option<&Parts> {
    match event {
        StreamResponse::Message(message) => Some(&message.parts),
        StreamResponse::StatusUpdate(update) => Some(&update.status.message.as_ref()?.parts),
        StreamResponse::ArtifactUpdate(update) => Some(&update.artifact.parts),
        StreamResponse::Task(_) => None,
    }
}

/// The parts of all chunks. Adjacent texts become one part.
fn joined(chunks: &[Parts]) -> Vec<Part> {
    let parts: Vec<Part> = chunks.iter().flat_map(|parts| parts.iter().cloned()).collect();
    Part::joined(&parts)
}

/// The texts of the text parts and the JSON of the data parts.
fn all_texts(parts: &[Part]) -> String {
    readable(parts)
}

/// The texts of the text parts.
fn text_parts(parts: &[Part]) -> String {
    readable(parts.iter().filter(|part| matches!(part.content, PartContent::Text(_))))
}

/// True if the parts have nothing but their texts.
fn is_plain(parts: &[Part]) -> bool {
    let is_text = |part: &Part| matches!(part.content, PartContent::Text(_));
    parts.iter().all(|part| is_text(part) && part.metadata.is_empty())
}

/// The text without line breaks. The session may join pieces by line breaks.
fn without_breaks(text: &str) -> String {
    text.replace('\n', "")
}

#[cfg(test)]
mod tests {
    use annex_conversation::{Event, StateDelta};
    use annex_protocol::{
        Artifact, Json, Message, Part, PartContent, Parts, StreamResponse, TaskArtifactUpdateEvent, TaskState,
        TaskStatus, TaskStatusUpdateEvent,
    };

    use super::ShownAnswer;

    fn chunk(id: &str, text: &str, append: bool) -> StreamResponse {
        chunk_of(id, vec![Part::text(text)], append)
    }

    fn chunk_of(id: &str, parts: Vec<Part>, append: bool) -> StreamResponse {
        let artifact = Artifact { artifact_id: id.into(), parts: parts.into(), ..Artifact::default() };
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

    fn amended(answer: &ShownAnswer, text: &str) -> Option<Parts> {
        amended_parts(answer, vec![Part::text(text)])
    }

    fn amended_parts(answer: &ShownAnswer, parts: Vec<Part>) -> Option<Parts> {
        answer.amended(&Event::new("agent", "t", parts, StateDelta::new()))
    }

    #[test]
    fn an_event_of_the_session_gets_the_parts_that_the_client_saw() {
        let pieces = [
            (chunk("a", "card 41", false), None),
            (chunk("a", "11!", true), Some(chunk("a", "card (hidden)!", false))),
            (said("done"), Some(said("done"))),
        ];
        let answer = answer(&pieces);
        assert_eq!(amended(&answer, "card 4111!"), Some(vec![Part::text("card (hidden)!")].into()));
        assert_eq!(amended(&answer, "done"), None);
    }

    #[test]
    fn a_text_of_several_artifacts_gets_all_that_was_shown() {
        let pieces = [
            (chunk("a", "one", false), Some(chunk("a", "1", false))),
            (chunk("b", "two", false), Some(chunk("b", "two", false))),
        ];
        assert_eq!(amended(&answer(&pieces), "one\ntwo"), Some(vec![Part::text("1two")].into()));
    }

    #[test]
    fn an_answer_that_was_not_shown_is_not_in_the_session() {
        let unchanged = [(chunk("a", "one", false), Some(chunk("a", "one", false)))];
        let answer = answer(&unchanged);
        assert_eq!(amended(&answer, "one"), None);
        assert_eq!(amended(&answer, "other words"), Some(vec![Part::text("one")].into()));
        assert_eq!(amended(&answer, "one and the unsent rest"), Some(vec![Part::text("one")].into()));
        assert_eq!(amended(&ShownAnswer::default(), "unsent"), Some(Parts::default()));
    }

    #[test]
    fn a_status_text_that_an_interruption_has_replaced_is_not_in_the_session() {
        let answer = answer(&[(said("Which card?"), Some(said("Which card?")))]);
        assert_eq!(amended(&answer, "secret words of the agent"), Some(vec![Part::text("Which card?")].into()));
    }

    #[test]
    fn files_and_metadata_that_were_removed_are_not_in_the_session() {
        let file = Part::from(PartContent::Raw("c2VjcmV0".to_owned()));
        let hidden = vec![Part::text("(no file)")];
        let answer_of_file = [(chunk_of("a", vec![file.clone()], false), Some(chunk_of("a", hidden.clone(), false)))];
        assert_eq!(amended_parts(&answer(&answer_of_file), vec![file.clone()]), Some(hidden.into()));

        let mut marked = Part::text("one");
        marked.metadata.insert("mark".to_owned(), Json::string("secret"));
        let pieces = [(chunk_of("a", vec![marked.clone()], false), Some(chunk("a", "one", false)))];
        let answer = answer(&pieces);
        assert_eq!(amended_parts(&answer, vec![marked]), Some(vec![Part::text("one")].into()));
        // The text alone is what the client saw.
        assert_eq!(amended(&answer, "one"), None);
        assert_eq!(amended_parts(&answer, vec![file]), Some(vec![Part::text("one")].into()));
    }

    #[test]
    fn a_note_of_the_agent_about_a_call_is_not_content() {
        let answer = answer(&[(said("May it be called?"), Some(said("MAY IT BE CALLED?")))]);
        for key in ["annex/waited", "annex/released"] {
            let mut note = Part::from(PartContent::Data(Json::string("call-1")));
            note.metadata.insert(key.to_owned(), Json::string("true"));
            assert_eq!(amended_parts(&answer, vec![note]), None, "{key}");
        }
    }

    #[test]
    fn a_text_that_another_text_has_replaced_before_it_was_sent_whole_is_not_in_the_session() {
        let pieces = [
            (chunk("a", "the model's ", false), Some(chunk("a", "the model's ", false))),
            (chunk("a", "instead", false), Some(chunk("a", "instead", false))),
        ];
        let answer = answer(&pieces);
        assert_eq!(amended(&answer, "the model's unsent rest"), Some(vec![Part::text("instead")].into()));
        assert_eq!(amended(&answer, "instead"), None);
        // A piece that was revised, and that the next one has replaced, is known as revised.
        let pieces = [
            (chunk("a", "one", false), Some(chunk("a", "ONE", false))),
            (chunk("a", "two", false), Some(chunk("a", "two", false))),
        ];
        assert!(super::ShownAnswer::differs(&self::answer(&pieces)));
    }

    #[test]
    fn a_chunk_that_replaces_its_artifact_replaces_what_was_sent_and_shown() {
        let pieces = [
            (chunk("a", "I look.", false), Some(chunk("a", "I look.", false))),
            (chunk("a", "found", false), Some(chunk("a", "FOUND", false))),
        ];
        assert_eq!(amended(&answer(&pieces), "found"), Some(vec![Part::text("FOUND")].into()));
    }
}
