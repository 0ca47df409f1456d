//! The operator's parameters.

use annex_sdk::{Json, json, secrets};
use serde::{Deserialize, Serialize};

use crate::signature::{Algorithm, Key};

/// The URI of the public specification.
pub const DEFAULT_URI: &str =
    "https://github.com/a2aproject/a2a-samples/tree/main/samples/python/extensions/secure-passport";

/// JSON Schema of the parameters, for the host and for people.
pub const PARAMETER_SCHEMA: &str = include_str!("../parameters.json");

/// The operator's parameters with defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameters {
    /// The extension's URI, which is also the metadata key.
    #[serde(default = "default_uri")]
    pub uri: String,
    /// The keys of a passport's state that the agent understands.
    #[serde(default)]
    pub supported_state_keys: Vec<String>,
    /// The key of the session's state that holds the passport.
    #[serde(default = "default_state_key")]
    pub state_key: String,
    /// The reaction to a malformed passport.
    #[serde(default)]
    pub on_malformed: OnMalformed,
    /// The reaction to unsupported keys.
    #[serde(default)]
    pub on_unsupported_key: OnUnsupportedKey,
    /// True if a passport must be signed by a known client.
    #[serde(default)]
    pub require_signature: bool,
    /// The clients whose signatures can be verified.
    #[serde(default)]
    pub clients: Vec<KnownClient>,
    /// The client that signs passports on the calling side, in the hook `client`.
    pub sign_as: Option<KnownClient>,
}

/// The reaction to a malformed passport.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnMalformed {
    /// The request continues without the passport, as the public specification requires.
    #[default]
    Ignore,
    /// The request is refused.
    Reject,
}

/// The reaction to an unsupported key of the state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnUnsupportedKey {
    /// The session does not receive the key.
    #[default]
    Drop,
    /// The request is refused.
    Reject,
}

/// A client whose signatures can be checked.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownClient {
    /// The passport's `clientId`.
    pub client_id: String,
    /// The algorithm of the client's signatures.
    pub algorithm: Algorithm,
    /// The name of the secret that holds the key.
    pub secret: Option<String>,
    /// The public key of Ed25519 in base64.
    pub public_key: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CardParams<'a> {
    supported_state_keys: &'a [String],
}

impl Parameters {
    /// The `params` of the entry on the card.
    ///
    /// # Errors
    /// The parameters cannot be written as JSON.
    pub fn card_params(&self) -> Result<Json, String> {
        json::text(&CardParams { supported_state_keys: &self.supported_state_keys })
    }

    /// The client with this id, if its signatures can be verified.
    pub fn client(&self, client_id: &str) -> Option<&KnownClient> {
        self.clients.iter().find(|client| client.client_id == client_id)
    }

    /// Reads each key once. The extension is not loaded if a key is unusable.
    ///
    /// # Errors
    /// A key is unusable, or signatures are required and no client has a key. The text is for the operator.
    pub fn check_keys(&self) -> Result<(), String> {
        // Every passport would be refused, which cannot be intended.
        if self.require_signature && self.clients.is_empty() {
            return Err("`require_signature` needs `clients` whose signatures can be verified".to_owned());
        }
        for client in &self.clients {
            client.verifying_key().map_err(|error| client.complaint(&error))?;
        }
        if let Some(client) = &self.sign_as {
            client.signing_key().map_err(|error| client.complaint(&error))?;
        }
        Ok(())
    }
}

impl KnownClient {
    /// The key for verifying the client's signatures.
    ///
    /// # Errors
    /// The key is missing or invalid; the text is for the operator and contains no part of the key.
    pub fn verifying_key(&self) -> Result<Key, String> {
        match (self.algorithm, &self.public_key) {
            (Algorithm::HmacSha256, None) => Key::hmac(&self.value()?),
            // A public key is not secret: used as the secret of an HMAC, it would let everyone sign.
            (Algorithm::HmacSha256, Some(_)) => {
                Err("`public_key` is for ed25519; hmac-sha256 has a `secret`".to_owned())
            }
            (Algorithm::Ed25519, Some(public_key)) => Key::public(public_key),
            (Algorithm::Ed25519, None) => Err("ed25519 needs the `public_key` here".to_owned()),
        }
    }

