//! A change that has passed every check.

use super::version::Version;
use crate::installation::published::Published;

/// A change that is put in force. Nothing can fail any more.
pub(super) struct Prepared {
    pub(super) versions: Vec<Version>,
    pub(super) published: Published,
}
