//! Anthropic's messages.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::answer::{AnswerError, Calls};
use super::interface::{ChatRequest, Interface, count, declarations, list, parse, say, sum, tell, text, think, with};
use crate::model::{ModelEvent, Prompt, ToolCall, ToolResult, Turn};
use crate::steps::Tokens;

pub(super) const VERSION: &str = "2023-06-01";

pub(super) fn request(model: &str, prompt: &Prompt) -> ChatRequest {
    let body = json!({"model": model, "stream": true, "max_tokens": max_tokens(model)});
    let system = (!prompt.instruction.is_empty()).then(|| prompt.instruction.as_str().into());
    let body = with(with(body, "system", system), "tools", list(declarations(prompt, "input_schema")));
    let body = with(body, "messages", Some(prompt.turns.iter().map(message).collect()));
    ChatRequest { path: "messages".to_owned(), query: None, body }
}

/// The interface wants a limit, and refuses one that is beyond the model's own.
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

#[derive(Default)]
pub(super) struct Reader {
    calls: Calls,
    tokens: Tokens,
}

impl Interface for Reader {
    fn read(&mut self, event: &str, ready: &mut VecDeque<ModelEvent>) -> Result<bool, AnswerError> {
        let event = parse(event)?;
        let number = count(&event, "/index").unwrap_or_default();
        match text(&event, "/type") {
            "message_start" => self.count(&event, "/message/usage"),
            "message_delta" => self.count(&event, "/usage"),
            "content_block_start" => {
                let block = event.get("content_block").unwrap_or(&Value::Null);
                match text(block, "/type") {
                    "tool_use" => self.calls.add(number, text(block, "/id"), text(block, "/name"), "")?,
                    "thinking" => think(text(block, "/thinking"), ready),
                    _ => say(text(block, "/text"), ready),
                }
            }
            "content_block_delta" => {
                say(text(&event, "/delta/text"), ready);
                think(text(&event, "/delta/thinking"), ready);
                let arguments = text(&event, "/delta/partial_json");
                if !arguments.is_empty() {
                    self.calls.add(number, "", "", arguments)?;
                }
            }
            "message_stop" => return Ok(true),
            // Pings, the ends of blocks, and what is yet to come.
            _ => {}
        }
        Ok(false)
    }

    fn end(&mut self, ready: &mut VecDeque<ModelEvent>) {
        ready.extend(self.calls.take());
        tell(self.tokens, ready);
    }
}

impl Reader {
    /// Counts of input leave out what was cached.
    fn count(&mut self, event: &Value, usage: &str) {
        let of = |name: &str| count(event, &format!("{usage}/{name}"));
        let input = of("input_tokens");
        let cached = [of("cache_creation_input_tokens"), of("cache_read_input_tokens")];
        if input.is_some() {
            self.tokens.input = sum([input].into_iter().chain(cached));
        }
        self.tokens.output = of("output_tokens").or(self.tokens.output);
    }
}
