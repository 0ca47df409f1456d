//! Key texts, and the check that every store can keep a text.

use annex_protocol::Owner;

use crate::StoreError;

/// The largest size of a tenant, a principal or an id, in bytes. The bound holds for all stores, because an index entry
/// of a database holds four such texts, and PostgreSQL allows 2,704 bytes for an entry.
pub const MAX_KEY_BYTES: usize = 512;

/// True if stores can keep `text` as a key. Any other text was never stored, so a search for the text finds nothing.
pub(crate) fn is_key(text: &str) -> bool {
    // PostgreSQL has no NUL in texts.
    text.len() <= MAX_KEY_BYTES && !text.contains('\0')
}

pub(crate) fn check(field: &'static str, text: &str) -> Result<(), StoreError> {
    if is_key(text) { Ok(()) } else { Err(StoreError::InvalidKey { field }) }
}

/// Checks a text that must name something.
pub(crate) fn check_name(field: &'static str, text: &str) -> Result<(), StoreError> {
    if text.is_empty() { Err(StoreError::InvalidKey { field }) } else { check(field, text) }
}

/// [`check`] for both names of an owner.
pub(crate) fn check_owner(owner: &Owner) -> Result<(), StoreError> {
    check("tenant", &owner.tenant)?;
    check("principal", &owner.principal)
}

/// [`is_key`] for both names of an owner.
pub(crate) fn is_owner_key(owner: &Owner) -> bool {
    is_key(&owner.tenant) && is_key(&owner.principal)
}
