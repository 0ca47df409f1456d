//! Google's Gemini API.

use serde_json::{Value, json};
use uuid::Uuid;

use super::answer::{AnswerError, EventQueue};
use super::interface::{ChatRequest, count, declarations, list, options, parse, sum, text, with};
use crate::model::{Prompt, ToolCall, ToolResult, Turn};
use crate::steps::Tokens;

/// The value that stands for a missing signature of a call. The signature is missing, for example, if another model
/// made the call. Gemini 3 refuses a first call without a signature.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

pub(super) fn request(model: &str, prompt: &Prompt) -> ChatRequest {
    let system = (!prompt.instruction.is_empty()).then(|| json!({"parts": [{"text": prompt.instruction}]}));
    let tools = list(declarations(prompt, "parametersJsonSchema"));
    let tools = tools.map(|tools| json!([{"functionDeclarations": tools}]));
    let needs_signature = model.contains("gemini-3");
    let contents = prompt.turns.iter().map(|turn| content(turn, needs_signature)).collect();
    let body = with(with(json!({}), "systemInstruction", system), "tools", tools);
    let body = with(body, "contents", Some(contents));
    let options = options(prompt, ["temperature", "topP", "maxOutputTokens", "stopSequences", "seed"]);
    let body = with(body, "generationConfig", options);
    ChatRequest { path: format!("models/{model}:streamGenerateContent"), query: Some("alt=sse"), body }
}

fn content(turn: &Turn, needs_signature: bool) -> Value {
    match turn {
        Turn::User(text) => json!({"role": "user", "parts": [{"text": text}]}),
        Turn::Agent { text, calls } => {
            let text = (!text.is_empty() || calls.is_empty()).then(|| json!({"text": text}));
            let calls = calls.iter().enumerate().map(|(place, one)| call(one, needs_signature && place == 0));
            json!({"role": "model", "parts": text.into_iter().chain(calls).collect::<Vec<_>>()})
        }
        Turn::Tools(results) => json!({"role": "user", "parts": results.iter().map(result).collect::<Vec<_>>()}),
    }
}

fn call(call: &ToolCall, needs_signature: bool) -> Value {
    let arguments: Value = call.arguments.to().unwrap_or_default();
    let function = json!({"name": call.name, "args": arguments});
    let function = with(function, "id", id_of_model(&call.id).map(Value::from));
    let signature = call.signatures.first().map(String::as_str).or(needs_signature.then_some(NO_SIGNATURE));
    with(json!({"functionCall": function}), "thoughtSignature", signature.map(Value::from))
}

fn result(result: &ToolResult) -> Value {
    let response = json!({"name": result.name, "content": result.response.get()});
    let function = json!({"name": result.name, "response": response});
    json!({"functionResponse": with(function, "id", id_of_model(&result.id).map(Value::from))})
}

/// The id that the model gave; `None` for an id that the agent created instead.
fn id_of_model(id: &str) -> Option<&str> {
    let is_own = id.strip_prefix("call-").is_some_and(|rest| Uuid::parse_str(rest).is_ok());
    (!id.is_empty() && !is_own).then_some(id)
}

pub(super) fn read(event: &str, answer: &mut EventQueue) -> Result<bool, AnswerError> {
    let chunk = parse(event)?;
    let of = |name: &str| count(&chunk, &format!("/usageMetadata/{name}"));
    let input = sum([of("promptTokenCount"), of("toolUsePromptTokenCount")]);
    let output = sum([of("candidatesTokenCount"), of("thoughtsTokenCount")]);
    answer.tokens = Tokens { input: input.or(answer.tokens.input), output: output.or(answer.tokens.output) };
    let parts = chunk.pointer("/candidates/0/content/parts").and_then(Value::as_array).into_iter().flatten();
    for part in parts {
        let is_thought = part.get("thought").and_then(Value::as_bool).unwrap_or_default();
        let piece = text(part, "/text");
        if is_thought {
            answer.think(piece)
        } else {
            answer.say(piece)
        }
        if let Some(call) = part.get("functionCall") {
            let signature = part.get("thoughtSignature").and_then(Value::as_str);
            answer.calls.add_whole(text(call, "/id"), text(call, "/name"), call.get("args"), signature)?;
        }
    }
    // There is no other sign of the end.
    Ok(chunk.pointer("/candidates/0/finishReason").is_some_and(Value::is_string))
}
