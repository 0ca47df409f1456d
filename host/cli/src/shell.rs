//! Quotes untrusted words in commands that a person may copy.

use std::borrow::Cow;

/// Quotes the text as one word of a POSIX shell. A text that needs no quotes is returned unchanged.
pub(crate) fn word(text: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:@%+=".contains(&byte);
    if !text.is_empty() && text.bytes().all(is_plain) {
        return Cow::Borrowed(text);
    }
    // Within single quotes a POSIX shell changes no character. For a single quote in the text, the quotes are closed,
    // an escaped quote follows, and the quotes are opened again.
    Cow::Owned(format!("'{}'", text.replace('\'', "'\\''")))
}

#[cfg(test)]
mod tests {
    use super::word;

    #[test]
    fn a_word_of_others_is_one_word_and_no_command() {
        for plain in ["https://example.com/x/v1", "0197f9c2-7c1e-7d8a", "state_injection", "a@b%20c+d=e"] {
            assert_eq!(word(plain), plain);
        }
        let quoted = [
            ("", "''"),
            ("x:$(reboot)", "'x:$(reboot)'"),
            ("x:`reboot`", "'x:`reboot`'"),
            ("x:;reboot", "'x:;reboot'"),
            ("x:'y", "'x:'\\''y'"),
            ("x:a&b#c?d*e~f!g|h<i", "'x:a&b#c?d*e~f!g|h<i'"),
            ("a b", "'a b'"),
        ];
        for (text, expected) in quoted {
            assert_eq!(word(text), expected);
        }
    }
}
