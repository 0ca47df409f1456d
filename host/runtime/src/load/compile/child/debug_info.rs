//! Hides the debug information of a component, for hosts that do not use it.
//!
//! The option for debug information does not change the engine, only the component that it compiles. So a component
//! without debug information has the same code with and without the option, and a server finds the code that the
//! author's tools have compiled in the cache.

use std::borrow::Cow;

use wasmparser::{BinaryReaderError, Parser, Payload};

/// Prefix of all sections with debug information (DWARF for WebAssembly).
const PREFIX: &str = ".debug_";
/// Replaces the first byte of the name of a debug section. The engine ignores sections with unknown names.
const HIDDEN: u8 = b'-';

/// The component with its debug sections renamed. All offsets stay the same.
pub(super) fn without(bytes: &[u8]) -> Result<Cow<'_, [u8]>, BinaryReaderError> {
    let mut names = Vec::new();
    for payload in Parser::new(0).parse_all(bytes) {
        if let Payload::CustomSection(section) = payload?
            && section.name().starts_with(PREFIX)
        {
            // The name precedes the data.
            names.push(section.data_offset() - section.name().len());
        }
    }
    if names.is_empty() {
        return Ok(Cow::Borrowed(bytes));
    }
    let mut bytes = bytes.to_vec();
    for place in names {
        if let Some(first) = bytes.get_mut(place) {
            *first = HIDDEN;
        }
    }
    Ok(Cow::Owned(bytes))
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::without;

    #[test]
    fn only_the_names_of_debug_sections_change_at_any_depth() {
        let text = |name: &str| {
            format!(
                "(component (component (core module (@custom \"{name}\" \"abc\") (@custom \"name-like.debug_\" \"x\"))))"
            )
        };
        let bytes = |name: &str| wat::parse_str(text(name)).expect("a component");
        let debug = bytes(".debug_info");
        assert_eq!(without(&debug).expect("it is read").into_owned(), bytes("-debug_info"));
        let plain = bytes("producers");
        assert!(matches!(without(&plain).expect("it is read"), Cow::Borrowed(_)));
    }
}
