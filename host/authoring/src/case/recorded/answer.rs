//! Converts the events of a recorded turn to the agent's answer.

use std::mem;

use annex_protocol::StreamResponse;
use annex_runtime::{RecordedStep, StepInput, StepResult};
use serde_json::Value as Json;
use toml::{Table, Value};

use super::values::json;
use crate::case::outcome::state_name as name;
use crate::case::scene::{CONTEXT, TASK};
use crate::case::toml_json;

/// Converts the agent's events to TOML, as they were before the extension changed them.
pub(super) fn answer(steps: &[RecordedStep]) -> Result<Value, String> {
    let mut events = Vec::new();
    let (mut has_changed, mut has_revised, mut has_released) = (false, false, false);
    for step in steps {
        // Before the task settles, the host asks about the held chunks once more. A case does so itself.
        if matches!(&step.input, StepInput::Output(shown) if is_end_of_held(shown)) {
            has_released = true;
            continue;
        }
        let is_of_release = mem::take(&mut has_released);
        if is_of_release && matches!(step.input, StepInput::Event(StreamResponse::ArtifactUpdate(_))) {
            continue;
        }
        // The event of a change is shown to `output` and `response` once more, as `transition` has left it. What `output`
        // has left is shown to `response`.
        let is_of_change = mem::take(&mut has_changed);
        let is_of_output = mem::take(&mut has_revised);
        match &step.input {
            // The rest is not the agent's.
            StepInput::Begin { .. } | StepInput::Reply { .. } if !matches!(step.result, StepResult::Agrees { .. }) => {
                break;
            }
            StepInput::Change { update, .. } => {
                has_changed = true;
                events.push(event(&StreamResponse::StatusUpdate(update.clone()))?);
            }
            StepInput::Output(shown) => {
                has_revised = !matches!(step.result, StepResult::Holds);
                if !(is_of_change && matches!(shown, StreamResponse::StatusUpdate(_))) {
                    events.push(event(shown)?);
                }
                if matches!(step.result, StepResult::RefusesContent { .. }) {
                    break;
                }
            }
            StepInput::Event(StreamResponse::StatusUpdate(_)) if is_of_change => {}
            StepInput::Event(_) if is_of_output => {}
            StepInput::Event(shown) => events.push(event(shown)?),
            StepInput::Request { .. }
            | StepInput::Begin { .. }
            | StepInput::Reply { .. }
            | StepInput::Model(_)
            | StepInput::Tool(_)
            | StepInput::ToolResult(_)
            | StepInput::Read { .. }
            | StepInput::ExtendedCard(_)
            | StepInput::Call { .. }
            | StepInput::Next => {}
        }
    }
    Ok(Value::Array(events))
}

/// True for the empty last chunk with which the host asks about the chunks that are held back.
fn is_end_of_held(event: &StreamResponse) -> bool {
    let StreamResponse::ArtifactUpdate(update) = event else { return false };
    update.append && update.last_chunk && update.artifact.parts.is_empty()
}

/// Converts an event to an entry of `given.answer`.
fn event(event: &StreamResponse) -> Result<Value, String> {
    if let StreamResponse::StatusUpdate(update) = event
        && update.status.message.is_none()
        && update.metadata.is_empty()
    {
        return Ok(entry("state", name(update.status.state)));
    }
    let mut event = json(event)?;
    for kind in ["statusUpdate", "artifactUpdate"] {
        if let Some(update) = event.get_mut(kind).and_then(Json::as_object_mut) {
            // A case adds these ids itself.
            for (key, id) in [("taskId", TASK), ("contextId", CONTEXT)] {
                if update.get(key).and_then(Json::as_str) == Some(id) {
                    update.remove(key);
                }
            }
        }
    }
    Ok(entry("event", toml_json::toml(&event)))
}

fn entry(key: &str, value: impl Into<Value>) -> Value {
    Value::Table(Table::from_iter([(key.to_owned(), value.into())]))
}
