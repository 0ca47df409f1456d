//! Redaction: hides values of sessions and recordings that not every operator may see.

use annex_protocol::{Json, JsonObject};
use serde::de::IgnoredAny;

mod secret_names;

/// The text that replaces a hidden value.
const HIDDEN: &str = "[hidden]";
/// The maximum depth to which redaction parses JSON texts inside JSON texts. A text at a deeper level is hidden as a
/// whole.
const MAX_TEXTS: usize = 4;
/// The largest text, in bytes, that redaction parses as JSON. A longer text that begins like JSON is hidden as a whole.
const MAX_TEXT_BYTES: usize = 4 << 20;

/// In an object such as `{"name": "Cookie", "value": "…"}`, the keys that can hold the name. The key [`VALUE`] holds
/// the value of this name.
const NAMES: [&str; 2] = ["name", "key"];
const VALUE: &str = "value";

/// Hides values by the names of their keys, at any depth, and in texts that are themselves JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Redaction {
    /// The patterns of hidden keys, in lower case. `None` if the usual names of secrets are hidden.
    patterns: Option<Vec<String>>,
}

impl Redaction {
    /// Hides only the values whose keys match one of these patterns. The `Default` of this type instead hides the
    /// values whose keys are usual names of secrets, in every spelling.
    ///
    /// A pattern is a key in which `*` stands for any characters. The case of letters does not matter. The key includes
    /// the prefix of its scope, as in `user:email`.
    pub(crate) fn new(patterns: impl IntoIterator<Item = String>) -> Self {
        Self { patterns: Some(patterns.into_iter().map(|pattern| pattern.to_lowercase()).collect()) }
    }

    /// A copy of the state in which hidden values are replaced by [`HIDDEN`].
    pub(crate) fn state(&self, state: &JsonObject) -> JsonObject {
        let plain = Texts { change: &str::to_owned, depth: MAX_TEXTS };
        match self.object_without(state, plain) {
            Some(shown) => shown,
            None => state.clone(),
        }
    }

    /// A copy of any JSON in which hidden values are replaced by [`HIDDEN`]. Numbers, the order of keys and all other
    /// values stay the same.
    pub(crate) fn json(&self, value: &Json) -> Json {
        self.json_and_texts(value, &str::to_owned)
    }

    /// Like [`Self::json`], but also replaces each text in the value by the result of `text`.
    pub(crate) fn json_and_texts(&self, value: &Json, text: &dyn Fn(&str) -> String) -> Json {
        self.without(value, Texts { change: text, depth: MAX_TEXTS }).unwrap_or_else(|| value.clone())
    }

    /// A copy of the text. If the text is JSON, hidden values in it are replaced by [`HIDDEN`]. Any other text stays
    /// the same.
    pub(crate) fn text(&self, text: &str) -> String {
        self.text_without(text, Texts { change: &str::to_owned, depth: MAX_TEXTS }).unwrap_or_else(|| text.to_owned())
    }

    /// True if values of the key are hidden.
    pub(crate) fn hides(&self, key: &str) -> bool {
        let Some(patterns) = &self.patterns else { return secret_names::is_secret(key) };
        let key = key.to_lowercase();
        patterns.iter().any(|pattern| matches(pattern, &key))
    }

    /// A redacted copy of the value. `None` if nothing is hidden. The caller can then use the value itself, which keeps
    /// its spelling.
    fn without(&self, value: &Json, texts: Texts<'_>) -> Option<Json> {
        let shown = match value.get().as_bytes().first() {
            Some(b'{') => JsonObject::parse(value.get())
                .and_then(|object| self.object_without(&object, texts).map(|shown| shown.to_json()).transpose()),
            Some(b'[') => value.to::<Vec<Json>>().and_then(|items| self.array_without(items, texts)),
            Some(b'"') => {
                value.to::<String>().map(|text| self.text_without(&text, texts).map(|shown| Json::string(&shown)))
            }
            _ => return None,
        };
        // An unreadable value may contain a secret, so it is hidden as a whole.
        shown.unwrap_or_else(|_| Some(Json::string(HIDDEN)))
    }

    fn object_without(&self, object: &JsonObject, texts: Texts<'_>) -> Option<JsonObject> {
        let mut is_changed = false;
        let mut shown = JsonObject::new();
        let is_named = self.names_hidden(object);
        for (key, value) in object.iter() {
            let is_hidden = self.hides(key) || (is_named && key == VALUE);
            let other = if is_hidden { Some(Json::string(HIDDEN)) } else { self.without(value, texts) };
            is_changed |= other.is_some();
            shown.insert(key.to_owned(), other.unwrap_or_else(|| value.clone()));
        }
        is_changed.then_some(shown)
    }

    /// True for an object that names a secret in `name` or `key`, such as `{"name": "Cookie", "value": "…"}`.
    fn names_hidden(&self, object: &JsonObject) -> bool {
        let named =
            |key| object.get(key).and_then(|name| name.to::<String>().ok()).is_some_and(|name| self.hides(&name));
        object.contains_key(VALUE) && NAMES.into_iter().any(named)
    }

