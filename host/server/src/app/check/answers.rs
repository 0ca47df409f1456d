//! Warnings about extensions that revise the agent's answers or steer its steps.

use toml::{Table, Value};

use crate::config::{Document, Problem};

/// Finds extensions with the grant `rewrite-answer` or `agent-steps = { steer = true }` and settings that are probably a mistake.
pub(super) fn warnings(document: &Document<'_>, text: &str) -> Vec<Problem> {
    // The mistakes of a text that is not TOML are reported.
    let Ok(config) = text.parse::<Table>() else { return Vec::new() };
    let extensions = config.get("extension").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let revising: Vec<(usize, &Value)> =
        extensions.iter().enumerate().filter(|(_, extension)| revises_answers(extension)).collect();
    let skipped = revising.iter().filter(|(_, extension)| is_skipped(extension));
    let skipped = skipped.filter_map(|(number, _)| {
        let reason = "lets answers through unchanged when this extension fails; take \"reject\" if it guards answers";
        document.remark(&format!("extension[{number}].on_failure"), reason)
    });
    let last_word = revising.get(1).and_then(|(number, _)| {
        let reason = "is granted to several extensions; the first of them in this config has the last word";
        document.remark(&format!("extension[{number}].grants.rewrite-answer"), reason)
    });
    let left_out = revising.iter().filter(|(_, extension)| !is_in_each_turn(extension));
    let left_out = left_out.filter_map(|(number, _)| {
        let reason =
            "is for requests that activate this extension alone; take activate = \"always\" if it guards answers";
        document.remark(&format!("extension[{number}].grants.rewrite-answer"), reason)
    });
    let unguarded = extensions.iter().enumerate().filter(|(_, extension)| steers(extension) && is_skipped(extension));
    let unguarded = unguarded.filter_map(|(number, _)| {
        let reason = "lets calls of tools pass unchecked when this extension fails; take \"reject\" if it guards calls";
        document.remark(&format!("extension[{number}].on_failure"), reason)
    });
    skipped.chain(left_out).chain(last_word).chain(unguarded).collect()
}

fn is_skipped(extension: &Value) -> bool {
    setting(extension, "on_failure") == Some("skip")
}

fn steers(extension: &Value) -> bool {
    let grant = extension.get("grants").and_then(|grants| grants.get("agent-steps"));
    grant.and_then(|grant| grant.get("steer")).and_then(Value::as_bool).unwrap_or_default()
}

fn revises_answers(extension: &Value) -> bool {
    let grant = extension.get("grants").and_then(|grants| grants.get("rewrite-answer"));
    grant.and_then(Value::as_bool).unwrap_or_default()
}

/// True if requests cannot leave the extension out.
fn is_in_each_turn(extension: &Value) -> bool {
    let is_required = extension.get("required").and_then(Value::as_bool).unwrap_or_default();
    is_required || setting(extension, "activate") == Some("always")
}

fn setting<'a>(extension: &'a Value, key: &str) -> Option<&'a str> {
    extension.get(key).and_then(Value::as_str)
}
