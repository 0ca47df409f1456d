//! The tokens of the admin API and their names. Only digests of the tokens are kept.

use std::env;
use std::path::Path;
use std::sync::Arc;

use annex_files::Purpose;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::roles::{Holder, Roles};
use crate::config::{AdminConfig, AdminTokenConfig, environment};

const MIN_BYTES: usize = 16;
const MAX_BYTES: usize = 1024;
/// The maximum size of a token file, in bytes.
const MAX_FILE_BYTES: usize = 64 << 10;

/// The reasons why a token cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("the admin token {name:?}: token_file = {file:?} cannot be read")]
    File {
        /// The name of the token.
        name: String,
        /// The path as the config has it.
        file: String,
        /// The error of the file system.
        #[source]
        source: std::io::Error,
    },
    /// The environment variable is not set, or is not text.
    #[error("the admin token {name:?}: {}", environment::unusable(variable))]
    Variable {
        /// The name of the token.
        name: String,
        /// The name of the variable.
        variable: String,
    },
    /// The token is too short or too long.
    #[error("the admin token {name:?} must have {MIN_BYTES} to {MAX_BYTES} bytes")]
    Length {
        /// The name of the token.
        name: String,
    },
    /// The digest is not 64 hexadecimal digits.
    #[error("the admin token {name:?}: token_sha256 must be the SHA-256 digest of the token, 64 hexadecimal digits")]
    Digest {
        /// The name of the token.
        name: String,
    },
    /// Two names share one token, so the log could not say who made a change.
    #[error("the admin tokens {name:?} and {other:?} are the same; give each a token of its own")]
    Same {
        /// The first name.
        name: String,
        /// The second name.
        other: String,
    },
}

/// The accepted tokens.
pub(crate) struct Tokens(Vec<Token>);

struct Token {
    holder: Holder,
    digest: [u8; 32],
}

/// The tokens in the config that cannot be read or used, as pairs of the token's config key and the reason.
pub(crate) fn wrong_tokens(config: &AdminConfig, folder: &Path) -> Vec<(String, String)> {
    let has_own = config.token_file.is_some() || config.token_env.is_some();
    let own = has_own.then(|| "admin.".to_owned());
    let named = (0..config.tokens.len()).map(|number| format!("admin.token[{number}]."));
    let admin = own.into_iter().chain(named).zip(config.all_tokens());
    let metrics = config.metrics_token().map(|token| ("admin.metrics_".to_owned(), token));
    let wrong = admin.chain(metrics).filter_map(|(before, token)| {
        let error = Token::read(&token, folder).err()?;
        let key = match (&token.token_file, &token.token_env) {
            (Some(_), _) => "token_file",
            (None, Some(_)) => "token_env",
            (None, None) => "token_sha256",
        };
        Some((format!("{before}{key}"), error.fault()))
    });
    let mut wrong: Vec<(String, String)> = wrong.collect();
    if wrong.is_empty()
        && let Err(error) = check_tokens(config, folder)
    {
        wrong.push(("admin".to_owned(), error.to_string()));
    }
    wrong
}

/// Reads all tokens, and checks that no two are the same.
fn check_tokens(config: &AdminConfig, folder: &Path) -> Result<(), TokenError> {
    let tokens = Tokens::read(config, folder)?;
    Tokens::read_metrics(config, folder, &tokens).map(drop)
}

impl TokenError {
    /// The text of the fault without the name of the token, for a message that begins with the config key.
    fn fault(&self) -> String {
        match self {
            Self::File { file, source, .. } => format!("cannot read {file}: {source}"),
            Self::Variable { variable, .. } => environment::unusable(variable),
            Self::Length { .. } => format!("the token must have {MIN_BYTES} to {MAX_BYTES} bytes"),
            Self::Digest { .. } => "must be the SHA-256 digest of the token, 64 hexadecimal digits".to_owned(),
            Self::Same { .. } => self.to_string(),
        }
    }
}

impl Tokens {
    /// Reads the tokens from the files and environment variables that the config names.
    pub(super) fn read(config: &AdminConfig, folder: &Path) -> Result<Self, TokenError> {
        let mut tokens: Vec<Token> = Vec::new();
        for config in config.all_tokens() {
            let token = Token::read(&config, folder)?;
            if let Some(other) = tokens.iter().find(|other| other.digest == token.digest) {
                return Err(TokenError::Same { name: config.name, other: other.holder.name.as_ref().to_owned() });
            }
            tokens.push(token);
        }
        Ok(Self(tokens))
    }

    /// Reads the token that opens only `/metrics`, if the config has one. Fails if the token is one of `others`, which
    /// open the whole API.
    pub(super) fn read_metrics(config: &AdminConfig, folder: &Path, others: &Self) -> Result<Option<Self>, TokenError> {
        let Some(config) = config.metrics_token() else { return Ok(None) };
        let token = Token::read(&config, folder)?;
        match others.0.iter().find(|other| other.digest == token.digest) {
            Some(other) => Err(TokenError::Same { name: config.name, other: other.holder.name.as_ref().to_owned() }),
            None => Ok(Some(Self(vec![token]))),
        }
    }

