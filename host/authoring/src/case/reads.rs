//! The hooks `reads`, `extended-card` and `live-card` in a case. They are no hooks of a turn.

use std::sync::Arc;
use std::time::SystemTime;

use annex_protocol::{AgentExtension, ExtensionUri, JsonObject, Message, Metadata, Task};
use annex_runtime::{Extension, TaskToShow, TurnRequest, show_entries, show_tasks};
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
    outcome.fault = fault(extension, &shown.active, began);
    if outcome.fault.is_some() {
        return Ok(());
    }
    outcome.active = Some(!shown.active.is_empty());
    outcome.tasks = tasks.iter().zip(&shown.added).map(|(task, added)| view(task, added.as_ref())).collect();
    Ok(())
}

/// Shows the entry of the case to a reader of the extended card who activates the extension.
pub(super) async fn show_entry(
    given: &CaseInputs,
    extension: &Arc<Extension>,
    scene: &Arc<Scene>,
    requested: &[ExtensionUri],
    outcome: &mut Outcome,
) -> Result<(), CaseError> {
    let present = entry(given, extension)?;
    let request = TurnRequest {
        operation: "GetExtendedAgentCard",
        context_id: None,
        task_id: None,
        requested,
        message: &Message::default(),
        request: &Metadata::new(),
        view: Arc::clone(scene) as _,
        resumed: false,
    };
    let began = SystemTime::now();
    let shown = show_entries(std::slice::from_ref(extension), &request, std::slice::from_ref(&present)).await;
    outcome.fault = fault(extension, &shown.active, began);
    if outcome.fault.is_none() {
        outcome.active = Some(!shown.active.is_empty());
        outcome.card = shown.changed.first().map(|changed| changes(&present, changed));
    }
    Ok(())
}

/// The failure of a read that began at `began`. A fault leaves the read as it is, so only the metrics tell it from an
/// extension that stays out.
fn fault(extension: &Extension, active: &[ExtensionUri], began: SystemTime) -> Option<String> {
    let failure = extension.metrics().last_failure.filter(|failure| failure.at >= began);
    failure.filter(|_| active.is_empty()).map(|failure| failure.reason)
}

/// The entry of the case. Missing fields are those of the extension's own entry.
fn entry(given: &CaseInputs, extension: &Extension) -> Result<AgentExtension, CaseError> {
    let mut entry = AgentExtension::clone(&extension.card());
    if let Some(description) = &given.entry.description {
        entry.description.clone_from(description);
    }
    if let Some(params) = &given.entry.params {
        let params = JsonObject::parse(&toml_json::object(params).to_string());
        entry.params = Some(params.map_err(|error| CaseError::wrong("entry.params", error))?);
    }
    Ok(entry)
}

/// The fields of the entry that the extension has changed.
fn changes(present: &AgentExtension, changed: &AgentExtension) -> Value {
    let description = (changed.description != present.description).then_some(&changed.description);
    let params = changed.params.as_ref().filter(|_| changed.params != present.params).map(value);
    // Empty params are a change.
    let mut changes = serde_json::Map::new();
    changes.extend(description.map(|description| ("description".to_owned(), Value::from(description.as_str()))));
    changes.extend(params.map(|params| ("params".to_owned(), params)));
    changes.into()
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
