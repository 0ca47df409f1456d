//! Translates messages of the decoder into the words of TOML.

use annex_text::instead;

/// A mistake, parsed from the decoder's message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Mistake {
    /// A key that the table does not have.
    UnknownKey {
        key: String,
        accepted: Vec<String>,
        /// The end of the message, which says what has no such key, such as `` of an agent of kind `template` ``. Empty
        /// if there is none.
        of: String,
    },
    /// A value that the key does not accept.
    UnknownValue { value: String, accepted: Vec<String> },
    /// A required key without a value.
    MissingKey { key: String, needed: String },
    /// Any other mistake, in its final wording.
    Other(String),
}

impl Mistake {
    /// Parses a message of the decoder.
    pub(super) fn read(message: &str) -> Self {
        let message = message.trim();
        if let Some((key, rest)) = named(message, "unknown field `") {
            // For an agent's table the message says which kind of agent does not have the key.
            let of = if rest.starts_with(' ') { rest.to_owned() } else { String::new() };
            return Self::UnknownKey { key, accepted: if of.is_empty() { quoted(&rest) } else { Vec::new() }, of };
        }
        if let Some((value, rest)) = named(message, "unknown variant `") {
            return Self::UnknownValue { value, accepted: quoted(&rest) };
        }
        if let Some((key, rest)) = named(message, "missing field `") {
            let needed = rest.trim_start_matches(", which ").to_owned();
            return Self::MissingKey { key, needed };
        }
        Self::Other(plain(message))
    }

    /// The mistake as one text, where nothing else names its key.
    pub(super) fn into_text(self) -> String {
        match self {
            Self::UnknownKey { key, accepted, of } => {
                format!("{key}: unknown key{of}{}", instead(&key, &accepted, "it takes"))
            }
            Self::UnknownValue { value, accepted } => {
                format!("{value:?} is not accepted{}", instead(&value, &accepted, "it takes"))
            }
            Self::MissingKey { key, needed } if needed.is_empty() => format!("{key}: is missing"),
            Self::MissingKey { key, needed } => format!("{key}: is missing; {needed} it"),
            Self::Other(text) => text,
        }
    }
}

/// The error text for a table written as `[key]` that must be a list `[[key]]`, or for a list that must be a table.
pub(super) fn one_or_several(key: &str, is_list: bool) -> String {
    if !is_list {
        return format!("is one table, and there may be several; write it as [[{key}]]");
    }
    let meant = if key == "tenants" { ", or as [[tenant]] for a tenant of this config" } else { "" };
    format!("is a list of tables, and there is one; write it as [{key}]{meant}")
}

/// Reads the name in backticks that follows `start`. Returns the name and the text after the name.
fn named(message: &str, start: &str) -> Option<(String, String)> {
    let rest = message.strip_prefix(start)?;
    // The name comes from a stranger and may contain backticks. The text that serde adds begins in one of these ways.
    let ends = ["`, expected ", "`, there are no ", "`, which ", "` of an agent "];
    let end = ends.iter().filter_map(|end| rest.rfind(end)).min().or_else(|| rest.rfind('`'))?;
    let (name, rest) = rest.split_at(end);
    Some((name.to_owned(), rest.strip_prefix('`').unwrap_or(rest).to_owned()))
}

fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The decoder's words for types, each with the words for the author of a config.
const TYPES: [(&str, &str); 16] = [
    ("usize", "a whole number, 0 or more"),
    ("u64", "a whole number, 0 or more"),
    ("u32", "a whole number, 0 or more"),
    ("u16", "a whole number from 0 to 65535"),
    ("u8", "a whole number from 0 to 255"),
    ("i64", "a whole number"),
    ("f64", "a number"),
    ("a boolean", "true or false"),
    ("a string", "a text in quotes"),
    ("path string", "a path in quotes"),
    ("socket address", "an address and a port in quotes, as in \"127.0.0.1:9999\""),
    ("a sequence", "a list in brackets"),
    ("a map", "a table"),
    ("string or table", "a text in quotes or a table"),
    ("a nonzero usize", "a whole number, 1 or more"),
    ("a nonzero u64", "a whole number, 1 or more"),
];

