//! A text field from an untrusted server, escaped to one line.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;

use serde::Deserialize;

/// Text that was escaped with [`annex_text::line`] when it was read, so that a caller can show it unchanged.
#[derive(Default, Deserialize)]
#[serde(from = "String")]
pub(crate) struct Line(String);

impl From<String> for Line {
    fn from(text: String) -> Self {
        Self(annex_text::line(&text).into_owned())
    }
}

impl Deref for Line {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Line {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.0)
    }
}
