//! Pulls and pushes components, signatures and SBOMs.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use annex_egress::{AllowedDestination, Screen, ScreenConfig};
use annex_files::Purpose;
use bytes::Bytes;
use reqwest::{Certificate, Method};
use url::Url;

use crate::digest::Digest;
use crate::error::RegistryError;
use crate::manifest::{
    CONFIG_TYPE, Descriptor, EMPTY, EMPTY_TYPE, INDEX_TYPE, Index, LAYER_TYPE, Layer, MANIFEST_TYPE, Referrer,
    of_component, of_referrer,
};
use crate::reference::{Reference, called_host};
use crate::repository::{Repository, fallback_tag, length};
use crate::session::{ANSWER_TIME, Call, Session};

/// The maximum size of a file with certificates in bytes.
const MAX_CA_BYTES: usize = 1 << 20;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Settings of a [`Client`].
#[derive(Clone, Debug, Default)]
pub struct ClientConfig {
    /// Settings by registry: the host, with its port if references have one.
    pub registries: BTreeMap<String, RegistryConfig>,
    /// Credentials by registry.
    pub logins: BTreeMap<String, Login>,
}

/// Settings of one registry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistryConfig {
    /// Uses http in place of https. A registry on loopback is called by http anyway, unless it has a `ca_file`.
    pub plain_http: bool,
    /// A file with certificates in PEM, which are trusted beside the public ones.
    pub ca_file: Option<PathBuf>,
    /// Lets the registry be on a private network. A registry that the settings name on loopback is called anyway.
    pub allow_private: bool,
}

/// Credentials for a registry.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The name of the user.
    pub user: String,
    /// The password or the token.
    pub password: String,
}

impl fmt::Debug for Login {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Shows how far a transfer is.
pub trait Progress: Send + Sync {
    /// A transfer of this many bytes begins.
    fn begin(&self, total: u64);
    /// Further bytes have been transferred.
    fn advance(&self, bytes: u64);
}

/// Shows nothing.
impl Progress for () {
    fn begin(&self, _total: u64) {}
    fn advance(&self, _bytes: u64) {}
}

/// A manifest that a registry has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The digest of the manifest.
    pub digest: Digest,
    /// The manifest.
    pub manifest: Vec<u8>,
    /// The component that the manifest names.
    pub layer: Layer,
}

/// A component that was pulled. The manifest and the component have the digests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// The digest of the manifest.
    pub manifest_digest: Digest,
    /// The manifest.
    pub manifest: Vec<u8>,
    /// The digest of the component.
    pub component_digest: Digest,
    /// The component.
    pub component: Vec<u8>,
}

/// Calls registries. Keeps the connections and the tokens of each.
#[derive(Default)]
pub struct Client {
    config: ClientConfig,
    sessions: Mutex<HashMap<String, Arc<Session>>>,
}

impl Client {
    /// Creates a client. Contacts nobody.
    #[must_use]
    pub fn new(config: ClientConfig) -> Self {
        Self { config, sessions: Mutex::default() }
    }

