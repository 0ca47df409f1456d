//! `annex verify`

use annex_registry::Reference;
use clap::Args;

use super::{RegistryArgs, origin};
use crate::output;

/// Verify who has signed a component in an OCI registry.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  annex verify oci://registry.example/acme/redact:1.2 --key acme.pub\n  annex verify \
                        oci://registry.example/acme/redact:1.2 --key acme.pub --key audit.pub\n\nEach key must have \
                        signed. The component is pulled and its digests are checked. Prints the reference with the \
                        digest that is signed. Exit code 3: it is not signed by these keys, or it was changed."
)]
pub(crate) struct Verify {
    /// The component: oci://HOST[:PORT]/PATH[:TAG][@sha256:HEX]
    reference: Reference,
    /// A public key in PEM that must have signed; may be repeated
    #[arg(long = "key", value_name = "FILE", required = true)]
    keys: Vec<String>,
    #[command(flatten)]
    registry: RegistryArgs,
}

impl Verify {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let Self { reference, keys, registry } = self;
        let origin = origin::pull(&reference, &keys, &registry, "verifying").await?.origin;
        output::note(&format!("signed by {}", origin.signers.join(" and ")));
        output::write(&format!("{}\n", origin.reference))
    }
}
