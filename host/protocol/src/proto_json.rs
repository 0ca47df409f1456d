//! The ProtoJSON mapping, shared by all types of the model.
//!
//! Reading: unknown fields are skipped, `null` is the same as absent, camelCase and snake_case names are the same field
//! and a field may come only once. Writing: camelCase, and a default value is omitted unless the field is required.
//! Missing required fields are not reported here but in `validate`, which collects all violations.
//!
//! The types do not derive serde's traits because `flatten`, `untagged` and internally tagged enums buffer, which
//! breaks [`Json`](crate::Json), and because a derived struct also accepts a JSON array.

mod enumeration;
mod integer;
mod message;
mod one_of;

use std::fmt;
use std::marker::PhantomData;

use indexmap::IndexMap;
use indexmap::map::Entry;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

pub(crate) use enumeration::{Enumeration, proto_enum, read_enumeration};
pub(crate) use message::{message, readable};
pub(crate) use one_of::one_of;

/// A type that can be a field of a message.
pub(crate) trait FieldValue: Sized {
    /// True if an optional field treats the default value as absent. This is so for strings, because proto3 has no other way to
    /// leave a string unset.
    const EMPTY_IS_ABSENT: bool = false;

    /// Reads a value that is not `null`.
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;

    /// Tells whether the value is the default, and so may be omitted.
    fn is_default(&self) -> bool;
}

impl FieldValue for String {
    const EMPTY_IS_ABSENT: bool = true;

    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(deserializer)
    }

    fn is_default(&self) -> bool {
        self.is_empty()
    }
}

impl FieldValue for bool {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(deserializer)
    }

    fn is_default(&self) -> bool {
        !self
    }
}

impl<T: for<'a> Deserialize<'a>> FieldValue for Vec<T> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(deserializer)
    }

    fn is_default(&self) -> bool {
        self.is_empty()
    }
}

impl<T: for<'a> Deserialize<'a>> FieldValue for IndexMap<String, T> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(UniqueKeys::new())
    }

    fn is_default(&self) -> bool {
        self.is_empty()
    }
}

impl<T: FieldValue> FieldValue for Option<T> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = T::read(deserializer)?;
        Ok(if T::EMPTY_IS_ABSENT && value.is_default() { None } else { Some(value) })
    }

    fn is_default(&self) -> bool {
        self.is_none()
    }
}

/// Reads the value of field `name` into `slot`.
pub(crate) fn read_field<'de, A, T>(map: &mut A, name: &'static str, slot: &mut Option<T>) -> Result<(), A::Error>
where
    A: MapAccess<'de>,
    T: FieldValue + Default,
{
    // With two values, this server and the next reader of the message could use different ones.
    if slot.is_some() {
        return Err(A::Error::duplicate_field(name));
    }
    // `null` fills the slot as well, so that a second value behind it is refused too.
    let Nullable(value) = map.next_value()?;
    *slot = Some(value);
    Ok(())
}

/// Skips the value of an unknown field, at any depth of nesting.
pub(crate) fn skip_field<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    // Section 5.7 wants unknown fields ignored. serde_json skips a value without recursion, so depth cannot exhaust the
    // stack.
    map.next_value::<IgnoredAny>().map(drop)
}

/// Sets the alternative of a `oneof`. A `null` leaves the `oneof` unset.
pub(crate) fn choose<T, E: Error>(chosen: &mut Option<T>, value: Option<T>, names: &[&str]) -> Result<(), E> {
    if value.is_some() && chosen.is_some() {
        return Err(E::custom(format_args!("more than one of {} is set", quoted(names))));
    }
    if value.is_some() {
        *chosen = value;
    }
    Ok(())
}

/// The alternative of a `oneof` that was set.
pub(crate) fn chosen<T, E: Error>(chosen: Option<T>, names: &[&str]) -> Result<T, E> {
    chosen.ok_or_else(|| E::custom(format_args!("one of {} is required", quoted(names))))
}

fn quoted(names: &[&str]) -> String {
    format!("`{}`", names.join("`, `"))
}

struct Nullable<T>(T);

impl<'de, T: FieldValue + Default> Deserialize<'de> for Nullable<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_option(NullableVisitor(PhantomData)).map(Self)
    }
}

struct NullableVisitor<T>(PhantomData<T>);

impl<'de, T: FieldValue + Default> Visitor<'de> for NullableVisitor<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value or null")
    }

    fn visit_none<E: Error>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_unit<E: Error>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        T::read(deserializer)
    }
}

/// Reads a key as one of the given camelCase field names; `None` for any other key.
pub(crate) struct FieldName(pub(crate) &'static [&'static str]);

impl<'de> DeserializeSeed<'de> for FieldName {
    type Value = Option<&'static str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for FieldName {
    type Value = Option<&'static str>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a field name")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        let Self(names) = self;
        // Nearly all clients write camelCase, so the other spelling is tried only for a key that has an underscore.
        let exact = names.iter().find(|name| **name == key);
        let found = exact.or_else(|| {
            let may_be_snake_case = key.contains('_');
            names.iter().find(|name| may_be_snake_case && snake_case(name).eq(key.chars()))
        });
        Ok(found.copied())
    }
}

fn snake_case(camel_case: &str) -> impl Iterator<Item = char> {
    camel_case.chars().flat_map(|character| {
        let underscore = character.is_ascii_uppercase().then_some('_');
        underscore.into_iter().chain([character.to_ascii_lowercase()])
    })
}

/// Reads a JSON object. Refuses an object with a repeated key.
pub(crate) struct UniqueKeys<T>(PhantomData<T>);

impl<T> UniqueKeys<T> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for UniqueKeys<T> {
    type Value = IndexMap<String, T>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = IndexMap::new();
        while let Some(key) = map.next_key::<String>()? {
            match entries.entry(key) {
                // serde would keep the last value. The extension and the agent could then get one value and the next
                // server the other.
                Entry::Occupied(entry) => {
                    return Err(A::Error::custom(format_args!("duplicate key `{}`", entry.key())));
                }
                Entry::Vacant(entry) => entry.insert(map.next_value()?),
            };
        }
        Ok(entries)
    }
}
