//! The functions that let the host put an instance back: their names, and what they may be asked for.

use serde::{Deserialize, Serialize};

/// Bytes of linear memory that a kept instance begins with, all its memories together. A copy of them is kept.
pub(crate) const MAX_MEMORY: usize = 8 << 20;

/// The first part of the names that are added to a component. No component of an author may use it.
pub(crate) const PREFIX: &str = "annex-keep";

/// The number of functions of each kind that are added to the exports of a component.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeepFunctions {
    /// Core modules with mutable globals: each has a function that saves them, and one that puts them back.
    pub(crate) globals: u32,
    /// Memories: each has a function that returns all of it.
    pub(crate) memories: u32,
}

impl KeepFunctions {
    /// The name of the function that saves the globals of the module with this number.
    pub(crate) fn save(number: u32) -> String {
        format!("{PREFIX}-save-m{number}")
    }

    /// The name of the function that puts them back.
    pub(crate) fn reset(number: u32) -> String {
        format!("{PREFIX}-reset-m{number}")
    }

    /// The name of the function that returns the memory with this number.
    pub(crate) fn memory(number: u32) -> String {
        format!("{PREFIX}-memory-m{number}")
    }
}
