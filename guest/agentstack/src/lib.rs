//! Extensions of agentstack without imports: `ui/citation`, `ui/agent-detail`, `ui/error`, `services/form`,
//! `ui/form_request`, `ui/settings` and `auth/secrets`. The parameter `extension` says which of them this is.
//!
//! This file has the hooks. Links of the answer are found in [`citations`], forms and their values are checked in [`forms`],
//! and secrets in [`secrets`].

pub mod citations;
pub mod forms;
pub mod parameters;
pub mod secrets;

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use annex_sdk::members::Members;
use annex_sdk::{
    Beginning, Card, Declaration, Descriptor, Entry, Event, EventKind, EventKinds, Extension, Interruption, Json,
    MetadataEntry, Patch, Rejection, Request, Response, Ruling, State, StateChange, Transition, Violation, Waiting,
    json, parts,
};
use serde_json::json;

use crate::citations::Citations;
use crate::parameters::{Kind, PARAMETER_SCHEMA, Parameters};

/// The largest number of artifacts of a turn whose chunks are read together.
const MAX_ARTIFACTS: usize = 64;

/// The extension. The type has no data: each hook gets the parameters as an argument.
#[derive(Debug)]
pub struct Agentstack;

thread_local! {
    /// True if the message of this turn has the values of a form, or all secrets. An instance serves one turn.
    static HAS_VALUES: Cell<bool> = const { Cell::new(false) };
    /// The links in the artifacts of this turn, by the id of the artifact.
    static ARTIFACTS: RefCell<BTreeMap<String, Citations>> = const { RefCell::new(BTreeMap::new()) };
}

impl Extension for Agentstack {
    type Parameters = Parameters;
    const PARAMETER_SCHEMA: Option<&'static str> = Some(PARAMETER_SCHEMA);

    fn descriptor(parameters: &Parameters) -> Result<Descriptor, String> {
        parameters.check()?;
        let uri = parameters.extension.uri();
        let is_citation = parameters.extension == Kind::Citation;
        Ok(Descriptor {
            name: "agentstack".to_owned(),
            metadata_keys: if parameters.extension == Kind::AgentDetail { Vec::new() } else { vec![uri.to_owned()] },
            events: if is_citation { EventKinds::all() } else { EventKinds::empty() },
            payload: is_citation,
            grants: parameters.extension.grants(),
            ..Descriptor::new(uri, parameters.extension.description())
        })
    }
}

impl Card for Agentstack {
    fn declare(parameters: &Parameters) -> Result<Declaration, String> {
        Ok(Declaration { description: None, params: parameters.declared().map(|params| params.to_string()) })
    }
}

impl State for Agentstack {
    fn validate(
        parameters: &Parameters,
        _request: Request,
        metadata: Vec<MetadataEntry>,
    ) -> Result<Option<Json>, Rejection> {
        HAS_VALUES.set(false);
        let is_secrets = parameters.extension == Kind::Secrets;
        let takes_values = is_secrets || parameters.extension.is_form();
        let Some(entry) = metadata.first().filter(|_| takes_values) else { return Ok(None) };
        if let Some(second) = metadata.get(1) {
            return Err(Violation::new(second.pointer(), "is there twice: in the message and in the request").into());
        }
        let of_kind = if is_secrets { secrets::delta } else { forms::delta };
        let delta = of_kind(parameters, &entry.value, &entry.pointer()).map_err(Rejection::Violations)?;
        HAS_VALUES.set(if is_secrets { delta.len() == parameters.secret_demands.len() } else { !delta.is_empty() });
        Ok((!delta.is_empty()).then(|| serde_json::Value::Object(delta).to_string()))
    }
}

impl Transition for Agentstack {
    fn begin(parameters: &Parameters, _request: Request, beginning: Beginning) -> Result<Entry, String> {
        if parameters.extension == Kind::Secrets && !HAS_VALUES.get() {
            return Ok(Entry::Interrupt(secrets::interruption(parameters)));
        }
        let Some(form) = parameters.form.as_ref().filter(|_| parameters.extension == Kind::FormRequest) else {
            return Ok(Entry::Proceed);
        };
        // A task that waits may wait for an answer to the agent's own question, so only a new task is asked.
        if beginning.waits_in.is_some() || HAS_VALUES.get() {
            return Ok(Entry::Proceed);
        }
        let text = form.get("title").and_then(|title| title.as_str()).unwrap_or("Please fill in the form.").to_owned();
        let metadata = vec![(Kind::FormRequest.uri().to_owned(), form.to_string())];
        Ok(Entry::Interrupt(Interruption { waiting: Waiting::Input, text, metadata }))
    }

    fn change(parameters: &Parameters, change: StateChange) -> Result<Ruling, String> {
        if parameters.extension != Kind::Error || change.next != "TASK_STATE_FAILED" {
            return Ok(Ruling::Pass);
        }
        let message = change.message.as_deref().map(parts::text).filter(|text| !text.is_empty());
        let message = message.unwrap_or_else(|| "The agent has failed.".to_owned());
        let error = json!({
            "error": {"title": parameters.title, "message": message},
            "stack_trace": null,
            "context": null,
        });
        Ok(Ruling::Annotate(vec![(Kind::Error.uri().to_owned(), error.to_string())]))
    }
}

impl Response for Agentstack {
    fn respond(parameters: &Parameters, event: Event) -> Result<Option<Patch>, String> {
        let Some(payload) = event.payload.as_deref().filter(|_| parameters.extension == Kind::Citation) else {
            return Ok(None);
        };
        let text = parts::text(payload);
        if event.kind != EventKind::Artifact {
            let mut links = Citations::default();
            links.read(&text);
            return patch(&links);
        }
        let Some((id, appends)) = artifact(payload) else { return Ok(None) };
        ARTIFACTS.with_borrow_mut(|artifacts| {
            if !appends {
                artifacts.remove(&id);
            }
            if artifacts.len() >= MAX_ARTIFACTS && !artifacts.contains_key(&id) {
                return Ok(None);
            }
            let links = artifacts.entry(id).or_default();
            links.read(&text);
            patch(links)
        })
    }
}

/// The links as metadata. `None` if there is no link.
fn patch(links: &Citations) -> Result<Option<Patch>, String> {
    let citations = links.found();
    if citations.is_empty() {
        return Ok(None);
    }
    let citations = json::text(citations)?;
    Ok(Some(Patch::entry(Kind::Citation.uri(), format!(r#"{{"citations":{citations}}}"#))))
}

/// The id of the artifact in an event, and whether the event appends to the artifact.
fn artifact(payload: &str) -> Option<(String, bool)> {
    let event = Members::of(payload)?;
    let update = Members::of(event.get("artifactUpdate")?)?;
    let artifact = Members::of(update.get("artifact")?)?;
    let id = serde_json::from_str(artifact.get("artifactId")?).ok()?;
    Some((id, update.get("append").is_some_and(|append| append == "true")))
}

annex_sdk::export!(Agentstack: card, state, transition, response);
