//! Finds keys that occur twice in an object. JSON leaves open which value counts. Most readers take the last value. Strict
//! readers, such as the readers of protobuf, refuse the whole text.

use std::borrow::Cow;
use std::collections::HashMap;
use std::mem;
use std::ops::Range;

use smallvec::SmallVec;

/// The length in bytes of the shortest object that has a key twice.
const SHORTEST: usize = r#"{"":0,"":0}"#.len();
/// The maximum number of keys of an object that are compared one by one. Larger objects get an index.
const COMPARED: usize = 16;

/// A key that occurred in its object before.
pub(super) struct RepeatedKey {
    /// The range of the earlier entry, with the comma after the entry.
    pub(super) earlier: Range<usize>,
    /// The byte after the colon of the later entry.
    pub(super) value: usize,
}

/// Iterates over the repeated keys of valid JSON in one pass. Small objects need no allocation.
pub(super) struct RepeatedKeys<'a> {
    json: &'a str,
    at: usize,
    /// True if the next string is a key.
    is_key: bool,
    /// The arrays and objects around `at`.
    open: SmallVec<[OpenContainer<'a>; 8]>,
    /// The keys so far of all objects in `open`. The keys of the innermost object come last.
    keys: SmallVec<[Key<'a>; COMPARED]>,
}

/// An array or object that has not ended yet.
struct OpenContainer<'a> {
    is_object: bool,
    /// The index of the object's first key in [`RepeatedKeys::keys`].
    first: usize,
    /// The index of each key within the object, once the object is large.
    index: Option<HashMap<Cow<'a, str>, usize>>,
}

struct Key<'a> {
    /// The byte at which the key's entry begins.
    start: usize,
    /// The key's name without quotes and escapes.
    name: Cow<'a, str>,
}

/// The first key that occurs twice in an object.
pub(super) fn first(json: &str) -> Option<RepeatedKey> {
    RepeatedKeys::new(json).next()
}

/// Valid JSON with only the last entry of each repeated key; `None` if no key is repeated.
pub(super) fn without_earlier(json: &str) -> Option<String> {
    let mut dropped: Vec<Range<usize>> = RepeatedKeys::new(json).map(|repeated| repeated.earlier).collect();
    if dropped.is_empty() {
        return None;
    }
    // A dropped entry may contain entries that would be dropped as well.
    dropped.sort_unstable_by_key(|range| range.start);
    let mut kept = String::with_capacity(json.len());
    let mut copied = 0;
    for Range { start, end } in dropped {
        if start >= copied {
            kept.push_str(json.get(copied..start).unwrap_or_default());
            copied = end;
        }
    }
    kept.push_str(json.get(copied..).unwrap_or_default());
    Some(kept)
}

impl<'a> RepeatedKeys<'a> {
    fn new(json: &'a str) -> Self {
        let bytes = json.as_bytes();
        // Most values of one field are scalars or lists of scalars.
        let has_none = bytes.len() < SHORTEST || memchr::memchr(b'{', bytes).is_none();
        let at = if has_none { bytes.len() } else { 0 };
        Self { json, at, is_key: false, open: SmallVec::new(), keys: SmallVec::new() }
    }

    fn enter(&mut self, is_object: bool) {
        self.open.push(OpenContainer { is_object, first: self.keys.len(), index: None });
        self.is_key = is_object;
    }

    fn leave(&mut self) {
        if let Some(open) = self.open.pop() {
            self.keys.truncate(open.first);
        }
        self.is_key = false;
    }

    /// Skips a string after its opening quote. Returns whether the string has escapes.
    fn string(&mut self) -> bool {
        let bytes = self.json.as_bytes();
        let mut has_escapes = false;
        while let Some(step) = memchr::memchr2(b'"', b'\\', bytes.get(self.at..).unwrap_or_default()) {
            self.at += step;
            if bytes.get(self.at) == Some(&b'"') {
                self.at += 1;
                return has_escapes;
            }
            has_escapes = true;
            self.at += r"\n".len();
        }
        self.at = bytes.len();
        has_escapes
    }

