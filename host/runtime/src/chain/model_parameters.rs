//! The parameters of a call of the model, as extensions set them.

use serde::{Deserialize, Serialize};

/// Maximum number of texts that end an answer of the model. It is the maximum of OpenAI's interface.
const MAX_STOPS: usize = 4;
/// Maximum length of such a text, in bytes.
const MAX_STOP: usize = 256;

/// The parameters of a call of the model. The provider chooses those that are not set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ModelParameters {
    /// How random the answer is, from 0 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The share of likely words among which the model chooses, from 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// The maximum number of tokens of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Texts that end the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<Vec<String>>,
    /// The number that makes answers repeatable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i32>,
}

impl ModelParameters {
    /// Reads the parameters that an extension sets.
    ///
    /// # Errors
    /// The text is not an object with these parameters, or a parameter is out of its range.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = |reason: &str| format!("its parameters for the model are invalid: {reason}");
        // serde would also read a struct from an array.
        if !text.trim_start().starts_with('{') {
            return Err(wrong("they are not a JSON object"));
        }
        let parameters: Self = serde_json::from_str(text).map_err(|error| wrong(&error.to_string()))?;
        match parameters.fault() {
            Some(reason) => Err(wrong(reason)),
            None => Ok(parameters),
        }
    }

    fn fault(&self) -> Option<&'static str> {
        let Self { temperature, top_p, max_tokens, stop, seed: _ } = self;
        let is_usable = |text: &String| !text.is_empty() && text.len() <= MAX_STOP;
        if temperature.is_some_and(|temperature| !(0.0..=2.0).contains(&temperature)) {
            return Some("temperature must be from 0 to 2");
        }
        if top_p.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
            return Some("topP must be from 0 to 1");
        }
        if *max_tokens == Some(0) {
            return Some("maxTokens must be at least 1");
        }
        if stop.as_ref().is_some_and(|texts| texts.len() > MAX_STOPS || !texts.iter().all(is_usable)) {
            return Some("stop must have at most 4 texts of 1 to 256 bytes");
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::ModelParameters;

    #[test]
    fn parameters_are_read_within_their_ranges() {
        let all = r#"{"temperature":0.5,"topP":1,"maxTokens":10,"stop":["."],"seed":-1}"#;
        let read = ModelParameters::parse(all).expect("parameters");
        assert_eq!(
            (read.temperature, read.top_p, read.max_tokens, read.seed),
            (Some(0.5), Some(1.0), Some(10), Some(-1))
        );
        assert_eq!(ModelParameters::parse("{}"), Ok(ModelParameters::default()));
        for (text, expected) in [
            ("[0.5]", "not a JSON object"),
            ("{", "EOF"),
            (r#"{"temperatur":1}"#, "temperatur"),
            (r#"{"temperature":2.5}"#, "temperature must be"),
            (r#"{"topP":-0.1}"#, "topP must be"),
            (r#"{"maxTokens":0}"#, "maxTokens must be"),
            (r#"{"stop":[""]}"#, "stop must have"),
            (r#"{"stop":["a","b","c","d","e"]}"#, "stop must have"),
            (r#"{"seed":3000000000}"#, "invalid value"),
        ] {
            let reason = ModelParameters::parse(text).expect_err(text);
            assert!(reason.contains(expected), "{text}: {reason}");
        }
    }
}
