//! What was found.

use std::fmt;

/// How grave a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gravity {
    /// As it should be.
    Fine,
    /// The server starts, and somebody should know.
    Warning,
    /// The server does not start, or does not serve.
    Error,
}

impl fmt::Display for Gravity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Fine => "ok",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How grave it is.
    pub gravity: Gravity,
    /// The thing, in a word.
    pub about: &'static str,
    /// What was found, and what to do.
    pub text: String,
}

impl Finding {
    pub(super) fn fine(about: &'static str, text: impl Into<String>) -> Self {
        Self { gravity: Gravity::Fine, about, text: text.into() }
    }

    pub(super) fn warning(about: &'static str, text: impl Into<String>) -> Self {
        Self { gravity: Gravity::Warning, about, text: text.into() }
    }

    pub(super) fn error(about: &'static str, text: impl Into<String>) -> Self {
        Self { gravity: Gravity::Error, about, text: text.into() }
    }
}
