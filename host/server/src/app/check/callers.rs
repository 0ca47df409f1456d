//! Warnings about extensions that name claims and principals that no caller of the config can have.

use std::path::Path;

use annex_auth::AuthConfig;
use toml::{Table, Value};

use crate::config::tenant::unknown_caller;
use crate::config::{Document, Problem};

/// Finds extensions with `grants.caller.claims` or `allow` for callers that the config cannot authenticate. Finds nothing
/// if the config accepts tokens, because only the issuer knows their claims and principals.
pub(super) fn warnings(path: &Path, text: &str, auth: Option<&AuthConfig>) -> Vec<Problem> {
    if auth.is_some_and(AuthConfig::accepts_tokens) {
        return Vec::new();
    }
    // The mistakes of a text that is not TOML are reported.
    let Ok(config) = text.parse::<Table>() else { return Vec::new() };
    let document = Document::parse(path, text);
    let extensions = config.get("extension").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let unknown = extensions.iter().enumerate().filter_map(|(number, extension)| {
        let reason = unknown_caller(&allowed_principals(extension), auth?)?;
        document.remark(&format!("extension[{number}].allow"), reason)
    });
    let with_claims = extensions.iter().enumerate().filter(|(_, extension)| names_claims(extension));
    let with_claims = with_claims.filter_map(|(number, _)| {
        let reason = "no caller has claims, because only tokens have them and this config accepts none; add [auth.jwt] or \
                      [auth.introspection], or leave the claims out";
        document.remark(&format!("extension[{number}].grants.caller.claims"), reason)
    });
    unknown.chain(with_claims).collect()
}

/// The principals that `allow` names.
fn allowed_principals(extension: &Value) -> Vec<String> {
    let allow = extension.get("allow").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    allow.filter_map(|entry| entry.strip_prefix("principal:")).map(str::to_owned).collect()
}

fn names_claims(extension: &Value) -> bool {
    let caller = extension.get("grants").and_then(|grants| grants.get("caller"));
    let claims = caller.and_then(|caller| caller.get("claims")).and_then(Value::as_array);
    claims.is_some_and(|claims| !claims.is_empty())
}
