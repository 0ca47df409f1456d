//! The calling side: sends the program's capabilities, and tells the program which A2UI of the agent does not fit.

use std::cell::RefCell;

use annex_sdk::members::Members;
use annex_sdk::{Addition, Incoming, Json, Location, MetadataEntry, Outgoing, Rejection, json};
use serde::Serialize;
use serde_json::{Value, json};

use crate::catalogue::{Catalogues, Offer};
use crate::incoming::{check_parts, read_offer};
use crate::outgoing::Judge;
use crate::parameters::Parameters;
use crate::parts;
use crate::schema::Steps;
use crate::surfaces::Surfaces;
use crate::version;

/// The members that lead from a StreamResponse to lists of parts.
const WAYS: [&str; 4] =
    ["/message", "/statusUpdate/status/message", "/artifactUpdate/artifact", "/task/status/message"];

thread_local! {
    /// The offer of the program, and the surfaces in the events of this call. An instance lives for one call.
    static CALL: RefCell<Option<(Offer, Surfaces)>> = const { RefCell::new(None) };
}

/// Adds the program's input to the message as capabilities, and checks the A2UI parts of the message.
///
/// # Errors
/// The input or a part does not fit.
pub fn before(parameters: &Parameters, call: &Outgoing) -> Result<Addition, Rejection> {
    let (Some(_), Some(input)) = (&call.declaration, &call.input) else { return Ok(Addition::none()) };
    let parsed: Value = serde_json::from_str(input).unwrap_or_default();
    let named = parameters.version.names().first().filter(|_| parameters.version.is_named_in_messages());
    let capabilities = named.map_or_else(|| parsed.clone(), |name| json!({ *name: parsed }));
    let offer = read_offer(parameters, "", Some(&capabilities)).map_err(Rejection::Violations)?;
    let message = call.message.as_deref().and_then(Members::of).unwrap_or_default();
    let wrong = check_parts(parameters, message.get("parts"));
    if !wrong.is_empty() {
        return Err(Rejection::Violations(wrong));
    }
    CALL.replace(Some((offer, Surfaces::seen())));
    let key = parameters.version.capabilities_key().to_owned();
    let entry = MetadataEntry { location: Location::Message, key, value: capabilities.to_string() };
    Ok(Addition { activate: true, metadata: vec![entry] })
}

/// The violations of an event, as `{"violations": [{"pointer": …, "message": …}]}`.
///
/// # Errors
/// The violations are no JSON, which does not happen.
pub fn after(parameters: &Parameters, event: &Incoming) -> Result<Option<Json>, String> {
    #[derive(Serialize)]
    struct ViolationEntry {
        pointer: String,
        message: String,
    }
    CALL.with_borrow_mut(|call| {
        let Some((offer, surfaces)) = call.as_mut().filter(|_| event.active) else { return Ok(None) };
        let event: Value = serde_json::from_str(&event.event).map_err(|error| error.to_string())?;
        let schemas = version::schemas(parameters.version)?;
        let catalogues = Catalogues::new(parameters, offer, version::catalogue(schemas));
        let steps = Steps::new();
        let mut judge =
            Judge { version: parameters.version, schemas, catalogues: &catalogues, surfaces, steps: &steps };
        let mut found = Vec::new();
        for (list, at) in lists(&event) {
            let text = list.to_string();
            let array = parts::parts_of(Some(&text));
            for part in parts::ui_parts(&array, parameters.version) {
                let at = format!("{at}/{}", part.index);
                let wrong = match parts::messages(part.data.as_ref()) {
                    Ok(messages) => judge.all(&messages, &at)?,
                    Err(violation) => vec![violation],
                };
                let below = |pointer: String| if pointer.is_empty() { at.clone() } else { pointer };
                found.extend(
                    wrong.into_iter().map(|violation| ViolationEntry {
                        pointer: below(violation.pointer),
                        message: violation.message,
                    }),
                );
            }
        }
        if found.is_empty() { Ok(None) } else { json::text(&json!({"violations": found})).map(Some) }
    })
}

/// The lists of parts in an event, with their pointers.
fn lists(event: &Value) -> Vec<(&Value, String)> {
    let artifacts = event.pointer("/task/artifacts").and_then(Value::as_array).map_or(0, Vec::len);
    let ways = WAYS.iter().map(|way| (*way).to_owned()).chain((0..artifacts).map(|n| format!("/task/artifacts/{n}")));
    ways.filter_map(|way| {
        let at = format!("{way}/parts");
        Some((event.pointer(&at)?, at))
    })
    .collect()
}
