//! A tool's answer: text for the model, files for the session, and changes of state.

use annex_conversation::{Scope, StateDelta};
use annex_protocol::{Json, Part, PartContent};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::{Map, Value};

/// The key in a result's `_meta` for changes of state. The value under this key is an object that maps full keys of the
/// state, such as `user:name`, to new values.
const STATE_DELTA: &str = "annex/stateDelta";
/// The maximum size of the text of one result, in bytes. The session stores the text, and each further prompt contains
/// the text.
const MAX_TEXT: usize = 256 * 1024;
/// The maximum size of all files of one result together, in bytes of base64.
const MAX_FILES: usize = 4 * 1024 * 1024;

/// The longest file name, in bytes as JSON. It becomes a key in the session.
const MAX_NAME: usize = 255;

/// A parsed result of a tool.
#[derive(Debug)]
pub(super) struct Content {
    /// The text for the model, with the names of the files.
    pub(super) text: String,
    structured: Option<Value>,
    /// The files for the session, each with its name.
    pub(super) artifacts: Vec<(String, Vec<Part>)>,
    changes: Option<Value>,
}

impl Content {
    /// Parses a result.
    ///
    /// # Errors
    /// When the result is larger than a session can store.
    pub(super) fn of(tool: &str, result: CallToolResult) -> Result<Self, String> {
        let changes = result.meta.and_then(|mut meta| meta.0.remove(STATE_DELTA));
        let mut content =
            Self { text: String::new(), structured: result.structured_content, artifacts: Vec::new(), changes };
        for block in result.content {
            content.take(tool, block);
        }
        // The model gets one of the two, so the larger one counts and not the sum.
        let structured = content.structured.as_ref().map_or(0, |value| value.to_string().len());
        let files = content.artifacts.iter().flat_map(|(_, parts)| parts).map(size).sum::<usize>();
        for (bytes, most, what) in [(content.text.len().max(structured), MAX_TEXT, "text"), (files, MAX_FILES, "files")]
        {
            if bytes > most {
                return Err(format!("the result has {bytes} bytes of {what}, at most {most} are taken"));
            }
        }
        Ok(content)
    }

    /// The answer for the model: the structured content, or an object with the text as `result`.
    ///
    /// # Errors
    /// When the content cannot be written as JSON, which is not known to happen.
    pub(super) fn response(&self) -> Result<Json, String> {
        let response = match &self.structured {
            Some(Value::Object(object)) => Value::Object(object.clone()),
            Some(other) => single("result", other.clone()),
            None => single("result", Value::from(self.text.as_str())),
        };
        Json::from_peer(&response).map_err(|error| format!("the result cannot be kept: {error}"))
    }

    /// Reads the changes of state in the result. Each key must be in one of `scopes`.
    ///
    /// # Errors
    /// When a key is in another scope, or the changes are not an object. The error names the key, but not its value.
    pub(super) fn state(&self, scopes: &[Scope]) -> Result<StateDelta, String> {
        let changes = match &self.changes {
            None => return Ok(StateDelta::new()),
            Some(Value::Object(changes)) => changes,
            Some(_) => return Err(format!("`{STATE_DELTA}` is not an object")),
        };
        let mut allowed = StateDelta::new();
        for (key, value) in changes {
            let scope = Scope::of(key).0;
            // A single key without a grant refuses all, because half of a delta would be a state that the server never
            // intended.
            if !scopes.contains(&scope) {
                return Err(format!("`{key}` is in the {scope} scope, which `state` of the server does not name"));
            }
            let value = Json::from_peer(value).map_err(|error| format!("the value of `{key}`: {error}"))?;
            allowed.insert(key.clone(), value);
        }
        Ok(allowed)
    }

    fn take(&mut self, tool: &str, block: ContentBlock) {
        match block {
            ContentBlock::Text(text) => self.say(&text.text),
            ContentBlock::Image(image) => {
                let name = self.file_name(tool, &image.mime_type);
                self.keep(&name, PartContent::raw_or_text(image.data), image.mime_type);
            }
            ContentBlock::Audio(audio) => {
                let name = self.file_name(tool, &audio.mime_type);
                self.keep(&name, PartContent::raw_or_text(audio.data), audio.mime_type);
            }
            ContentBlock::Resource(embedded) => match embedded.resource {
                ResourceContents::TextResourceContents { uri, mime_type, text, .. } => {
                    self.say(&text);
                    self.keep(&uri, PartContent::Text(text), mime_type.unwrap_or_default());
                }
                ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                    self.keep(&uri, PartContent::raw_or_text(blob), mime_type.unwrap_or_default());
                }
                _ => self.say("[a resource of an unknown kind]"),
            },
            ContentBlock::ResourceLink(link) => {
                let media_type = link.mime_type.unwrap_or_default();
                self.keep(&link.name, PartContent::Url(link.uri), media_type);
            }
            // The model must know that something is missing, so that it does not take the result as complete.
            _ => self.say("[content of an unknown kind]"),
        }
    }

    fn say(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(text);
    }

    fn keep(&mut self, name: &str, content: PartContent, media_type: String) {
        // The server chooses the name. A name that a session does not accept as a key would fail the task.
        let name = annex_text::line_within(name, MAX_NAME);
        self.say(&format!("[kept as artifact `{name}`]"));
        let part = Part { media_type, filename: name.clone(), ..Part::from(content) };
        self.artifacts.push((name, vec![part]));
    }

    /// Creates a name for a file that has none, such as an image: the tool's name, with an extension from the media type.
    fn file_name(&self, tool: &str, media_type: &str) -> String {
        let kind = media_type.rsplit('/').next().unwrap_or(media_type);
        match self.artifacts.len() {
            0 => format!("{tool}.{kind}"),
            others => format!("{tool}-{}.{kind}", others + 1),
        }
    }
}

fn single(key: &str, value: Value) -> Value {
    Value::Object(Map::from_iter([(key.to_owned(), value)]))
}

fn size(part: &Part) -> usize {
    match &part.content {
        PartContent::Text(text) | PartContent::Raw(text) | PartContent::Url(text) => text.len(),
        PartContent::Data(json) => json.get().len(),
    }
}
