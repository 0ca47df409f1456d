//! Redaction: hides the values of a session that are not for every operator to see.

use annex_protocol::{Json, JsonObject};

use crate::state::State;

/// The text that stands in the place of a hidden value.
const HIDDEN: &str = "[hidden]";

/// Hides values by the names of their keys, at any depth.
///
/// A pattern is a key in which `*` stands for any characters; upper and lower case are the same. The prefix of a scope
/// belongs to the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redaction {
    patterns: Vec<String>,
}

impl Default for Redaction {
    /// Keys that have one of these in their name: password, passwd, secret, token, api_key, apikey, api-key, credential,
    /// authorization, private_key.
    fn default() -> Self {
        let words = [
            "password",
            "passwd",
            "secret",
            "token",
            "api_key",
            "apikey",
            "api-key",
            "credential",
            "authorization",
            "private_key",
        ];
        Self { patterns: words.iter().map(|word| format!("*{word}*")).collect() }
    }
}

impl Redaction {
    /// Hides what these patterns match, and nothing else.
    pub fn new(patterns: impl IntoIterator<Item = String>) -> Self {
        Self { patterns: patterns.into_iter().map(|pattern| pattern.to_lowercase()).collect() }
    }

    /// The state without what is hidden.
    pub fn state(&self, state: &State) -> State {
        let mut shown = State::new();
        for (key, value) in state.iter() {
            let value = if self.hides(key) { Json::string(HIDDEN) } else { self.json(value) };
            shown.insert(key.to_owned(), value);
        }
        shown
    }

    /// The value without what is hidden in it. Numbers, the order of keys and all else stay as they are.
    pub fn json(&self, value: &Json) -> Json {
        self.json_and_texts(value, &str::to_owned)
    }

    /// The same with every text in it as `text` gives it.
    pub fn json_and_texts(&self, value: &Json, text: &dyn Fn(&str) -> String) -> Json {
        let shown = match value.get().as_bytes().first() {
            Some(b'{') => JsonObject::parse(value.get()).and_then(|object| {
                let shown = |(key, value): (&str, &Json)| {
                    let hidden = || Json::string(HIDDEN);
                    (key.to_owned(), if self.hides(key) { hidden() } else { self.json_and_texts(value, text) })
                };
                object.iter().map(shown).collect::<JsonObject>().to_json()
            }),
            Some(b'[') => value.to::<Vec<Json>>().and_then(|items| {
                let items: Vec<Json> = items.iter().map(|item| self.json_and_texts(item, text)).collect();
                Json::from_serialize(&items)
            }),
            Some(b'"') => value.to::<String>().map(|plain| match text(&plain) {
                // As it was written, where nothing is hidden in it.
                same if same == plain => value.clone(),
                other => Json::string(&other),
            }),
            _ => return value.clone(),
        };
        // What cannot be read cannot be shown to have nothing to hide, such as a key that stands there twice.
        shown.unwrap_or_else(|_| Json::string(HIDDEN))
    }

    /// True when values of the key are hidden.
    pub fn hides(&self, key: &str) -> bool {
        let key = key.to_lowercase();
        self.patterns.iter().any(|pattern| matches(pattern, &key))
    }
}

/// Tells whether the text matches the pattern. Both are in lower case.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut left) = text.strip_prefix(start) else { return false };
    let mut pieces = rest.split('*').peekable();
    while let Some(piece) = pieces.next() {
        // The last piece has to be at the end. Those before it are found as early as they can be.
        if pieces.peek().is_none() {
            return left.ends_with(piece);
        }
        match left.split_once(piece) {
            Some((_, behind)) => left = behind,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(redaction: &Redaction, state: &str) -> String {
        redaction.state(&State::parse(state).unwrap()).to_json_string()
    }

    #[test]
    fn values_are_hidden_by_their_keys_at_any_depth_and_all_else_stays() {
        let state = r#"{"n":9007199254740993,"user:API_Key":"k","deep":[{"x":1.0,"my_token_2":{"a":1}}],"b":null}"#;
        let expected =
            r#"{"n":9007199254740993,"user:API_Key":"[hidden]","deep":[{"x":1.0,"my_token_2":"[hidden]"}],"b":null}"#;
        assert_eq!(shown(&Redaction::default(), state), expected);
        assert_eq!(shown(&Redaction::new([]), state), state);
    }

    #[test]
    fn a_pattern_is_a_key_with_stars() {
        let cases = [
            ("email", "email", true),
            ("email", "my_email", false),
            ("EMAIL", "Email", true),
            ("*mail", "e-mail", true),
            ("*mail", "mailbox", false),
            ("user:*", "user:name", true),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("a*a", "a", false),
            ("*", "", true),
        ];
        for (pattern, key, hidden) in cases {
            assert_eq!(Redaction::new([pattern.to_owned()]).hides(key), hidden, "{pattern} {key}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_hidden() {
        let twice = r#"{"o":{"a":1,"a":2}}"#;
        assert_eq!(shown(&Redaction::new(["b".to_owned()]), twice), r#"{"o":"[hidden]"}"#);
    }
}
