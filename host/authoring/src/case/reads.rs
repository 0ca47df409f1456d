//! The hooks `reads` and `live-card` in a case. They are no hooks of a turn.

use std::sync::Arc;
use std::time::SystemTime;

use annex_protocol::{ExtensionUri, Message, Metadata, Task};
use annex_runtime::{Extension, TaskToShow, TurnRequest, show_tasks};
use serde_json::{Value, json};

use super::file::{CaseError, CaseInputs};
use super::outcome::{Outcome, value, without_empty};
use super::scene::{CONTEXT, Scene};
use super::toml_json;

/// Shows the tasks of the case to a reader who activates the extension.
pub(super) async fn show(
    given: &CaseInputs,
    extension: &Arc<Extension>,
    scene: &Arc<Scene>,
    requested: &[ExtensionUri],
    outcome: &mut Outcome,
) -> Result<(), CaseError> {
    let tasks = given.tasks.iter().enumerate().map(|(place, table)| task(table, place));
    let tasks: Vec<TaskToShow> = tasks.collect::<Result<_, _>>()?;
    let request = TurnRequest {
        operation: given.operation.as_deref().unwrap_or("ListTasks"),
        context_id: None,
        task_id: None,
        requested,
        message: &Message::default(),
        request: &Metadata::new(),
        view: Arc::clone(scene) as _,
        resumed: false,
    };
    let began = SystemTime::now();
    let shown = show_tasks(std::slice::from_ref(extension), &request, &tasks).await;
    // A fault leaves the read as it is, so only the metrics tell it from an extension that stays out.
    let failure = extension.metrics().last_failure.filter(|failure| failure.at >= began);
    if let Some(failure) = failure.filter(|_| shown.active.is_empty()) {
        outcome.fault = Some(failure.reason);
        return Ok(());
    }
    outcome.active = Some(!shown.active.is_empty());
    outcome.tasks = tasks.iter().zip(&shown.added).map(|(task, added)| view(task, added.as_ref())).collect();
    Ok(())
}

/// Reads a task in the form of ListTasks. Missing ids and a missing state get default values.
fn task(table: &toml::Table, place: usize) -> Result<TaskToShow, CaseError> {
    let mut table = table.clone();
    table.entry("id").or_insert_with(|| format!("task-{}", place + 1).into());
    table.entry("contextId").or_insert_with(|| CONTEXT.into());
    let completed = toml::Table::from_iter([("state".to_owned(), "TASK_STATE_COMPLETED".into())]);
    table.entry("status").or_insert_with(|| completed.into());
    let task: Task = serde_json::from_str(&toml_json::object(&table).to_string())
        .map_err(|error| CaseError::wrong("tasks", error))?;
    Ok(TaskToShow::from(&task))
}

/// The task as the reader is shown it: its id with the entries that the extension adds, or that it is left out.
fn view(task: &TaskToShow, added: Option<&Metadata>) -> Value {
    without_empty(match added {
        Some(added) => json!({ "id": task.id.as_str(), "metadata": value(added) }),
        None => json!({ "id": task.id.as_str(), "left_out": true }),
    })
}

/// The entry on the Agent Card as the extension has declared it at load.
pub(super) fn live_card(extension: &Extension) -> Option<Value> {
    let live = extension.live_entry()?;
    let own = live.entry.description.as_str();
    // The descriptor has its description already, and so has the manifest.
    let differs = !own.starts_with(extension.descriptor().description.as_str());
    Some(without_empty(json!({
        "description": differs.then_some(own),
        "params": value(&live.entry.params),
        "seconds": live.seconds,
    })))
}
