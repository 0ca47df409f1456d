//! The JSON of the admin API: what it takes and what it answers. The server and the command share these types.
//!
//! `Text` is the type of the texts in an answer. The server writes a [`String`]; a program that shows answers to people can
//! read into a type that escapes what it reads. Fields with a default are those that the `annex` command does not show: it
//! does not need them to read an answer.

use serde::{Deserialize, Serialize};

pub mod components;
pub mod extensions;
pub mod replicas;
pub mod sessions;
pub mod shadows;
pub mod tenants;
pub mod usage;

/// A component to install.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Addition {
    /// Names the file in the managed folder; what has the name is replaced.
    pub name: String,
    /// The component file in base64.
    pub component: String,
    /// The keys of an `[[extension]]` as TOML, without `component`. Absent: those in force, or none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<String>,
}

/// The version to go back to.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// The number of a kept version. Absent: the one that was replaced last.
    pub to: Option<u64>,
}

/// A component to run beside the version in force.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ShadowAddition {
    /// The component file in base64.
    pub component: String,
    /// As in [`Addition`]. The grants are those of the version in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<String>,
    /// The turns that it follows, of 100. Absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<u8>,
}

/// The bounds of a recording.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    /// The most turns. Absent: 50.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u64>,
    /// The most bytes. Absent: 16 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The longest time in seconds. Absent: 60.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
}

/// The answer to a request that the API refuses.
#[derive(Debug, Deserialize, Serialize)]
#[serde(bound(deserialize = "Code: Deserialize<'de> + Default"))]
pub struct Refusal<Code = String> {
    /// The reason.
    pub error: Reason<Code>,
}

/// The reason of a refusal. A reader that takes any `Code` also reads the errors of other APIs.
#[derive(Debug, Deserialize, Serialize)]
pub struct Reason<Code = String> {
    /// The reason for programs.
    #[serde(default)]
    pub code: Code,
    /// The reason for people.
    pub message: String,
}

#[cfg(test)]
mod tests;