    /// Records the key that ends here and began at `start`. Returns the key if it is repeated.
    fn key(&mut self, start: usize, has_escapes: bool) -> Option<RepeatedKey> {
        let name = name(self.json.get(start..self.at)?, has_escapes);
        let open = self.open.last_mut()?;
        let own = self.keys.get(open.first..)?;
        // The last one of the same name: those before it were found already.
        let before = match &mut open.index {
            Some(index) => index.insert(name.clone(), own.len()),
            None => own.iter().rposition(|key| key.name == name),
        };
        if open.index.is_none() && own.len() >= COMPARED {
            let names = own.iter().map(|key| &key.name).chain([&name]).cloned();
            open.index = Some(names.zip(0..).collect());
        }
        let before = before.map(|place| open.first + place);
        self.keys.push(Key { start, name });
        let before = before?;
        // The key itself is the latest possible next key.
        let earlier = self.keys.get(before)?.start..self.keys.get(before + 1)?.start;
        let value = self.at + self.json.get(self.at..)?.find(':')? + 1;
        Some(RepeatedKey { earlier, value })
    }
}

/// The key without quotes and escapes.
fn name(quoted: &str, has_escapes: bool) -> Cow<'_, str> {
    let unescaped = has_escapes.then(|| serde_json::from_str(quoted).ok()).flatten();
    unescaped.map_or_else(|| Cow::Borrowed(quoted.get(1..quoted.len() - 1).unwrap_or_default()), Cow::Owned)
}

impl Iterator for RepeatedKeys<'_> {
    type Item = RepeatedKey;

    fn next(&mut self) -> Option<RepeatedKey> {
        loop {
            let byte = *self.json.as_bytes().get(self.at)?;
            self.at += 1;
            match byte {
                b'{' => self.enter(true),
                b'[' => self.enter(false),
                b'}' | b']' => self.leave(),
                b',' => self.is_key = self.open.last().is_some_and(|open| open.is_object),
                b'"' => {
                    let start = self.at - 1;
                    let has_escapes = self.string();
                    if mem::take(&mut self.is_key)
                        && let Some(repeated) = self.key(start, has_escapes)
                    {
                        return Some(repeated);
                    }
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{COMPARED, first, without_earlier};

    #[test]
    fn of_a_key_that_stands_twice_the_last_entry_stays_at_any_depth() {
        for (json, kept) in [
            (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
            (r#"{"a":1,"b":2,"a":3,"c":4,"a":5}"#, r#"{"b":2,"c":4,"a":5}"#),
            (r#"{"":0,"":[{}]}"#, r#"{"":[{}]}"#),
            (r#"[1, {"a" : "}\"{" , "b":[], "a" :2 } ]"#, r#"[1, {"b":[], "a" :2 } ]"#),
            (r#"{"x":{"a":1,"\u0061":2},"y":{"a":1}}"#, r#"{"x":{"\u0061":2},"y":{"a":1}}"#),
            (r#"{"a":{"b":1,"b":2},"a":{"b":3,"b":4}}"#, r#"{"a":{"b":4}}"#),
            (r#"{"\"":1,"\u0022":2,"\\":3}"#, r#"{"\u0022":2,"\\":3}"#),
        ] {
            assert_eq!(without_earlier(json).as_deref(), Some(kept), "{json}");
            assert!(first(kept).is_none(), "{kept}");
        }
    }

    #[test]
    fn keys_of_different_objects_and_texts_of_the_same_letters_are_no_repetition() {
        for json in [
            "",
            "7",
            r#""{\"a\":1,\"a\":2}""#,
            r#"[{"a":1},{"a":2}]"#,
            r#"{"a":{"a":{"a":1}},"b":"a","c":["a","a"]}"#,
            r#"{"a":1,"A":2,"\\u0061":3}"#,
        ] {
            assert_eq!(without_earlier(json), None, "{json}");
        }
    }

    #[test]
    fn an_object_of_many_keys_is_looked_at_as_closely() {
        for keys in [COMPARED - 1, COMPARED, COMPARED + 1, 50_000] {
            let entries: Vec<String> = (0..keys).map(|number| format!(r#""k{number}":0"#)).collect();
            let entries = entries.join(",");
            assert!(first(&format!("{{{entries}}}")).is_none(), "{keys}");
            for again in [0, keys / 2, keys - 1] {
                let kept = without_earlier(&format!(r#"{{{entries},"\u006b{again}":1,"k{again}":2}}"#));
                let kept: serde_json::Map<String, serde_json::Value> =
                    serde_json::from_str(&kept.expect("a key twice")).expect("an object");
                let last = kept[&format!("k{again}")].as_u64();
                assert_eq!((kept.len(), last), (keys, Some(2)), "{keys} {again}");
            }
        }
    }

    #[test]
    fn text_that_is_no_json_is_looked_at_without_harm() {
        for text in ["{", r#"{"a""#, r#"{"a"é"a"#, r#"{"a","a"}}}]"#, r#"{"\"#, r#"{"a":1,"a"  }"#, "{\"\\é\",\"é"] {
            let _ = without_earlier(text);
        }
    }
}
