//! The texts that things are found by, and the check that every store can keep such a text.

use crate::TenantStoreError;

/// The largest size of a tenant's name or a digest, in bytes. Tasks have the same bound on the names of their tenants.
pub const MAX_KEY_BYTES: usize = 512;

/// Tells whether `text` can be stored. A text that cannot was never stored, so nothing is found under it.
pub(crate) fn is_key(text: &str) -> bool {
    // PostgreSQL has no NUL in texts.
    text.len() <= MAX_KEY_BYTES && !text.contains('\0')
}

/// Checks a text that must name something.
pub(crate) fn check_name(field: &'static str, text: &str) -> Result<(), TenantStoreError> {
    if !text.is_empty() && is_key(text) { Ok(()) } else { Err(TenantStoreError::InvalidKey { field }) }
}
