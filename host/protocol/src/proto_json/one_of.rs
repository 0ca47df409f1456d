//! Messages that consist of one `oneof`: an enum in Rust, an object with one key on the wire.

/// Declares enums that stand for such messages. After each variant comes its camelCase name.
macro_rules! one_of {
    ($(
        $(#[$attribute:meta])*
        pub enum $name:ident {
            $($(#[$variant_attribute:meta])* $variant:ident($type:ty) => $wire_name:literal,)+
        }
    )+) => {$(
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq)]
        pub enum $name {
            $($(#[$variant_attribute])* $variant($type),)+
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self {
                    $(Self::$variant(value) => serializer.collect_map([($wire_name, value)]),)+
                }
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct OneOfVisitor;

                impl<'de> serde::de::Visitor<'de> for OneOfVisitor {
                    type Value = $name;

                    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        formatter.write_str(concat!("a JSON object (", stringify!($name), ")"))
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<$name, A::Error> {
                        use $crate::proto_json::{FieldName, choose, chosen, skip_field};

                        const NAMES: &[&str] = &[$($wire_name),+];
                        let mut content = None;
                        while let Some(field_name) = map.next_key_seed(FieldName(NAMES))? {
                            let value = match field_name {
                                // `null` leaves an alternative unset, as ProtoJSON has it.
                                $(Some($wire_name) => map.next_value::<Option<$type>>()?.map($name::$variant),)+
                                _ => skip_field(&mut map).map(|()| None)?,
                            };
                            choose(&mut content, value, NAMES)?;
                        }
                        chosen(content, NAMES)
                    }
                }

                deserializer.deserialize_map(OneOfVisitor)
            }
        }

        impl $crate::proto_json::FieldValue for $name {
            fn read<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                serde::Deserialize::deserialize(deserializer)
            }

            fn is_default(&self) -> bool {
                // A set alternative is written even if it is empty, because its name carries information.
                false
            }
        }
    )+};
}

pub(crate) use one_of;
