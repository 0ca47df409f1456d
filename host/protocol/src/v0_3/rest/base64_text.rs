//! The bytes of a file.
//!
//! The proto file declares `bytes`, which ProtoJSON writes as base64. The official SDKs of 0.3 however put the base64
//! text of the file into that field, so that on the wire the text is encoded a second time. Both are read. A file that
//! is encoded once and whose content is padded base64 cannot be told apart; it is read as the SDKs write it.

use base64::Engine;
use base64::alphabet::STANDARD as STANDARD_ALPHABET;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};

/// Decodes all that ProtoJSON wants readers to take, once both alphabets are made one.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD_ALPHABET,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The base64 of the file from what stands in the field: the text inside when it is padded base64 itself, else the text
/// of the field. Text that is no base64 at all comes back as it is and fails when the request is checked.
pub(super) fn decode(field: String) -> String {
    let standard: String = field.chars().map(standard_digit).collect();
    let inner = LENIENT.decode(&standard).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    match inner {
        // Strict about padding: the SDKs write padded base64, and a lenient reader would take more plain files for
        // encoded twice.
        Some(inner) if STANDARD.decode(&inner).is_ok() => inner,
        _ => field,
    }
}

/// The text that stands in the field for a file whose base64 is `text`.
pub(super) fn encode(text: &str) -> String {
    STANDARD.encode(text)
}

fn standard_digit(character: char) -> char {
    match character {
        '-' => '+',
        '_' => '/',
        other => other,
    }
}
