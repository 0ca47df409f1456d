//! The outcome of a case as a TOML table. It contains every effect, so that no effect is overlooked. Empty members are
//! omitted.

use std::sync::PoisonError;

use annex_protocol::{A2aError, Json, JsonObject, Part, PartContent, StreamResponse, TaskState};
use annex_runtime::{Addition, Extension, Fault, Hook, HookError, KeyValueStore, RequestOutcome, Space};
use serde_json::{Map, Value, json};
use toml::Table;

use super::file::CaseError;
use super::scene::{self, Scene};
use super::toml_json;

/// The outcome of a case.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) active: Option<bool>,
    refused: Option<Value>,
    pub(super) fault: Option<String>,
    delta: Option<JsonObject>,
    parts: Option<Value>,
    /// The reason for which the extension rejected the turn. The agent does not run in a rejected turn.
    pub(super) rejected: Option<String>,
    /// The steps of the agent as the hook `steering` has left them.
    pub(super) steps: Vec<Value>,
    events: Vec<Value>,
    /// True if events show all parts, and not only a text. Hooks of the extension decide about parts then.
    shows_parts: bool,
    /// The entries of the task's metadata that the extension has set.
    task_metadata: Map<String, Value>,
    /// The tasks as the hook `reads` shows them.
    pub(super) tasks: Vec<Value>,
    /// The entry on the Agent Card from the hook `live-card`, or the changes of the hook `extended-card`.
    pub(super) card: Option<Value>,
    /// The result of a method.
    pub(super) result: Option<Json>,
    /// The results of a streaming method.
    pub(super) results: Vec<Json>,
    addition: Option<Value>,
    /// The values that the client's side of the extension returned to the calling program.
    pub(super) told: Vec<Json>,
    log: Vec<String>,
    keys: Map<String, Value>,
    requests: Vec<String>,
    resumed: Vec<String>,
}

impl Outcome {
    /// An outcome without effects.
    pub(super) fn of(extension: &Extension) -> Self {
        let decides_about_parts = |hook: &Hook| matches!(hook, Hook::Reply | Hook::Output);
        Self { shows_parts: extension.hooks().iter().any(decides_about_parts), ..Self::default() }
    }

    /// Records that the request hooks accepted the request.
    pub(super) fn entered(&mut self, entered: &RequestOutcome) {
        self.active = Some(entered.chain.active().next().is_some());
        self.delta = Some(entered.delta.clone());
        self.parts = entered.parts.as_ref().map(value);
    }

    /// Records that the request does not activate the extension.
    pub(super) fn stays_out(&mut self) {
        self.active = Some(false);
    }

    /// Records that the request ended early.
    pub(super) fn stopped(&mut self, error: &HookError) {
        match error {
            HookError::Refused(refusal) => self.refused = Some(refused(refusal)),
            HookError::Fault(fault) => self.failed(fault),
        }
    }

    /// Records that the extension failed or exceeded a limit.
    pub(super) fn failed(&mut self, fault: &Fault) {
        self.fault = Some(annex_text::with_causes(fault));
    }

    pub(super) fn add_event(&mut self, event: &StreamResponse) {
        let mut shown = shown(event);
        if self.shows_parts
            && let Some(members) = shown.as_object_mut()
            && let Some(parts) = parts_beyond_text(event)
        {
            members.insert("parts".to_owned(), parts);
        }
        self.events.push(shown);
    }

    pub(super) fn set_task_metadata(&mut self, entries: Vec<(String, Json)>) {
        self.task_metadata.extend(entries.into_iter().map(|(key, entry)| (key, value(&entry))));
    }

    pub(super) fn added(&mut self, addition: &Addition) {
        self.addition = Some(without_empty(json!({
            "activate": addition.activate,
            "message": value(&addition.message),
            "request": value(&addition.request),
        })));
    }

    /// Checks that the extension did not fail.
    ///
    /// # Errors
    /// When the extension failed, because the costs of such a turn are meaningless.
    pub(super) fn check(&self) -> Result<(), CaseError> {
        match &self.fault {
            Some(fault) => Err(CaseError::Case(format!("a turn fails: {fault}"))),
            None => Ok(()),
        }
    }

