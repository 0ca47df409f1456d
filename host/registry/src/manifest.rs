//! The manifests of components and of signatures (OCI image specification 1.1), in the layout that the CNCF defines for
//! WebAssembly components.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::MAX_COMPONENT_BYTES;
use crate::digest::Digest;
use crate::error::MAX_TEXT;

pub(crate) const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const CONFIG_TYPE: &str = "application/vnd.wasm.config.v0+json";
pub(crate) const LAYER_TYPE: &str = "application/wasm";
pub(crate) const EMPTY_TYPE: &str = "application/vnd.oci.empty.v1+json";
/// The content of an empty config (OCI image specification, "Guidance for an Empty Descriptor").
pub(crate) const EMPTY: &[u8] = b"{}";
/// The artifact type of a signature: a Sigstore bundle.
pub(crate) const SIGNATURE_TYPE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

/// The layer of a manifest that is the component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// The digest of the component.
    pub digest: Digest,
    /// The size of the component in bytes.
    pub size: u64,
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
    /// The manifest is an index too. Its signer may have meant the index.
    #[error("it has `layers` and `manifests`, so other tools can take it for an index")]
    Ambiguous,
    /// The manifest of a signature is about another manifest.
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

/// A list of manifests: the signatures of a component.
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

/// The manifest of a signature of `subject`, as JSON.
pub(crate) fn of_signature(subject: Descriptor, bundle: &[u8]) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&Manifest {
        schema_version: 2,
        media_type: MANIFEST_TYPE.to_owned(),
        artifact_type: Some(SIGNATURE_TYPE.to_owned()),
        config: Descriptor::of(EMPTY_TYPE, EMPTY),
        layers: vec![Descriptor::of(SIGNATURE_TYPE, bundle)],
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

/// Finds the signature in a manifest about `subject`.
pub(crate) fn signature_layer(manifest: &[u8], subject: &Digest) -> Result<Layer, ManifestError> {
    let (found, layer) = signature(manifest)?;
    if found == *subject { Ok(layer) } else { Err(ManifestError::OtherSubject) }
}

/// Finds the signature in a manifest, and the digest of the manifest that the signature is about.
pub(crate) fn signature(manifest: &[u8]) -> Result<(Digest, Layer), ManifestError> {
    let Manifest { subject, layers, .. } = read(manifest)?;
    let subject = subject.ok_or(ManifestError::OtherSubject)?.digest;
    let Descriptor { digest, size, .. } = only_layer(layers, SIGNATURE_TYPE)?;
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