    /// The key with which the client signs.
    ///
    /// # Errors
    /// The key is missing or invalid; the text is for the operator and contains no part of the key.
    pub fn signing_key(&self) -> Result<Key, String> {
        let value = self.value()?;
        match self.algorithm {
            Algorithm::HmacSha256 => Key::hmac(&value),
            Algorithm::Ed25519 => Key::private(&value),
        }
    }

    fn value(&self) -> Result<String, String> {
        let name = self.secret.as_deref().ok_or("`secret` must name the secret that holds the key")?;
        let missing =
            || format!("there is no secret {name:?}: give it with secrets = {{ {name} = {{ env = \"…\" }} }}");
        secrets::get(name)?.ok_or_else(missing)
    }

    fn complaint(&self, error: &str) -> String {
        // The client's name and the reason, and nothing of the key.
        format!("the key of client {:?} cannot be used: {error}", self.client_id)
    }
}

fn default_uri() -> String {
    DEFAULT_URI.to_owned()
}

fn default_state_key() -> String {
    "passport".to_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use annex_sdk::testing::Host;

    use super::*;
    use crate::SecurePassport;

    pub(crate) const PUBLIC_KEY: &str = "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=";

    /// A host with two valid secrets, and with a third secret that is too short.
    pub(crate) fn host() -> Host {
        Host::new()
            .secret("KEY", "0123456789abcdef")
            .secret("SEED", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
            .secret("SHORT", "tiny")
    }

    pub(crate) fn parameters(json: &str) -> Parameters {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn the_card_names_the_supported_keys() {
        let card = parameters(r#"{"supported_state_keys": ["tier", "currency"]}"#).card_params();
        assert_eq!(card.unwrap(), r#"{"supportedStateKeys":["tier","currency"]}"#);
        assert_eq!(parameters("{}").card_params().unwrap(), r#"{"supportedStateKeys":[]}"#);
    }

    #[test]
    fn a_key_that_cannot_be_used_stops_the_load_and_is_named_by_its_client() {
        let cases = [
            (r#""algorithm": "hmac-sha256""#, "`secret`"),
            (r#""algorithm": "hmac-sha256", "secret": "NONE""#, "no secret \"NONE\""),
            (r#""algorithm": "hmac-sha256", "secret": "SHORT""#, "16 bytes"),
            (r#""algorithm": "hmac-sha256", "secret": "KEY", "public_key": "AA==""#, "`public_key`"),
            (r#""algorithm": "ed25519""#, "`public_key`"),
            (r#""algorithm": "ed25519", "public_key": "AA==""#, "32 bytes"),
            (r#""algorithm": "ed25519", "public_key": "!""#, "base64"),
        ];
        for (key, reason) in cases {
            let text = format!(r#"{{"clients": [{{"client_id": "c-1", {key}}}]}}"#);
            let error = host().parameters(text).descriptor::<SecurePassport>().unwrap_err();
            assert!(error.contains("\"c-1\"") && error.contains(reason), "{key}: {error}");
            assert!(!error.contains("tiny"), "{error}");
        }
    }

    #[test]
    fn a_key_of_each_kind_is_taken() {
        let text = format!(
            r#"{{"require_signature": true, "clients": [
                {{"client_id": "a", "algorithm": "hmac-sha256", "secret": "KEY"}},
                {{"client_id": "b", "algorithm": "ed25519", "public_key": "{PUBLIC_KEY}"}}
            ], "sign_as": {{"client_id": "c", "algorithm": "ed25519", "secret": "SEED"}}}}"#
        );
        assert!(host().parameters(text).descriptor::<SecurePassport>().is_ok());
    }

    #[test]
    fn signatures_are_required_only_of_clients_that_are_known() {
        let host = host().parameters(r#"{"require_signature": true}"#);
        let error = host.descriptor::<SecurePassport>().unwrap_err();
        assert!(error.contains("`clients`"), "{error}");
    }
}