    /// The holder of the token with which the request came. `None` if the request has no valid token. The comparison
    /// takes constant time, so that its duration reveals nothing about the tokens.
    pub(crate) fn holder_of(&self, headers: &HeaderMap) -> Option<Holder> {
        let mut lines = headers.get_all(AUTHORIZATION).iter();
        // With two `Authorization` fields it is unclear which one counts.
        let (Some(line), None) = (lines.next(), lines.next()) else { return None };
        let (scheme, token) = line.to_str().ok().and_then(|line| line.split_once(' '))?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        self.holder_of_digest(&digest_of_sent(token)?)
    }

    /// The digest of `token` if it is an accepted token, for a login that keeps no token.
    pub(crate) fn accepted(&self, token: &str) -> Option<[u8; 32]> {
        digest_of_sent(token).filter(|digest| self.holder_of_digest(digest).is_some())
    }

    /// The holder of the accepted token with this digest. Takes constant time.
    pub(crate) fn holder_of_digest(&self, digest: &[u8; 32]) -> Option<Holder> {
        // All digests have one length, so each comparison takes the same time. The fold compares every token; a search
        // would stop at the match and reveal its position.
        let found =
            self.0.iter().fold(
                None,
                |found, token| if bool::from(digest.ct_eq(&token.digest)) { Some(&token.holder) } else { found },
            );
        found.cloned()
    }
}

impl Token {
    fn read(config: &AdminTokenConfig, folder: &Path) -> Result<Self, TokenError> {
        let AdminTokenConfig { name, token_file, token_env, token_sha256, roles: _ } = config;
        let digest = match (token_file, token_env, token_sha256) {
            (Some(file), ..) => {
                let read = annex_files::read_text(&folder.join(file), Purpose::Secret, MAX_FILE_BYTES);
                digest_of(
                    name,
                    &read.map_err(|source| TokenError::File {
                        name: name.clone(),
                        file: file.display().to_string(),
                        source,
                    })?,
                )?
            }
            (None, Some(variable), _) => digest_of(
                name,
                &env::var(variable)
                    .map_err(|_| TokenError::Variable { name: name.clone(), variable: variable.clone() })?,
            )?,
            (None, None, digits) => {
                let digest = digits.as_deref().and_then(from_hex);
                digest.ok_or_else(|| TokenError::Digest { name: name.clone() })?
            }
        };
        let holder = Holder { name: name.as_str().into(), roles: Arc::new(Roles::of(config.admin_roles())) };
        Ok(Self { holder, digest })
    }
}

/// The digest of a token that a client sent. `None` if the token is too long.
fn digest_of_sent(token: &str) -> Option<[u8; 32]> {
    // A longer token is not hashed, because a stranger decides how long the field is.
    (token.len() <= MAX_BYTES).then(|| Sha256::digest(token.trim()).into())
}

fn digest_of(name: &str, token: &str) -> Result<[u8; 32], TokenError> {
    // Most editors end a file with a line break, which is not part of the token.
    let token = token.trim_end_matches(['\r', '\n']);
    if !(MIN_BYTES..=MAX_BYTES).contains(&token.len()) {
        return Err(TokenError::Length { name: name.to_owned() });
    }
    Ok(Sha256::digest(token).into())
}

fn from_hex(digits: &str) -> Option<[u8; 32]> {
    let nibble = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some((nibble(*high)? << 4) | nibble(*low)?));
    let bytes: Vec<u8> = bytes.collect::<Option<_>>()?;
    bytes.try_into().ok().filter(|_| rest.is_empty())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use axum::http::{HeaderMap, HeaderValue};
    use sha2::{Digest, Sha256};

    use super::Tokens;
    use crate::config::{AdminConfig, AdminTokenConfig};

    fn config(tokens: &[(&str, &str)]) -> AdminConfig {
        let token = |(name, token): &(&str, &str)| {
            let digest = Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let name = (*name).to_owned();
            AdminTokenConfig { name, token_file: None, token_env: None, token_sha256: Some(digest), roles: None }
        };
        AdminConfig { tokens: tokens.iter().map(token).collect(), ..AdminConfig::default() }
    }

    #[test]
    fn each_token_is_known_by_its_name() {
        let tokens = [("deploy-bot", "the-first-token-0"), ("ada", "the-second-token-")];
        let known = Tokens::read(&config(&tokens), Path::new("")).expect("tokens");
        let name = |token: &str| {
            let mut headers = HeaderMap::new();
            let value = HeaderValue::try_from(format!("Bearer {token}")).expect("a value");
            headers.insert("authorization", value);
            known.holder_of(&headers).map(|holder| holder.name.as_ref().to_owned())
        };
        for (expected, token) in tokens {
            assert_eq!(name(token).as_deref(), Some(expected));
        }
        assert_eq!(name("another-token-000"), None);
    }

    #[test]
    fn one_token_under_two_names_and_what_is_no_digest_are_refused() {
        let same = config(&[("one", "a-token-of-both-00"), ("two", "a-token-of-both-00")]);
        let error = Tokens::read(&same, Path::new("")).err().expect("a refusal").to_string();
        assert!(error.contains("\"one\"") && error.contains("\"two\""), "{error}");
        let mut short = config(&[("one", "a-token-of-one-000")]);
        short.tokens.iter_mut().for_each(|token| token.token_sha256 = Some("00ff".to_owned()));
        let error = Tokens::read(&short, Path::new("")).err().expect("a refusal").to_string();
        assert!(error.contains("64 hexadecimal digits"), "{error}");
    }
}
