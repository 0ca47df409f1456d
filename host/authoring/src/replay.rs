//! Replays the turns of a recording with a component.

use std::collections::BTreeMap;
use std::sync::Arc;

use annex_runtime::{Comparison, Extension, RecordedTurn, RecordingHead};
use serde_json::Value;
use toml::Table;

use crate::case::Runner;
use crate::recording::RecordingError;

/// The maximum number of different calls in [`Replay::questions`].
const MAX_QUESTIONS: usize = 100;

/// The comparison of the turns that were replayed so far.
pub struct Replay {
    /// The comparison of all turns.
    pub comparison: Comparison,
    /// The component's calls of the host that the recording cannot answer, each with the number of turns in which the
    /// component made it.
    pub questions: BTreeMap<String, u64>,
    extension: Arc<Extension>,
}

impl Replay {
    /// Loads the runner's component, which must be the recorded extension.
    ///
    /// # Errors
    /// When the component does not load, or is another extension.
    pub async fn load(runner: &Runner<'_>, head: &RecordingHead) -> Result<Self, RecordingError> {
        let extension = runner.extension().await.map_err(RecordingError::Component)?;
        if *extension.uri() != head.uri {
            let line = |uri: &str| annex_text::line(uri).into_owned();
            let (recorded, component) = (line(head.uri.as_str()), line(extension.uri().as_str()));
            return Err(RecordingError::OtherExtension { recorded, component });
        }
        Ok(Self { comparison: Comparison::default(), questions: BTreeMap::new(), extension: Arc::new(extension) })
    }

    /// The loaded extension.
    #[must_use]
    pub fn extension(&self) -> &Extension {
        &self.extension
    }

    /// Replays one turn. Returns true if the results equal the recorded ones.
    ///
    /// # Errors
    /// When the component does not run. A failure within the turn counts as a difference instead.
    pub async fn play(&mut self, turn: &RecordedTurn) -> Result<bool, RecordingError> {
        let number = self.comparison.turns + 1;
        let played = annex_runtime::replay(&self.extension, turn, None).await;
        let played = played.map_err(|source| RecordingError::Turn { number, source })?;
        let mut asked = played.unanswered.clone();
        asked.sort_unstable();
        asked.dedup();
        for question in asked {
            if self.questions.len() < MAX_QUESTIONS || self.questions.contains_key(&question) {
                *self.questions.entry(question).or_default() += 1;
            }
        }
        Ok(self.comparison.add(turn, &played.turn, played.unanswered))
    }
}

/// The settings of a recording: the keys of an `[[extension]]` without `component`.
///
/// # Errors
/// When the settings are not an object.
pub fn recorded_settings(head: &RecordingHead) -> Result<Table, String> {
    let mut settings: Value = head.settings.to().map_err(|error| error.to_string())?;
    // TOML has no `null`. A key without a value is equivalent to a missing key.
    drop_nulls(&mut settings);
    if let Some(secrets) = settings.pointer_mut("/grants/secrets")
        && let Some(names) = secrets.as_array()
    {
        // For secrets without values a list of names suffices.
        let named =
            names.iter().filter_map(|name| Some((name.as_str()?.to_owned(), Value::Object(Default::default()))));
        *secrets = Value::Object(named.collect());
    }
    match crate::case::toml_of(&settings) {
        Some(toml::Value::Table(table)) => Ok(table),
        _ => Err("they are no table".to_owned()),
    }
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, value| !value.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use annex_protocol::Json;

    use super::*;

    #[test]
    fn the_settings_of_a_recording_are_those_of_a_config() {
        let settings =
            r#"{"required":true,"limits":null,"grants":{"clock":true,"secrets":["KEY"]},"parameters":{"n":[1,2.5]}}"#;
        let head = RecordingHead {
            version: 1,
            uri: "https://a.example/v1".into(),
            name: "a".to_owned(),
            component_version: String::new(),
            digest: String::new(),
            at: annex_protocol::Timestamp::from_millis(0),
            settings: Json::parse(settings.to_owned()).unwrap(),
        };
        let expected: Table = toml::from_str(
            "required = true\ngrants = { clock = true, secrets = { KEY = {} } }\nparameters.n = [1, 2.5]",
        )
        .unwrap();
        assert_eq!(recorded_settings(&head), Ok(expected));
        let text = RecordingHead { settings: Json::string("x"), ..head };
        assert!(recorded_settings(&text).is_err());
    }
}
