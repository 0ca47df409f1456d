//! The operator's parameters.

use annex_sdk::secrets;
use serde::Deserialize;

/// The URI of the public specification.
pub const DEFAULT_URI: &str = "https://github.com/a2aproject/experimental-ext-oid4vp-auth/tree/main/v1";

/// The `params` of the entry on the card.
pub const CARD_PARAMS: &str = r#"{"oid4vpVersions":["1.0"]}"#;

/// The text in `request_uri` that is replaced by the task's state.
pub const PLACEHOLDER: &str = "{state}";

/// The minimum length of a secret, in bytes.
const MIN_SECRET_BYTES: usize = 16;

const DEFAULT_TEXT: &str = "Additional authorization is required for this task.";

/// JSON Schema of the parameters, for the host and for people.
pub const PARAMETER_SCHEMA: &str = include_str!("../parameters.json");

/// The operator's parameters with defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// The extension's URI, which is also the metadata key.
    #[serde(default = "default_uri")]
    pub uri: String,
    /// The verifier's `client_id`.
    pub client_id: String,
    /// The URI from which the wallet gets the request.
    pub request_uri: String,
    /// The text for the client of a waiting task.
    #[serde(default = "default_text")]
    pub text: String,
    /// The name of the secret that is shared with the verifier.
    #[serde(default = "default_secret")]
    pub secret: String,
}

impl Parameters {
    /// The value of the secret.
    ///
    /// # Errors
    /// The secret is missing or unusable; the text is for the operator.
    pub fn secret(&self) -> Result<String, String> {
        let name = &self.secret;
        let missing =
            || format!("there is no secret {name:?}: give it with secrets = {{ {name} = {{ env = \"…\" }} }}");
        let secret = secrets::get(name)?.ok_or_else(missing)?;
        if secret.len() < MIN_SECRET_BYTES {
            return Err(format!("the secret {name:?} must have at least {MIN_SECRET_BYTES} bytes"));
        }
        Ok(secret)
    }

    /// Checks the parameters.
    ///
    /// # Errors
    /// A parameter is invalid. The error fails the load of the extension.
    pub fn check(&self) -> Result<(), String> {
        // Without it the verifier could not tell which task it decides on.
        if !self.request_uri.contains(PLACEHOLDER) {
            return Err(format!("`request_uri` must have {PLACEHOLDER} where the task's state belongs"));
        }
        self.secret().map(drop)
    }
}

fn default_uri() -> String {
    DEFAULT_URI.to_owned()
}

fn default_text() -> String {
    DEFAULT_TEXT.to_owned()
}

fn default_secret() -> String {
    "VERIFIER_SECRET".to_owned()
}
