//! Decides which statuses are in the sub-state.

use annex_sdk::StateChange;
use serde::Deserialize;

/// The extension's URI, unless the parameters set another.
pub const DEFAULT_URI: &str = "https://annex.example/generating-image/v1";

/// The key that the A2A documentation uses.
pub const DEFAULT_KEY: &str = "generating-image";

/// JSON Schema of the parameters, for the host and for people.
pub const PARAMETER_SCHEMA: &str = include_str!("../parameters.json");

/// The operator's parameters with defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// The extension's URI.
    #[serde(default = "default_uri")]
    pub uri: String,
    /// The metadata key of the sub-state.
    #[serde(default = "default_key")]
    pub key: String,
    /// The phrases by which the agent's message announces an image.
    #[serde(default = "default_phrases")]
    pub phrases: Vec<String>,
}

fn default_uri() -> String {
    DEFAULT_URI.to_owned()
}

fn default_key() -> String {
    DEFAULT_KEY.to_owned()
}

fn default_phrases() -> Vec<String> {
    ["generating image", "generating an image", "generating the image"].map(str::to_owned).to_vec()
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    parts: Vec<Part>,
}

#[derive(Deserialize)]
struct Part {
    text: Option<String>,
}

/// True if the task's next state is working and the agent's message announces an image.
pub fn generates_image(parameters: &Parameters, change: &StateChange) -> bool {
    // The sub-state is one of WORKING: a task that ends or waits makes no image.
    let message = change.message.as_deref().filter(|_| change.next == "TASK_STATE_WORKING");
    let Some(message) = message.and_then(|message| serde_json::from_str::<Message>(message).ok()) else {
        return false;
    };
    let texts = message.parts.iter().filter_map(|part| part.text.as_deref());
    // Joined with a line break, so that no phrase comes about across two parts.
    let said = texts.collect::<Vec<_>>().join("\n").to_lowercase();
    parameters.phrases.iter().any(|phrase| said.contains(&phrase.to_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(json: &str) -> Parameters {
        serde_json::from_str(json).unwrap()
    }

    fn change(next: &str, message: Option<&str>) -> StateChange {
        StateChange {
            task_id: "t".to_owned(),
            context_id: "c".to_owned(),
            current: "TASK_STATE_SUBMITTED".to_owned(),
            next: format!("TASK_STATE_{next}"),
            message: message.map(|parts| format!(r#"{{"role": "ROLE_AGENT", "parts": {parts}}}"#)),
        }
    }

    #[test]
    fn a_working_task_whose_agent_says_so_is_in_the_sub_state() {
        for parts in
            [r#"[{"text": "Generating image 1 of 3"}]"#, r#"[{"data": 1}, {"text": "I am GENERATING AN IMAGE."}]"#]
        {
            assert!(generates_image(&parameters("{}"), &change("WORKING", Some(parts))), "{parts}");
        }
    }

    #[test]
    fn other_states_and_other_words_are_not() {
        let says = Some(r#"[{"text": "Generating image"}]"#);
        for next in ["SUBMITTED", "COMPLETED", "INPUT_REQUIRED"] {
            assert!(!generates_image(&parameters("{}"), &change(next, says)), "{next}");
        }
        for silent in [None, Some("[]"), Some(r#"[{"text": "Thinking"}]"#), Some(r#"[{"data": "generating image"}]"#)] {
            assert!(!generates_image(&parameters("{}"), &change("WORKING", silent)), "{silent:?}");
        }
    }

    #[test]
    fn the_words_are_the_operators() {
        let parameters = parameters(r#"{"phrases": ["Zeichne"]}"#);
        assert!(generates_image(&parameters, &change("WORKING", Some(r#"[{"text": "Ich zeichne …"}]"#))));
        assert!(!generates_image(&parameters, &change("WORKING", Some(r#"[{"text": "Generating image"}]"#))));
    }
}
