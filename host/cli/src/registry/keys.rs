//! The files with keys that sign components.

use std::path::{Path, PathBuf};

use annex_files::Purpose;
use annex_trust::{MAX_KEY_BYTES, Policy, PrivateKey, PublicKey, SignerConfig, TrustConfig, TrustError};
use anyhow::{Context, anyhow};
use clap::Args;

use crate::exit::Failure;
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

/// The signers that a component must have.
#[derive(Args, Clone, Default)]
pub(crate) struct SignerArgs {
    /// A public key in PEM that must have signed the component of a registry; may be repeated
    #[arg(long = "key", value_name = "FILE")]
    pub(crate) keys: Vec<String>,
    #[command(flatten)]
    identity: IdentityArgs,
}

/// A keyless identity that must have signed.
#[derive(Args, Clone, Default)]
struct IdentityArgs {
    /// The issuer of a keyless identity that must have signed, such as `https://token.actions.githubusercontent.com`
    #[arg(long, value_name = "URL", requires = "root_file")]
    issuer: Option<String>,
    /// The subject of this identity: an e-mail address, or the URI of a workflow
    #[arg(long, value_name = "TEXT", requires = "issuer", conflicts_with = "repository")]
    subject: Option<String>,
    /// The repository of this identity: OWNER/NAME on GitHub, or a URL
    #[arg(long, value_name = "NAME", requires = "issuer")]
    repository: Option<String>,
    /// The authorities and logs that verify this identity: the trusted_root.json of Sigstore
    #[arg(long, value_name = "FILE", requires = "issuer")]
    root_file: Option<String>,
}

impl SignerArgs {
    /// These keys without an identity.
    pub(super) fn of_keys(keys: &[String]) -> Self {
        Self { keys: keys.to_vec(), ..Self::default() }
    }

    /// True if no signer is named.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty() && !self.names_identity()
    }

    /// True if a keyless identity is named.
    pub(super) fn names_identity(&self) -> bool {
        self.identity.issuer.is_some()
    }

    /// The policy that each of these signers has signed. `None` if there are no signers.
    pub(super) fn policy(&self) -> anyhow::Result<Option<SignerPolicy>> {
        if self.is_empty() {
            return Ok(None);
        }
        let IdentityArgs { issuer, subject, repository, root_file } = self.identity.clone();
        let identity = issuer.map(|issuer| SignerConfig { key: None, issuer: Some(issuer), subject, repository });
        let all_of = self.keys.iter().map(|file| SignerConfig::of_key(file)).chain(identity).collect();
        let trust = TrustConfig { all_of, root_file, ..TrustConfig::default() };
        let policy = trust.policy(|file| annex_files::read(Path::new(file), Purpose::Named, MAX_KEY_BYTES));
        let policy = policy.map_err(|TrustError { key, reason }| anyhow!("{}: {reason}", self.option(&key)))?;
        Ok(Some(SignerPolicy { policy, keys: self.keys.len() }))
    }

    /// The option that sets a key of `[trust]`.
    fn option(&self, key: &str) -> &'static str {
        match key.rsplit('.').next() {
            Some("subject") => "--subject",
            Some("repository") => "--repository",
            Some("root_file") => "--root-file",
            _ if key.starts_with(&identity_place(self.keys.len())) => "--issuer",
            _ => "--key",
        }
    }
}

/// A policy that was made from options.
pub(super) struct SignerPolicy {
    policy: Policy,
    /// The number of keys. An identity follows them.
    keys: usize,
}

impl SignerPolicy {
    /// Verifies the signatures of a manifest. Returns the signers.
    ///
    /// # Errors
    /// The refusal, with options in place of the keys of a config.
    pub(super) fn verify(&self, place: &str, manifest: &str, signatures: &[Vec<u8>]) -> anyhow::Result<Vec<String>> {
        let verified = self.policy.verify(place, manifest, signatures);
        let verified = verified.map_err(|refusal| {
            let text = refusal.to_string().replace(&identity_place(self.keys), "--issuer");
            Failure::Refused.error(text.replace("trust.all_of", "--key"))
        })?;
        Ok(verified.signers)
    }
}

/// The place of the identity in a policy with so many keys.
fn identity_place(keys: usize) -> String {
    format!("trust.all_of[{keys}]")
}

/// The path with this end of the name added.
pub(super) fn with_end(name: &Path, end: &str) -> PathBuf {
    let mut whole = name.as_os_str().to_owned();
    whole.push(end);
    whole.into()
}
