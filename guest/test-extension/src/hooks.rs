//! The commands for each hook.

use serde::Deserialize;

use crate::command::fail;

/// The commands for the hooks; `None` for a hook without a command.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Hooks {
    pub(crate) describe: Option<String>,
    pub(crate) declare: Option<String>,
    pub(crate) activate: Option<String>,
    pub(crate) check: Option<String>,
    pub(crate) validate: Option<String>,
    pub(crate) begin: Option<String>,
    pub(crate) change: Option<String>,
    pub(crate) respond: Option<String>,
    pub(crate) methods: Option<String>,
    pub(crate) next: Option<String>,
    pub(crate) after: Option<String>,
}

impl Hooks {
    /// Parses the commands of a request: an object with commands by hook, or a string for `validate`.
    pub(crate) fn of_request(json: &str) -> Self {
        if let Ok(command) = serde_json::from_str::<String>(json) {
            return Self { validate: Some(command), ..Self::default() };
        }
        serde_json::from_str(json).unwrap_or_else(|error| fail(&format!("`{json}` is no command: {error}")))
    }
}
