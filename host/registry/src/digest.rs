//! Digests of content.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::str::FromStr;

use ring::digest::{Context, SHA256, digest};
use serde::{Deserialize, Serialize};

const ALGORITHM: &str = "sha256:";
const HEX_DIGITS: usize = 64;

/// A SHA-256 as `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(String);

/// The text is no digest.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a digest is \"sha256:\" and 64 lower-case hexadecimal digits")]
pub struct DigestError;

impl Digest {
    /// The digest of these bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::from_bytes(digest(&SHA256, bytes).as_ref())
    }

    /// The digest of everything that the reader has.
    ///
    /// # Errors
    /// [`ErrorKind::FileTooLarge`] if that is more than `most` bytes. Any error of the reader.
    pub fn of_reader(reader: impl Read, most: u64) -> io::Result<Self> {
        let mut hash = Hash(Context::new(&SHA256));
        if io::copy(&mut reader.take(most.saturating_add(1)), &mut hash)? > most {
            let reason = format!("it is larger than {most} bytes, the limit for this file");
            return Err(io::Error::new(ErrorKind::FileTooLarge, reason));
        }
        Ok(Self::from_bytes(hash.0.finish().as_ref()))
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Self(format!("{ALGORITHM}{hex}"))
    }

    /// The 64 hexadecimal digits.
    #[must_use]
    pub fn hex(&self) -> &str {
        self.0.strip_prefix(ALGORITHM).unwrap_or(&self.0)
    }

    /// The whole text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Computes a SHA-256 of what is written.
struct Hash(Context);

impl Write for Hash {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let hex = text.strip_prefix(ALGORITHM).ok_or(DigestError)?;
        if hex.len() != HEX_DIGITS || !hex.as_bytes().iter().all(is_digit) {
            return Err(DigestError);
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, DigestError> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::Digest;

    #[test]
    fn a_reader_has_the_digest_of_its_bytes_up_to_the_limit() {
        let bytes = vec![7_u8; 100_000];
        assert_eq!(Digest::of_reader(bytes.as_slice(), 100_000).expect("a digest"), Digest::of(&bytes));
        let error = Digest::of_reader(bytes.as_slice(), 99_999).expect_err("too large");
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
    }

    #[test]
    fn only_a_sha256_in_lower_case_is_a_digest() {
        let digest = Digest::of(b"");
        assert_eq!(digest.hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(digest.to_string().parse(), Ok(digest.clone()));
        for wrong in
            ["", "sha256:", &digest.to_string().to_uppercase(), digest.hex(), "sha512:00", &format!("{digest}0")]
        {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
    }
}
