//! The manifests of components, of signatures and of SBOMs (OCI image specification 1.1). Components have the layout that the
//! CNCF defines for WebAssembly components.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::MAX_TEXT;
use crate::{MAX_COMPONENT_BYTES, MAX_SBOM_BYTES, MAX_SBOMS, MAX_SIGNATURE_BYTES, MAX_SIGNATURES};

pub(crate) const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const CONFIG_TYPE: &str = "application/vnd.wasm.config.v0+json";
pub(crate) const LAYER_TYPE: &str = "application/wasm";
pub(crate) const EMPTY_TYPE: &str = "application/vnd.oci.empty.v1+json";
/// The content of an empty config (OCI image specification, "Guidance for an Empty Descriptor").
pub(crate) const EMPTY: &[u8] = b"{}";

/// The content of a manifest's one layer: a component, a signature or an SBOM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Layer {
    /// The digest of the content.
    pub digest: Digest,
    /// The size of the content in bytes.
    pub size: u64,
}

/// The kinds of content about a component, which a registry stores beside the component. Each has a manifest that names the
/// component's manifest as its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Referrer {
    /// A Sigstore bundle.
    Signature,
    /// The list of the component's dependencies, as CycloneDX in JSON.
    Sbom,
}

impl Referrer {
    /// The artifact type of the manifest, which is the media type of its layer too.
    pub(crate) fn media_type(self) -> &'static str {
        match self {
            Self::Signature => "application/vnd.dev.sigstore.bundle.v0.3+json",
            Self::Sbom => "application/vnd.cyclonedx+json",
        }
    }

    /// The name of one item for errors.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Signature => "a signature",
            Self::Sbom => "an SBOM",
        }
    }

    /// The name of several items for errors.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::Signature => "signatures",
            Self::Sbom => "SBOMs",
        }
    }

    /// The name of the list for errors.
    pub(crate) fn list(self) -> &'static str {
        match self {
            Self::Signature => "the list of signatures",
            Self::Sbom => "the list of SBOMs",
        }
    }

    /// The maximum size in bytes.
    pub(crate) fn max_bytes(self) -> usize {
        match self {
            Self::Signature => MAX_SIGNATURE_BYTES,
            Self::Sbom => MAX_SBOM_BYTES,
        }
    }

    /// The maximum number that a component has.
    pub(crate) fn max_number(self) -> usize {
        match self {
            Self::Signature => MAX_SIGNATURES,
            Self::Sbom => MAX_SBOMS,
        }
    }
}

/// The reasons why a manifest is not that of a component.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The text is not a manifest.
    #[error("it is not an image manifest of OCI: {0}")]
    NotAManifest(String),
    /// The manifest has another kind of content.
    #[error("its {0} is {1:?}; the manifest of a component has {2}")]
    Type(&'static str, String, &'static str),
    /// The manifest has several layers or none. A further layer could be one that other tools run.
    #[error("it has {0} layers; a component is one layer")]
    Layers(usize),
    /// The component is too large.
    #[error("its component has {0} bytes; at most {MAX_COMPONENT_BYTES} are allowed")]
    TooLarge(u64),
    /// The signature or the SBOM is too large.
    #[error("its content has {0} bytes; at most {1} are allowed")]
    ContentTooLarge(u64, usize),
    /// The manifest is an index too. Its signer may have meant the index.
    #[error("it has `layers` and `manifests`, so other tools can take it for an index")]
    Ambiguous,
    /// The manifest of a signature or an SBOM is about another manifest.
    #[error("it is about another manifest")]
    OtherSubject,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) artifact_type: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
}

impl Descriptor {
    pub(crate) fn of(media_type: &str, bytes: &[u8]) -> Self {
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let (media_type, digest) = (media_type.to_owned(), Digest::of(bytes));
        Self { media_type, digest, size, artifact_type: None, annotations: BTreeMap::new() }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    schema_version: u32,
    #[serde(default)]
    media_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    artifact_type: Option<String>,
    config: Descriptor,
    layers: Vec<Descriptor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    subject: Option<Descriptor>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
    /// The manifests of an index, which no manifest has.
    #[serde(default, skip_serializing)]
    manifests: Option<IgnoredAny>,
}

/// A list of manifests: the signatures and SBOMs of a component.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Index {
    schema_version: u32,
    #[serde(default)]
    media_type: String,
    #[serde(default)]
    pub(crate) manifests: Vec<Descriptor>,
}

