//! Removes credentials from shared texts: values under the names of secrets, and words that look like keys.
//!
//! The list is not complete: a secret in plain words is not recognised. Both sides remove credentials, so that neither
//! relies on the other.

use std::borrow::Cow;

use annex_sdk::json;

/// The text that replaces a credential.
pub const REMOVED: &str = "[removed]";

/// Names of secrets, in lower case and without separators. A longer name counts too if it ends with one of these names,
/// such as `dbpassword`.
const NAMES: [&str; 17] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "authorization",
    "credential",
    "credentials",
    "cookie",
    "authcode",
    "codeverifier",
    "authconfig",
    "sessionkey",
    "clientassertion",
];

/// The prefixes of the keys of well-known services.
const PREFIXES: [&str; 20] = [
    "sk-",
    "sk_live_",
    "sk_test_",
    "rk_live_",
    "ghp_",
    "gho_",
    "ghs_",
    "ghu_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "AKIA",
    "ASIA",
    "AIza",
    "ya29.",
    "npm_",
    "pypi-",
    "hf_",
];

/// The shortest word that counts as a key because of its prefix.
const KEY_BYTES: usize = 20;
/// The length of the shortest of [`NAMES`].
const NAME_BYTES: usize = 5;
/// The shortest word after `Bearer` or `Basic` that counts as a credential.
const SCHEME_BYTES: usize = 12;

const PEM_BEGIN: &str = "-----BEGIN ";
const PEM_END: &str = "-----END ";
const PEM_DASHES: &str = "-----";
const PRIVATE_KEY: &str = "PRIVATE KEY";

/// The text without credentials.
pub fn without_in_text(text: &str) -> String {
    // Before the text is taken apart: a key in PEM has spaces and line breaks in it.
    let text = without_private_keys(text);
    let mut clean = String::with_capacity(text.len());
    let mut before = WordBefore::Nothing;
    for piece in text.split_inclusive(is_separator) {
        let word = piece.strip_suffix(is_separator).unwrap_or(piece);
        let separator = piece.get(word.len()..).unwrap_or_default();
        clean.push_str(if before.makes_secret(word) || is_key(word) { REMOVED } else { word });
        clean.push_str(separator);
        before = before.and_then(word, separator);
    }
    clean
}

/// Returns the JSON text without credentials. A value under the name of a secret becomes `"[removed]"`, and strings
/// lose their credentials. Reads the text once, at any depth of nesting.
pub fn without_in_json(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, from)) = rest.find('"').and_then(|start| rest.split_at_checked(start)) {
        let (string, after) = split_string(from);
        clean.push_str(before);
        rest = after;
        // A string with a colon behind it is a key; all others are values.
        let Some(value) = after.trim_start().strip_prefix(':') else {
            clean.push_str(&json::string(&without_in_text(&decoded(string))));
            continue;
        };
        clean.push_str(string);
        // Decoded first: an escape such as `\u0077` must not hide a name.
        if is_secret_name(&decoded(string)) {
            clean.push(':');
            clean.push_str(&json::string(REMOVED));
            rest = behind_value(value.trim_start());
        }
    }
    clean.push_str(rest);
    clean
}

/// The text of a JSON string, with its escapes decoded.
fn decoded(string: &str) -> Cow<'_, str> {
    let plain = string.strip_prefix('"').and_then(|string| string.strip_suffix('"'));
    match plain.filter(|plain| !plain.contains('\\')) {
        Some(plain) => Cow::Borrowed(plain),
        None => Cow::Owned(serde_json::from_str(string).unwrap_or_default()),
    }
}

/// Splits JSON text after its first string.
fn split_string(text: &str) -> (&str, &str) {
    let mut is_escaped = false;
    let end = text.bytes().skip(1).position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    });
    end.and_then(|end| text.split_at_checked(end + 2)).unwrap_or((text, ""))
}

/// The rest of a JSON text after its first value.
fn behind_value(text: &str) -> &str {
    let mut rest = text;
    // A counter and no recursion, so that deep nesting takes no stack.
    let mut depth = 0_usize;
    loop {
        match rest.bytes().next() {
            None => return rest,
            Some(b'"') => (_, rest) = split_string(rest),
            Some(b',' | b'}' | b']') if depth == 0 => return rest,
            Some(byte) => {
                match byte {
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth -= 1,
                    _ => {}
                }
                rest = rest.get(1..).unwrap_or_default();
            }
        }
    }
}

/// The kind of the words before a word. It decides whether the word may be a credential.
#[derive(Clone, Copy, PartialEq)]
enum WordBefore {
    Nothing,
    /// The word before is `Bearer` or `Basic`.
    Scheme,
    /// The word before is the name of a secret.
    Name,
    /// The name of a secret and a colon come before.
    NameColon,
    /// The name of a secret and an equals sign come before.
    NameEquals,
}

impl WordBefore {
    fn makes_secret(self, word: &str) -> bool {
        let has_digit = || word.bytes().any(|byte| byte.is_ascii_digit());
        match self {
            Self::Nothing | Self::Name => false,
            Self::Scheme => word.len() >= SCHEME_BYTES,
            // "The password: is wrong" names no password.
            Self::NameColon => word.len() >= KEY_BYTES || (word.len() >= 4 && has_digit()),
            Self::NameEquals => !word.is_empty(),
        }
    }