    /// Asks a registry whether it accepts the credentials. A registry that serves everybody accepts them unread.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn log_in(&self, registry: &str) -> Result<(), RegistryError> {
        const WHAT: &str = "the log-in";
        let session = self.session(registry)?;
        let (url, accept) = (session.url(""), "application/json");
        let (scope, limit) = (String::new(), ANSWER_TIME);
        let call = Call { method: Method::GET, what: WHAT, url, accept, body: None, scope, limit, sent: None };
        let answer = session.send(&call).await?;
        if answer.status().is_success() { Ok(()) } else { Err(session.status(WHAT, answer).await) }
    }

    /// Finds out which manifest the reference names now.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn resolve(&self, reference: &Reference) -> Result<Resolved, RegistryError> {
        self.repository(reference)?.resolve().await
    }

    /// Pulls the component that the reference names now.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn pull(&self, reference: &Reference, progress: &dyn Progress) -> Result<Pulled, RegistryError> {
        let repository = self.repository(reference)?;
        let Resolved { digest, manifest, layer } = repository.resolve().await?;
        let component = repository.blob(&layer, "the component", progress).await?;
        Ok(Pulled { manifest_digest: digest, manifest, component_digest: layer.digest, component })
    }

    /// Pushes a component. Returns the digest of its manifest.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn push(
        &self,
        reference: &Reference,
        component: Bytes,
        annotations: BTreeMap<String, String>,
        progress: &dyn Progress,
    ) -> Result<Digest, RegistryError> {
        let repository = self.repository(reference)?;
        let (config, manifest) = of_component(&component, annotations)?;
        progress.begin(length(&component));
        repository.upload((LAYER_TYPE, component), progress).await?;
        repository.upload((CONFIG_TYPE, config.into()), &()).await?;
        let digest = Digest::of(&manifest);
        repository.put(reference.target(), (MANIFEST_TYPE, manifest.into())).await?;
        Ok(digest)
    }

    /// Reads the signatures of a manifest: Sigstore bundles as JSON. Nobody has verified them.
    ///
    /// # Errors
    /// [`RegistryError`]. A registry that fails is an error, and not a component without a signature.
    pub async fn signatures(&self, reference: &Reference, manifest: &Digest) -> Result<Vec<Vec<u8>>, RegistryError> {
        let repository = self.repository(reference)?;
        let layers = repository.referring_layers(manifest, Referrer::Signature).await?;
        let mut signatures = Vec::with_capacity(layers.len());
        for layer in layers {
            signatures.push(repository.blob(&layer, Referrer::Signature.name(), &()).await?);
        }
        Ok(signatures)
    }

    /// Pushes a signature of a manifest. Returns the digest of the signature's own manifest.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn push_signature(
        &self,
        reference: &Reference,
        subject: &Resolved,
        bundle: Bytes,
    ) -> Result<Digest, RegistryError> {
        self.push_referrer(reference, subject, (Referrer::Signature, bundle)).await
    }

    /// Lists the digest and the size of each SBOM of a manifest. An SBOM is CycloneDX in JSON, and is not signed.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn sboms(&self, reference: &Reference, manifest: &Digest) -> Result<Vec<Layer>, RegistryError> {
        self.repository(reference)?.referring_layers(manifest, Referrer::Sbom).await
    }

    /// Pulls an SBOM of [`sboms`](Self::sboms).
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn pull_sbom(&self, reference: &Reference, sbom: &Layer) -> Result<Vec<u8>, RegistryError> {
        self.repository(reference)?.blob(sbom, Referrer::Sbom.name(), &()).await
    }

    /// Pushes an SBOM of a manifest. Returns the digest of the SBOM's own manifest.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn push_sbom(
        &self,
        reference: &Reference,
        subject: &Resolved,
        sbom: Bytes,
    ) -> Result<Digest, RegistryError> {
        self.push_referrer(reference, subject, (Referrer::Sbom, sbom)).await
    }

    async fn push_referrer(
        &self,
        reference: &Reference,
        subject: &Resolved,
        (kind, content): (Referrer, Bytes),
    ) -> Result<Digest, RegistryError> {
        let repository = self.repository(reference)?;
        let manifest = of_referrer(kind, Descriptor::of(MANIFEST_TYPE, &subject.manifest), &content)?;
        repository.upload((EMPTY_TYPE, Bytes::from_static(EMPTY)), &()).await?;
        repository.upload((kind.media_type(), content), &()).await?;
        let digest = Digest::of(&manifest);
        let mut descriptor = Descriptor::of(MANIFEST_TYPE, &manifest);
        descriptor.artifact_type = Some(kind.media_type().to_owned());
        let headers = repository.put(digest.as_str(), (MANIFEST_TYPE, manifest.into())).await?;
        // A registry that keeps lists of referrers says so (OCI distribution specification, "Pushing Manifests with Subject").
        if headers.contains_key("oci-subject") {
            return Ok(digest);
        }
        let mut index = repository.fallback(&subject.digest, kind.list()).await?.unwrap_or_else(Index::new);
        if index.manifests.iter().all(|earlier| earlier.digest != digest) {
            index.manifests.push(descriptor);
        }
        let index = serde_json::to_vec(&index)?;
        repository.put(&fallback_tag(&subject.digest), (INDEX_TYPE, index.into())).await?;
        Ok(digest)
    }

    /// The tags of a repository, as the registry sorts them.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn tags(&self, reference: &Reference) -> Result<Vec<String>, RegistryError> {
        self.repository(reference)?.tags().await
    }

    fn repository<'a>(&self, reference: &'a Reference) -> Result<Repository<'a>, RegistryError> {
        Ok(Repository { session: self.session(reference.registry())?, reference })
    }

    fn session(&self, registry: &str) -> Result<Arc<Session>, RegistryError> {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = sessions.get(registry) {
            return Ok(Arc::clone(session));
        }
        let session = Arc::new(self.open(registry)?);
        sessions.insert(registry.to_owned(), Arc::clone(&session));
        Ok(session)
    }

    fn open(&self, registry: &str) -> Result<Session, RegistryError> {
        let config = self.config.registries.get(registry).cloned().unwrap_or_default();
        let wrong = |key, reason| RegistryError::Config { host: registry.to_owned(), key, reason };
        let host = called_host(registry);
        let https: Url = format!("https://{host}/").parse().map_err(|error| wrong("host", format!("{error}")))?;
        let is_here = match https.host() {
            Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
            Some(url::Host::Ipv4(address)) => address.is_loopback(),
            Some(url::Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        let uses_http = config.plain_http || (is_here && config.ca_file.is_none());
        let scheme = if uses_http { "http" } else { "https" };
        let base: Url = format!("{scheme}://{host}/").parse().map_err(|error| wrong("host", format!("{error}")))?;
        let own = base.host_str().filter(|_| is_here || config.allow_private);
        let own = own.map(|host| host.trim_matches(['[', ']']).parse::<AllowedDestination>());
        let allow = own.transpose().map_err(|error| wrong("host", error.to_string()))?.into_iter().collect();
        let screen = Screen::new(ScreenConfig { allow, https_only: false });
        let mut authorities = Vec::new();
        if let Some(file) = &config.ca_file {
            let read = annex_files::read(file, Purpose::Named, MAX_CA_BYTES);
            let read = read.map_err(|error| wrong("ca_file", format!("{} cannot be read: {error}", file.display())))?;
            authorities = Certificate::from_pem_bundle(&read).unwrap_or_default();
            if authorities.is_empty() {
                return Err(wrong("ca_file", format!("{} has no certificate in PEM", file.display())));
            }
        }
        // No read timeout of reqwest: it would end each upload that takes longer.
        let builder = screen.guard(annex_egress::client_builder(authorities)).connect_timeout(CONNECT_TIMEOUT);
        let http = builder.build().map_err(RegistryError::HttpClient)?;
        Ok(Session::new(registry, base, (http, screen), self.config.logins.get(registry).cloned()))
    }
}
