//! `annex verify`

use annex_registry::Reference;
use anyhow::Context;
use clap::Args;

use super::keys::SignerArgs;
use super::target::{self, Target};
use super::{RegistryArgs, origin, signed_file};
use crate::exit::Failure;
use crate::output;

/// Verify who has signed a component in an OCI registry, or a file.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  annex verify oci://registry.example/acme/redact:1.2 --key acme.pub\n  annex verify \
                        oci://registry.example/acme/redact:1.2 --key acme.pub --key audit.pub\n  annex verify \
                        oci://registry.example/acme/redact:1.2 --root-file trusted_root.json \\\n    --issuer \
                        https://token.actions.githubusercontent.com --repository acme/redact\n  annex verify \
                        SHA256SUMS --key acme.pub\n\nEach key must have signed, and the identity too. A component is \
                        pulled and its digests are checked. Prints the reference with the digest that is signed. The \
                        signature of FILE is in FILE.sigstore.json. If FILE is a list of checksums, each file of the \
                        list in the same folder is compared with its checksum. Exit code 3: it is not signed by these \
                        signers, or it was changed."
)]
pub(crate) struct Verify {
    /// The component, as `oci://HOST[:PORT]/PATH[:TAG][@sha256:HEX]`, or a file
    #[arg(value_name = "REF_OR_FILE")]
    target: Target,
    #[command(flatten)]
    signers: SignerArgs,
    #[command(flatten)]
    registry: RegistryArgs,
}

impl Verify {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let Self { target, signers, registry } = self;
        if signers.is_empty() {
            return Err(Failure::Usage.error("name who must have signed, with --key FILE, or with --issuer URL"));
        }
        match &target {
            Target::Component(reference) => verify(reference, &signers, &registry).await,
            Target::Guess(reference) => {
                verify(reference, &signers, &registry).await.with_context(|| target::guess(reference))
            }
            Target::File(file) => {
                registry.refuse_for_file()?;
                if signers.names_identity() {
                    let text = "--issuer is for components in registries; a file needs --key FILE";
                    return Err(Failure::Usage.error(text));
                }
                signed_file::verify(file, &signers.keys)
            }
        }
    }
}

async fn verify(reference: &Reference, signers: &SignerArgs, registry: &RegistryArgs) -> anyhow::Result<()> {
    let origin = origin::pull(reference, signers, registry, "verifying").await?.origin;
    output::note(&format!("signed by {}", origin.signers.join(" and ")));
    output::write(&format!("{}\n", origin.reference))
}
