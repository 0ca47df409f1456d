//! `--state`: reads the state, finds the extension that receives the state, and checks the state against the schema on
//! the Agent Card.

use std::fs;

use annex_protocol::{AgentCard, AgentExtension, ExtensionUri, Json, JsonObject, Message};
use annex_schema::Schema;
use anyhow::{Context, bail};

use crate::exit::Failure;
use crate::{output, shell};

/// The parameter in an extension's declaration that holds the JSON Schema of its state.
const SCHEMA: &str = "state_schema";

/// A state to be sent, and the extension that receives it.
#[derive(Debug)]
pub(crate) struct Injection {
    uri: ExtensionUri,
    state: Json,
}

impl Injection {
    /// Finds the extension that receives the state.
    ///
    /// # Errors
    /// When no extension was requested and the card declares no state schema.
    pub(crate) fn new(state: &JsonObject, requested: &[ExtensionUri], card: &AgentCard) -> anyhow::Result<Self> {
        Ok(Self { uri: extension(requested, card)?, state: state.to_json()? })
    }

    /// Validates the state with the schema on the card of the agent at `address`. If the schema cannot be used, this
    /// function only prints a remark, because the agent validates the state too.
    ///
    /// # Errors
    /// When the state violates the schema. The error lists each violation with its JSON pointer.
    pub(crate) fn check(&self, card: &AgentCard, address: &str) -> anyhow::Result<()> {
        let Some(schema) = schema(card, &self.uri) else { return Ok(()) };
        // The schema is on a stranger's card, so the work with the schema is limited to a second.
        let validated = Schema::compile(schema.get()).and_then(|schema| schema.validate(self.state.get()));
        let violations = match validated {
            Ok(violations) => violations,
            Err(reason) => {
                output::note(&format!("the state is not checked before it is sent: {reason}"));
                return Ok(());
            }
        };
        if violations.is_empty() {
            return Ok(());
        }
        let place = |pointer: &str| if pointer.is_empty() { "the state" } else { pointer }.to_owned();
        let lines = violations.iter().map(|found| format!("\n  {}: {}", place(&found.pointer), found.message));
        bail!(
            "the state does not match what {} takes, so nothing was sent:{}\nannex send {} --template prints what it takes",
            self.uri,
            lines.collect::<String>(),
            shell::word(address)
        )
    }

    /// The extension that receives the state.
    pub(crate) fn uri(&self) -> &ExtensionUri {
        &self.uri
    }

    /// Adds the state to `message`. Adds the extension that receives the state to `requested`, unless it is there
    /// already.
    pub(crate) fn put(&self, message: &mut Message, requested: &mut Vec<ExtensionUri>) {
        message.metadata.insert(key(&self.uri), self.state.clone());
        // Metadata alone does not activate an extension, so its URI is asked for too.
        if !requested.contains(&self.uri) {
            requested.push(self.uri.clone());
        }
    }
}

/// Reads the argument of `--state`: a JSON object, or `@` and the name of a file that holds one.
///
/// # Errors
/// When the file cannot be read or the text is not a JSON object.
pub(crate) fn read(argument: &str) -> anyhow::Result<JsonObject> {
    read_object(argument).context("--state").map_err(|error| Failure::Usage.of(error))
}

/// Reads a JSON object, or `@` and the name of a file that holds one.
///
/// # Errors
/// When the file cannot be read or the text is not a JSON object.
pub(crate) fn read_object(argument: &str) -> anyhow::Result<JsonObject> {
    let Some(path) = argument.strip_prefix('@') else {
        return JsonObject::parse(argument)
            .context("must be a JSON object, such as '{\"user_info\":{\"name\":\"Ada\"}}', or @FILE");
    };
    let text = fs::read_to_string(path)
        .map(annex_files::without_mark)
        .with_context(|| format!("cannot read the file {path}"))?;
    JsonObject::parse(&text).with_context(|| format!("the file {path} must be a JSON object"))
}

/// The metadata key under which an extension takes and returns state: its URI without the scheme, and `/state`.
pub(crate) fn key(uri: &ExtensionUri) -> String {
    let uri = uri.as_str();
    // The server of the seed article looks for the key without the scheme, and does not see a state under the whole
    // URI.
    let (_, path) = uri.split_once("://").unwrap_or(("", uri));
    format!("{path}/state")
}

/// Chooses the extension that receives the state. Extensions that declare a state schema on the card come first. If
/// several declare one, a requested extension is chosen. If none does, the first requested extension receives the
/// state.
///
/// # Errors
/// When no extension was requested and the card declares no state schema.
pub(crate) fn extension(requested: &[ExtensionUri], card: &AgentCard) -> anyhow::Result<ExtensionUri> {
    let declared = card.capabilities.extensions.iter().filter(|extension| takes_state(extension));
    let mut uris = declared.map(|extension| &extension.uri);
    let asked_for = uris.clone().find(|uri| requested.contains(uri));
    let uri = asked_for.or_else(|| uris.next()).or(requested.first());
    let missing = "no extension on the agent's card declares a state_schema; name the one that takes the state with \
                   --extension URI";
    uri.cloned().context(missing)
}

/// The schema of the state that the extension `uri` takes. `None` if the card does not list the extension, or the
/// extension declares no schema.
pub(crate) fn schema<'a>(card: &'a AgentCard, uri: &ExtensionUri) -> Option<&'a Json> {
    card.extension(uri.as_str())?.params.as_ref()?.get(SCHEMA)
}

/// True if an extension takes session state from the client, as its declaration tells.
pub(crate) fn takes_state(extension: &AgentExtension) -> bool {
    extension.params.as_ref().is_some_and(|params| params.contains_key(SCHEMA))
}

#[cfg(test)]
mod tests;
