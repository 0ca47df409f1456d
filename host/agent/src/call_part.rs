//! Tool calls and tool results as parts of messages and events, in ADK's form: a data part whose metadata names its
//! kind.

use std::collections::BTreeMap;

use annex_protocol::{Json, JsonObject, Part, PartContent};
use serde::{Deserialize, Serialize};

use crate::conversation::Hold;
use crate::model::{ToolCall, ToolResult};

/// The metadata key for the kind of a data part.
const TYPE: &str = "adk_type";
const CALL: &str = "function_call";
const RESPONSE: &str = "function_response";
/// The metadata key that marks a call whose result the client sends later. It also marks the tool's preliminary answer
/// to such a call.
const LONG_RUNNING: &str = "adk_is_long_running";
/// The metadata key for the signatures that a model's provider adds to a call. The provider expects them back with the call.
const SIGNATURES: &str = "adk_thought_signature";

/// The metadata key of a call before which the task waits. Its value is the extension that the task waits for.
const HELD: &str = "annex/held";
/// The metadata key of a part that says that the task has waited before a call.
const WAITED: &str = "annex/waited";
/// The metadata key of a part that says that a call before which the task has waited is made now.
const RELEASED: &str = "annex/released";

/// A part that holds a call or its result.
pub(crate) enum CallPart {
    Call {
        call: ToolCall,
        /// The extension that the task waits for before the call.
        held_by: Option<String>,
    },
    /// Further extensions want the call with these arguments to wait, or the client knows of a further wait.
    Waited { id: String, arguments: Json, hold: Hold },
    /// The call is made with these arguments. It is never made again.
    Released { id: String, arguments: Json },
    /// A result. A pending result is the tool's preliminary answer.
    Response { result: ToolResult, is_pending: bool },
}

#[derive(Serialize, Deserialize)]
struct CallData {
    id: String,
    name: String,
    args: Json,
}

#[derive(Serialize, Deserialize)]
struct ResponseData {
    id: String,
    #[serde(default)]
    name: String,
    response: Json,
}

#[derive(Serialize, Deserialize)]
struct WaitedData {
    id: String,
    args: Json,
    by: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unshown: Vec<String>,
    times: u32,
}

#[derive(Serialize, Deserialize)]
struct ReleasedData {
    id: String,
    args: Json,
}

pub(crate) fn call(call: &ToolCall, is_long_running: bool) -> Part {
    let ToolCall { id, name, arguments, signatures } = call.clone();
    let mut part = data_part(CALL, &CallData { id, name, args: arguments }, is_long_running);
    if !signatures.is_empty() {
        // Kept with the call, because the conversation for the model is read from events and nothing else.
        part.metadata.insert(SIGNATURES.to_owned(), json(&signatures));
    }
    part
}

/// A call before which the task waits for the extension `by`.
pub(crate) fn held(held: &ToolCall, by: &str) -> Part {
    let mut part = call(held, false);
    part.metadata.insert(HELD.to_owned(), Json::string(by));
    part
}

/// The note of all waits before a call, after a further one.
pub(crate) fn waited(call: &ToolCall, Hold { by, unshown, times }: Hold) -> Part {
    let (id, args) = (call.id.clone(), call.arguments.clone());
    note(WAITED, &WaitedData { id, args, by, unshown, times })
}

/// The note that a call before which the task has waited is made now.
pub(crate) fn released(call: &ToolCall) -> Part {
    note(RELEASED, &ReleasedData { id: call.id.clone(), args: call.arguments.clone() })
}

fn note(key: &str, data: &impl Serialize) -> Part {
    let metadata = JsonObject::from_iter([(key.to_owned(), json(&true))]);
    Part { metadata, ..Part::from(PartContent::Data(json(data))) }
}

/// True if the part is a note of the agent about a call before which the task has waited. A note is no content: the client
/// never sees it.
#[must_use]
pub fn is_note(part: &Part) -> bool {
    [WAITED, RELEASED].into_iter().any(|key| part.metadata.get(key).is_some())
}

pub(crate) fn response(result: &ToolResult, is_pending: bool) -> Part {
    let ToolResult { id, name, response } = result.clone();
    data_part(RESPONSE, &ResponseData { id, name, response }, is_pending)
}

/// Returns the response for a tool that failed: an object with `message` under the key `error`.
pub(crate) fn error(message: &str) -> Json {
    json(&BTreeMap::from([("error", message)]))
}

/// Reads a call or a result from a part; `None` for any other part.
pub(crate) fn read(part: &Part) -> Option<CallPart> {
    let PartContent::Data(data) = &part.content else { return None };
    // A part in another form is no error but content: clients may send data with any metadata.
    let metadata = |key| part.metadata.get(key);
    if metadata(WAITED).is_some() {
        let WaitedData { id, args, by, unshown, times } = data.to().ok()?;
        return Some(CallPart::Waited { id, arguments: args, hold: Hold { by, unshown, times } });
    }
    if metadata(RELEASED).is_some() {
        let ReleasedData { id, args } = data.to().ok()?;
        return Some(CallPart::Released { id, arguments: args });
    }
    match metadata(TYPE)?.to::<String>().ok()?.as_str() {
        CALL => {
            let CallData { id, name, args } = data.to().ok()?;
            let signatures = metadata(SIGNATURES).and_then(|signatures| signatures.to().ok()).unwrap_or_default();
            let call = ToolCall { id, name, arguments: args, signatures };
            Some(CallPart::Call { call, held_by: metadata(HELD).and_then(|by| by.to().ok()) })
        }
        RESPONSE => {
            let ResponseData { id, name, response } = data.to().ok()?;
            let is_pending = metadata(LONG_RUNNING).is_some_and(|flag| flag.get() == "true");
            Some(CallPart::Response { result: ToolResult { id, name, response }, is_pending })
        }
        _ => None,
    }
}

fn data_part(kind: &str, data: &impl Serialize, is_long_running: bool) -> Part {
    let mut metadata = JsonObject::new();
    metadata.insert(TYPE.to_owned(), Json::string(kind));
    if is_long_running {
        metadata.insert(LONG_RUNNING.to_owned(), json(&true));
    }
    Part { metadata, ..Part::from(PartContent::Data(json(data))) }
}

/// Serializes a value. Inner values that nest too deep for some JSON readers become text.
fn json(value: &impl Serialize) -> Json {
    Json::from_peer(value).unwrap_or_else(|_| Json::string(""))
}
