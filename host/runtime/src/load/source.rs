//! The type of error sources.

/// An underlying error whose type is an implementation detail.
pub type Source = Box<dyn std::error::Error + Send + Sync>;
