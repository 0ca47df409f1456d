//! `annex verify`

use annex_registry::Reference;
use anyhow::Context;
use clap::Args;

use super::target::{self, Target};
use super::{RegistryArgs, origin, signed_file};
use crate::output;

/// Verify who has signed a component in an OCI registry, or a file.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  annex verify oci://registry.example/acme/redact:1.2 --key acme.pub\n  annex verify \
                        oci://registry.example/acme/redact:1.2 --key acme.pub --key audit.pub\n  annex verify \
                        SHA256SUMS --key acme.pub\n\nEach key must have signed. A component is pulled and its digests \
                        are checked. Prints the reference with the digest that is signed. The signature of FILE is in \
                        FILE.sigstore.json. If FILE is a list of checksums, each file of the list in the same folder is \
                        compared with its checksum. Exit code 3: it is not signed by these keys, or it was changed."
)]
pub(crate) struct Verify {
    /// The component, as `oci://HOST[:PORT]/PATH[:TAG][@sha256:HEX]`, or a file
    #[arg(value_name = "REF_OR_FILE")]
    target: Target,
    /// A public key in PEM that must have signed; may be repeated
    #[arg(long = "key", value_name = "FILE", required = true)]
    keys: Vec<String>,
    #[command(flatten)]
    registry: RegistryArgs,
}

impl Verify {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let Self { target, keys, registry } = self;
        match &target {
            Target::Component(reference) => verify(reference, &keys, &registry).await,
            Target::Guess(reference) => {
                verify(reference, &keys, &registry).await.with_context(|| target::guess(reference))
            }
            Target::File(file) => {
                registry.refuse_for_file()?;
                signed_file::verify(file, &keys)
            }
        }
    }
}

async fn verify(reference: &Reference, keys: &[String], registry: &RegistryArgs) -> anyhow::Result<()> {
    let origin = origin::pull(reference, keys, registry, "verifying").await?.origin;
    output::note(&format!("signed by {}", origin.signers.join(" and ")));
    output::write(&format!("{}\n", origin.reference))
}
