//! A change that has passed every check.

use super::version::Version;
use crate::installation::published::Published;

/// A change that has passed every check. Applying it cannot fail.
pub(super) struct Prepared {
    pub(super) versions: Vec<Version>,
    pub(super) published: Published,
}
