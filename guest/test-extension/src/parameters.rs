//! The test's parameters.

use serde::Deserialize;

use crate::hooks::Hooks;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Parameters {
    pub(crate) uri: String,
    /// The default commands for each hook.
    pub(crate) behaviour: Hooks,
    pub(crate) depends_on: Vec<String>,
    pub(crate) grants: Vec<String>,
    pub(crate) payload: bool,
    /// True if the extension declares its metadata keys as its own. In one server this may be true for at most one
    /// installation.
    pub(crate) owns_keys: bool,
    /// The methods. A method whose name ends with `stream` streams.
    pub(crate) methods: Vec<String>,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            uri: "https://annex.example/test/v1".to_owned(),
            behaviour: Hooks::default(),
            depends_on: Vec::new(),
            grants: Vec::new(),
            payload: false,
            owns_keys: true,
            methods: Vec::new(),
        }
    }
}
