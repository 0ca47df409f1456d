//! Enums, which are written as their proto name and read from the name or the number.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserializer, Error, Visitor};

/// An enum of the proto file; the number of a value is its position in `VALUES`.
pub(crate) trait Enumeration: Copy + 'static {
    /// The values, in the same order as their wire names in `NAMES`.
    const VALUES: &'static [Self];
    const NAMES: &'static [&'static str];
    const TYPE_NAME: &'static str;
}

/// Reads a name, a number, or a number in quotes.
pub(crate) fn read_enumeration<'de, T: Enumeration, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_any(EnumerationVisitor(PhantomData))
}

struct EnumerationVisitor<T>(PhantomData<T>);

impl<T: Enumeration> EnumerationVisitor<T> {
    fn at_position<E: Error>(position: Option<usize>, input: impl fmt::Display) -> Result<T, E> {
        let value = position.and_then(|position| T::VALUES.get(position)).copied();
        // An unknown value is not read as unspecified, because a filter with the unspecified value lists everything.
        value.ok_or_else(|| {
            let names = T::NAMES.join("`, `");
            E::custom(format_args!("unknown {} `{input}`, expected one of `{names}`", T::TYPE_NAME))
        })
    }
}

impl<T: Enumeration> Visitor<'_> for EnumerationVisitor<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the name or the number of a {}", T::TYPE_NAME)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        Self::at_position(usize::try_from(number).ok(), number)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        Self::at_position(usize::try_from(number).ok(), number)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        // A query parameter is always a string, so numbers may come in quotes.
        let named = T::NAMES.iter().position(|name| *name == text);
        Self::at_position(named.or_else(|| text.parse().ok()), text)
    }
}

/// Declares enums of the proto file. The values are declared in the order of their numbers.
macro_rules! proto_enum {
    ($(
        $(#[$attribute:meta])*
        pub enum $name:ident {
            $($(#[$variant_attribute:meta])* $variant:ident => $wire_name:literal,)+
        }
    )+) => {$(
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_attribute])* $variant,)+
        }

        impl $name {
            /// All values, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name of the value on the wire.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $wire_name,)+
                }
            }

            /// The number of the value in the proto file.
            pub fn number(self) -> i32 {
                // `proto_enum!` declares the values in the order of their numbers, without gaps from 0.
                self as i32
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(self.name())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl $crate::proto_json::Enumeration for $name {
            const VALUES: &'static [Self] = Self::ALL;
            const NAMES: &'static [&'static str] = &[$($wire_name),+];
            const TYPE_NAME: &'static str = stringify!($name);
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::proto_json::read_enumeration(deserializer)
            }
        }

        impl $crate::proto_json::FieldValue for $name {
            fn read<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::proto_json::read_enumeration(deserializer)
            }

            fn is_default(&self) -> bool {
                *self == Self::default()
            }
        }
    )+};
}

pub(crate) use proto_enum;
