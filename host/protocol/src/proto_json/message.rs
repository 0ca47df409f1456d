//! Macros for message types: structs whose fields have a wire name.

/// Declares structs with the ProtoJSON mapping. After each field comes its camelCase name, and optionally a word:
///
/// - `required`: the field is written even with its default value.
/// - `optional`: unreadable parts are skipped on reading (`lenient.rs`).
/// - `lenient`: `required` and `optional` together.
macro_rules! message {
    (@required) => { false };
    (@required required) => { true };
    (@required optional) => { false };
    (@required lenient) => { true };
    ($(
        $(#[$attribute:meta])*
        pub struct $name:ident {
            $($(#[$field_attribute:meta])* pub $field:ident: $type:ty => $wire_name:literal $($kind:ident)?,)+
        }
    )+) => {$(
        $crate::proto_json::readable! {
            $(#[$attribute])*
            pub struct $name {
                $($(#[$field_attribute])* pub $field: $type => $wire_name $($kind)?,)+
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap;

                // The number of entries is unknown until each field was checked, because defaults are omitted.
                let mut map = serializer.serialize_map(None)?;
                $(
                    if $crate::proto_json::message!(@required $($kind)?)
                        || !$crate::proto_json::FieldValue::is_default(&self.$field)
                    {
                        map.serialize_entry($wire_name, &self.$field)?;
                    }
                )+
                map.end()
            }
        }
    )+};
}

/// Declares structs that are only read. The fields are declared as in [`message`].
macro_rules! readable {
    (@read) => { $crate::proto_json::read_field };
    (@read required) => { $crate::proto_json::read_field };
    (@read optional) => { $crate::lenient::read_field };
    (@read lenient) => { $crate::lenient::read_field };
    ($(
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident {
            $($(#[$field_attribute:meta])* $field_visibility:vis $field:ident: $type:ty => $wire_name:literal $($kind:ident)?,)+
        }
    )+) => {$(
        $(#[$attribute])*
        #[derive(Clone, Debug, Default, PartialEq)]
        $visibility struct $name {
            $($(#[$field_attribute])* $field_visibility $field: $type,)+
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct MessageVisitor;

                impl<'de> serde::de::Visitor<'de> for MessageVisitor {
                    type Value = $name;

                    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        formatter.write_str(concat!("a JSON object (", stringify!($name), ")"))
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<$name, A::Error> {
                        use $crate::proto_json::{FieldName, skip_field};

                        $(let mut $field: Option<$type> = None;)+
                        while let Some(field_name) = map.next_key_seed(FieldName(&[$($wire_name),+]))? {
                            match field_name {
                                $(Some($wire_name) => {
                                    $crate::proto_json::readable!(@read $($kind)?)(&mut map, $wire_name, &mut $field)?
                                })+
                                _ => skip_field(&mut map)?,
                            }
                        }
                        // A required field that is missing is its default value here. `validate` reports it.
                        Ok($name { $($field: $field.unwrap_or_default(),)+ })
                    }
                }

                // With `deserialize_struct` serde_json would accept an array too. With `deserialize_map` it accepts
                // objects only.
                deserializer.deserialize_map(MessageVisitor)
            }
        }

        impl $crate::proto_json::FieldValue for $name {
            fn read<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                serde::Deserialize::deserialize(deserializer)
            }

            fn is_default(&self) -> bool {
                *self == Self::default()
            }
        }
    )+};
}

pub(crate) use message;
pub(crate) use readable;
