//! The test's parameters, and the commands for each hook.

use serde::Deserialize;
use serde_json::Value;

use crate::command::fail;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Parameters {
    pub(crate) uri: String,
    /// The default commands for each hook.
    pub(crate) behaviour: Hooks,
    pub(crate) payload: bool,
    /// True if the extension declares its metadata keys as its own. In one server this may be true for at most one
    /// installation.
    pub(crate) owns_keys: bool,
    /// The command of the hook `reads`. Without it each task has the command in its metadata.
    pub(crate) reads: Option<String>,
    /// The command of the hook `extended-card`.
    pub(crate) entry: Option<String>,
    /// The entry of the hook `live-card` as an object, or a command.
    pub(crate) live: Value,
    /// The names of the methods.
    pub(crate) methods: Vec<String>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            uri: "https://annex.example/steering/v1".to_owned(),
            behaviour: Hooks::default(),
            payload: false,
            owns_keys: true,
            reads: None,
            entry: None,
            live: Value::Null,
            methods: Vec::new(),
        }
    }
}

/// The commands for the hooks; `None` for a hook without a command.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(crate) struct Hooks {
    pub(crate) describe: Option<String>,
    pub(crate) check: Option<String>,
    pub(crate) begin: Option<String>,
    pub(crate) before_agent: Option<String>,
    pub(crate) before_model: Option<String>,
    pub(crate) before_tool: Option<String>,
    pub(crate) after_tool: Option<String>,
    pub(crate) change: Option<String>,
    pub(crate) revise: Option<String>,
    pub(crate) respond: Option<String>,
}

impl Hooks {
    /// Parses the commands of a message: an object with commands by hook, or a string for `revise`.
    pub(crate) fn of_request(json: &str) -> Self {
        if let Ok(command) = serde_json::from_str::<String>(json) {
            return Self { revise: Some(command), ..Self::default() };
        }
        serde_json::from_str(json).unwrap_or_else(|error| fail(&format!("`{json}` is no command: {error}")))
    }
}
