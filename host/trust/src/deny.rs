//! Digests that must not run.

use std::collections::BTreeSet;

use crate::bundle::hex_of;

/// The maximum number of digests in a list.
const MAX_DIGESTS: usize = 100_000;

/// The digests of manifests and components that must not run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DenyList(BTreeSet<String>);

/// The reasons why a text is no deny list.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DenyListError {
    /// A line is not a digest.
    #[error(
        "line {0} is not a digest: write \"sha256:\" and 64 lower-case hexadecimal digits, and begin a comment with #"
    )]
    Line(usize),
    /// The list is too long.
    #[error("has more than {MAX_DIGESTS} digests")]
    TooLong,
}

impl DenyList {
    /// Reads a list with a digest on each line. `#` begins a comment. Empty lines do not count.
    ///
    /// # Errors
    /// [`DenyListError`].
    pub fn parse(text: &str) -> Result<Self, DenyListError> {
        let mut digests = BTreeSet::new();
        for (number, line) in (1..).zip(text.lines()) {
            let digest = line.split('#').next().unwrap_or_default().trim();
            if digest.is_empty() {
                continue;
            }
            if hex_of(digest).is_none() {
                return Err(DenyListError::Line(number));
            }
            digests.insert(digest.to_owned());
            if digests.len() > MAX_DIGESTS {
                return Err(DenyListError::TooLong);
            }
        }
        Ok(Self(digests))
    }

    /// Adds the digests of another list.
    pub fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// True if the list has this digest.
    #[must_use]
    pub fn contains(&self, digest: &str) -> bool {
        self.0.contains(digest)
    }
}
