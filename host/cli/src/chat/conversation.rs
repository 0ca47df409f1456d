//! What `annex chat` keeps of a conversation in memory, and the file that stores the session.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::{fs, mem};

use annex_client::ClientSession;
use annex_protocol::Json;
use anyhow::Context;

use crate::pretty::pretty;

/// The state of `annex chat` between two messages.
#[derive(Default)]
pub(super) struct Conversation {
    pub(super) session: ClientSession,
    /// True if the agent has received the state of `--state`.
    pub(super) has_state: bool,
    file: Option<PathBuf>,
    /// The exchanges so far: the user's text, and the agent's answer.
    history: Vec<(String, String)>,
    /// The session states that the agent returned last. An answer without session states leaves them unchanged.
    states: Vec<Json>,
}

impl Conversation {
    /// Reads the conversation in `file`. Without a file, or if the file does not exist, the conversation is new.
    ///
    /// # Errors
    /// When the file cannot be read or does not hold a conversation.
    pub(super) fn restore(file: Option<PathBuf>) -> anyhow::Result<Self> {
        let session = file.as_deref().map(read).transpose()?.flatten().unwrap_or_default();
        Ok(Self { session, file, ..Self::default() })
    }

    /// Begins a new conversation and saves it to the same file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn restart(&mut self) -> anyhow::Result<()> {
        let file = mem::take(&mut self.file);
        *self = Self { file, ..Self::default() };
        self.save()
    }

    /// Writes the session to the file of the conversation. Does nothing if the conversation has no file.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn save(&self) -> anyhow::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let text = format!("{}\n", serde_json::to_string(&self.session)?);
        // Whoever has the ids in it can go on with the conversation, so the file is for this user alone.
        let written = annex_files::replace(file, text.as_bytes(), 0o600);
        written.with_context(|| format!("cannot keep the conversation in {}", file.display()))
    }

    pub(super) fn take_note(&mut self, said: &str, answered: String) {
        self.history.push((said.to_owned(), answered));
    }

    pub(super) fn returned<'a>(&mut self, states: impl Iterator<Item = &'a Json>) {
        let states: Vec<Json> = states.cloned().collect();
        if !states.is_empty() {
            self.states = states;
        }
    }

    pub(super) fn shown_state(&self) -> String {
        if self.states.is_empty() {
            return "No state has come back yet.\n".to_owned();
        }
        self.states.iter().map(|state| format!("{}\n", pretty(state))).collect()
    }

    pub(super) fn shown_history(&self) -> String {
        if self.history.is_empty() {
            return "Nothing was said yet.\n".to_owned();
        }
        self.history
            .iter()
            .map(|(said, answered)| format!("> {said}\n{}\n", annex_text::indented(answered, "  ")))
            .collect()
    }
}

fn read(file: &Path) -> anyhow::Result<Option<ClientSession>> {
    let shown = file.display();
    match fs::read_to_string(file).map(annex_files::without_mark) {
        Ok(text) => {
            let session = serde_json::from_str(&text);
            session.map(Some).with_context(|| format!("{shown} does not hold a conversation"))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {shown}")),
    }
}
