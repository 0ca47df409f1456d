//! JSON that every reader accepts: the rules of RFC 7493 (I-JSON) for strings, numbers and keys, and a limit on nesting.
//!
//! For example, `"\ud800"` and `1e999999` are JSON. Python cannot write the string as UTF-8, and reads the number as an
//! infinity. Protobuf can represent neither value. A single such value would make a whole answer unreadable. Readers of
//! protobuf also refuse an object with a repeated key.

mod repeated;

use std::cell::Cell;
use std::fmt;
use std::ops::Range;

use crate::Json;

/// The property of a JSON value that some readers cannot read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    TooDeep,
    HalfSurrogate,
    HugeNumber,
    RepeatedKey,
}

impl fmt::Display for Flaw {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooDeep => write!(formatter, "arrays and objects nest deeper than {} levels", Json::MAX_DEPTH),
            Self::HalfSurrogate => formatter.write_str("the text has half of a surrogate pair, which is no character"),
            Self::HugeNumber => formatter.write_str("the number is beyond the range of a double"),
            Self::RepeatedKey => formatter.write_str("the key stands twice in its object"),
        }
    }
}

/// The first value in a JSON text that some readers cannot read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Unportable {
    /// The path of the value, such as `message.parts[2].data`. Empty for the whole text, and for values that nest too
    /// deep.
    pub place: String,
    pub(crate) flaw: Flaw,
}

impl Unportable {
    /// The reason why some readers cannot read the value, as text for the developer of the sender.
    pub fn reason(&self) -> String {
        self.flaw.to_string()
    }
}

impl fmt::Display for Unportable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.is_empty() {
            write!(formatter, "{}", self.flaw)
        } else {
            write!(formatter, "{}: {}", self.place, self.flaw)
        }
    }
}

/// Checks valid JSON: it nests at most [`Json::MAX_DEPTH`] deep, has no half of a surrogate pair, no number beyond the range
/// of a double, and no object with a key twice.
///
/// ```
/// use annex_protocol::portable;
///
/// assert_eq!(portable::check(r#"{"a":[1.0,9007199254740993,"\ud83d\ude00"]}"#), Ok(()));
/// assert_eq!(portable::check(r#"{"a":[1,{"b":1e999}]}"#).unwrap_err().place, "a[1].b");
/// assert_eq!(portable::check(r#"{"a":[1,{"b":1,"b":2}]}"#).unwrap_err().place, "a[1].b");
/// ```
///
/// # Errors
/// [`Unportable`]
pub fn check(json: &str) -> Result<(), Unportable> {
    // Only a text that is refused pays for the search for the place.
    let refused = |flaw, at| Err(Unportable { place: place(json, at), flaw });
    let flaw = if is_plain(json) { None } else { Flaws::new(json, Json::MAX_DEPTH).next() };
    match flaw {
        Some((Flaw::TooDeep, _)) => Err(Unportable { place: String::new(), flaw: Flaw::TooDeep }),
        Some((flaw, range)) => refused(flaw, range.start),
        None => repeated::first(json).map_or(Ok(()), |key| refused(Flaw::RepeatedKey, key.value)),
    }
}

/// Replaces the parts of valid JSON that [`check`] refuses. Half of a surrogate pair becomes U+FFFD. A number beyond
/// the range of a double becomes a string of the same digits, so that no digit is lost. An array or object that nests
/// too deep becomes a string with its JSON text. If an object has a key twice, the last entry stays, as in most
/// readers. `None` if nothing had to be replaced.
///
/// ```
/// use annex_protocol::portable;
///
/// assert_eq!(portable::repaired(r#"{"a":"x\ud800","b":-1e999}"#).as_deref(), Some(r#"{"a":"x\ufffd","b":"-1e999"}"#));
/// assert_eq!(portable::repaired(r#"{"\ud800":1,"\udc00":2}"#).as_deref(), Some(r#"{"\ufffd":2}"#));
/// assert_eq!(portable::repaired("[1.0]"), None);
/// ```
pub fn repaired(json: &str) -> Option<String> {
    repaired_within(json, Json::MAX_DEPTH)
}

