//! Replaces the ids of a recorded turn.

use std::mem;

use annex_protocol::{ContextId, StreamResponse, TaskId};
use annex_runtime::{RecordedTurn, StepInput};
use serde_json::Value as Json;

use super::values::json;
use crate::case::scene::{CONTEXT, TASK};

/// The shortest id, in bytes, that is replaced inside of longer texts. A shorter id could be part of an ordinary word.
const SURE_ID: usize = 16;
/// The message id of all cases.
const MESSAGE: &str = "message-1";

/// Replaces the ids of a turn by the ids that all cases have.
pub(super) fn with_ids_of_cases(turn: &RecordedTurn) -> Result<RecordedTurn, String> {
    let mut task = turn.task_id.as_ref().map(ToString::to_string);
    let mut context = turn.context_id.as_ref().map(ToString::to_string);
    let mut message = None;
    for step in &turn.steps {
        let (of_task, of_context) = match &step.input {
            StepInput::Request { message: asked, .. } => {
                message = Some(asked.message_id.to_string());
                (asked.task_id.as_ref(), asked.context_id.as_ref())
            }
            StepInput::Begin { task_id, context_id, .. } => (Some(task_id), Some(context_id)),
            StepInput::Reply { message } => (message.task_id.as_ref(), message.context_id.as_ref()),
            StepInput::Change { update, .. } => (Some(&update.task_id), Some(&update.context_id)),
            StepInput::Output(event) | StepInput::Event(event) => ids_of(event),
            StepInput::Model(_)
            | StepInput::Tool(_)
            | StepInput::ToolResult(_)
            | StepInput::Read { .. }
            | StepInput::ExtendedCard(_)
            | StepInput::Call { .. }
            | StepInput::Next => (None, None),
        };
        task = task.or_else(|| of_task.map(ToString::to_string));
        context = context.or_else(|| of_context.map(ToString::to_string));
    }
    let mut ids: Vec<(String, &str)> = [(task, TASK), (context, CONTEXT), (message, MESSAGE)]
        .into_iter()
        .filter_map(|(recorded, own)| Some((recorded.filter(|id| !id.is_empty())?, own)))
        .collect();
    // One id may be the beginning of another.
    ids.sort_by_key(|(recorded, _)| std::cmp::Reverse(recorded.len()));
    let mut whole = json(turn)?;
    rename(&mut whole, &ids);
    // By its text again: user data is not read from a tree.
    serde_json::from_str(&whole.to_string()).map_err(|error| error.to_string())
}

/// The ids of the task and of the conversation.
fn ids_of(event: &StreamResponse) -> (Option<&TaskId>, Option<&ContextId>) {
    match event {
        StreamResponse::Message(answer) => (answer.task_id.as_ref(), answer.context_id.as_ref()),
        StreamResponse::StatusUpdate(update) => (Some(&update.task_id), Some(&update.context_id)),
        StreamResponse::ArtifactUpdate(update) => (Some(&update.task_id), Some(&update.context_id)),
        StreamResponse::Task(_) => (None, None),
    }
}

fn rename(value: &mut Json, ids: &[(String, &str)]) {
    match value {
        Json::String(text) => *text = renamed(mem::take(text), ids),
        Json::Array(items) => items.iter_mut().for_each(|item| rename(item, ids)),
        Json::Object(members) => {
            let all = mem::take(members).into_iter();
            *members = all.map(|(key, value)| (renamed(key, ids), value)).collect();
            members.values_mut().for_each(|member| rename(member, ids));
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}

fn renamed(text: String, ids: &[(String, &str)]) -> String {
    if let Some((_, own)) = ids.iter().find(|(recorded, _)| *recorded == text) {
        return (*own).to_owned();
    }
    let sure = ids.iter().filter(|(recorded, _)| recorded.len() >= SURE_ID);
    sure.fold(text, |text, (recorded, own)| if text.contains(recorded) { text.replace(recorded, own) } else { text })
}
