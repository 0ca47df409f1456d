//! Base64 in both alphabets. ProtoJSON lets a sender use either alphabet and omit the padding. A writer must use the
//! standard alphabet with padding.

use std::borrow::Cow;

/// Converts base64 to the standard alphabet with padding. Text that is not base64 is returned unchanged.
pub(crate) fn standard(text: &str) -> Cow<'_, str> {
    if text.len().is_multiple_of(4) && memchr::memchr2(b'-', b'_', text.as_bytes()).is_none() {
        return Cow::Borrowed(text);
    }
    // Padding or replacing characters in other text would change the text that a peer sent instead of base64.
    if !is_base64(text) {
        return Cow::Borrowed(text);
    }
    let digits = text.trim_end_matches('=');
    let padding = match digits.len() % 4 {
        2 => "==",
        3 => "=",
        _ => "",
    };
    let mut standard = String::with_capacity(digits.len() + padding.len());
    standard.extend(digits.chars().map(|digit| match digit {
        '-' => '+',
        '_' => '/',
        digit => digit,
    }));
    standard.push_str(padding);
    Cow::Owned(standard)
}

/// True for base64 in the standard or URL-safe alphabet, with or without padding: parsers of ProtoJSON must accept all
/// four forms.
pub(crate) fn is_base64(text: &str) -> bool {
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'-' | b'_');
    // One digit left over holds only six bits, which is no byte.
    let length_fits = digits.len() % 4 != 1 && (padding == 0 || padding <= 2 && text.len().is_multiple_of(4));
    length_fits && digits.bytes().all(is_digit)
}

#[cfg(test)]
mod tests {
    use super::standard;

    #[test]
    fn base64_of_either_alphabet_is_written_in_the_standard_one_with_padding() {
        for (sent, written) in [
            ("_-8", "/+8="),
            ("_w", "/w=="),
            ("_w==", "/w=="),
            ("/w==", "/w=="),
            ("AAAA", "AAAA"),
            ("-_-_", "+/+/"),
            ("", ""),
            ("A", "A"),
            ("é", "é"),
            ("[]", "[]"),
            ("=", "="),
            ("aGk==", "aGk=="),
            ("_-8\n", "_-8\n"),
        ] {
            assert_eq!(standard(sent), written, "{sent}");
        }
    }
}
