//! The extension `ui/trajectory` of agentstack: a client is shown each step of the server's own agent while the agent
//! works.
//!
//! Each step is a status of the working task. The metadata of its message has the step, in the form of agentstack's SDK.

#[cfg(test)]
mod tests;

use annex_sdk::{
    Descriptor, Extension, Json, ModelCall, ModelVerdict, Remark, Steering, ToolCall, ToolResult, ToolVerdict, json,
};
use serde::{Deserialize, Serialize};

/// The URI and the metadata key, as agentstack's SDK has them.
pub const URI: &str = "https://a2a-extensions.agentstack.beeai.dev/ui/trajectory/v1";

/// JSON Schema of the parameters, for the host and for people.
pub const PARAMETER_SCHEMA: &str = include_str!("../parameters.json");

/// The longest JSON text in the content of a step, in bytes. The host sends remarks of 16 KiB at most, and a character of
/// the text may need two bytes in JSON.
const MAX_CONTENT: usize = 6 << 10;

/// The number of backticks side by side before which a JSON text is cut off.
const MAX_BACKTICKS: usize = 32;

/// The longest name in a title, in bytes. A model chooses the names of the tools that it calls.
const MAX_NAME: usize = 256;

/// The operator's parameters with defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    #[serde(default)]
    include_content: bool,
    #[serde(default = "shown")]
    models: bool,
}

fn shown() -> bool {
    true
}

/// A step, in the form of agentstack's SDK. A step replaces the earlier step with the same `group_id`.
#[derive(Debug, Serialize)]
struct Step<'a> {
    title: &'a str,
    content: Option<&'a str>,
    group_id: Option<&'a str>,
}

/// The extension. The type has no data: each hook gets the parameters as an argument.
#[derive(Debug)]
pub struct Trajectory;

impl Extension for Trajectory {
    type Parameters = Parameters;
    const PARAMETER_SCHEMA: Option<&'static str> = Some(PARAMETER_SCHEMA);

    fn descriptor(_: &Parameters) -> Result<Descriptor, String> {
        Ok(Descriptor {
            name: "agentstack-trajectory".to_owned(),
            metadata_keys: vec![URI.to_owned()],
            ..Descriptor::new(URI, "Shows each step of the agent while the agent works.")
        })
    }
}

impl Steering for Trajectory {
    fn before_model(parameters: &Parameters, call: ModelCall) -> Result<(ModelVerdict, Option<Remark>), String> {
        let title = format!("Calls the model {}", cut(&call.model, MAX_NAME));
        let remark = if parameters.models { Some(remark(&title, None, None)?) } else { None };
        Ok((ModelVerdict::Pass, remark))
    }

    fn before_tool(parameters: &Parameters, call: ToolCall) -> Result<(ToolVerdict, Option<Remark>), String> {
        // A call that was shown before it waited is not shown again.
        if call.has_waited {
            return Ok((ToolVerdict::Pass, None));
        }
        let content = parameters.include_content.then(|| block("Arguments", &call.arguments));
        let remark = remark(&tool_title(&call.name), content.as_deref(), Some(&call.id))?;
        Ok((ToolVerdict::Pass, Some(remark)))
    }

    fn after_tool(parameters: &Parameters, made: ToolResult) -> Result<(Option<Json>, Option<Remark>), String> {
        let outcome = if made.failed { "The tool reports an error." } else { "The tool has answered." };
        let content = if parameters.include_content {
            let name = if made.failed { "Error" } else { "Result" };
            format!("{}\n\n{}", block("Arguments", &made.arguments), block(name, &made.output))
        } else {
            outcome.to_owned()
        };
        Ok((None, Some(remark(&tool_title(&made.name), Some(&content), Some(&made.id))?)))
    }
}

fn tool_title(name: &str) -> String {
    format!("Calls the tool {}", cut(name, MAX_NAME))
}

/// A message with the step. Its text is empty: a message needs a part, and a client shows the step.
fn remark(title: &str, content: Option<&str>, group_id: Option<&str>) -> Result<Remark, String> {
    let group_id = group_id.map(|id| cut(id, MAX_NAME));
    let step = json::text(&Step { title, content, group_id })?;
    Ok(Remark { metadata: vec![(URI.to_owned(), step)], ..Remark::text("") })
}

/// A heading and a JSON text as Markdown. The fence is longer than each run of backticks in the text, so the text cannot
/// end it.
fn block(name: &str, json: &str) -> String {
    let shown = cut(json, MAX_CONTENT / 2);
    let shown = shown.split_once(&"`".repeat(MAX_BACKTICKS)).map_or(shown, |(before, _)| before);
    let rest = if shown.len() < json.len() { "\n…" } else { "" };
    let longest = shown.split(|character| character != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2).saturating_add(1));
    format!("**{name}**\n\n{fence}json\n{shown}{rest}\n{fence}")
}

/// The longest beginning of the text that has at most `bytes` bytes.
fn cut(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text)
}

annex_sdk::export!(Trajectory: steering);
