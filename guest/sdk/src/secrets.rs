//! Secrets that the operator gives the extension (import `wasi:config/store`; the grant `secrets` says which).

use crate::parameters::Config;

/// A secret by its name. `None` when the operator gives none of that name. Do not log it; the host takes it out of log
/// lines, but not out of anything else.
///
/// # Errors
/// The host could not look; the text is for the operator.
pub fn get(name: &str) -> Result<Option<String>, String> {
    Config::HOST.get(name)
}