/// Repairs a value like [`repaired`], for use inside another value. The result nests at most `levels` deep.
///
/// ```
/// use annex_protocol::portable;
///
/// assert_eq!(portable::repaired_within("[[[1]]]", 2).as_deref(), Some(r#"[["[1]"]]"#));
/// ```
pub fn repaired_within(json: &str, levels: usize) -> Option<String> {
    let is_known_plain = levels == Json::MAX_DEPTH && is_plain(json);
    let readable = if is_known_plain { None } else { without_flaws(json, levels) };
    // The repaired keys are compared, because two different keys may have become equal.
    repeated::without_earlier(readable.as_deref().unwrap_or(json)).or(readable)
}

/// Replaces all flaws except repeated keys. `None` if the JSON has no flaws of other kinds.
fn without_flaws(json: &str, levels: usize) -> Option<String> {
    let mut repaired = String::new();
    let mut copied = 0;
    for (flaw, range) in Flaws::new(json, levels) {
        repaired.push_str(json.get(copied..range.start).unwrap_or_default());
        let text = json.get(range.clone()).unwrap_or_default();
        match flaw {
            Flaw::HalfSurrogate => repaired.push_str(r"\ufffd"),
            Flaw::HugeNumber => repaired.extend(["\"", text, "\""]),
            Flaw::TooDeep => repaired.push_str(Json::string(text).get()),
            // `Flaws` does not find repeated keys.
            Flaw::RepeatedKey => repaired.push_str(text),
        }
        copied = range.end;
    }
    if copied == 0 {
        return None;
    }
    repaired.push_str(json.get(copied..).unwrap_or_default());
    Some(repaired)
}

thread_local! {
    static IS_CHECKED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `decode` on a text that [`check`] has accepted, so that its values are not checked again.
pub(crate) fn checked<T>(decode: impl FnOnce() -> T) -> T {
    /// Restores the previous flag when this value is dropped, even if decoding panics.
    struct RestoreFlag(bool);
    impl Drop for RestoreFlag {
        fn drop(&mut self) {
            IS_CHECKED.set(self.0);
        }
    }
    let _before = RestoreFlag(IS_CHECKED.replace(true));
    decode()
}

/// True within [`checked`].
pub(crate) fn is_checked() -> bool {
    IS_CHECKED.get()
}

/// Tells whether arrays and objects of valid JSON nest deeper than `limit`.
pub(crate) fn nests_deeper_than(json: &str, limit: usize) -> bool {
    has_many_brackets(json, limit) && Flaws::new(json, limit).any(|(flaw, _)| flaw == Flaw::TooDeep)
}

/// A quick check that scans many bytes at once. If it returns true, the JSON has no flaws except perhaps repeated keys.
/// Otherwise the full scan decides. The check requires few brackets, no escape and no exponent. It also looks at every 300th byte: a
/// number that is too long covers at least one of these bytes.
fn is_plain(json: &str) -> bool {
    let bytes = json.as_bytes();
    let pairs = bytes.iter().zip(bytes.iter().skip(1));
    // No early exit, so that the compiler compares many bytes at once.
    let has_exponent =
        pairs.fold(false, |found, (digit, sign)| found | (digit.is_ascii_digit() & (sign | 0x20 == b'e')));
    let is_of_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'.');
    let mut places = bytes.chunks_exact(MANY_DIGITS).filter_map(<[u8]>::last);
    !has_exponent
        && memchr::memchr(b'\\', bytes).is_none()
        && !has_many_brackets(json, Json::MAX_DEPTH)
        && !places.any(is_of_number)
}

/// True if a text has more than `limit` opening brackets. Any other text cannot nest deeper than `limit`.
fn has_many_brackets(json: &str, limit: usize) -> bool {
    json.len() > limit && memchr::memchr2_iter(b'[', b'{', json.as_bytes()).nth(limit).is_some()
}

/// Iterates over the flaws in valid JSON in one pass over its bytes. Bytes suffice: the syntax of JSON is ASCII, and no
/// longer UTF-8 sequence contains an ASCII byte.
struct Flaws<'a> {
    json: &'a str,
    limit: usize,
    at: usize,
    depth: usize,
    in_string: bool,
}

/// The number of characters from which a number may exceed a double. A shorter number without an exponent is always within the
/// range.
const MANY_DIGITS: usize = 300;

