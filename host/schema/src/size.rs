//! The sizes of an instance that determine the cost of a validation.

use serde_json::Value;

/// Sizes of a JSON value. Each size is a sum over the value and all of its inner values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    /// Bytes of the text.
    pub(crate) bytes: u64,
    /// Number of values and keys.
    pub(crate) values: u64,
    /// Sum of the bytes of each value. An inner value counts again in each value that contains it.
    pub(crate) nested_bytes: u64,
    /// Bytes of the paths of all values.
    pub(crate) paths: u64,
    /// Bytes that are compared when each array is searched for equal items.
    pub(crate) compared: u64,
}

impl Size {
    /// Measures a value whose text has `bytes` bytes.
    pub(crate) fn of(value: &Value, bytes: usize) -> Self {
        let mut size = Self { bytes: wide(bytes), ..Self::default() };
        size.add(value, 0);
        size
    }

    /// Adds a value and returns its approximate bytes in the text.
    fn add(&mut self, value: &Value, path: u64) -> u64 {
        self.values += 1;
        self.paths += path;
        let bytes = match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 8,
            Value::String(text) => 2 + wide(text.len()),
            Value::Array(items) => self.add_items(items, path),
            Value::Object(members) => {
                let mut bytes = 2;
                for (key, member) in members {
                    self.values += 1;
                    let key = 4 + wide(key.len());
                    bytes += key + self.add(member, path + key);
                }
                bytes
            }
        };
        self.nested_bytes += bytes;
        bytes
    }

    fn add_items(&mut self, items: &[Value], path: u64) -> u64 {
        // An index and its slash have at most 8 bytes in an instance of a megabyte.
        let bytes = 2 + items.iter().map(|item| 1 + self.add(item, path + 8)).sum::<u64>();
        self.compared = self.compared.saturating_add(bytes.saturating_mul(rivals(items)));
        bytes
    }
}

/// Number of items that one item of an array may be compared with. Up to 15 items are compared in pairs, more are
/// hashed. A number beyond 2^53 can share its hash with 1,023 others. Any number of distinct arrays can share one
/// hash.
fn rivals(items: &[Value]) -> u64 {
    let count = wide(items.len());
    if items.iter().any(|item| item.is_array() || item.is_object()) {
        count
    } else if items.iter().any(Value::is_number) {
        count.min(1 << 10)
    } else {
        count.min(15)
    }
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Size;

    #[test]
    fn inner_values_count_once_for_each_value_around_them() {
        let flat = json!(["12345678"]);
        let nested = json!([[[["12345678"]]]]);
        let [flat, nested] = [flat, nested].map(|value| Size::of(&value, 0));
        assert!(nested.nested_bytes > 3 * flat.nested_bytes, "{flat:?} {nested:?}");
    }

    #[test]
    fn keys_are_values_and_make_paths() {
        let size = Size::of(&json!({"abcdef": {"a": 1}}), 0);
        assert_eq!((size.values, size.paths), (5, 10 + 15));
    }

    #[test]
    fn arrays_whose_items_may_share_a_hash_are_compared_in_pairs() {
        let texts = Size::of(&json!(vec!["a"; 1_000]), 0);
        let arrays = Size::of(&json!(vec![json!([]); 1_000]), 0);
        assert!(arrays.compared > 50 * texts.compared, "{texts:?} {arrays:?}");
    }
}
