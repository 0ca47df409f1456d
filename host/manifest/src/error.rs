//! The reasons why a manifest cannot be used.

/// The reasons why a manifest cannot be used. A text shows no characters of the manifest that are not printable.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// A part of the section is too large.
    #[error("{what} has {length} bytes; at most {limit} are allowed")]
    TooLarge {
        /// The part, such as `uri`.
        what: String,
        /// The length of the part in bytes.
        length: usize,
        /// The largest allowed length in bytes.
        limit: usize,
    },
    /// The section names too many grants.
    #[error("it names {named} grants; at most {limit} are allowed")]
    TooManyGrants {
        /// The number of grants.
        named: usize,
        /// The largest allowed number.
        limit: usize,
    },
    /// The schema of the parameters is not JSON.
    #[error("{0}")]
    Schema(serde_json::Error),
    /// The example of parameters is not JSON that a server takes.
    #[error("parameters.example: {0}")]
    Example(serde_json::Error),
    /// The section cannot be written.
    #[error("{0}")]
    Json(serde_json::Error),
}
