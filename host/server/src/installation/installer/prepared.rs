//! A change that has passed every check.

use super::version::Version;
use crate::installation::published::PublishedSet;

/// A change that has passed every check. Applying the change cannot fail.
pub(super) struct PreparedChange {
    pub(super) versions: Vec<Version>,
    pub(super) published: PublishedSet,
}
