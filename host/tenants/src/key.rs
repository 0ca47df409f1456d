//! Names of tenants and digests, and the check that every store can store such a text.

use crate::TenantStoreError;

/// The maximum number of bytes of a tenant's name or of a digest.
pub const MAX_KEY_BYTES: usize = 512;

/// True if `text` can be stored as a name or a digest. The stores contain no other names and digests.
pub(crate) fn is_key(text: &str) -> bool {
    // PostgreSQL has no NUL in texts.
    text.len() <= MAX_KEY_BYTES && !text.contains('\0')
}

/// Checks a name or a digest that must not be empty.
pub(crate) fn check_name(field: &'static str, text: &str) -> Result<(), TenantStoreError> {
    if !text.is_empty() && is_key(text) { Ok(()) } else { Err(TenantStoreError::InvalidKey { field }) }
}
