//! The test's parameters.

use serde::Deserialize;

use crate::command::Hooks;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Parameters {
    pub(crate) uri: String,
    /// The commands for each hook, unless the request says otherwise.
    pub(crate) behaviour: Hooks,
    pub(crate) depends_on: Vec<String>,
    pub(crate) grants: Vec<String>,
    pub(crate) payload: bool,
    /// True if it owns its metadata keys. Of several in one server at most one may.
    pub(crate) owns_keys: bool,
    /// The methods that it has; one whose name ends with `stream` streams.
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
