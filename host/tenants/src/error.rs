//! The error of the three stores. A failed call has stored nothing, or all of its change if only the answer was lost.

/// The reason why a store refused or failed.
#[derive(Debug, thiserror::Error)]
pub enum TenantStoreError {
    /// A name cannot be stored: the text is longer than [`MAX_KEY_BYTES`](crate::MAX_KEY_BYTES), contains a NUL character,
    /// or is empty. The author of the text is at fault.
    #[error("the {field} is empty, too long or contains a NUL character")]
    InvalidKey {
        /// The kind of text, such as `tenant`.
        field: &'static str,
    },
    /// The database failed. A change that was in progress may have been stored or not, but never in part.
    #[error("the database failed")]
    Database(#[from] sqlx::Error),
}