    /// Records the effects that are known only after the run: log lines, keys, HTTP requests and resumed tasks.
    pub(super) async fn look_back(&mut self, extension: &Extension, scene: &Scene) {
        self.log = extension
            .log()
            .into_iter()
            .map(|line| match line.context.as_str() {
                "" => format!("{}: {}", line.level, line.message),
                context => format!("{}: {context}: {}", line.level, line.message),
            })
            .collect();
        for (name, kind) in scene::BUCKETS {
            let space = Space { extension: extension.uri().clone(), scope: scene::scope(kind) };
            let mut values = Map::new();
            // A store in memory cannot fail.
            for key in scene.keys.keys(&space, 0).await.unwrap_or_default() {
                let value = scene.keys.get(&space, &key).await.ok().flatten().unwrap_or_default();
                values.insert(key, String::from_utf8_lossy(&value).into());
            }
            if !values.is_empty() {
                self.keys.insert(name.to_owned(), values.into());
            }
        }
        self.requests.clone_from(&scene.requests.sent.lock().unwrap_or_else(PoisonError::into_inner));
        self.resumed.clone_from(&scene.resumed.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn into_table(self) -> Table {
        let whole = without_empty(json!({
            "active": self.active,
            "refused": self.refused,
            "fault": self.fault,
            "delta": self.delta.as_ref().map(value),
            "parts": self.parts,
            "rejected": self.rejected,
            "steps": self.steps,
            "events": self.events,
            "task_metadata": self.task_metadata,
            "tasks": self.tasks,
            "card": self.card,
            "result": self.result.as_ref().map(value),
            "results": self.results.iter().map(value).collect::<Vec<_>>(),
            "addition": self.addition,
            "told": self.told.iter().map(value).collect::<Vec<_>>(),
            "log": self.log,
            "keys": self.keys,
            "requests": self.requests,
            "resumed": self.resumed,
        }));
        match whole {
            // Each member by itself, so that a nested `null` turns only its own member into text.
            Value::Object(members) => {
                members.iter().map(|(key, value)| (key.clone(), toml_json::toml(value))).collect()
            }
            _ => Table::new(),
        }
    }
}

fn refused(refusal: &A2aError) -> Value {
    let (violations, data) = match refusal {
        A2aError::InvalidParams { violations } => (value(violations), None),
        A2aError::Extension { data, .. } => (Value::Null, data.as_ref().map(value)),
        _ => (Value::Null, None),
    };
    without_empty(
        json!({ "code": refusal.code(), "message": refusal.to_string(), "violations": violations, "data": data }),
    )
}

/// Writes an event as JSON, without members that are the same in every case.
fn shown(event: &StreamResponse) -> Value {
    without_empty(match event {
        StreamResponse::Message(message) => {
            json!({ "message": message.text(), "metadata": value(&message.metadata), "extensions": value(&message.extensions) })
        }
        StreamResponse::ArtifactUpdate(update) => {
            let artifact = &update.artifact;
            let text = artifact.parts.iter().find_map(|part| match &part.content {
                annex_protocol::PartContent::Text(text) => Some(text.as_str()),
                _ => None,
            });
            json!({ "artifact": text, "metadata": value(&artifact.metadata), "extensions": value(&artifact.extensions) })
        }
        StreamResponse::StatusUpdate(update) => {
            let message = update.status.message.as_ref();
            json!({
                "state": state_name(update.status.state),
                "message": message.map(annex_protocol::Message::text),
                "metadata": value(message.map_or(&update.metadata, |message| &message.metadata)),
                "extensions": message.map(|message| value(&message.extensions)),
            })
        }
        StreamResponse::Task(task) => json!({ "task": value(task) }),
    })
}

/// The name that a case uses for a state, such as `input-required`.
pub(super) fn state_name(state: TaskState) -> String {
    state.name().trim_start_matches("TASK_STATE_").to_lowercase().replace('_', "-")
}

/// The parts of an event; `None` if they are a single text, which the event shows already.
fn parts_beyond_text(event: &StreamResponse) -> Option<Value> {
    let parts: &[Part] = match event {
        StreamResponse::Message(message) => &message.parts,
        StreamResponse::ArtifactUpdate(update) => &update.artifact.parts,
        StreamResponse::StatusUpdate(update) => &update.status.message.as_ref()?.parts,
        StreamResponse::Task(_) => return None,
    };
    match parts {
        [Part { content: PartContent::Text(text), .. }] if *parts == [Part::text(text)] => None,
        parts => Some(value(&parts)),
    }
}

pub(super) fn value(of: &impl serde::Serialize) -> Value {
    serde_json::to_value(of).unwrap_or_default()
}

/// Removes the empty members of a value.
pub(super) fn without_empty(value: Value) -> Value {
    let Value::Object(members) = value else { return value };
    let says = |value: &Value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        _ => true,
    };
    members.into_iter().filter(|(_, value)| says(value)).collect::<Map<_, _>>().into()
}

/// Writes the table as text for a case file.
pub(super) fn text(expect: &Table) -> String {
    let whole = Table::from_iter([("expect".to_owned(), expect.clone().into())]);
    let text = whole.to_string();
    // A table without values of its own has no line, and the file needs it.
    if text.starts_with("[expect]") { text } else { format!("[expect]\n\n{text}") }
}