    fn and_then(self, word: &str, separator: &str) -> Self {
        let standing = match word {
            "" => self,
            word if word.eq_ignore_ascii_case("bearer") || word.eq_ignore_ascii_case("basic") => Self::Scheme,
            word if is_secret_name(word) => Self::Name,
            _ => Self::Nothing,
        };
        match (standing, separator) {
            (Self::Name, ":") => Self::NameColon,
            (Self::Name, "=") => Self::NameEquals,
            (standing, _) => standing,
        }
    }
}

fn is_separator(character: char) -> bool {
    // `&`, `?` and `=` among them, because URLs carry tokens in their queries.
    character.is_whitespace() || "\"'`,;&?(){}[]<>=:|\\".contains(character)
}

fn is_secret_name(name: &str) -> bool {
    name.len() >= NAME_BYTES
        && NAMES.iter().any(|secret| {
            // Compared from the end, so that `clientSecret` and `access_token` are names of secrets too.
            let mut letters =
                name.bytes().rev().filter(u8::is_ascii_alphanumeric).map(|letter| letter.to_ascii_lowercase());
            secret.bytes().rev().all(|letter| letters.next() == Some(letter))
        })
}

fn is_key(word: &str) -> bool {
    let is_known = word.len() >= KEY_BYTES && PREFIXES.iter().any(|prefix| word.starts_with(prefix));
    // The header of a web token is a JSON object, and `eyJ` is how `{"` begins in base64.
    let is_web_token = word.starts_with("eyJ") && word.len() >= 2 * KEY_BYTES && word.matches('.').count() >= 2;
    is_known || is_web_token
}

/// Removes private keys. A key reaches from its first line to its last line, or to the end of the text if it has no
/// last line.
fn without_private_keys(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(PEM_BEGIN) {
        clean.push_str(before);
        let label = after.split_once(PEM_DASHES).map_or("", |(label, _)| label);
        if label.ends_with(PRIVATE_KEY) {
            clean.push_str(REMOVED);
            let end = after.split_once(PEM_END).and_then(|(_, end)| end.split_once(PEM_DASHES));
            rest = end.map_or("", |(_, end)| end);
        } else {
            clean.push_str(PEM_BEGIN);
            rest = after;
        }
    }
    clean.push_str(rest);
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_taken_out_of_text() {
        let pem = "see -----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY----- there";
        let cases = [
            ("Authorization: Bearer abcdef0123456789", "Authorization: Bearer [removed]"),
            ("my key is sk-abcdefghijklmnopqrstuv!", "my key is [removed]"),
            (
                "https://a.example/cb?code=1&access_token=x.y&z=1",
                "https://a.example/cb?code=1&access_token=[removed]&z=1",
            ),
            (r#"{"password": "hunter2", "user": "ada"}"#, r#"{"password": "[removed]", "user": "ada"}"#),
            ("X-Api-Key: 0123456789abcdef", "X-Api-Key: [removed]"),
            ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc", REMOVED),
            (pem, "see [removed] there"),
            ("-----BEGIN PRIVATE KEY-----\nMIIE", REMOVED),
        ];
        for (text, expected) in cases {
            assert_eq!(without_in_text(text), expected, "{text}");
        }
    }

    #[test]
    fn what_only_speaks_of_credentials_stays() {
        let texts = [
            "The password: is wrong",
            "What is a token? A bearer of news",
            "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
            "sk-8 snowboard, AKIA",
            "ünïcödé = \"1\" : {x}",
            "",
        ];
        for text in texts {
            assert_eq!(without_in_text(text), text);
        }
    }

    #[test]
    fn values_under_names_of_secrets_are_taken_out_of_data_and_the_rest_keeps_its_digits() {
        let data =
            r#"{"n":9007199254740993,"f":1.0,"clientSecret":{"a":1},"list":[{"API-Key":1},"Bearer abcdef0123456789"]}"#;
        let expected = r#"{"n":9007199254740993,"f":1.0,"clientSecret":"[removed]","list":[{"API-Key":"[removed]"},"Bearer [removed]"]}"#;
        assert_eq!(without_in_json(data), expected);
    }

    #[test]
    fn data_is_read_to_its_end_whatever_stands_in_it() {
        let cases = [
            (
                r#"{"pass\u0077ord": {"a": [1, "}"], "b": "\""}, "n": [{}]}"#,
                r#"{"pass\u0077ord":"[removed]", "n": [{}]}"#,
            ),
            (r#"{"token" : -1.5e3}"#, r#"{"token":"[removed]"}"#),
            (r#"["\\", "ü\n", {"a": null}]"#, r#"["\\", "ü\n", {"a": null}]"#),
            (r#""token=abc""#, r#""token=[removed]""#),
            ("17", "17"),
        ];
        for (data, expected) in cases {
            assert_eq!(without_in_json(data), expected, "{data}");
        }
    }
}
