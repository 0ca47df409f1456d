//! `annex push`

use std::collections::BTreeMap;
use std::path::PathBuf;

use annex_registry::Reference;
use annex_runtime::{Inspection, ManifestSection, Runtime, RuntimeConfig};
use annex_server::Locations;
use anyhow::Context;
use clap::Args;

use super::bar::Bar;
use super::{RegistryArgs, failed, sbom};
use crate::exit::Failure;
use crate::{component, output, progress, serve};

/// The annotations of a manifest for people (OCI image specification, "Pre-Defined Annotation Keys").
const TITLE: &str = "org.opencontainers.image.title";
const VERSION: &str = "org.opencontainers.image.version";
const LICENCES: &str = "org.opencontainers.image.licenses";
const SOURCE: &str = "org.opencontainers.image.source";
/// The annotation with the URI of the extension.
const EXTENSION_URI: &str = "annex.extension.uri";

/// Push a component to an OCI registry.
#[derive(Args)]
#[command(after_help = "Examples:\n  annex push ./redact.wasm oci://registry.example/acme/redact:1.2\n  annex push \
                        ./redact.wasm oci://registry.example/acme/redact:1.2 --sbom redact.cdx.json\n\nPrints the \
                        reference with the digest, which `annex sign` and a config take. A file that no server would \
                        load is not pushed. `annex login` stores credentials.")]
pub(crate) struct Push {
    /// A path, or the bare name of a component that ships with Annex
    component: String,
    /// The registry, the path and the tag: `oci://HOST[:PORT]/PATH[:TAG]`
    reference: Reference,
    /// Store this list of the component's dependencies beside the component: an SBOM as CycloneDX in JSON
    #[arg(long, value_name = "FILE")]
    sbom: Option<PathBuf>,
    #[command(flatten)]
    registry: RegistryArgs,
}

impl Push {
    pub(crate) async fn run(self) -> anyhow::Result<()> {
        let Self { component, reference, sbom, registry } = self;
        if reference.digest().is_some() {
            let text = "a push makes the digest of its manifest; name a tag alone, as in \
                        oci://registry.example/acme/redact:1.2";
            return Err(Failure::Usage.error(text));
        }
        let locations = Locations { config: PathBuf::new(), components: serve::components(), cache: None };
        let bytes = component::named(&component, &locations)?;
        let sbom = sbom.as_deref().map(sbom::read).transpose()?;
        let inspection = inspected(&component, &bytes).await?;
        let client = registry.client(reference.registry()).await?;
        let bar = Bar::new("pushing");
        let pushed = client.push(&reference, bytes.into(), annotations(inspection.manifest), &bar).await;
        drop(bar);
        let pinned = reference.with_digest(&pushed.map_err(failed)?);
        if let Some(sbom) = sbom {
            sbom::push(&client, &pinned, sbom).await?;
        }
        output::note(&format!("pushed {} bytes; sign them: annex sign REF --key KEY", inspection.size));
        output::write(&format!("{pinned}\n"))
    }
}

/// Checks that a server would accept the file as an extension.
async fn inspected(component: &str, bytes: &[u8]) -> anyhow::Result<Inspection> {
    let runtime = Runtime::new(&RuntimeConfig { instances: 1, ..RuntimeConfig::default() })?;
    let _progress = progress::of_compiling();
    let inspection = runtime.inspect(bytes.to_vec()).await.map(|inspected| inspected.inspection);
    let checked = inspection.and_then(|inspection| inspection.check_manifest().map(|()| inspection));
    let checked = checked.with_context(|| format!("{component} is refused"));
    checked.map_err(|error| Failure::Refused.of(error))
}

fn annotations(manifest: Option<ManifestSection>) -> BTreeMap<String, String> {
    let Some(ManifestSection { name, version, licence, source, uri, .. }) = manifest else { return BTreeMap::new() };
    let named =
        [(TITLE, Some(name)), (VERSION, Some(version)), (LICENCES, licence), (SOURCE, source), (EXTENSION_URI, uri)];
    // Other tools print annotations.
    let shown = |value: String| annex_text::line(&value).into_owned();
    named.into_iter().filter_map(|(key, value)| Some((key.to_owned(), shown(value?)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_annotations_say_what_the_manifest_says_on_one_line_each() {
        let json = r#"{"name":"a","version":"1","licence":"MIT\n","source":"https://a.example","uri":"urn:a"}"#;
        let manifest: ManifestSection = serde_json::from_str(json).expect("a manifest");
        let expected = [
            ("annex.extension.uri", "urn:a"),
            ("org.opencontainers.image.licenses", r"MIT\n"),
            ("org.opencontainers.image.source", "https://a.example"),
            ("org.opencontainers.image.title", "a"),
            ("org.opencontainers.image.version", "1"),
        ];
        let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(annotations(Some(manifest)), BTreeMap::from(expected));
        assert_eq!(annotations(None), BTreeMap::new());
    }
}
