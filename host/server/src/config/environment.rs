//! Environment variables that a config names.

use std::env::{self, VarError};

/// The reason why the environment variable `variable` cannot be used. All config keys that name a variable use this
/// text.
pub(crate) fn unusable(variable: &str) -> String {
    match env::var(variable) {
        Err(VarError::NotUnicode(_)) => format!("the environment variable {variable} has a value that is not UTF-8"),
        Ok(value) if value.is_empty() => {
            format!("the environment variable {variable} is empty; give it a value before the start")
        }
        _ => format!("the environment variable {variable} is not set; set it before the start"),
    }
}