impl<'a> Flaws<'a> {
    fn new(json: &'a str, limit: usize) -> Self {
        Self { json, limit, at: 0, depth: 0, in_string: false }
    }

    fn rest(&self) -> &'a [u8] {
        self.json.as_bytes().get(self.at..).unwrap_or_default()
    }

    /// Skips a string to its end. If half of a surrogate pair comes first, stops after that half and returns its range.
    fn string(&mut self) -> Option<Range<usize>> {
        // Most bytes of a request are in strings, and memchr scans many of them at once.
        while let Some(step) = memchr::memchr2(b'"', b'\\', self.rest()) {
            self.at += step;
            match self.rest() {
                [b'\\', b'u', escape @ ..] => {
                    let start = self.at;
                    let (length, is_whole) = escaped(escape);
                    self.at += length;
                    if !is_whole {
                        return Some(start..self.at);
                    }
                }
                [b'\\', ..] => self.at += 2,
                _ => {
                    self.at += 1;
                    self.in_string = false;
                    return None;
                }
            }
        }
        self.at = self.json.len();
        None
    }

    /// Skips an array or object with its content, and returns its range.
    fn array_or_object(&mut self) -> Range<usize> {
        let start = self.at;
        let around = self.depth - 1;
        let mut in_string = false;
        while let Some(byte) = self.rest().first() {
            match byte {
                b'\\' => self.at += 1,
                b'"' => in_string = !in_string,
                b'[' | b'{' if !in_string && self.at > start => self.depth += 1,
                b']' | b'}' if !in_string => self.depth -= 1,
                _ => {}
            }
            self.at += 1;
            if self.depth == around {
                break;
            }
        }
        start..self.at
    }

    /// Skips a number. Returns the number's range if it exceeds a double.
    fn number(&mut self) -> Option<Range<usize>> {
        let start = self.at;
        let is_sign = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E');
        let length = self.rest().iter().take_while(|byte| is_sign(byte)).count();
        self.at += length;
        let text = self.json.get(start..self.at)?;
        let may_be_huge = length >= MANY_DIGITS || memchr::memchr2(b'e', b'E', text.as_bytes()).is_some();
        (may_be_huge && text.parse::<f64>().is_ok_and(f64::is_infinite)).then_some(start..self.at)
    }
}

impl Iterator for Flaws<'_> {
    type Item = (Flaw, Range<usize>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.in_string
                && let Some(range) = self.string()
            {
                return Some((Flaw::HalfSurrogate, range));
            }
            match self.rest().first()? {
                b'-' | b'0'..=b'9' => {
                    if let Some(range) = self.number() {
                        return Some((Flaw::HugeNumber, range));
                    }
                    continue;
                }
                b'"' => self.in_string = true,
                b'[' | b'{' => self.depth += 1,
                b']' | b'}' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            if self.depth > self.limit {
                return Some((Flaw::TooDeep, self.array_or_object()));
            }
            self.at += 1;
        }
    }
}

/// The length in bytes of an escape `\u`, whose digits are at the beginning of `digits`. If the escape begins a
/// surrogate pair, the length includes the second escape. The flag is false if the escape is half of a surrogate pair.
fn escaped(digits: &[u8]) -> (usize, bool) {
    const ESCAPE: usize = r"\ud800".len();
    match unit(digits) {
        Some(0xdc00..=0xdfff) => (ESCAPE, false),
        Some(0xd800..=0xdbff) => match digits.get(4..) {
            Some([b'\\', b'u', low @ ..]) if matches!(unit(low), Some(0xdc00..=0xdfff)) => (2 * ESCAPE, true),
            _ => (ESCAPE, false),
        },
        _ => (ESCAPE, true),
    }
}

fn unit(digits: &[u8]) -> Option<u16> {
    let digits = std::str::from_utf8(digits.get(..4)?).ok()?;
    u16::from_str_radix(digits, 16).ok()
}

/// An array or object around a position in valid JSON.
enum Container {
    Array(usize),
    Object(String),
}

