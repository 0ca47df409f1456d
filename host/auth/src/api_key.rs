//! API keys. This server stores only the digests of keys, never the keys.

use std::path::Path;

use annex_files::Purpose;
use annex_protocol::Secret;
use http::HeaderName;
use http::header::AUTHORIZATION;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use subtle::ConstantTimeEq;

use crate::config::{ApiKeyConfig, ApiKeyHeaderConfig};
use crate::{AuthConfigError, principal};

const MIN_KEY_BYTES: usize = 16;
const MAX_KEY_BYTES: usize = 1024;
/// The maximum size of a key file, in bytes.
const MAX_FILE_BYTES: usize = 64 << 10;

/// A SHA-256 digest.
pub(crate) type Digest = [u8; SHA256_OUTPUT_LEN];

pub(crate) struct ApiKeys {
    pub(crate) header: HeaderName,
    entries: Vec<Entry>,
}

struct Entry {
    principal: String,
    digest: Digest,
}

impl ApiKeys {
    /// Reads all keys. `configs` has at least one entry.
    pub(crate) fn load(configs: &[ApiKeyConfig], header: &ApiKeyHeaderConfig) -> Result<Self, AuthConfigError> {
        let mut entries: Vec<Entry> = Vec::with_capacity(configs.len());
        for config in configs {
            let entry = Entry::load(config)?;
            // A key of two principals would be ambiguous.
            if entries.iter().any(|other| other.digest == entry.digest) {
                return Err(AuthConfigError::DuplicateKey { principal: entry.principal });
            }
            entries.push(entry);
        }
        Ok(Self { header: header_name(&header.name)?, entries })
    }

    /// The principal of a key; `None` for an unknown key. The key is compared with all configured keys in constant
    /// time, so that the duration reveals nothing about the keys.
    pub(crate) fn principal_of(&self, key: &[u8]) -> Option<&str> {
        // All keys are shorter, so no digest is computed for a longer header.
        if key.len() > MAX_KEY_BYTES {
            return None;
        }
        let presented = sha256(key);
        // A fold and not a search: a search would end at the matching entry.
        self.entries.iter().fold(None, |found, entry| {
            if bool::from(entry.digest.ct_eq(&presented)) { Some(entry.principal.as_str()) } else { found }
        })
    }
}

impl Entry {
    fn load(config: &ApiKeyConfig) -> Result<Self, AuthConfigError> {
        let principal = config.principal.clone();
        // `#` stands between issuer and name in the ids of tokens, see `Principal::id`.
        if !principal::is_name(&principal) || principal.contains('#') {
            return Err(AuthConfigError::Principal { principal });
        }
        let digest = match (&config.key_env, &config.key_file, &config.key_sha256) {
            (Some(variable), None, None) => digest_of(&principal, &from_environment(&principal, variable)?)?,
            (None, Some(path), None) => digest_of(&principal, &from_file(path)?)?,
            (None, None, Some(hex)) => {
                digest_from_hex(hex).ok_or_else(|| AuthConfigError::KeyDigest { principal: principal.clone() })?
            }
            _ => return Err(AuthConfigError::KeySource { principal }),
        };
        Ok(Self { principal, digest })
    }
}

fn header_name(name: &str) -> Result<HeaderName, AuthConfigError> {
    let header = HeaderName::try_from(name).ok().filter(|header| header != AUTHORIZATION);
    header.ok_or_else(|| AuthConfigError::HeaderName { name: name.to_owned() })
}

fn from_environment(principal: &str, variable: &str) -> Result<Secret, AuthConfigError> {
    std::env::var(variable).map(Secret::new).map_err(|error| AuthConfigError::KeyVariable {
        principal: principal.to_owned(),
        variable: variable.to_owned(),
        reason: error.into(),
    })
}

fn from_file(path: &Path) -> Result<Secret, AuthConfigError> {
    let text = annex_files::read_text(path, Purpose::Secret, MAX_FILE_BYTES);
    let text = text.map_err(|source| AuthConfigError::File { path: path.to_owned(), source })?;
    // Editors end a file with a line break that is no part of the key.
    Ok(Secret::new(text.trim_end_matches(['\r', '\n'])))
}

fn digest_of(principal: &str, key: &Secret) -> Result<Digest, AuthConfigError> {
    let key = key.expose().as_bytes();
    let minimum = MIN_KEY_BYTES;
    let maximum = MAX_KEY_BYTES;
    if !(minimum..=maximum).contains(&key.len()) {
        return Err(AuthConfigError::KeyLength { principal: principal.to_owned(), minimum, maximum });
    }
    Ok(sha256(key))
}

pub(crate) fn sha256(bytes: &[u8]) -> Digest {
    let mut array = [0; SHA256_OUTPUT_LEN];
    array.copy_from_slice(digest(&SHA256, bytes).as_ref());
    array
}

fn digest_from_hex(hex: &str) -> Option<Digest> {
    let nibble = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let mut array = [0; SHA256_OUTPUT_LEN];
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    if pairs.len() != array.len() || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in array.iter_mut().zip(pairs) {
        *byte = nibble(*high)? << 4 | nibble(*low)?;
    }
    Some(array)
}
