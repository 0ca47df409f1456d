//! `--state`: what it holds, and which extension takes it.

use std::fs;

use annex_protocol::{AgentCard, ExtensionUri, JsonObject};
use anyhow::Context;

use crate::agent;

/// Reads the argument: a JSON object, or `@` and the name of a file that holds one.
///
/// # Errors
/// When the file cannot be read or the text is not a JSON object.
pub(super) fn read(argument: &str) -> anyhow::Result<JsonObject> {
    let Some(path) = argument.strip_prefix('@') else {
        return JsonObject::parse(argument)
            .context("--state must be a JSON object, such as '{\"user_info\":{\"name\":\"Ada\"}}', or @FILE");
    };
    let text = fs::read_to_string(path).with_context(|| format!("--state: cannot read the file {path}"))?;
    JsonObject::parse(&text).with_context(|| format!("--state: the file {path} must hold a JSON object"))
}

/// The metadata key under which an extension takes and returns state: its URI without the scheme, and `/state`.
pub(super) fn key(uri: &ExtensionUri) -> String {
    let uri = uri.as_str();
    let (_, path) = uri.split_once("://").unwrap_or(("", uri));
    format!("{path}/state")
}

/// The extension that takes the state. Among those asked for, the one whose declaration has a state schema, else the
/// first; when none was asked for, the one on the card that has a state schema.
///
/// # Errors
/// When none was asked for and the card has none.
pub(super) fn extension(requested: &[ExtensionUri], card: &AgentCard) -> anyhow::Result<ExtensionUri> {
    let declared = || card.capabilities.extensions.iter().filter(|extension| agent::takes_state(extension));
    let mut uris = declared().map(|extension| &extension.uri);
    let uri = match requested {
        [] => uris.next(),
        [first, ..] => Some(uris.find(|uri| requested.contains(uri)).unwrap_or(first)),
    };
    let missing = "no extension on the agent's card declares a state_schema; name the one that takes the state with \
                   --extension URI";
    uri.cloned().context(missing)
}

#[cfg(test)]
mod tests;
