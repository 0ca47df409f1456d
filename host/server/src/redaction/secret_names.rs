//! The usual names of secrets.

/// A key that contains one of these parts is the name of a secret. A key is compared without separators and in lower
/// case, so `private_key`, `privateKey` and `X-Private-Key` are the same.
const PARTS: [&str; 17] = [
    "accesskey",
    "apikey",
    "authorisation",
    "authorization",
    "bearer",
    "cookie",
    "credential",
    "encryptionkey",
    "passcode",
    "passphrase",
    "passwd",
    "password",
    "privatekey",
    "pwd",
    "secret",
    "signingkey",
    "token",
];

/// A key that has one of these as a whole word is the name of a secret. For example, `pin` is a word of `user_pin` and
/// `userPin`, but not of `spinning`.
const WORDS: [&str; 7] = ["cvc", "cvv", "jwt", "otp", "pass", "pin", "totp"];

/// True if a key has the usual name of a secret in any spelling, such as `apiKey`, `API_KEY` or `x-api-key`.
pub(super) fn is_secret(key: &str) -> bool {
    let words = words(key);
    let joined = words.concat();
    PARTS.iter().any(|part| joined.contains(part)) || words.iter().any(|word| WORDS.contains(&word.as_str()))
}

/// The words of a key in lower case. A word ends at a separator, before a digit, and before a capital letter that
/// begins the next word. For example, `userPINCode2` has the words `user`, `pin`, `code` and `2`.
fn words(key: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut before = None;
    let mut characters = key.chars().peekable();
    while let Some(character) = characters.next() {
        let next_is_small = characters.peek().is_some_and(|next| next.is_lowercase());
        if before.is_some_and(|before| begins_word(before, character, next_is_small)) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if character.is_alphanumeric() {
            word.extend(character.to_lowercase());
        }
        before = Some(character);
    }
    words.push(word);
    words
}

fn begins_word(before: char, character: char, next_is_small: bool) -> bool {
    if !before.is_alphanumeric() || !character.is_alphanumeric() {
        return true;
    }
    let is_capital = character.is_uppercase();
    let ends_capitals = is_capital && before.is_uppercase() && next_is_small;
    (is_capital && before.is_lowercase()) || ends_capitals || before.is_numeric() != character.is_numeric()
}

#[cfg(test)]
mod tests {
    use super::is_secret;

    #[test]
    fn names_of_secrets_are_known_in_each_spelling_and_with_what_stands_around_them() {
        let names = "password|PASSWORD|userPassword|user:db_passwd|passphrase|keyPassphrase|passcode|pwd|userPwd|db-pwd|DBPWD|\
                     secret|clientSecret|token|accessToken|X-Auth-Token|tokens|apikey|apiKey|api_key|API-KEY|api key|\
                     x-api-key2|credential|credentials|Authorization|proxy-authorization|private_key|privateKey|private-key|\
                     PrivateKeyPem|PRIVATE_KEY|accessKey|aws_access_key_id|Cookie|Set-Cookie|set_cookie|setCookie|\
                     sessionCookies|bearer|bearerValue|otp|OTP|smsOtp|otp_code|OTPCode|otp2|totp|pin|PIN|userPin|user_pin|\
                     app:pin|pinCode|PINCode|cardPIN|card.pin|cvv|dbPass|DB_PASS|jwt";
        for name in names.split('|') {
            assert!(is_secret(name), "{name}");
        }
    }

    #[test]
    fn words_that_only_have_the_letters_of_a_secret_are_none() {
        let names = "|spinning|spin|pinned|pinning|opinion|shipping|Pinocchio|optional|option|laptop|stop_in|sotp|passenger|\
                     compass|bypass|name|key|public_key|primaryKey|keyboard|author|authority|title|content";
        for name in names.split('|') {
            assert!(!is_secret(name), "{name}");
        }
    }
}
