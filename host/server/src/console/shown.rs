//! Text of authors, clients and models as pages show it: bounded, and without characters that steer the text around
//! them. The templates escape markup.

use std::borrow::Cow;
use std::iter;

use annex_protocol::{JsonObject, Timestamp};
use url::form_urlencoded;

/// The maximum size of a text on one line of a page, in bytes.
const MAX_LINE: usize = 300;
/// The maximum size of a text with several lines, in bytes.
const MAX_BLOCK: usize = 16 << 10;

/// The text on one line. A longer text is cut, and the line ends with the length of the whole text.
pub(super) fn line(text: &str) -> String {
    bounded(text, MAX_LINE, annex_text::line)
}

/// The text with its line breaks. A longer text is cut, and the last line has the length of the whole text.
pub(super) fn block(text: &str) -> String {
    bounded(text, MAX_BLOCK, annex_text::block)
}

/// Like [`block`], with a limit of its own in bytes.
pub(super) fn block_within(text: &str, limit: usize) -> String {
    bounded(text, limit, annex_text::block)
}

fn bounded(text: &str, limit: usize, escaped: impl Fn(&str) -> Cow<'_, str>) -> String {
    let kept = text.get(..text.floor_char_boundary(limit)).unwrap_or_default();
    let mut shown = escaped(kept).into_owned();
    if kept.len() < text.len() {
        shown.push_str(&format!("… ({} bytes)", text.len()));
    }
    shown
}

/// The JSON with an indent, as [`block`] shows it.
pub(super) fn json(text: &str) -> String {
    // A long value would be cut in any case.
    if text.len() > MAX_BLOCK {
        return block(text);
    }
    // A number that would read otherwise, such as 1e400, is shown as it was sent.
    let value: Option<serde_json::Value> = serde_json::from_str(text).ok();
    let value = value.filter(|value| {
        let again = value.to_string();
        again == text
    });
    let pretty = value.and_then(|value| serde_json::to_string_pretty(&value).ok());
    block(pretty.as_deref().unwrap_or(text))
}

/// A name and a value on a page.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) value: String,
}

impl Row {
    pub(super) fn new(name: &str, value: &str) -> Self {
        Self { name: line(name), value: line(value) }
    }
}

/// The members of an object, each with its JSON.
pub(super) fn members(object: &JsonObject) -> Vec<Row> {
    object.iter().map(|(name, value)| Row { name: line(name), value: json(value.get()) }).collect()
}

/// The address of a page with the parameters that have a value.
pub(super) fn address(path: &str, parameters: &[(&str, Option<&str>)]) -> String {
    let given = parameters.iter().filter_map(|(name, value)| Some((*name, (*value)?)));
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(given).finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

/// The time since `time`, which is in RFC 3339, such as `5 min`. The text itself if it is no time.
pub(super) fn age(time: &str) -> String {
    let Ok(time) = time.parse::<jiff::Timestamp>() else { return line(time) };
    let seconds = Timestamp::now().as_millis() / 1_000 - time.as_second();
    duration(u64::try_from(seconds).unwrap_or_default())
}

/// A duration in its largest unit, such as `3 h`.
pub(super) fn duration(seconds: u64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "min")];
    let unit = units.into_iter().chain(iter::once((1, "s"))).find(|(length, _)| seconds >= 2 * length);
    let (length, name) = unit.unwrap_or((1, "s"));
    format!("{} {name}", seconds / length)
}

#[cfg(test)]
mod tests {
    use super::{address, block, duration, json, line};

    #[test]
    fn hostile_text_is_bounded_and_steers_nothing() {
        assert_eq!(line("a\u{202e}b\u{1b}[31m\n<script>"), "a\\u{202e}b\\u{1b}[31m\\n<script>");
        assert_eq!(block("a\n\u{202e}b"), "a\n\\u{202e}b");
        let long = line(&"ä".repeat(1 << 20));
        assert!(long.len() < 400 && long.ends_with("… (2097152 bytes)"), "{long}");
        assert!(block(&"x".repeat(1 << 20)).len() < 20 << 10);
        assert!(json(&format!("\"{}\"", "x".repeat(1 << 20))).len() < 20 << 10);
        assert_eq!(json("{\"a\":[1]}"), "{\n  \"a\": [\n    1\n  ]\n}");
        assert_eq!(json("no JSON"), "no JSON");
    }

    #[test]
    fn addresses_have_only_the_parameters_with_a_value() {
        assert_eq!(address("/x", &[("tenant", None)]), "/x");
        assert_eq!(address("/x", &[("uri", Some("urn:a&b#c")), ("tenant", None)]), "/x?uri=urn%3Aa%26b%23c");
    }

    #[test]
    fn durations_have_one_unit() {
        for (seconds, text) in [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7_200, "2 h"), (900_000, "10 d")] {
            assert_eq!(duration(seconds), text);
        }
    }
}
