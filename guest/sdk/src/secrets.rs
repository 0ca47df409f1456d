//! Secrets from the operator (import `wasi:config/store`; the grant `secrets` lists the names).

use crate::parameters::Config;

/// A secret by its name; `None` if the operator has not set the secret. Do not log a secret: the host removes secrets
/// from log lines, but from nothing else.
///
/// # Errors
/// The host could not read the secret; the text is for the operator.
pub fn get(name: &str) -> Result<Option<String>, String> {
    Config::HOST.get(name)
}
