//! `annex push`

use std::collections::BTreeMap;
use std::path::PathBuf;

use annex_registry::Reference;
use annex_runtime::{Inspection, ManifestSection, Runtime, RuntimeConfig};
use annex_server::Locations;
use anyhow::Context;
use clap::Args;

use super::bar::Bar;
use super::{RegistryArgs, failed};
use crate::exit::Failure;
use crate::{component, output, progress, serve};

/// The annotations of a manifest for people (OCI image specification, "Pre-Defined Annotation Keys").
const TITLE: &str = "org.opencontainers.image.title";
const VERSION: &str = "org.opencontainers.image.version";

/// Push a component to an OCI registry.
#[derive(Args)]
#[command(after_help = "Example:\n  annex push ./redact.wasm oci://registry.example/acme/redact:1.2\n\nPrints the \
                        reference with the digest, which `annex sign` and a config take. A file that no server would \
                        load is not pushed. `annex login` stores credentials.")]
pub(crate) struct Push {
    /// A path, or the bare name of a component that ships with Annex
    component: String,
    /// The registry, the path and the tag: oci://HOST[:PORT]/PATH[:TAG]
    reference: Reference,
    #[command(flatten)]
    registry: RegistryArgs,
}

impl Push {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let Self { component, reference, registry } = self;
        if reference.digest().is_some() {
            let text = "a push makes the digest of its manifest; name a tag alone, as in \
                        oci://registry.example/acme/redact:1.2";
            return Err(Failure::Usage.error(text));
        }
        let locations = Locations { config: PathBuf::new(), components: serve::components(), cache: None };
        let bytes = component::named(&component, &locations)?;
        let inspection = inspected(&component, &bytes).await?;
        let client = registry.client(reference.registry()).await?;
        let bar = Bar::new("pushing");
        let pushed = client.push(&reference, bytes.into(), annotations(inspection.manifest), &bar).await;
        drop(bar);
        let digest = pushed.map_err(failed)?;
        output::note(&format!("pushed {} bytes; sign them: annex sign REF --key KEY", inspection.size));
        output::write(&format!("{}\n", reference.with_digest(&digest)))
    }
}

/// Checks that a server would accept the file as an extension.
async fn inspected(component: &str, bytes: &[u8]) -> anyhow::Result<Inspection> {
    let runtime = Runtime::new(&RuntimeConfig { instances: 1, ..RuntimeConfig::default() })?;
    let _progress = progress::of_compiling();
    let inspected = runtime.inspect(bytes.to_vec()).await.with_context(|| format!("{component} is refused"));
    Ok(inspected.map_err(|error| Failure::Refused.of(error))?.inspection)
}

fn annotations(manifest: Option<ManifestSection>) -> BTreeMap<String, String> {
    let named = manifest.map(|ManifestSection { name, version, .. }| [(TITLE, name), (VERSION, version)]);
    named.into_iter().flatten().map(|(key, value)| (key.to_owned(), value)).collect()
}
