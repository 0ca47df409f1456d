//! The artifact of a turn on its way to the client, in pieces.

use annex_protocol::{Artifact, ArtifactId, Part};

use crate::executor::{AgentError, AgentEvent, EventSender};

/// Sends an artifact in pieces. One piece is held back, so that the last one is known as the last.
pub(super) struct Pieces<'a> {
    name: &'a str,
    events: &'a EventSender,
    /// All words so far, sent or not.
    text: String,
    held: Option<String>,
    /// The next piece belongs behind what was sent.
    append: bool,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(name: &'a str, events: &'a EventSender) -> Self {
        Self { name, events, text: String::new(), held: None, append: false }
    }

    /// One more piece.
    pub(super) async fn push(&mut self, piece: String) -> Result<(), AgentError> {
        self.text.push_str(&piece);
        let Some(previous) = self.held.replace(piece) else { return Ok(()) };
        self.send(previous, false).await?;
        self.append = true;
        Ok(())
    }

    /// The next piece takes the place of all that was sent.
    pub(super) fn start_again(&mut self) {
        self.text.clear();
        self.held = None;
        // A piece without `append` replaces the artifact of its id, also in what the client has received.
        self.append = false;
    }

    /// Sends `text` instead of all that was sent.
    pub(super) fn replace(&mut self, text: &str) {
        self.start_again();
        self.text.push_str(text);
        self.held = Some(text.to_owned());
    }

    /// Sends `text` instead of all that was sent, unless that is the same.
    pub(super) fn correct(&mut self, text: &str) {
        if self.text != text {
            self.replace(text);
        }
    }

    /// Sends the last piece.
    pub(super) async fn finish(self) -> Result<(), AgentError> {
        // Without words it is an empty piece, so that the client hears that the artifact is complete.
        let last = self.held.clone().unwrap_or_default();
        self.send(last, true).await
    }

    async fn send(&self, text: String, last_chunk: bool) -> Result<(), AgentError> {
        let artifact = Artifact {
            artifact_id: ArtifactId::new(self.name),
            name: Some(self.name.to_owned()),
            parts: vec![Part::text(text)],
            ..Artifact::default()
        };
        self.events.send(AgentEvent::Artifact { artifact, append: self.append, last_chunk }).await
    }
}
