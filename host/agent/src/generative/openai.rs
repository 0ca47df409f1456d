//! OpenAI's chat completions, which most other providers and local servers speak too.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::answer::{AnswerError, Calls};
use super::interface::{ChatRequest, Interface, count, parse, say, tell, text, think, with_chat};
use crate::model::{ModelEvent, Prompt, ToolCall};
use crate::steps::Tokens;

pub(super) fn request(model: &str, prompt: &Prompt) -> ChatRequest {
    // Usage is asked for, because streams tell token counts only then.
    let body = json!({"model": model, "stream": true, "stream_options": {"include_usage": true}});
    let body = with_chat(body, prompt, call, |result| ("tool_call_id", result.id.as_str()));
    ChatRequest { path: "chat/completions".to_owned(), query: None, body }
}

fn call(call: &ToolCall) -> Value {
    let function = json!({"name": call.name, "arguments": call.arguments.get()});
    json!({"type": "function", "id": call.id, "function": function})
}

#[derive(Default)]
pub(super) struct Reader {
    calls: Calls,
    tokens: Tokens,
}

impl Interface for Reader {
    fn read(&mut self, event: &str, ready: &mut VecDeque<ModelEvent>) -> Result<bool, AnswerError> {
        if event.trim() == "[DONE]" {
            return Ok(true);
        }
        let chunk = parse(event)?;
        let input = count(&chunk, "/usage/prompt_tokens");
        let output = count(&chunk, "/usage/completion_tokens");
        if input.is_some() || output.is_some() {
            self.tokens = Tokens { input, output };
        }
        let Some(delta) = chunk.pointer("/choices/0/delta") else { return Ok(false) };
        // Providers differ in the name.
        think(text(delta, "/reasoning_content"), ready);
        think(text(delta, "/reasoning"), ready);
        content(delta.get("content"), ready);
        let calls = delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
        for (place, piece) in calls.enumerate() {
            let number = count(piece, "/index").or_else(|| u64::try_from(place).ok()).unwrap_or_default();
            let arguments = piece.pointer("/function/arguments");
            // Some servers send the arguments as the object that they are.
            let arguments = arguments.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
            let arguments = arguments.filter(|text| text != "null").unwrap_or_default();
            self.calls.add(number, text(piece, "/id"), text(piece, "/function/name"), &arguments)?;
        }
        Ok(false)
    }

    fn end(&mut self, ready: &mut VecDeque<ModelEvent>) {
        ready.extend(self.calls.take());
        tell(self.tokens, ready);
    }
}

/// A text; or, of Mistral's reasoning models, a list of texts and thoughts.
fn content(content: Option<&Value>, ready: &mut VecDeque<ModelEvent>) {
    match content {
        Some(Value::String(piece)) => say(piece, ready),
        Some(Value::Array(pieces)) => {
            for piece in pieces {
                say(text(piece, "/text"), ready);
                let thoughts = piece.get("thinking").and_then(Value::as_array).into_iter().flatten();
                thoughts.for_each(|thought| think(text(thought, "/text"), ready));
            }
        }
        _ => {}
    }
}
