//! Searches the caller's earlier tasks: the method `tasks/search` of the A2A documentation.
//!
//! This file has the hooks. The search is in [`search`], the comparison with a single task in [`matching`].

pub mod matching;
pub mod search;

use annex_sdk::{Answer, Descriptor, Extension, Json, Method, MethodDeclaration, Rejection, Request, tasks};
use serde::Deserialize;

/// The extension's URI, unless the parameters set another.
pub const DEFAULT_URI: &str = "https://annex.example/task-history/v1";

/// JSON Schema of the parameters, for the host and for people.
pub const PARAMETER_SCHEMA: &str = include_str!("../parameters.json");

/// The operator's parameters with defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// The extension's URI.
    #[serde(default = "default_uri")]
    pub uri: String,
}

fn default_uri() -> String {
    DEFAULT_URI.to_owned()
}

/// The extension. The type has no data: each hook gets the parameters as an argument.
#[derive(Debug)]
pub struct TaskHistory;

impl Extension for TaskHistory {
    type Parameters = Parameters;
    const PARAMETER_SCHEMA: Option<&'static str> = Some(PARAMETER_SCHEMA);

    fn descriptor(parameters: &Parameters) -> Result<Descriptor, String> {
        Ok(Descriptor {
            name: "task-history".to_owned(),
            // A method writes no metadata, so the extension owns no keys.
            ..Descriptor::new(parameters.uri.clone(), "Searches the caller's tasks by text, state and time.")
        })
    }
}

impl Method for TaskHistory {
    fn methods(_: &Parameters) -> Result<Vec<MethodDeclaration>, String> {
        Ok(vec![MethodDeclaration {
            params_schema: Some(search::PARAMS.to_owned()),
            result_schema: Some(search::RESULT.to_owned()),
            ..MethodDeclaration::new(search::NAME, "Searches the caller's tasks by text, state and time.")
        }])
    }

    fn call(_: &Parameters, _request: Request, _name: &str, params: Json) -> Result<Answer, Rejection> {
        // The host lists only the tasks of the turn's caller.
        search::search(&params, tasks::list).map(Answer::Value)
    }
}

annex_sdk::export!(TaskHistory: method);

#[cfg(test)]
mod tests {
    use annex_sdk::testing::{self, Host};

    use super::*;

    #[test]
    fn the_method_searches_what_the_host_lists() {
        let host = Host::new().tasks(|_| {
            let task = r#"{"id": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_COMPLETED"}}"#;
            Ok(format!(r#"{{"tasks": [{task}], "nextPageToken": ""}}"#))
        });
        let found = host.call::<TaskHistory>(testing::request(), search::NAME, "{}");
        let task = r#"{"id":"t-1","contextId":"c-1","status":{"state": "TASK_STATE_COMPLETED"}}"#;
        assert_eq!(found, Ok(Answer::Value(format!(r#"{{"tasks":[{task}],"nextPageToken":""}}"#))));
    }
}
