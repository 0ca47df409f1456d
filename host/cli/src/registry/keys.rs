//! The files with keys that sign components.

use std::path::{Path, PathBuf};

use annex_files::Purpose;
use annex_trust::{MAX_KEY_BYTES, Policy, PrivateKey, PublicKey, SignerConfig, TrustConfig};
use anyhow::{Context, anyhow};

use crate::new_file;

const PRIVATE_MODE: u32 = 0o600;
const PUBLIC_MODE: u32 = 0o644;

/// The two files of a new key.
pub(super) struct KeyFiles {
    pub(super) private: PathBuf,
    pub(super) public: PathBuf,
    /// The SHA-256 of the public key.
    pub(super) id: String,
}

/// Makes a key and writes it into `NAME.key` and `NAME.pub`. Neither file may exist.
pub(super) fn generate(name: &Path) -> anyhow::Result<KeyFiles> {
    let (key, pem) = PrivateKey::generate()?;
    let (private, public) = (with_end(name, ".key"), with_end(name, ".pub"));
    if public.symlink_metadata().is_ok() {
        return Err(new_file::exists(&public));
    }
    new_file::write(&private, pem.as_bytes(), PRIVATE_MODE)?;
    new_file::write(&public, key.public().to_pem().as_bytes(), PUBLIC_MODE)?;
    Ok(KeyFiles { private, public, id: key.public().id() })
}

/// Reads a private key.
pub(super) fn read(file: &Path) -> anyhow::Result<PrivateKey> {
    let shown = file.display();
    let pem =
        annex_files::read(file, Purpose::Secret, MAX_KEY_BYTES).with_context(|| format!("cannot read {shown}"))?;
    PrivateKey::from_pem(&pem).map_err(|error| anyhow!("{shown} {error}"))
}

/// Reads a public key.
pub(super) fn read_public(file: &Path) -> anyhow::Result<PublicKey> {
    let shown = file.display();
    let pem = annex_files::read(file, Purpose::Named, MAX_KEY_BYTES).with_context(|| format!("cannot read {shown}"))?;
    PublicKey::from_pem(&pem).map_err(|error| anyhow!("{shown} {error}"))
}

/// The policy that each of these files with public keys has signed. `None` if there are no files.
pub(super) fn policy(files: &[String]) -> anyhow::Result<Option<Policy>> {
    if files.is_empty() {
        return Ok(None);
    }
    let all_of = files.iter().map(|file| SignerConfig::of_key(file)).collect();
    let trust = TrustConfig { all_of, ..TrustConfig::default() };
    let policy = trust.policy(|file| annex_files::read(Path::new(file), Purpose::Named, MAX_KEY_BYTES));
    policy.map(Some).map_err(|error| anyhow!("--key: {}", error.reason))
}

/// The path with this end of the name added.
pub(super) fn with_end(name: &Path, end: &str) -> PathBuf {
    let mut whole = name.as_os_str().to_owned();
    whole.push(end);
    whole.into()
}