/// The path to the value that contains the byte `offset` of valid JSON. If the byte is in a key, the path to the object
/// that has this key.
fn place(json: &str, offset: usize) -> String {
    let mut around = Vec::new();
    let mut text_from = 0;
    let mut in_string = false;
    let mut escaped = false;
    for (at, byte) in json.bytes().enumerate().take(offset) {
        if in_string {
            in_string = escaped || byte != b'"';
            escaped = !escaped && byte == b'\\';
            continue;
        }
        match (byte, around.last_mut()) {
            (b'"', _) => (in_string, text_from) = (true, at),
            (b'{', _) => around.push(Container::Object(String::new())),
            (b'[', _) => around.push(Container::Array(0)),
            (b'}' | b']', _) => drop(around.pop()),
            (b',', Some(Container::Array(index))) => *index += 1,
            (b',', Some(Container::Object(key))) => key.clear(),
            (b':', Some(Container::Object(key))) => {
                let text = json.get(text_from..at).unwrap_or_default().trim_end();
                *key = serde_json::from_str(text).unwrap_or_else(|_| text.to_owned());
            }
            _ => {}
        }
    }
    let mut path = String::new();
    for step in around {
        match step {
            Container::Array(index) => path.push_str(&format!("[{index}]")),
            Container::Object(key) if key.is_empty() => {}
            Container::Object(key) if path.is_empty() => path.push_str(&key),
            Container::Object(key) => path.extend([".", &key]),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::{check, repaired};
    use crate::Json;

    const HALVES: [&str; 6] = [r"\ud800", r"\uDFFF", r"\ud800x", r"\udc00\ud800", r"\ud800\u0041", r"\ud800\n"];

    #[test]
    fn half_a_surrogate_pair_is_found_wherever_it_stands() {
        for half in HALVES {
            for (json, place) in [
                (format!(r#""{half}""#), ""),
                (format!(r#"{{"a":[0,"b","x\\{half}"]}}"#), "a[2]"),
                (format!(r#"{{"a" : {{"{half}":1}}}}"#), "a"),
                (format!(r#"{{"a":1,"b\"{{":{{"c":"{half}"}}}}"#), "b\"{.c"),
            ] {
                assert_eq!(check(&json).unwrap_err().place, place, "{json}");
                let repaired = repaired(&json).expect("something to repair");
                serde_json::from_str::<serde_json::Value>(&repaired).expect("what every reader takes");
                assert_eq!(check(&repaired), Ok(()));
            }
        }
    }

    #[test]
    fn a_number_beyond_the_range_of_a_double_is_found_and_keeps_its_digits() {
        for number in
            ["1e309", "-1E+309", "17976931348623159e292", &"9".repeat(400), &format!("{}e20", "1".repeat(295))]
        {
            let json = format!(r#"{{"a":[{number}]}}"#);
            assert_eq!(check(&json).unwrap_err().place, "a[0]", "{number}");
            assert_eq!(repaired(&json), Some(format!(r#"{{"a":["{number}"]}}"#)));
        }
    }

    #[test]
    fn what_nests_too_deep_is_found_and_kept_as_text() {
        let nested = |depth: usize, inner: &str| format!("{}{inner}{}", "[".repeat(depth), "]".repeat(depth));
        let deep = nested(Json::MAX_DEPTH - 1, r#"[["\"]\u0041",{}], {"a":[]} ,0]"#);
        let text = r#"["[\"\\\"]\\u0041\",{}]", "{\"a\":[]}" ,0]"#;
        assert_eq!(check(&deep).unwrap_err().reason(), "arrays and objects nest deeper than 40 levels");
        // The innermost array is at the last allowed level, so its content is text.
        assert_eq!(repaired(&deep), Some(nested(Json::MAX_DEPTH - 1, text)));
        let deepest = nested(100_000, "");
        let repaired = repaired(&deepest).expect("something to repair");
        assert_eq!(check(&repaired), Ok(()));
    }

    #[test]
    fn what_every_reader_takes_stays_as_it_is() {
        let small = format!("0.{}1", "0".repeat(400));
        for json in [
            "1.0",
            "-0",
            "1e308",
            "1.7976931348623157e308",
            "1e-999999",
            "9007199254740993",
            &"9".repeat(308),
            &small,
            r#""\ud83d\ude00""#,
            r#""\\ud800""#,
            r#""\\\\ud800 1e999""#,
            r#"{"1e999":"\u0000\uFFFF"}"#,
            "\"\u{10ffff}\"",
        ] {
            assert_eq!((check(json), repaired(json)), (Ok(()), None), "{json}");
        }
    }
}
