//! Functions for all model APIs: a request is JSON, and an answer is a stream of JSON values.

use serde_json::{Value, json};

use super::answer::AnswerError;
use crate::model::{Prompt, ToolCall, ToolResult, Turn};
use crate::steering::ModelParameters;

/// The path and body of a request.
pub(super) struct ChatRequest {
    /// The path below the base URL of the API.
    pub(super) path: String,
    pub(super) query: Option<&'static str>,
    pub(super) body: Value,
}

/// Sets the member `key` of the object to `member`. Changes nothing if `member` is `None`.
pub(super) fn with(mut object: Value, key: &str, member: Option<Value>) -> Value {
    if let (Value::Object(members), Some(member)) = (&mut object, member) {
        members.insert(key.to_owned(), member);
    }
    object
}

/// Collects the items into a JSON array; `None` if there are no items.
pub(super) fn list(items: impl Iterator<Item = Value>) -> Option<Value> {
    let items: Vec<Value> = items.collect();
    (!items.is_empty()).then(|| items.into())
}

/// Parses an event as JSON. Fails if the event reports an error, which APIs may send even in the middle of a stream.
pub(super) fn parse(event: &str) -> Result<Value, AnswerError> {
    let value: Value = serde_json::from_str(event).map_err(AnswerError::NotJson)?;
    match value.get("error").filter(|error| !error.is_null()) {
        Some(error) => Err(AnswerError::reported(error)),
        None => Ok(value),
    }
}

pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Reads the count at `pointer` in `value`. `None` if the count is missing or negative.
pub(super) fn count(value: &Value, pointer: &str) -> Option<u64> {
    value.pointer(pointer).and_then(Value::as_u64)
}

/// The sum of the known counts; `None` if none is known.
pub(super) fn sum(counts: impl IntoIterator<Item = Option<u64>>) -> Option<u64> {
    counts.into_iter().flatten().reduce(u64::saturating_add)
}

/// Writes the tools of a prompt as JSON. Each tool has the schema of its parameters under `key`.
pub(super) fn declarations(prompt: &Prompt, key: &str) -> impl Iterator<Item = Value> {
    prompt.tools.iter().map(move |tool| {
        let schema: Value = tool.parameters.to().unwrap_or_default();
        json!({"name": tool.name, "description": tool.description, key: schema})
    })
}

/// The parameters of a prompt that are set. `names` are the names that the API has for temperature, top-p, the maximum
/// number of tokens, stop texts and the seed. A parameter with an empty name is left out.
pub(super) fn parameters(prompt: &Prompt, names: [&'static str; 5]) -> Vec<(&'static str, Value)> {
    let ModelParameters { temperature, top_p, max_tokens, stop, seed } = &prompt.parameters;
    let values = [
        temperature.map(Value::from),
        top_p.map(Value::from),
        max_tokens.map(Value::from),
        stop.clone().map(Value::from),
        seed.map(Value::from),
    ];
    let named = names.into_iter().zip(values).filter(|(name, _)| !name.is_empty());
    named.filter_map(|(name, value)| Some((name, value?))).collect()
}

/// The parameters as an object; `None` if no parameter is set.
pub(super) fn options(prompt: &Prompt, names: [&'static str; 5]) -> Option<Value> {
    let set = parameters(prompt, names);
    (!set.is_empty()).then(|| set.into_iter().collect())
}

/// Adds the parameters as members of the body.
pub(super) fn with_parameters(body: Value, prompt: &Prompt, names: [&'static str; 5]) -> Value {
    parameters(prompt, names).into_iter().fold(body, |body, (name, value)| with(body, name, Some(value)))
}

/// Adds the tools and messages of a prompt to a body, in the form of OpenAI and Ollama. `call` writes a tool call.
/// `called` returns the name and the value of the member that links a result to its call.
pub(super) fn with_chat(
    body: Value,
    prompt: &Prompt,
    call: fn(&ToolCall) -> Value,
    called: fn(&ToolResult) -> (&str, &str),
) -> Value {
    let functions = declarations(prompt, "parameters");
    let tools = list(functions.map(|function| json!({"type": "function", "function": function})));
    let system = (!prompt.instruction.is_empty()).then(|| json!({"role": "system", "content": prompt.instruction}));
    let turns = prompt.turns.iter().flat_map(|turn| messages(turn, call, called));
    let messages: Value = system.into_iter().chain(turns).collect();
    with(with(body, "tools", tools), "messages", Some(messages))
}

fn messages(turn: &Turn, call: fn(&ToolCall) -> Value, called: fn(&ToolResult) -> (&str, &str)) -> Vec<Value> {
    match turn {
        Turn::User(text) => vec![json!({"role": "user", "content": text})],
        Turn::Agent { text, calls } => {
            let message = json!({"role": "assistant", "content": text});
            vec![with(message, "tool_calls", list(calls.iter().map(call)))]
        }
        Turn::Tools(results) => {
            let message = |result: &ToolResult| {
                let (key, value) = called(result);
                json!({"role": "tool", key: value, "content": result.response.get()})
            };
            results.iter().map(message).collect()
        }
    }
}
