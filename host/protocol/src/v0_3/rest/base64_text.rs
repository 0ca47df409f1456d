//! The bytes of a file.
//!
//! The proto file declares `bytes`, which ProtoJSON writes as base64. However, the official SDKs of 0.3 put the base64
//! text of the file into that field, so that the text on the wire is encoded twice. Both forms are read. If a file is
//! encoded once, but consists of padded base64 itself, it looks as if it was encoded twice. It is decoded as such.

use base64::Engine;
use base64::alphabet::STANDARD as STANDARD_ALPHABET;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};

use crate::base64::standard;

/// Decodes base64 in the standard alphabet, with or without padding.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD_ALPHABET,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The base64 of the file. If the field contains padded base64 of padded base64, the file was encoded twice, and the result is
/// the inner base64. Any other field is returned unchanged. If it is not base64, the validation of the request refuses it.
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

/// The base64 of the file whose field has these bytes in protobuf. The official SDKs of 0.3 put the base64 text of the file
/// into the field. Other bytes are the file itself.
pub fn base64_of_bytes(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if STANDARD.decode(text).is_ok() => text.to_owned(),
        _ => STANDARD.encode(bytes),
    }
}

/// The bytes of the field in protobuf for a file whose base64 is `text`: the base64 text, which the official SDKs of 0.3 read.
pub fn bytes_of_base64(text: &str) -> Vec<u8> {
    standard(text).into_owned().into_bytes()
}

/// The content of the field for a file whose base64 is `text`.
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
