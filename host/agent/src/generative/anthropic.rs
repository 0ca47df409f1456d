//! Anthropic's Messages API.

use serde_json::{Value, json};

use super::answer::{AnswerError, EventQueue};
use super::interface::{ChatRequest, count, declarations, list, parse, sum, text, with, with_parameters};
use crate::model::{Prompt, ToolCall, ToolResult, Turn};
use crate::steps::Tokens;

pub(super) const VERSION: &str = "2023-06-01";

pub(super) fn request(model: &str, prompt: &Prompt) -> ChatRequest {
    let most = max_tokens(model);
    let max_tokens = prompt.parameters.max_tokens.map_or(most, |wanted| wanted.min(most));
    let body = json!({"model": model, "stream": true, "max_tokens": max_tokens});
    // The API has no seed.
    let body = with_parameters(body, prompt, ["temperature", "top_p", "", "stop_sequences", ""]);
    let system = (!prompt.instruction.is_empty()).then(|| prompt.instruction.as_str().into());
    let body = with(with(body, "system", system), "tools", list(declarations(prompt, "input_schema")));
    let body = with(body, "messages", Some(prompt.turns.iter().map(message).collect()));
    ChatRequest { path: "messages".to_owned(), query: None, body }
}

/// The limit on the tokens of an answer. The API requires a limit, and refuses a limit above the model's maximum.
fn max_tokens(model: &str) -> u32 {
    let is_any = |names: &[&str]| names.iter().any(|name| model.contains(name));
    if is_any(&["3-opus", "3-haiku"]) {
        4_096
    } else if is_any(&["3-5"]) {
        8_192
    } else if is_any(&["opus-4-0", "opus-4-1", "opus-4-2025"]) {
        32_000
    } else {
        64_000
    }
}

fn message(turn: &Turn) -> Value {
    match turn {
        Turn::User(text) => json!({"role": "user", "content": text}),
        Turn::Agent { text, calls } if calls.is_empty() => json!({"role": "assistant", "content": text}),
        Turn::Agent { text, calls } => {
            let text = (!text.is_empty()).then(|| json!({"type": "text", "text": text}));
            let content: Vec<Value> = text.into_iter().chain(calls.iter().map(call)).collect();
            json!({"role": "assistant", "content": content})
        }
        Turn::Tools(results) => json!({"role": "user", "content": results.iter().map(result).collect::<Vec<_>>()}),
    }
}

fn call(call: &ToolCall) -> Value {
    let input: Option<Value> = call.arguments.to().ok().filter(Value::is_object);
    json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input.unwrap_or_else(|| json!({}))})
}

fn result(result: &ToolResult) -> Value {
    json!({"type": "tool_result", "tool_use_id": result.id, "content": result.response.get()})
}

pub(super) fn read(event: &str, answer: &mut EventQueue) -> Result<bool, AnswerError> {
    let event = parse(event)?;
    let number = count(&event, "/index").unwrap_or_default();
    match text(&event, "/type") {
        "message_start" => count_tokens(&event, "/message/usage", &mut answer.tokens),
        "message_delta" => count_tokens(&event, "/usage", &mut answer.tokens),
        "content_block_start" => {
            let block = event.get("content_block").unwrap_or(&Value::Null);
            match text(block, "/type") {
                "tool_use" => answer.calls.add(number, text(block, "/id"), text(block, "/name"), "")?,
                "thinking" => answer.think(text(block, "/thinking")),
                _ => answer.say(text(block, "/text")),
            }
        }
        "content_block_delta" => {
            answer.say(text(&event, "/delta/text"));
            answer.think(text(&event, "/delta/thinking"));
            let arguments = text(&event, "/delta/partial_json");
            if !arguments.is_empty() {
                answer.calls.add(number, "", "", arguments)?;
            }
        }
        "message_stop" => return Ok(true),
        // Pings, ends of blocks, and future kinds of events.
        _ => {}
    }
    Ok(false)
}

/// Reads the token counts in an event. The API counts cached input tokens separately, so they are added to the input.
fn count_tokens(event: &Value, usage: &str, tokens: &mut Tokens) {
    let of = |name: &str| count(event, &format!("{usage}/{name}"));
    let input = of("input_tokens");
    let cached = [of("cache_creation_input_tokens"), of("cache_read_input_tokens")];
    if input.is_some() {
        tokens.input = sum([input].into_iter().chain(cached));
    }
    tokens.output = of("output_tokens").or(tokens.output);
}
