//! Constructors for records of the hooks `steering`, `reads`, `extended-card` and `live-card`.

use crate::{EntryChange, Json, LiveDeclaration, ModelChange, Pause, Remark, View, json};

impl Default for ModelChange {
    /// No change. Set the fields that differ.
    fn default() -> Self {
        Self { model: None, instruction: None, parameters: None }
    }
}

impl Pause {
    /// The task waits for input from the client, which gets the text.
    pub fn input(text: impl Into<String>) -> Self {
        Self { authorization: false, text: text.into(), metadata: Vec::new() }
    }

    /// The task waits for an authorization, and the client gets the text.
    pub fn authorization(text: impl Into<String>) -> Self {
        Self { authorization: true, ..Self::input(text) }
    }
}

impl Remark {
    /// A remark with one text part.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self { parts: vec![format!(r#"{{"text":{}}}"#, json::string(text))], metadata: Vec::new() }
    }

    /// A remark with one data part; `data` is JSON text.
    #[must_use]
    pub fn data(data: &str) -> Self {
        Self { parts: vec![format!(r#"{{"data":{data}}}"#)], metadata: Vec::new() }
    }
}

impl View {
    /// One entry for the metadata of the task; `value` is JSON text.
    pub fn entry(key: impl Into<String>, value: impl Into<Json>) -> Self {
        Self::Add(vec![(key.into(), value.into())])
    }
}

impl Default for EntryChange {
    /// No change. Set the fields that differ.
    fn default() -> Self {
        Self { description: None, params: None }
    }
}

impl EntryChange {
    /// Other params for the entry; `params` is a JSON object.
    pub fn params(params: impl Into<Json>) -> Self {
        Self { params: Some(params.into()), ..Self::default() }
    }
}

impl LiveDeclaration {
    /// An entry with the descriptor's description. It holds for `seconds`; 0 means until the next load. `params` is a
    /// JSON object.
    pub fn params(params: impl Into<Json>, seconds: u32) -> Self {
        Self { description: None, params: Some(params.into()), seconds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remark_is_one_part_whatever_its_text_has() {
        assert_eq!(Remark::text("\"a\"\n").parts, [r#"{"text":"\"a\"\n"}"#]);
        assert_eq!(Remark::data("[1]").parts, [r#"{"data":[1]}"#]);
    }

    #[test]
    fn a_task_waits_for_input_or_for_an_authorization() {
        assert_eq!([Pause::input("?"), Pause::authorization("?")].map(|pause| pause.authorization), [false, true]);
    }
}
