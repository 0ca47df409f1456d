//! Reads the members of a JSON object, one level deep.

use std::borrow::Cow;

/// The members of a JSON object: keys decoded, values as the original text.
///
/// The host has validated all JSON that it passes to the extension. So values are skipped and not parsed again, which
/// takes a quarter of a parser's time. Text that is not JSON does no harm, but gives no useful result.
#[derive(Debug, Default)]
pub struct Members<'a>(Vec<(Cow<'a, str>, &'a str)>);

impl<'a> Members<'a> {
    /// Reads the members; `None` if the text is not a JSON object.
    pub fn of(json: &'a str) -> Option<Self> {
        let mut scanner = Scanner { text: json, at: 0 };
        let mut members = Vec::new();
        scanner.expect(b'{')?;
        if scanner.expect(b'}').is_none() {
            loop {
                let key = scanner.key()?;
                scanner.expect(b':')?;
                members.push((key, scanner.value()?));
                if scanner.expect(b',').is_none() {
                    scanner.expect(b'}')?;
                    break;
                }
            }
        }
        scanner.at_end().then_some(Self(members))
    }

    /// True if the object has no members.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The keys in their original order. A repeated key occurs twice.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(key, _)| key.as_ref())
    }

    /// A key that occurs more than once. Readers may disagree on its value.
    pub fn repeated(&self) -> Option<&str> {
        let mut keys: Vec<&str> = self.keys().collect();
        // Sorted and not compared in pairs: a client may send thousands of keys.
        keys.sort_unstable();
        keys.windows(2).find_map(|pair| match pair {
            [first, second] if first == second => Some(*first),
            _ => None,
        })
    }

    /// Keys and the JSON text of their values, in their original order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.0.iter().map(|(key, value)| (key.as_ref(), *value))
    }

    /// The JSON text of a member's value. For a repeated key this is the last value, as in most parsers.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, value)| *value)
    }
}

/// Skips over JSON that was validated before.
struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Skips white space and then `byte`. Returns `None`, without moving, if another byte follows.
    fn expect(&mut self, byte: u8) -> Option<()> {
        self.space();
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn at_end(&mut self) -> bool {
        self.space();
        self.at == self.text.len()
    }

    fn key(&mut self) -> Option<Cow<'a, str>> {
        self.space();
        let start = self.at;
        self.string()?;
        let plain = self.text.get(start + 1..self.at - 1)?;
        // Most keys have no escapes, and are borrowed.
        if !plain.contains('\\') {
            return Some(Cow::Borrowed(plain));
        }
        serde_json::from_str(self.text.get(start..self.at)?).ok().map(Cow::Owned)
    }

    /// Skips a string, which ends at the first quote without a backslash in front.
    fn string(&mut self) -> Option<()> {
        if self.peek()? != b'"' {
            return None;
        }
        self.at += 1;
        loop {
            self.plain_bytes();
            match self.peek()? {
                b'"' => break,
                // The byte behind a backslash never ends the string.
                b'\\' => self.at += 2,
                // One of the last seven bytes of the text.
                _ => self.at += 1,
            }
        }
        self.at += 1;
        Some(())
    }

    /// Steps over bytes that are neither quote nor backslash, eight at a time, as long as eight bytes are left.
    fn plain_bytes(&mut self) {
        while let Some(word) = self.text.as_bytes().get(self.at..).and_then(<[u8]>::first_chunk::<8>) {
            let word = u64::from_le_bytes(*word);
            let found = equal_bytes(word, b'"') | equal_bytes(word, b'\\');
            if found != 0 {
                // The first byte of the text is the lowest one of the word.
                self.at += found.trailing_zeros() as usize / 8;
                return;
            }
            self.at += 8;
        }
    }

    fn value(&mut self) -> Option<&'a str> {
        self.space();
        let start = self.at;
        match self.peek()? {
            b'"' => self.string()?,
            b'{' | b'[' => self.nested()?,
            _ => self.scalar(),
        }
        self.text.get(start..self.at).filter(|value| !value.is_empty())
    }

    /// Skips an object or an array with its content.
    fn nested(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                // Kinds of brackets are not distinguished: the host has validated the text.
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }

    fn scalar(&mut self) {
        while matches!(self.peek(), Some(byte) if !matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }
}

/// A word whose lowest set bit lies in the lowest byte of `word` that equals `byte`. It is 0 if no byte does.
const fn equal_bytes(word: u64, byte: u8) -> u64 {
    const ONES: u64 = u64::MAX / 0xff;
    let zero_where_equal = word ^ (ONES * byte as u64);
    // The subtraction sets the highest bit of a byte of 0. It may set that of the bytes above, too, but of none below.
    zero_where_equal.wrapping_sub(ONES) & !zero_where_equal & (ONES << 7)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_decoded_and_values_stay_as_they_were_sent() {
        let members = Members::of(r#" {"b\u0041": 1e2, "a": {"z": 9007199254740993}} "#).unwrap();
        let found: Vec<_> = members.iter().collect();
        assert_eq!(found, [("bA", "1e2"), ("a", r#"{"z": 9007199254740993}"#)]);
    }

    #[test]
    fn of_two_members_with_one_name_the_last_counts() {
        let members = Members::of(r#"{"a": 1, "b": 2, "a": 3}"#).unwrap();
        assert_eq!(members.get("a"), Some("3"));
        assert_eq!(members.get("c"), None);
        assert_eq!(members.repeated(), Some("a"));
        assert_eq!(Members::of(r#"{"a": 1, "A": 2}"#).unwrap().repeated(), None);
    }

    #[test]
    fn only_an_object_has_members() {
        for json in ["null", "[]", "\"{}\"", "1", "{", "{} {}", "", "{\"a", "{\"a\":}", "{\"a\":1", "{,}", "{\"a\":[}"]
        {
            assert!(Members::of(json).is_none(), "{json}");
        }
        assert!(Members::of("{}").unwrap().is_empty());
    }

    #[test]
    fn values_are_what_a_parser_takes_them_for() {
        let strings = [
            "",
            "\\",
            "\"",
            "}",
            "],",
            "seven..",
            "eight...",
            "nine\\\"\n.....",
            "#]#]#]#]\"#]#\\]",
            "ünïcödé\\\"ünïcödé",
            "\u{1f980}",
        ];
        for one in strings {
            for other in strings {
                let value = serde_json::json!({one: [other, {other: one, "x": [[], {}, -1.5e3, null]}], "z": other});
                for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
                    let members = Members::of(&text).unwrap();
                    let parsed = value.as_object().unwrap();
                    assert_eq!(members.iter().count(), parsed.len());
                    for (key, value) in members.iter() {
                        assert_eq!(serde_json::from_str::<serde_json::Value>(value).unwrap(), parsed[key], "{text}");
                    }
                }
            }
        }
    }
}
