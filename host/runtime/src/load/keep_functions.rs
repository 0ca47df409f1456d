//! The functions that are added to a component in order to reset its instances.

use serde::{Deserialize, Serialize};

/// Maximum initial memory of a kept instance in bytes, over all its memories. The host keeps a copy.
pub(crate) const MAX_MEMORY: usize = 8 << 20;

/// Prefix of the names of added functions. Components of authors must not use it.
pub(crate) const PREFIX: &str = "annex-keep";

/// Number of added functions of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeepFunctions {
    /// Number of core modules with mutable globals. Each module has a function that saves its globals and a function
    /// that resets its globals.
    pub(crate) globals: u32,
    /// Number of memories. Each memory has a function that returns the whole memory.
    pub(crate) memories: u32,
}

impl KeepFunctions {
    /// Name of the function that saves the globals of module `number`.
    pub(crate) fn save(number: u32) -> String {
        format!("{PREFIX}-save-m{number}")
    }

    /// Name of the function that resets the globals of module `number`.
    pub(crate) fn reset(number: u32) -> String {
        format!("{PREFIX}-reset-m{number}")
    }

    /// Name of the function that returns memory `number`.
    pub(crate) fn memory(number: u32) -> String {
        format!("{PREFIX}-memory-m{number}")
    }
}
