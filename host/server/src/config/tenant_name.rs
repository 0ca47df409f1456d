//! The names of tenants.

/// The maximum size of a tenant's name, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// The names that no tenant may have, because requests name a tenant in the first segment of the path. The server's own
/// paths, and the paths of the HTTP+JSON binding below its base path, begin with these names.
const TAKEN: [&str; 7] = ["a2a", "extendedAgentCard", "extensions", "livez", "readyz", "tasks", "v1"];

/// Checks the name of a tenant. The error is the reason.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_plain) {
        return Err(format!(
            "{name:?} is not a name: it takes 1 to {MAX_NAME_BYTES} lower-case letters, digits, `-` and `_`"
        ));
    }
    if TAKEN.contains(&name) {
        return Err(format!("{name:?} is the first segment of a path of the server; take another name"));
    }
    Ok(())
}
