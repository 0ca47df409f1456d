//! The result of one check.

use std::fmt;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gravity {
    /// The check passed.
    Fine,
    /// The server starts, but the operator should know about the finding.
    Warning,
    /// The server does not start, or cannot serve all that the config names.
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

/// One finding of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The severity.
    pub gravity: Gravity,
    /// The subject in one word, such as `database`.
    pub about: &'static str,
    /// The state that the check found, and the remedy.
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
