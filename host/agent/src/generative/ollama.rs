//! Ollama's own interface. Its answer is lines of JSON.

use serde_json::{Value, json};

use super::answer::{AnswerError, EventQueue};
use super::interface::{ChatRequest, count, options, parse, text, with, with_chat};
use crate::model::{Prompt, ToolCall};
use crate::steps::Tokens;

pub(super) fn request(model: &str, prompt: &Prompt) -> ChatRequest {
    let body = json!({"model": model, "stream": true});
    let body = with(body, "options", options(prompt, ["temperature", "top_p", "num_predict", "stop", "seed"]));
    let body = with_chat(body, prompt, call, |result| ("tool_name", result.name.as_str()));
    ChatRequest { path: "api/chat".to_owned(), query: None, body }
}

fn call(call: &ToolCall) -> Value {
    let arguments: Value = call.arguments.to().unwrap_or_default();
    json!({"function": {"name": call.name, "arguments": arguments}})
}

pub(super) fn read(event: &str, answer: &mut EventQueue) -> Result<bool, AnswerError> {
    let line = parse(event)?;
    answer.think(text(&line, "/message/thinking"));
    answer.say(text(&line, "/message/content"));
    let calls = line.pointer("/message/tool_calls").and_then(Value::as_array).into_iter().flatten();
    for call in calls {
        let arguments = call.pointer("/function/arguments");
        answer.calls.add_whole(text(call, "/id"), text(call, "/function/name"), arguments, None)?;
    }
    let is_over = line.get("done").and_then(Value::as_bool).unwrap_or_default();
    if is_over {
        answer.tokens = Tokens { input: count(&line, "/prompt_eval_count"), output: count(&line, "/eval_count") };
    }
    Ok(is_over)
}