    fn array_without(&self, items: Vec<Json>, texts: Texts<'_>) -> Result<Option<Json>, serde_json::Error> {
        let mut is_changed = false;
        let shown = items.into_iter().map(|item| {
            let other = self.without(&item, texts);
            is_changed |= other.is_some();
            other.unwrap_or(item)
        });
        let shown: Vec<Json> = shown.collect();
        is_changed.then(|| Json::from_serialize(&shown)).transpose()
    }

    fn text_without(&self, text: &str, texts: Texts<'_>) -> Option<String> {
        // The whole text is changed first, because a secret may itself be JSON.
        let changed = (texts.change)(text);
        let shown = self.json_text_without(&changed, texts);
        shown.or_else(|| (changed != text).then_some(changed))
    }

    fn json_text_without(&self, text: &str, texts: Texts<'_>) -> Option<String> {
        // An empty list of patterns means that the operator wants nothing hidden.
        if self.patterns.as_ref().is_some_and(Vec::is_empty) {
            return None;
        }
        let is_short = text.len() <= MAX_TEXT_BYTES;
        if !text.trim_start().starts_with(['{', '[', '"']) || (is_short && !is_json(text)) {
            return None;
        }
        let inner = texts.inner().filter(|_| is_short);
        match (Json::parse(text.to_owned()), inner) {
            (Ok(json), Some(inner)) => self.without(&json, inner).map(|shown| shown.get().to_owned()),
            _ => Some(HIDDEN.to_owned()),
        }
    }
}

/// The changes that redaction makes to texts.
#[derive(Clone, Copy)]
struct Texts<'a> {
    /// The function that replaces each text.
    change: &'a dyn Fn(&str) -> String,
    /// The number of further levels at which texts are parsed as JSON.
    depth: usize,
}

impl Texts<'_> {
    /// The same changes for the texts inside a JSON text, one level deeper. `None` if the maximum depth is reached.
    fn inner(self) -> Option<Self> {
        Some(Self { depth: self.depth.checked_sub(1)?, ..self })
    }
}

/// True if the text is JSON of any depth.
fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// True if the text matches the pattern. Both must be in lower case.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut left) = text.strip_prefix(start) else { return false };
    let mut pieces = rest.split('*').peekable();
    while let Some(piece) = pieces.next() {
        // The last piece must be at the end. All others are matched as early as possible.
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
        redaction.state(&JsonObject::parse(state).unwrap()).to_json_string()
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
        assert_eq!(Redaction::new(["b".to_owned()]).text(twice), HIDDEN);
    }

    #[test]
    fn texts_that_are_json_are_looked_into_and_all_other_texts_stay_as_they_are() {
        let redaction = Redaction::default();
        let secret = r#"{"password": "p-1"}"#.to_owned();
        let quoted = |text: &String| Json::string(text).get().to_owned();
        let mut nested = secret.clone();
        for depth in 0..8 {
            let shown = redaction.text(&nested);
            assert!(shown.contains("[hidden]") && !shown.contains("p-1"), "{depth}: {shown}");
            nested = format!(r#"{{"text": {}}}"#, quoted(&nested));
        }
        let list = format!(r#"[1, {}]"#, quoted(&secret));
        assert_eq!(redaction.text(&list), r#"[1,"{\"password\":\"[hidden]\"}"]"#);
        let deep = format!("{}{secret}{}", "[".repeat(1_000), "]".repeat(1_000));
        let twice = r#"{"a":1,"a":{"password":"p-1"}}"#.to_owned();
        let long = format!(r#"{{"password":"p-1","x":"{}"}}"#, "x".repeat(MAX_TEXT_BYTES));
        for unreadable in [&quoted(&quoted(&secret)), &deep, &twice, &long] {
            assert!(!redaction.text(unreadable).contains("p-1"), "{}", unreadable.get(..40).unwrap_or_default());
        }
        for plain in [r#"{ "a" : 1.0 }"#, "{name} is here", "[link](x)", "\"so\" he said", "{", "", " [ 1, \"pin\" ] "]
        {
            assert_eq!(redaction.text(plain), plain);
        }
        assert_eq!(Redaction::new([]).text(&deep), deep, "nothing is to be hidden");
    }

    #[test]
    fn an_entry_that_names_a_secret_is_shown_without_its_value() {
        let list = r#"{"fields":[{"name":"Cookie","value":"c"},{"value":{"a":1},"key":"db_password"},{"name":"id","value":7}]}"#;
        let expected = r#"{"fields":[{"name":"Cookie","value":"[hidden]"},{"value":"[hidden]","key":"db_password"},{"name":"id","value":7}]}"#;
        assert_eq!(shown(&Redaction::default(), list), expected);
    }

    #[test]
    fn a_value_in_which_nothing_is_hidden_stays_as_it_was_written() {
        let value = Json::parse(r#"{ "a" : [1.0, "\u0041", "{ \"b\" : 2 }"] }"#.to_owned()).unwrap();
        assert_eq!(Redaction::default().json(&value).get(), value.get());
    }
}
