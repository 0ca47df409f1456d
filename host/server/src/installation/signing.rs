//! Signs complete cards (A2A 1.0 section 8.4).

use std::env;
use std::path::Path;

use annex_auth::signature::{CanonicalForm, SignError, Signer};
use annex_files::Purpose;
use annex_protocol::AgentCard;
use annex_protocol::v0_3::MergedAgentCard;

use crate::config::{SigningConfig, environment};

/// The maximum size of a key file, in bytes.
const MAX_FILE_BYTES: usize = 64 << 10;

/// Why cards cannot be signed.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// The config names no source for the key, or names two sources.
    #[error("exactly one of key_file and key_env is required")]
    KeySource,
    /// The key file cannot be read.
    #[error("cannot read {file}")]
    File {
        /// The path as the config has it.
        file: String,
        /// The error of the file system.
        #[source]
        source: std::io::Error,
    },
    /// The environment variable of the key is not set, or is not UTF-8.
    #[error("{}", environment::unusable(variable))]
    Variable {
        /// The name of the variable.
        variable: String,
    },
    /// The key is not a usable signing key.
    #[error("the key cannot be used")]
    Key(#[source] annex_auth::KeyError),
    /// The card has no canonical form to sign.
    #[error("the card cannot be signed")]
    Card(#[from] SignError),
}

impl SigningError {
    /// The config key that is at fault, without the prefix `card.signing`, such as `.key_file`. Empty if the whole
    /// table is at fault.
    pub(crate) fn key(&self) -> &'static str {
        match self {
            Self::File { .. } => ".key_file",
            Self::Variable { .. } => ".key_env",
            Self::KeySource | Self::Key(_) | Self::Card(_) => "",
        }
    }
}

/// Reads the signing key.
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

/// The forms in which cards are signed. The official SDKs leave out empty values, unlike the specification.
const FORMS: [CanonicalForm; 2] = [CanonicalForm::Specification, CanonicalForm::WithoutEmptyValues];

/// Signs the card in each form.
pub(crate) fn sign(card: &mut AgentCard, signer: &Signer) -> Result<(), SigningError> {
    let signatures = FORMS.map(|form| signer.sign_in_form(card, form));
    card.signatures = signatures.into_iter().collect::<Result<_, _>>()?;
    Ok(())
}

/// Signs the card with and without the fields of 0.3. Some clients verify only the fields of their version. Other
/// clients verify all received fields.
pub(crate) fn sign_merged(card: &mut AgentCard, signer: &Signer) -> Result<(), SigningError> {
    sign(card, signer)?;
    let merged = serde_json::to_string(&MergedAgentCard::from(&*card)).map_err(SignError::Encoding)?;
    for form in FORMS {
        card.signatures.push(signer.sign_json(&merged, form)?);
    }
    Ok(())
}
