//! Messages about lines that are not TOML. Each message names the key of its line, if the key is known.

use std::ops::Range;

use toml::Value;
use toml::de::DeTable;

use super::place::{self, Step};

/// The parser's message for a key that occurs twice.
pub(in crate::config) const DUPLICATE: &str = "duplicate key";

/// The beginnings of the parser's messages about an invalid value, such as a text without quotes.
const ABOUT_VALUES: [&str; 4] =
    ["string values must be quoted", "invalid boolean", "invalid float", "invalid mantissa"];

/// The beginning of the parser's message about text that follows a complete value. A text without quotes that contains
/// a comma also causes this message.
const ABOUT_REST: &str = "unexpected key or value";

/// A name that replaces a repeated key in a copy of the text. The parser then finds the table with the key.
const STAND_IN: &str = "annex-repeated-key";

/// A mistake in a line that is not TOML.
pub(in crate::config) struct SyntaxMistake {
    /// The first byte of the key or the value.
    pub(in crate::config) start: usize,
    /// The key. Empty if the key is unknown.
    pub(in crate::config) key: String,
    /// The reason. It does not repeat the value, which may be a secret.
    pub(in crate::config) reason: String,
    /// The corrected key and value, such as `name = "Ada"`.
    pub(in crate::config) example: Option<String>,
}

/// Describes the mistake at `span`. `message` is the message of the parser.
pub(in crate::config) fn mistake(text: &str, span: &Range<usize>, message: &str) -> SyntaxMistake {
    let message = message.trim().replace('\n', " ");
    if message == DUPLICATE {
        let (key, reason) = repeated(text, span);
        return SyntaxMistake { start: span.start, key, reason, example: None };
    }
    let unquoted = if message.starts_with(ABOUT_REST) {
        unquoted(text, span).filter(|unquoted| unquoted.reason == WITHOUT_QUOTES)
    } else {
        ABOUT_VALUES.iter().any(|begin| message.starts_with(begin)).then(|| unquoted(text, span)).flatten()
    };
    let Some(Unquoted { start, key, reason, example }) = unquoted else {
        return SyntaxMistake { start: span.start, key: String::new(), reason: message, example: None };
    };
    SyntaxMistake { start, key, reason: reason.to_owned(), example }
}

/// Finds the key that is repeated at `span`. Returns the key and the reason. The reason names the line of the key's
/// first occurrence.
fn repeated(text: &str, span: &Range<usize>) -> (String, String) {
    let name = text.get(span.clone()).unwrap_or_default().trim_matches(['"', '\'']).to_owned();
    let lines = until_line_end(text, span);
    let (before, behind) = (text.get(..span.start).unwrap_or_default(), lines.get(span.end..).unwrap_or_default());
    // Under another name the key hides no earlier one.
    let renamed = format!("{before}{STAND_IN}{behind}");
    let (root, _) = DeTable::parse_recoverable(&renamed);
    let found = place::find(root.get_ref(), &(span.start..span.start + STAND_IN.len()));
    let mut steps = found.map(|found| found.steps).unwrap_or_default();
    if let Some(last @ Step::Key(_)) = steps.last_mut() {
        *last = Step::Key(name.clone());
    }
    let first = place::start(root.get_ref(), &steps).and_then(|start| text.get(..start));
    match first {
        Some(first) if first.len() < span.start => {
            let line = first.matches('\n').count() + 1;
            (
                place::dotted(&steps),
                format!("{DUPLICATE}; it stands in line {line} already, so leave out one of the two"),
            )
        }
        _ => (name, DUPLICATE.to_owned()),
    }
}

/// A value that TOML does not have, such as a text without quotes.
struct Unquoted {
    /// The first byte of the value.
    start: usize,
    /// The key as a dotted path. Empty if the key is unknown.
    key: String,
    reason: &'static str,
    /// The corrected key and value, such as `name = "Ada"`.
    example: Option<String>,
}

/// Finds the value without quotes around `span`. `None` if the value has its quotes.
fn unquoted(text: &str, span: &Range<usize>) -> Option<Unquoted> {
    let line = text.get(..span.start)?.rfind('\n').map_or(0, |end| end + 1)..until_line_end(text, span).len();
    let begin = line.start + text.get(line.start..span.start)?.rfind(['=', ',', '[']).map_or(0, |end| end + 1);
    let before = text.get(line.start..begin)?.trim_end();
    // A line without a key is one of a list.
    let is_nested = before.is_empty() || before.contains(['[', '{']);
    let ends = |character: char| is_nested && matches!(character, ',' | ']' | '}');
    let rest = text.get(begin..line.end)?;
    let rest = rest.split(" #").next().unwrap_or(rest);
    let word = rest.split(ends).next().unwrap_or(rest);
    let begin = begin + (word.len() - word.trim_start().len());
    let word = word.trim();
    let half_quoted = word.strip_suffix(['"', '\'']).filter(|word| !word.contains(['"', '\'']));
    let word = half_quoted.unwrap_or(word);
    let key = before.strip_suffix('=').map(|key| key.rsplit([',', '{']).next().unwrap_or(key).trim());
    let key = key.map(|key| format!("{key} = ")).unwrap_or_default();
    let (quoted, lower) = (Value::from(word), word.to_ascii_lowercase());
    let begins_with_digit = word.starts_with(|first: char| first.is_ascii_digit());
    let (reason, example) = match lower.as_str() {
        "" => ("has no value; one must stand behind the `=`", None),
        _ if half_quoted.is_some() => ("lacks the quote at its beginning", Some(format!("{key}{quoted}"))),
        "true" | "false" => ("takes true and false in small letters only", Some(format!("{key}{lower}"))),
        "yes" | "on" => (YES_OR_NO, Some(format!("{key}true, or {key}{quoted} for a text"))),
        "no" | "off" => (YES_OR_NO, Some(format!("{key}false, or {key}{quoted} for a text"))),
        _ if begins_with_digit => ("is no number, and a text needs quotes", Some(format!("{key}{quoted}"))),
        _ if word.starts_with(['"', '\'']) => return None,
        _ => (WITHOUT_QUOTES, Some(format!("{key}{quoted}"))),
    };
    // With quotes the line says which key it has.
    let quoted = quoted.to_string();
    let (head, behind) = (text.get(..begin)?, text.get(begin + word.len()..line.end)?);
    let mended = format!("{head}{quoted}{behind}");
    let (root, _) = DeTable::parse_recoverable(&mended);
    let path = place::find(root.get_ref(), &(begin..begin + quoted.len())).map(|found| found.steps).unwrap_or_default();
    Some(Unquoted { start: begin, key: place::dotted(&path), reason, example })
}

/// The reason for refusing a text without quotes.
const WITHOUT_QUOTES: &str = "is a text without quotes";
/// The reason for refusing a value such as `yes`.
const YES_OR_NO: &str = "is neither true nor false, and a text needs quotes";

/// The text from its beginning to the end of the line in which `span` ends.
fn until_line_end<'t>(text: &'t str, span: &Range<usize>) -> &'t str {
    let rest = text.get(span.end..).unwrap_or_default();
    text.get(..span.end + rest.find('\n').unwrap_or(rest.len())).unwrap_or(text)
}
