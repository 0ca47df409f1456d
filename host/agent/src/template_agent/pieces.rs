//! Sends the artifact of a turn to the client in pieces.

use annex_protocol::{Artifact, ArtifactId, Part, Parts};

use crate::executor::{AgentError, AgentEvent, EventSender};

/// Sends an artifact in pieces. The newest piece is held back, so that the last piece can be marked as the last.
pub(super) struct Pieces<'a> {
    name: &'a str,
    events: &'a EventSender,
    /// The whole text so far, sent or not.
    text: String,
    /// The start of the held-back piece in `text`; `None` if no piece is held back.
    held: Option<usize>,
    /// True if the next piece is appended to the pieces that were sent before.
    append: bool,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(name: &'a str, events: &'a EventSender) -> Self {
        Self { name, events, text: String::new(), held: None, append: false }
    }

    /// Adds a piece.
    pub(super) async fn push(&mut self, piece: String) -> Result<(), AgentError> {
        let previous = self.held.replace(self.text.len());
        let previous = previous.and_then(|from| self.text.get(from..)).map(str::to_owned);
        if self.text.is_empty() {
            self.text = piece;
        } else {
            self.text.push_str(&piece);
        }
        let Some(previous) = previous else { return Ok(()) };
        self.send(text(&previous), false).await?;
        self.append = true;
        Ok(())
    }

    /// Makes the next piece replace all sent pieces.
    pub(super) fn start_again(&mut self) {
        self.text.clear();
        self.held = None;
        // A piece without `append` replaces the artifact that has the same id, also at the client.
        self.append = false;
    }

    /// Replaces all sent pieces with `text`.
    pub(super) fn replace(&mut self, text: &str) {
        self.start_again();
        self.text.push_str(text);
        self.held = Some(0);
    }

    /// Replaces all sent pieces with `text`, unless they already have this text.
    pub(super) fn correct(&mut self, text: &str) {
        if self.text != text {
            self.replace(text);
        }
    }

    /// Sends the last piece. `all` has the whole text as stored in the session.
    pub(super) async fn finish(self, all: Parts) -> Result<(), AgentError> {
        if self.held == Some(0) {
            return self.send(all, true).await;
        }
        // Without text the last piece is empty, so that the client learns that the artifact is complete.
        let last = self.held.and_then(|from| self.text.get(from..)).unwrap_or_default();
        self.send(text(last), true).await
    }

    async fn send(&self, parts: Parts, last_chunk: bool) -> Result<(), AgentError> {
        let artifact = Artifact {
            artifact_id: ArtifactId::new(self.name),
            name: Some(self.name.to_owned()),
            parts,
            ..Artifact::default()
        };
        self.events.send(AgentEvent::Artifact { artifact, append: self.append, last_chunk }).await
    }
}

fn text(words: &str) -> Parts {
    vec![Part::text(words)].into()
}
