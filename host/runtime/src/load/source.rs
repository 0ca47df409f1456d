//! The type of causes.

/// An underlying error whose type is nobody's business outside of this crate.
pub type Source = Box<dyn std::error::Error + Send + Sync>;
