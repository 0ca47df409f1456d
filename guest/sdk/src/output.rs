//! Constructors for verdicts of the hook `output` and for answers of the hook `reply`.

use serde_json::value::RawValue;

use crate::members::Members;
use crate::{Content, Json, Outcome, ReadyAnswer, Replacement, Verdict, json, parts};

/// The name of the artifact in [`ReadyAnswer::text`].
const ARTIFACT: &str = "answer";

impl Verdict {
    /// Replaces the text of each text part by the result of `revise`. Everything else of a part stays: its metadata, its
    /// file name and its media type. [`Verdict::Leave`] if no text changes.
    ///
    /// ```
    /// use annex_sdk::{Content, Place, Verdict};
    ///
    /// let parts = r#"[{"text":"a secret","metadata":{"n":1}},{"data":1}]"#.into();
    /// let content = Content { task_id: None, context_id: "c".into(), place: Place::Message, parts, held: 0 };
    /// let Ok(Verdict::Replace(replaced)) = Verdict::text(&content, |text| text.replace("secret", "***")) else {
    ///     panic!("the text stays")
    /// };
    /// assert_eq!(replaced[0].part, 0);
    /// assert_eq!(replaced[0].parts, [r#"{"text":"a ***","metadata":{"n":1}}"#]);
    /// assert_eq!(replaced.len(), 1);
    /// assert_eq!(Verdict::text(&content, str::to_owned), Ok(Verdict::Leave));
    /// ```
    ///
    /// # Errors
    /// The parts are no JSON array. A host always gives one.
    pub fn text(content: &Content, mut revise: impl FnMut(&str) -> String) -> Result<Self, String> {
        let mut replacements = Vec::new();
        for (part, json) in (0..).zip(parts_of(content)?) {
            let Some(members) = Members::of(json.get()) else { continue };
            let Some(text) = parts::text_of(&members) else { continue };
            let revised = revise(&text);
            if revised != text {
                let parts = vec![with_text(&members, &revised)];
                replacements.push(Replacement { part, parts, dropped: None });
            }
        }
        Ok(if replacements.is_empty() { Self::Leave } else { Self::Replace(replacements) })
    }

    /// Adds parts at the end. Each is a Part as JSON.
    ///
    /// # Errors
    /// The parts of `content` are no JSON array. A host always gives one.
    pub fn add(content: &Content, added: Vec<Json>) -> Result<Self, String> {
        let end = u32::try_from(parts_of(content)?.len()).map_err(|error| error.to_string())?;
        Ok(Self::Replace(vec![Replacement { part: end, parts: added, dropped: None }]))
    }
}

impl ReadyAnswer {
    /// The text as an artifact of a completed task. Set the fields that differ.
    pub fn text(text: &str) -> Self {
        Self {
            outcome: Outcome::Completed,
            parts: vec![text_part(text)],
            artifact: Some(ARTIFACT.to_owned()),
            metadata: Vec::new(),
        }
    }

    /// The text as the message of the task's status, such as a question with [`Outcome::InputRequired`].
    pub fn status(outcome: Outcome, text: &str) -> Self {
        Self { outcome, artifact: None, ..Self::text(text) }
    }
}

fn parts_of(content: &Content) -> Result<Vec<&RawValue>, String> {
    serde_json::from_str(&content.parts).map_err(|error| format!("the parts are no JSON array: {error}"))
}

fn text_part(text: &str) -> Json {
    format!(r#"{{"text":{}}}"#, json::string(text))
}

/// The part with another text. Its other members stay as they were sent.
fn with_text(part: &Members<'_>, text: &str) -> Json {
    let text = json::string(text);
    let members = part.iter().map(|(key, value)| {
        let value = if key == "text" { text.as_str() } else { value };
        format!("{}:{value}", json::string(key))
    });
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Place;

    fn content(parts: &str) -> Content {
        let place = Place::Message;
        Content { task_id: None, context_id: "context-1".to_owned(), place, parts: parts.to_owned(), held: 0 }
    }

    #[test]
    fn a_replaced_text_keeps_the_other_members_of_its_part() {
        let content = content(r#"[{"data":{"text":"x"}},{"metadata":{"a\u0041":1e2},"text":"x\n","filename":"f"}]"#);
        let verdict = Verdict::text(&content, |text| format!("{}\"", text.trim()));
        let parts = vec![r#"{"metadata":{"a\u0041":1e2},"text":"x\"","filename":"f"}"#.to_owned()];
        assert_eq!(verdict, Ok(Verdict::Replace(vec![Replacement { part: 1, parts, dropped: None }])));
    }

    #[test]
    fn added_parts_stand_after_the_last_one() {
        let part = || vec![text_part("more")];
        let at = |part_number| Replacement { part: part_number, parts: part(), dropped: None };
        assert_eq!(Verdict::add(&content("[]"), part()), Ok(Verdict::Replace(vec![at(0)])));
        assert_eq!(Verdict::add(&content(r#"[{"text":""},{"data":[]}]"#), part()), Ok(Verdict::Replace(vec![at(2)])));
    }

    #[test]
    fn content_that_is_no_array_is_an_error_and_not_left_alone() {
        assert!(Verdict::text(&content("{}"), str::to_owned).is_err());
        assert!(Verdict::add(&content(""), Vec::new()).is_err());
    }

    #[test]
    fn an_answer_is_an_artifact_and_a_question_the_message_of_a_status() {
        let answer = ReadyAnswer::text("\"42\"");
        assert_eq!((answer.outcome, answer.artifact.as_deref()), (Outcome::Completed, Some("answer")));
        assert_eq!(answer.parts, [r#"{"text":"\"42\""}"#]);
        let question = ReadyAnswer::status(Outcome::InputRequired, "Which one?");
        assert_eq!((question.outcome, question.artifact), (Outcome::InputRequired, None));
    }
}
