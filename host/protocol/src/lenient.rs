//! Lenient reading of fields that are not essential. A card with one invalid security scheme is read without that
//! scheme (specification section 5.7). A status is read without an invalid timestamp.

use std::cell::RefCell;

use indexmap::IndexMap;
use serde::Deserialize;
use serde::de::{Error as _, MapAccess};

use crate::proto_json::FieldValue;
use crate::{Json, JsonObject};

thread_local! {
    /// The fields that were skipped during the current read; `None` outside `reading`.
    static LEFT_OUT: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// The most skipped fields that are reported per value. A card may have any number of faulty fields.
const MAX_TOLD: usize = 20;

/// Reads a value. Also returns the fields that were skipped, each with its name and the reason.
///
/// ```
/// use annex_protocol::{AgentCard, lenient};
///
/// let text = r#"{"name":"Echo","securitySchemes":{"old":{"type":"http"},"own":{"mtlsSecurityScheme":{}}}}"#;
/// let (card, left_out) = lenient::reading(|| serde_json::from_str::<AgentCard>(text));
/// assert_eq!(card?.security_schemes.keys().collect::<Vec<_>>(), ["own"]);
/// assert!(left_out[0].starts_with("securitySchemes.old: "));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn reading<T>(read: impl FnOnce() -> T) -> (T, Vec<String>) {
    LEFT_OUT.set(Some(Vec::new()));
    let value = read();
    (value, LEFT_OUT.take().unwrap_or_default())
}

fn leave_out(place: &str, reason: &serde_json::Error) {
    LEFT_OUT.with_borrow_mut(|left_out| {
        if let Some(left_out) = left_out.as_mut().filter(|left_out| left_out.len() < MAX_TOLD) {
            left_out.push(format!("{place}: {reason}"));
        }
    });
}

/// Reads the value of field `name` into `slot`, without the parts that cannot be read.
pub(crate) fn read_field<'de, A, T>(map: &mut A, name: &'static str, slot: &mut Option<T>) -> Result<(), A::Error>
where
    A: MapAccess<'de>,
    T: Lenient,
{
    // As for any other field: with two values, two readers could use different ones.
    if slot.is_some() {
        return Err(A::Error::duplicate_field(name));
    }
    let json: Json = map.next_value()?;
    *slot = Some(if json.is_null() { T::default() } else { T::read_leniently(&json, name) });
    Ok(())
}

/// A type whose unreadable parts are skipped.
pub(crate) trait Lenient: Default {
    fn read_leniently(json: &Json, place: &str) -> Self;
}

/// The value, or the default if the JSON does not fit.
fn whole<T: FieldValue + Default>(json: &Json, place: &str) -> T {
    let read = T::read(&mut serde_json::Deserializer::from_str(json.get()));
    read.inspect_err(|error| leave_out(place, error)).unwrap_or_default()
}

impl<T: FieldValue> Lenient for Option<T> {
    fn read_leniently(json: &Json, place: &str) -> Self {
        whole(json, place)
    }
}

impl Lenient for String {
    fn read_leniently(json: &Json, place: &str) -> Self {
        whole(json, place)
    }
}

/// Reads the elements that fit, and skips the others.
impl<T: for<'a> Deserialize<'a>> Lenient for Vec<T> {
    fn read_leniently(json: &Json, place: &str) -> Self {
        let elements: Vec<Json> = whole(json, place);
        let read = |(index, element): (usize, Json)| {
            element.to().inspect_err(|error| leave_out(&format!("{place}[{index}]"), error)).ok()
        };
        elements.into_iter().enumerate().filter_map(read).collect()
    }
}

/// Reads the entries that fit, and skips the others.
impl<T: for<'a> Deserialize<'a>> Lenient for IndexMap<String, T> {
    fn read_leniently(json: &Json, place: &str) -> Self {
        let entries: JsonObject = whole(json, place);
        let read = |(key, value): (String, Json)| {
            let value = value.to().inspect_err(|error| leave_out(&format!("{place}.{key}"), error)).ok()?;
            Some((key, value))
        };
        entries.into_iter().filter_map(read).collect()
    }
}
