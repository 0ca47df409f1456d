//! `annex sign`

use std::path::{Path, PathBuf};

use annex_registry::Reference;
use anyhow::Context;
use clap::Args;

use super::keys::KeyFiles;
use super::target::{self, Target};
use super::{RegistryArgs, failed, keys, signed_file};
use crate::exit::Failure;
use crate::output;

/// Sign a component in an OCI registry or a file, or make a key for that.
///
/// Stores the signature of a component in its repository, and the signature of FILE in FILE.sigstore.json, as a Sigstore
/// bundle. A signature names a digest, so that no other component or file can use this signature.
#[derive(Args)]
#[command(after_help = "Examples:\n  annex sign --generate acme\n  annex sign oci://registry.example/acme/redact:1.2 \
                        --key acme.key\n  annex sign SHA256SUMS --key acme.key\n\nSign the reference with the digest \
                        that `annex push` has printed: a tag may mean another component by now. A key is ECDSA over \
                        P-256 or Ed25519, as PKCS #8 in PEM; `openssl genpkey` makes keys too.")]
pub(crate) struct Sign {
    /// The component, as `oci://HOST[:PORT]/PATH[:TAG][@sha256:HEX]`, or a file
    #[arg(value_name = "REF_OR_FILE", required_unless_present = "generate", conflicts_with = "generate")]
    target: Option<Target>,
    /// The file with the private key
    #[arg(long, value_name = "FILE", required_unless_present = "generate", conflicts_with = "generate")]
    key: Option<PathBuf>,
    /// Make a key: NAME.key, which only you can read, and NAME.pub, which others verify with
    #[arg(long, value_name = "NAME")]
    generate: Option<PathBuf>,
    #[command(flatten)]
    registry: RegistryArgs,
}

impl Sign {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let Self { target, key, generate, registry } = self;
        match (target, key, generate) {
            (_, _, Some(name)) => generate_key(&name),
            (Some(target), Some(key), None) => sign(&target, &key, &registry).await,
            // clap asks for the two before.
            _ => Err(Failure::Usage.error("name the component or file, and the key with --key FILE")),
        }
    }
}

fn generate_key(name: &Path) -> anyhow::Result<()> {
    let KeyFiles { private, public, id } = keys::generate(name)?;
    let (private, public) = (private.display(), public.display());
    output::show(&format!(
        "Wrote {private} and {public}. Keep {private} secret: who has it can sign as you. The key's id is {id}. Next:\n  \
         annex sign REF --key {private}\n  annex verify REF --key {public}\n"
    ))
}

async fn sign(target: &Target, key: &Path, registry: &RegistryArgs) -> anyhow::Result<()> {
    match target {
        Target::Component(reference) => sign_component(reference, key, registry).await,
        Target::Guess(reference) => {
            sign_component(reference, key, registry).await.with_context(|| target::guess(reference))
        }
        Target::File(file) => {
            registry.refuse_for_file()?;
            signed_file::sign(file, key)
        }
    }
}

async fn sign_component(reference: &Reference, key: &Path, registry: &RegistryArgs) -> anyhow::Result<()> {
    let key = keys::read(key)?;
    let client = registry.client(reference.registry()).await?;
    let resolved = client.resolve(reference).await.map_err(failed)?;
    let bundle = annex_trust::sign(&key, resolved.digest.as_str(), &reference.place())?;
    client.push_signature(reference, &resolved, bundle.into()).await.map_err(failed)?;
    output::note(&format!("signed by the key {}", key.public().id()));
    output::write(&format!("{}\n", reference.with_digest(&resolved.digest)))
}
