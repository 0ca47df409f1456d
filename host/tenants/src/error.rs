//! The error of the three stores. A failed call has usually stored nothing. There is one exception: if the database
//! stored the change, but its answer did not arrive, the whole change is stored.

/// The reason why a store refused a call, or why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum TenantStoreError {
    /// A name cannot be stored, and the caller has to change it. It is longer than
    /// [`MAX_KEY_BYTES`](crate::MAX_KEY_BYTES), contains a NUL character, or is empty.
    #[error("the {field} is empty, too long or contains a NUL character")]
    InvalidKey {
        /// The kind of text, such as `tenant`.
        field: &'static str,
    },
    /// The database failed. The change is stored as a whole or not at all.
    #[error("the database failed")]
    Database(#[from] sqlx::Error),
}