/// The decoder's words for kinds of values, each with the words of TOML.
const FOUND: [(&str, &str); 7] = [
    ("string ", "the text "),
    ("integer ", "the number "),
    ("floating point ", "the number "),
    ("boolean ", ""),
    ("sequence", "a list"),
    ("map", "a table"),
    ("unit value", "nothing"),
];

/// Replaces the names of Rust types in a message of the decoder by plain words.
fn plain(message: &str) -> String {
    let message = message.replace('\n', " ");
    if message == "invalid socket address syntax" {
        return "is no address with a port; write it as in \"127.0.0.1:9999\"".to_owned();
    }
    if message == "wanted string or table" {
        return "must be a text in quotes or a table".to_owned();
    }
    if message.starts_with("wanted exactly 1 element") {
        return "takes exactly one of the keys that it may have".to_owned();
    }
    let invalid = message.strip_prefix("invalid type: ").or_else(|| message.strip_prefix("invalid value: "));
    let Some((found, wanted)) = invalid.and_then(|invalid| invalid.rsplit_once(", expected ")) else {
        return message;
    };
    let found = FOUND
        .iter()
        .find_map(|(theirs, ours)| found.strip_prefix(theirs).map(|rest| format!("{ours}{}", rest.replace('`', ""))))
        .unwrap_or_else(|| found.to_owned());
    let expected = TYPES.iter().find(|(theirs, _)| *theirs == wanted).map(|(_, ours)| *ours);
    let expected = expected.or_else(|| wanted.starts_with("struct ").then_some("a table")).unwrap_or(wanted);
    format!("is {found}; it must be {expected}")
}

#[cfg(test)]
mod tests {
    use super::Mistake;

    fn other(message: &str) -> String {
        match Mistake::read(message) {
            Mistake::Other(text) => text,
            mistake => unreachable!("{mistake:?}"),
        }
    }

    #[test]
    fn names_of_rust_types_become_words_about_toml() {
        let cases = [
            (
                "invalid type: string \"big\", expected usize",
                "is the text \"big\"; it must be a whole number, 0 or more",
            ),
            ("invalid type: integer `5`, expected a boolean", "is the number 5; it must be true or false"),
            ("invalid value: integer `-1`, expected u64", "is the number -1; it must be a whole number, 0 or more"),
            ("invalid type: boolean `true`, expected a string", "is true; it must be a text in quotes"),
            ("invalid type: sequence, expected struct ServerConfig", "is a list; it must be a table"),
            ("invalid type: map, expected a sequence", "is a table; it must be a list in brackets"),
            ("invalid socket address syntax", "is no address with a port; write it as in \"127.0.0.1:9999\""),
            ("\"*\" is neither", "\"*\" is neither"),
        ];
        for (message, expected) in cases {
            assert_eq!(other(message), expected);
        }
    }

    #[test]
    fn the_messages_of_the_decoder_are_told_apart() {
        let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let unknown = Mistake::read("unknown field `a`b`, expected one of `c`, `d`");
        let (key, accepted) = ("a`b".to_owned(), texts(&["c", "d"]));
        assert_eq!(unknown, Mistake::UnknownKey { key, accepted, of: String::new() });
        let of_kind = Mistake::read("unknown field `rule` of an agent of kind `template`");
        let of = " of an agent of kind `template`".to_owned();
        assert_eq!(of_kind, Mistake::UnknownKey { key: "rule".to_owned(), accepted: Vec::new(), of });
        let variant = Mistake::read("unknown variant `x`, expected `y` or `z`");
        assert_eq!(variant, Mistake::UnknownValue { value: "x".to_owned(), accepted: texts(&["y", "z"]) });
        let missing = Mistake::read("missing field `model`, which an agent of kind `template` needs");
        let needed = "an agent of kind `template` needs".to_owned();
        assert_eq!(missing, Mistake::MissingKey { key: "model".to_owned(), needed });
        let plainly = Mistake::read("missing field `name`");
        assert_eq!(plainly, Mistake::MissingKey { key: "name".to_owned(), needed: String::new() });
    }
}
