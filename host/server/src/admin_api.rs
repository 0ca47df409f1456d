//! The JSON of the admin API: the bodies of its requests and answers. The server and the `annex` command share these
//! types.
//!
//! `Text` is the type of texts in an answer. The server writes a [`String`]. A program that shows answers to people can
//! set `Text` to a type that escapes control characters. A field that has a default may be missing in an answer. The
//! command then shows the answer without this field.

use serde::{Deserialize, Serialize};

pub mod components;
pub mod extensions;
pub mod replicas;
pub mod requests;
pub mod sessions;
pub mod shadows;
pub mod tenants;
pub mod usage;

/// A component to install.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Addition {
    /// The file name in the managed folder. An extension with this name is replaced. Absent for a reference: the last part
    /// of its path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The component file in base64. A request has either this field or `reference`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
    /// A reference in the server's `annex.lock`, such as `oci://registry.example/acme/redact:1.2`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The keys of an `[[extension]]` as TOML, without `component`. Absent: the current settings, or the defaults for a
    /// new extension.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<String>,
}

/// The version to roll back to.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// The number of a kept version. Absent: the version that was replaced last.
    pub to: Option<u64>,
}

/// A component to run beside the installed version.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ShadowAddition {
    /// The component file in base64.
    pub component: String,
    /// The settings, as in [`Addition`]. The grants are always the grants of the installed version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<String>,
    /// The percentage of turns that are replayed to the shadow. Absent: 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<u8>,
}

/// The bounds of a recording.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    /// The maximum number of turns that are recorded. Absent: 50.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<u64>,
    /// The maximum number of bytes that are sent. Absent: 16 MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The maximum duration of the recording, in seconds. Absent: 60.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
}

/// The body of every error answer.
#[derive(Debug, Deserialize, Serialize)]
#[serde(bound(deserialize = "Code: Deserialize<'de> + Default"))]
pub struct Refusal<Code = String> {
    /// Why the request was refused.
    pub error: Reason<Code>,
}

/// The reason of a refusal. `Code` is the type of the code. A program that also reads errors of other APIs can set
/// `Code` to a type that accepts the codes of those APIs.
#[derive(Debug, Deserialize, Serialize)]
pub struct Reason<Code = String> {
    /// The reason as a code that a program can compare.
    #[serde(default)]
    pub code: Code,
    /// The reason as a text for people.
    pub message: String,
}

#[cfg(test)]
mod tests;
