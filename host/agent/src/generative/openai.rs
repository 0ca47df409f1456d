//! OpenAI's chat completions API. Most other providers and local servers offer it too.

use serde_json::{Value, json};

use super::answer::{AnswerError, EventQueue};
use super::interface::{ChatRequest, count, parse, text, with_chat, with_parameters};
use crate::model::{Prompt, ToolCall};
use crate::steps::Tokens;

pub(super) fn request(model: &str, prompt: &Prompt) -> ChatRequest {
    // `include_usage` makes streams report token counts.
    let body = json!({"model": model, "stream": true, "stream_options": {"include_usage": true}});
    let body = with_parameters(body, prompt, ["temperature", "top_p", max_tokens(model), "stop", "seed"]);
    let body = with_chat(body, prompt, call, |result| ("tool_call_id", result.id.as_str()));
    ChatRequest { path: "chat/completions".to_owned(), query: None, body }
}

/// The name of the limit on the tokens of an answer. OpenAI's newer models refuse the name that other servers know.
fn max_tokens(model: &str) -> &'static str {
    let is_newer = ["o1", "o3", "o4", "gpt-5"].iter().any(|newer| model.starts_with(newer));
    if is_newer { "max_completion_tokens" } else { "max_tokens" }
}

fn call(call: &ToolCall) -> Value {
    let function = json!({"name": call.name, "arguments": call.arguments.get()});
    json!({"type": "function", "id": call.id, "function": function})
}

pub(super) fn read(event: &str, answer: &mut EventQueue) -> Result<bool, AnswerError> {
    if event.trim() == "[DONE]" {
        return Ok(true);
    }
    let chunk = parse(event)?;
    let input = count(&chunk, "/usage/prompt_tokens");
    let output = count(&chunk, "/usage/completion_tokens");
    if input.is_some() || output.is_some() {
        answer.tokens = Tokens { input, output };
    }
    let Some(delta) = chunk.pointer("/choices/0/delta") else { return Ok(false) };
    // Providers use different names for the reasoning.
    answer.think(text(delta, "/reasoning_content"));
    answer.think(text(delta, "/reasoning"));
    content(delta.get("content"), answer);
    let calls = delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
    for (place, piece) in calls.enumerate() {
        let number = count(piece, "/index").or_else(|| u64::try_from(place).ok()).unwrap_or_default();
        let arguments = piece.pointer("/function/arguments");
        // Some servers send the arguments as an object instead of a string.
        let arguments = arguments.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        let arguments = arguments.filter(|text| text != "null").unwrap_or_default();
        answer.calls.add(number, text(piece, "/id"), text(piece, "/function/name"), &arguments)?;
    }
    Ok(false)
}

/// Reads the content of a piece. It is a text, or, from Mistral's reasoning models, a list of texts and thoughts.
fn content(content: Option<&Value>, answer: &mut EventQueue) {
    match content {
        Some(Value::String(piece)) => answer.say(piece),
        Some(Value::Array(pieces)) => {
            for piece in pieces {
                answer.say(text(piece, "/text"));
                let thoughts = piece.get("thinking").and_then(Value::as_array).into_iter().flatten();
                thoughts.for_each(|thought| answer.think(text(thought, "/text")));
            }
        }
        _ => {}
    }
}
