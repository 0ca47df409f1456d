//! Events, tasks and refusals in a few words, for assertions.

use annex_operations::answer::EventStream;
use annex_protocol::{A2aError, Message, StreamResponse, Task, TaskState};
use futures::StreamExt;

use crate::fixture::in_time;

/// The remaining events, each in a few words.
pub(crate) async fn rest(stream: EventStream) -> Vec<String> {
    let words = stream.map(|event| event.map_or_else(|error| format!("error: {error}"), |event| words(event.event())));
    in_time(words.collect()).await
}

/// The next event in a few words. `None` at the end of the stream.
pub(crate) async fn next(stream: &mut EventStream) -> Option<String> {
    let event = in_time(stream.next()).await?;
    Some(event.map_or_else(|error| format!("error: {error}"), |event| words(event.event())))
}

/// An event in a few words, such as `task SUBMITTED`, `WORKING: reading` and `artifact hello`.
fn words(event: &StreamResponse) -> String {
    match event {
        StreamResponse::Task(task) => format!("task {}", state(task.status.state)),
        StreamResponse::Message(message) => format!("message {}", message.text()),
        StreamResponse::StatusUpdate(update) => match &update.status.message {
            Some(message) => format!("{}: {}", state(update.status.state), message.text()),
            None => state(update.status.state),
        },
        StreamResponse::ArtifactUpdate(update) => {
            let parts = update.artifact.parts.clone();
            let text = Message { parts, ..Message::default() }.text();
            format!("{} {text}", if update.append { "append" } else { "artifact" })
        }
    }
}

fn state(state: TaskState) -> String {
    state.name().trim_start_matches("TASK_STATE_").to_owned()
}

/// The state of a task and the text of its status, such as `FAILED: too hard`.
pub(crate) fn status(task: &Task) -> String {
    match &task.status.message {
        Some(message) => format!("{}: {}", state(task.status.state), message.text()),
        None => state(task.status.state),
    }
}

/// The texts of the artifacts of a task, with a bar between them.
pub(crate) fn artifacts(task: &Task) -> String {
    let text = |parts: &annex_protocol::Parts| Message { parts: parts.clone(), ..Message::default() }.text();
    task.artifacts.iter().map(|artifact| text(&artifact.parts)).collect::<Vec<_>>().join(" | ")
}

/// The texts of the messages of a task.
pub(crate) fn history(task: &Task) -> Vec<String> {
    task.history.iter().map(Message::text).collect()
}

/// The fields that a refusal names.
pub(crate) fn fields(error: &A2aError) -> Vec<&str> {
    match error {
        A2aError::InvalidParams { violations } => violations.iter().map(|violation| violation.field.as_str()).collect(),
        other => panic!("another error: {other}"),
    }
}
