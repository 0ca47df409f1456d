//! Ollama's own interface. Its answer is lines of JSON.

use std::collections::VecDeque;

use annex_egress::{Events, StreamLimits};
use reqwest::Response;
use serde_json::{Value, json};

use super::answer::{AnswerError, Calls};
use super::interface::{ChatRequest, Interface, count, parse, say, tell, text, think, with_chat};
use crate::model::{ModelEvent, Prompt, ToolCall};
use crate::steps::Tokens;

pub(super) fn request(model: &str, prompt: &Prompt) -> ChatRequest {
    let body = json!({"model": model, "stream": true});
    let body = with_chat(body, prompt, call, |result| ("tool_name", result.name.as_str()));
    ChatRequest { path: "api/chat".to_owned(), query: None, body }
}

fn call(call: &ToolCall) -> Value {
    let arguments: Value = call.arguments.to().unwrap_or_default();
    json!({"function": {"name": call.name, "arguments": arguments}})
}

#[derive(Default)]
pub(super) struct Reader {
    calls: Calls,
    tokens: Tokens,
}

impl Interface for Reader {
    fn events(&self, response: Response, limits: StreamLimits) -> Events<Response> {
        Events::lines(response, limits)
    }

    fn read(&mut self, event: &str, ready: &mut VecDeque<ModelEvent>) -> Result<bool, AnswerError> {
        let line = parse(event)?;
        think(text(&line, "/message/thinking"), ready);
        say(text(&line, "/message/content"), ready);
        let calls = line.pointer("/message/tool_calls").and_then(Value::as_array).into_iter().flatten();
        for call in calls {
            let arguments = call.pointer("/function/arguments");
            self.calls.add_whole(text(call, "/id"), text(call, "/function/name"), arguments, None)?;
        }
        let is_over = line.get("done").and_then(Value::as_bool).unwrap_or_default();
        if is_over {
            self.tokens = Tokens { input: count(&line, "/prompt_eval_count"), output: count(&line, "/eval_count") };
        }
        Ok(is_over)
    }

    fn end(&mut self, ready: &mut VecDeque<ModelEvent>) {
        ready.extend(self.calls.take());
        tell(self.tokens, ready);
    }
}
