//! The grant `secrets`: the secrets that an extension can read by name.

use std::env;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use annex_files::Purpose;
use annex_protocol::Secret;
use serde::{Deserialize, Serialize};

use crate::config::environment;

/// The maximum size of a secret in bytes.
const MAX_SECRET_BYTES: usize = 64 << 10;
/// The maximum size in bytes of the file of a secret. A larger file is refused.
const MAX_FILE_BYTES: usize = 1 << 20;

/// The source of a secret's value: `NAME = { env = "…" }` or `NAME = { file = "…" }`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase", try_from = "SecretSource")]
pub enum SecretConfig {
    /// The environment variable with the value.
    Env(String),
    /// The file with the value, relative to the config. A line break at the end is removed.
    File(PathBuf),
}

/// A [`SecretConfig`] as a config has it. It may have a key too many or too few, which its own errors name.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table such as { env = \"NAME\" } or { file = \"PATH\" }")]
struct SecretSource {
    env: Option<String>,
    file: Option<PathBuf>,
}

impl TryFrom<SecretSource> for SecretConfig {
    type Error = &'static str;

    fn try_from(source: SecretSource) -> Result<Self, Self::Error> {
        match (source.env, source.file) {
            (Some(variable), None) => Ok(Self::Env(variable)),
            (None, Some(path)) => Ok(Self::File(path)),
            (None, None) => Err("has no source; write { env = \"NAME\" } or { file = \"PATH\" }"),
            (Some(_), Some(_)) => Err("has both `env` and `file`; leave one out"),
        }
    }
}

impl SecretConfig {
    /// The config key of the secret's source: `env` or `file`.
    pub(crate) fn key(&self) -> &'static str {
        match self {
            Self::Env(_) => "env",
            Self::File(_) => "file",
        }
    }

    /// The reason why the secret cannot be used. `None` if it can. Relative paths start at `folder`.
    pub(crate) fn fault(&self, folder: &Path) -> Option<String> {
        self.read(folder).err()
    }

    /// Reads the secret. Relative paths start at `folder`.
    ///
    /// # Errors
    /// The reason why the secret cannot be used.
    pub(crate) fn read(&self, folder: &Path) -> Result<Secret, String> {
        let value = match self {
            Self::Env(variable) => env::var(variable)
                .ok()
                .filter(|value| !value.is_empty())
                .ok_or_else(|| environment::unusable(variable))?,
            Self::File(path) => {
                let path = folder.join(path);
                let text = annex_files::read_text(&path, Purpose::Secret, MAX_FILE_BYTES).map_err(|error| {
                    let hint = if error.kind() == ErrorKind::NotFound { "; name a file with the value" } else { "" };
                    format!("cannot read {}: {error}{hint}", path.display())
                })?;
                let line = text.strip_suffix('\n').unwrap_or(&text);
                line.strip_suffix('\r').unwrap_or(line).to_owned()
            }
        };
        match value.len() {
            0 => Err("is empty; give it a value, or leave it out".to_owned()),
            1..=MAX_SECRET_BYTES => Ok(Secret::new(value)),
            _ => Err(format!("is longer than {MAX_SECRET_BYTES} bytes")),
        }
    }
}
