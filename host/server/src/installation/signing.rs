//! Signs cards (A2A 1.0 section 8.4), after everything is on them.

use std::env;
use std::path::Path;

use annex_auth::signature::{CanonicalForm, SignError, Signer};
use annex_files::Purpose;
use annex_protocol::AgentCard;
use annex_protocol::v0_3::MergedAgentCard;

use crate::config::SigningConfig;

/// The most bytes of a key's file.
const MAX_FILE_BYTES: usize = 64 << 10;

/// The reasons for which cards cannot be signed.
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
        (Some(file), None) => annex_files::read_text(&folder.join(file), Purpose::Secret, MAX_FILE_BYTES)
            .map_err(|source| SigningError::File { file: file.display().to_string(), source })?,
        (None, Some(variable)) => {
            env::var(variable).map_err(|_| SigningError::Variable { variable: variable.clone() })?
        }
        _ => return Err(SigningError::KeySource),
    };
    Signer::from_pem(&pem, &config.kid, None).map_err(SigningError::Key)
}

/// The forms in which cards are signed: as the specification has it, and as the official SDKs do, which leave out empty
/// values.
const FORMS: [CanonicalForm; 2] = [CanonicalForm::Specification, CanonicalForm::WithoutEmptyValues];

/// Signs the card in each form.
pub(crate) fn sign(card: &mut AgentCard, signer: &Signer) -> Result<(), SigningError> {
    let signatures = FORMS.map(|form| signer.sign_in_form(card, form));
    card.signatures = signatures.into_iter().collect::<Result<_, _>>()?;
    Ok(())
}

/// Signs the card as it is shown with the fields of 0.3 beside those of 1.0, too: some clients verify what they know of
/// a card, others all that they got.
pub(crate) fn sign_merged(card: &mut AgentCard, signer: &Signer) -> Result<(), SigningError> {
    sign(card, signer)?;
    let merged = serde_json::to_string(&MergedAgentCard::from(&*card)).map_err(SignError::Encoding)?;
    for form in FORMS {
        card.signatures.push(signer.sign_json(&merged, form)?);
    }
    Ok(())
}