impl Index {
    pub(crate) fn new() -> Self {
        Self { schema_version: 2, media_type: INDEX_TYPE.to_owned(), manifests: Vec::new() }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WasmConfig<'a> {
    architecture: &'a str,
    os: &'a str,
    layer_digests: [&'a Digest; 1],
}

/// The config and the manifest of a component, as JSON.
pub(crate) fn of_component(
    component: &[u8],
    annotations: BTreeMap<String, String>,
) -> serde_json::Result<(Vec<u8>, Vec<u8>)> {
    let layer = Descriptor::of(LAYER_TYPE, component);
    let config = WasmConfig { architecture: "wasm", os: "wasip2", layer_digests: [&layer.digest] };
    let config = serde_json::to_vec(&config)?;
    let manifest = Manifest {
        schema_version: 2,
        media_type: MANIFEST_TYPE.to_owned(),
        artifact_type: None,
        config: Descriptor::of(CONFIG_TYPE, &config),
        layers: vec![layer],
        subject: None,
        annotations,
        manifests: None,
    };
    Ok((config, serde_json::to_vec(&manifest)?))
}

/// The manifest of a signature or an SBOM of `subject`, as JSON.
pub(crate) fn of_referrer(kind: Referrer, subject: Descriptor, content: &[u8]) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&Manifest {
        schema_version: 2,
        media_type: MANIFEST_TYPE.to_owned(),
        artifact_type: Some(kind.media_type().to_owned()),
        config: Descriptor::of(EMPTY_TYPE, EMPTY),
        layers: vec![Descriptor::of(kind.media_type(), content)],
        subject: Some(subject),
        annotations: BTreeMap::new(),
        manifests: None,
    })
}

/// Finds the component in a manifest.
///
/// # Errors
/// [`ManifestError`]. A manifest with a layer that Annex does not know is refused.
pub fn component_layer(manifest: &[u8]) -> Result<Layer, ManifestError> {
    let manifest = read(manifest)?;
    check("config.mediaType", &manifest.config.media_type, CONFIG_TYPE)?;
    let Descriptor { digest, size, .. } = only_layer(manifest.layers, LAYER_TYPE)?;
    if size > MAX_COMPONENT_BYTES {
        return Err(ManifestError::TooLarge(size));
    }
    Ok(Layer { digest, size })
}

/// Finds the signature or the SBOM in a manifest about `subject`.
pub(crate) fn referrer_layer(kind: Referrer, manifest: &[u8], subject: &Digest) -> Result<Layer, ManifestError> {
    let (found, layer) = referrer(kind, manifest)?;
    if found == *subject { Ok(layer) } else { Err(ManifestError::OtherSubject) }
}

/// Finds the signature or the SBOM in a manifest, and the digest of the manifest that it is about.
pub(crate) fn referrer(kind: Referrer, manifest: &[u8]) -> Result<(Digest, Layer), ManifestError> {
    let Manifest { subject, layers, .. } = read(manifest)?;
    let subject = subject.ok_or(ManifestError::OtherSubject)?.digest;
    let Descriptor { digest, size, .. } = only_layer(layers, kind.media_type())?;
    if size > u64::try_from(kind.max_bytes()).unwrap_or(u64::MAX) {
        return Err(ManifestError::ContentTooLarge(size, kind.max_bytes()));
    }
    Ok((subject, Layer { digest, size }))
}

fn read(manifest: &[u8]) -> Result<Manifest, ManifestError> {
    let manifest: Manifest = serde_json::from_slice(manifest)
        // The error quotes the manifest.
        .map_err(|error| ManifestError::NotAManifest(annex_text::line_within(&error.to_string(), MAX_TEXT)))?;
    // The field may be missing (OCI image specification, "Image Manifest Property Descriptions").
    if !manifest.media_type.is_empty() {
        check("mediaType", &manifest.media_type, MANIFEST_TYPE)?;
    }
    if manifest.manifests.is_some() {
        return Err(ManifestError::Ambiguous);
    }
    Ok(manifest)
}

fn only_layer(layers: Vec<Descriptor>, media_type: &'static str) -> Result<Descriptor, ManifestError> {
    let number = layers.len();
    let [layer]: [Descriptor; 1] = layers.try_into().map_err(|_| ManifestError::Layers(number))?;
    check("layers[0].mediaType", &layer.media_type, media_type)?;
    Ok(layer)
}

fn check(key: &'static str, found: &str, expected: &'static str) -> Result<(), ManifestError> {
    if found == expected {
        return Ok(());
    }
    Err(ManifestError::Type(key, annex_text::line_within(found, MAX_TEXT), expected))
}
