//! Signs cards (A2A 1.0 section 8.4), after everything is on them.

use std::path::Path;
use std::{env, fs};

use annex_auth::signature::{CanonicalForm, SignError, Signer};
use annex_protocol::AgentCard;

use crate::config::SigningConfig;

/// Why cards cannot be signed.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// The key is in no place or in two.
    #[error("exactly one of key_file and key_env is required")]
    KeySource,
    /// The key's file cannot be read.
    #[error("key_file = {file:?} cannot be read")]
    File {
        /// As in the config.
        file: String,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// The key's environment variable is not set, or is not text.
    #[error("key_env = {variable:?} is not set")]
    Variable {
        /// Its name.
        variable: String,
    },
    /// The key is not one that can sign.
    #[error("the key cannot be used")]
    Key(#[source] annex_auth::KeyError),
    /// The card has no signable form.
    #[error("the card cannot be signed")]
    Card(#[from] SignError),
}

/// Reads the key.
pub(crate) fn signer(config: &SigningConfig, folder: &Path) -> Result<Signer, SigningError> {
    let pem = match (&config.key_file, &config.key_env) {
        (Some(file), None) => fs::read_to_string(folder.join(file))
            .map_err(|source| SigningError::File { file: file.display().to_string(), source })?,
        (None, Some(variable)) => {
            env::var(variable).map_err(|_| SigningError::Variable { variable: variable.clone() })?
        }
        _ => return Err(SigningError::KeySource),
    };
    Signer::from_pem(&pem, &config.kid, None).map_err(SigningError::Key)
}

/// Two signatures: one as the specification has it, one as the official SDKs do, which leave out empty values.
pub(crate) fn sign(card: &mut AgentCard, signer: &Signer) -> Result<(), SigningError> {
    let exact = signer.sign(card)?;
    let lenient = signer.sign_in_form(card, CanonicalForm::WithoutEmptyValues)?;
    card.signatures = vec![exact, lenient];
    Ok(())
}
