//! The token of the admin API. Only its digest is kept.

use std::env;
use std::path::Path;

use annex_files::Purpose;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::config::AdminConfig;

const MIN_BYTES: usize = 16;
const MAX_BYTES: usize = 1024;
/// The most bytes of a file that are looked at for one.
const MAX_FILE_BYTES: usize = 64 << 10;

/// The reasons for which there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("admin.token_file = {file:?} cannot be read")]
    File {
        /// As in the config.
        file: String,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// The environment variable is not set, or is not text.
    #[error("admin.token_env = {variable:?} is not set")]
    Variable {
        /// Its name.
        variable: String,
    },
    /// The token can be guessed, or is no token.
    #[error("the admin token must have {MIN_BYTES} to {MAX_BYTES} bytes")]
    Length,
}

pub(super) struct Token {
    digest: [u8; 32],
}

/// Checks that the token that the config names is there.
pub(crate) fn check_token(config: &AdminConfig, folder: &Path) -> Result<(), TokenError> {
    Token::read(config, folder).map(drop)
}

impl Token {
    /// Reads the token from the file or the environment variable that the config names.
    pub(super) fn read(config: &AdminConfig, folder: &Path) -> Result<Self, TokenError> {
        let token = match (&config.token_file, &config.token_env) {
            (Some(file), _) => annex_files::read_text(&folder.join(file), Purpose::Secret, MAX_FILE_BYTES)
                .map_err(|source| TokenError::File { file: file.display().to_string(), source })?,
            (None, variable) => {
                let variable = variable.clone().unwrap_or_default();
                env::var(&variable).map_err(|_| TokenError::Variable { variable })?
            }
        };
        // Most editors end a file with a line break.
        let token = token.trim_end_matches(['\r', '\n']);
        if !(MIN_BYTES..=MAX_BYTES).contains(&token.len()) {
            return Err(TokenError::Length);
        }
        Ok(Self { digest: Sha256::digest(token).into() })
    }

    /// Tells whether the request has the token. The time that it takes says nothing about the token.
    pub(super) fn is_on(&self, headers: &HeaderMap) -> bool {
        let mut lines = headers.get_all(AUTHORIZATION).iter();
        // With two fields it is open which one counts.
        let (Some(line), None) = (lines.next(), lines.next()) else { return false };
        let Some((scheme, token)) = line.to_str().ok().and_then(|line| line.split_once(' ')) else { return false };
        // A longer token is not hashed, because a stranger decides how long the field is.
        if !scheme.eq_ignore_ascii_case("bearer") || token.len() > MAX_BYTES {
            return false;
        }
        let digest: [u8; 32] = Sha256::digest(token.trim()).into();
        // Digests have one length, so the comparison takes the same time for each token.
        digest.ct_eq(&self.digest).into()
    }
}
