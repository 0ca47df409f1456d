//! Prints an answer as text: the answer on standard output, progress on standard error.

use annex_protocol::{Artifact, Message, Part, PartContent, Role, StreamResponse, Task, TaskState, TaskStatus};
use annex_text::line;

use crate::output;
use crate::pretty::pretty;

/// The maximum number of bytes that a transcript keeps of an answer. Without this limit, an agent could use up the
/// memory by an endless answer.
const MAX_WORDS: usize = 1 << 20;

/// Prints an answer, and remembers what was printed.
#[derive(Default)]
pub(crate) struct Transcript {
    /// True if anything of the answer was printed.
    begun: bool,
    /// True if the last line of output has no line break yet, because the next event may append to the line.
    line_is_open: bool,
    /// The printed text of the answer, up to [`MAX_WORDS`] bytes.
    words: String,
    /// The last event, if it was a task.
    snapshot: Option<Task>,
    /// The message of the last status that reported progress. If a task completes without any other answer, this
    /// message is the answer.
    remark: Option<Message>,
}

impl Transcript {
    /// Prints an event. A task at the beginning of a stream is printed only if no event follows, because that task
    /// holds the state before this turn.
    pub(crate) fn show(&mut self, event: StreamResponse) -> anyhow::Result<()> {
        self.snapshot = None;
        match event {
            StreamResponse::Task(task) => {
                self.snapshot = Some(task);
                Ok(())
            }
            StreamResponse::Message(message) => self.parts(&message.parts),
            StreamResponse::StatusUpdate(update) => self.status(&update.status),
            StreamResponse::ArtifactUpdate(update) => self.artifact(&update.artifact, update.append),
        }
    }

    /// Prints what is left of the answer, and ends an open line. If a stream repeats its task at the end, that task is
    /// not printed again.
    pub(crate) fn finish(&mut self) -> anyhow::Result<()> {
        if let Some(task) = self.snapshot.take().filter(|_| !self.begun) {
            for artifact in &task.artifacts {
                self.artifact(artifact, false)?;
            }
            self.status(&task.status)?;
            if task.status.state == TaskState::Completed {
                self.remark = last_words(&task.history);
            }
        }
        if let Some(answer) = self.remark.take().filter(|_| !self.begun) {
            self.parts(&answer.parts)?;
        }
        self.end_line()
    }

    fn end_line(&mut self) -> anyhow::Result<()> {
        if std::mem::take(&mut self.line_is_open) { output::write("\n") } else { Ok(()) }
    }

    /// The printed text of the answer, up to [`MAX_WORDS`] bytes.
    pub(crate) fn into_words(self) -> String {
        self.words
    }

    fn artifact(&mut self, artifact: &Artifact, append: bool) -> anyhow::Result<()> {
        // A new artifact begins a line, and an appended chunk continues the line.
        if !append {
            self.end_line()?;
        }
        self.parts(&artifact.parts)
    }

    /// Prints a status. Its message is the answer if the task waits for the client, or if the task completes without
    /// any other answer. The reason of a failed task is not printed here, because the command's error contains it.
    fn status(&mut self, status: &TaskStatus) -> anyhow::Result<()> {
        let parts = status.message.as_ref().map(|message| message.parts.as_slice()).unwrap_or_default();
        match status.state {
            TaskState::InputRequired | TaskState::AuthRequired => {
                self.end_line()?;
                self.parts(parts)
            }
            TaskState::Completed if !self.begun => {
                self.remark = self.remark.take().filter(|_| parts.is_empty());
                self.parts(parts)
            }
            TaskState::Unspecified | TaskState::Submitted | TaskState::Working | TaskState::Completed => {
                self.end_line()?;
                progress(status);
                self.remark = status.message.clone().or(self.remark.take());
                Ok(())
            }
            TaskState::Failed | TaskState::Canceled | TaskState::Rejected => {
                self.remark = None;
                self.end_line()
            }
        }
    }

    fn parts(&mut self, parts: &[Part]) -> anyhow::Result<()> {
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                self.end_line()?;
            }
            let text = text(part);
            if !text.is_empty() {
                self.begun = true;
                self.line_is_open = !text.ends_with('\n');
                let room = MAX_WORDS.saturating_sub(self.words.len());
                self.words.push_str(text.get(..text.floor_char_boundary(room)).unwrap_or_default());
                output::show(&text)?;
            }
        }
        Ok(())
    }
}

/// The last message of the history. `None` if the history is empty or the user wrote that message.
fn last_words(history: &[Message]) -> Option<Message> {
    history.last().filter(|message| message.role == Role::Agent).cloned()
}

/// Prints the progress of the task as a remark. A completed task without a message gets no remark, because the summary
/// has its state.
fn progress(status: &TaskStatus) {
    let text = status.message.as_ref().map(Message::text).unwrap_or_default();
    match (status.state, text.as_str()) {
        (TaskState::Completed, "") => {}
        (state, "") => output::note(state.name()),
        (state, text) => output::note(&format!("{state}: {text}")),
    }
}

fn text(part: &Part) -> String {
    match &part.content {
        PartContent::Text(text) => text.clone(),
        PartContent::Data(json) => pretty(json),
        PartContent::Url(url) => format!("[{}: {}]", line(name(part)), line(url)),
        PartContent::Raw(base64) => format!("[{}: {} characters of base64]", line(name(part)), base64.len()),
    }
}

fn name(part: &Part) -> &str {
    let names = [part.filename.as_str(), &part.media_type, "file"];
    names.into_iter().find(|name| !name.is_empty()).unwrap_or_default()
}
