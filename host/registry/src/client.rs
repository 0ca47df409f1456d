//! Pulls and pushes components and signatures.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use annex_egress::{AllowedDestination, Body, Screen, ScreenConfig, whole};
use annex_files::Purpose;
use bytes::Bytes;
use reqwest::header::{HeaderMap, LINK, LOCATION};
use reqwest::{Certificate, Method, Response, StatusCode};
use serde::Deserialize;
use tokio::time::timeout;
use url::Url;

use crate::digest::Digest;
use crate::error::RegistryError;
use crate::manifest::{
    CONFIG_TYPE, Descriptor, EMPTY, EMPTY_TYPE, INDEX_TYPE, Index, LAYER_TYPE, Layer, MANIFEST_TYPE, SIGNATURE_TYPE,
    component_layer, of_component, of_signature, signature_layer,
};
use crate::reference::Reference;
use crate::session::{ANSWER_TIME, Call, Session};
use crate::{MAX_MANIFEST_BYTES, MAX_SIGNATURE_BYTES, MAX_SIGNATURES};

/// The maximum size of a file with certificates in bytes.
const MAX_CA_BYTES: usize = 1 << 20;
/// The maximum number of pages of a list that are read.
const MAX_PAGES: usize = 10;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time without a byte after which a transfer counts as broken off.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// The slowest transfer that is waited for, in bytes per second.
const SLOWEST: u64 = 20_000;
/// The time between two reports of the progress of an upload.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);

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

#[derive(Deserialize)]
struct TagList {
    #[serde(default)]
    tags: Option<Vec<String>>,
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
        let session = self.session(reference.registry())?;
        let (manifest, digest) = manifest(&session, reference, reference.target(), reference.digest()).await?;
        let layer = component_layer(&manifest);
        let layer =
            layer.map_err(|source| RegistryError::Manifest { reference: Box::new(reference.clone()), source })?;
        Ok(Resolved { digest, manifest, layer })
    }

    /// Pulls the component that the reference names now.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn pull(&self, reference: &Reference, progress: &dyn Progress) -> Result<Pulled, RegistryError> {
        let Resolved { digest, manifest, layer } = self.resolve(reference).await?;
        let session = self.session(reference.registry())?;
        let component = blob(&session, reference, &layer, "the component", progress).await?;
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
        let session = self.session(reference.registry())?;
        let (config, manifest) = of_component(&component, annotations)?;
        progress.begin(length(&component));
        upload(&session, reference, (LAYER_TYPE, component), progress).await?;
        upload(&session, reference, (CONFIG_TYPE, config.into()), &()).await?;
        let digest = Digest::of(&manifest);
        put(&session, reference, reference.target(), (MANIFEST_TYPE, manifest.into())).await?;
        Ok(digest)
    }

    /// Reads the signatures of a manifest: Sigstore bundles as JSON. Nobody has verified them.
    ///
    /// # Errors
    /// [`RegistryError`]. A registry that fails is an error, and not a component without a signature.
    pub async fn signatures(&self, reference: &Reference, manifest: &Digest) -> Result<Vec<Vec<u8>>, RegistryError> {
        let session = self.session(reference.registry())?;
        let found = referrers(&session, reference, manifest).await?;
        // A registry can list a signature again.
        let found: BTreeSet<Digest> = found.into_iter().map(|descriptor| descriptor.digest).collect();
        if found.len() > MAX_SIGNATURES {
            return Err(RegistryError::TooManySignatures(reference.to_string()));
        }
        let mut signatures = Vec::with_capacity(found.len());
        for digest in found {
            let (read, _) = manifest_of(&session, reference, &digest).await?;
            let wrong =
                |source| RegistryError::Manifest { reference: Box::new(reference.with_digest(&digest)), source };
            let layer = signature_layer(&read, manifest).map_err(wrong)?;
            if layer.size > u64::try_from(MAX_SIGNATURE_BYTES).unwrap_or(u64::MAX) {
                return Err(wrong(crate::ManifestError::TooLarge(layer.size)));
            }
            signatures.push(blob(&session, reference, &layer, "a signature", &()).await?);
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
        let session = self.session(reference.registry())?;
        let signed = Descriptor::of(MANIFEST_TYPE, &subject.manifest);
        let signature = of_signature(signed, &bundle)?;
        upload(&session, reference, (EMPTY_TYPE, Bytes::from_static(EMPTY)), &()).await?;
        upload(&session, reference, (SIGNATURE_TYPE, bundle), &()).await?;
        let digest = Digest::of(&signature);
        let mut descriptor = Descriptor::of(MANIFEST_TYPE, &signature);
        descriptor.artifact_type = Some(SIGNATURE_TYPE.to_owned());
        let headers = put(&session, reference, digest.as_str(), (MANIFEST_TYPE, signature.into())).await?;
        // A registry that keeps lists of referrers says so (OCI distribution specification, "Pushing Manifests with Subject").
        if headers.contains_key("oci-subject") {
            return Ok(digest);
        }
        let mut index = fallback(&session, reference, &subject.digest).await?.unwrap_or_else(Index::new);
        if index.manifests.iter().all(|earlier| earlier.digest != digest) {
            index.manifests.push(descriptor);
        }
        let index = serde_json::to_vec(&index)?;
        put(&session, reference, &fallback_tag(&subject.digest), (INDEX_TYPE, index.into())).await?;
        Ok(digest)
    }

    /// The tags of a repository, as the registry sorts them.
    ///
    /// # Errors
    /// [`RegistryError`].
    pub async fn tags(&self, reference: &Reference) -> Result<Vec<String>, RegistryError> {
        const WHAT: &str = "the list of tags";
        let session = self.session(reference.registry())?;
        let mut tags = Vec::new();
        let mut next = Some(session.url(&format!("{}/tags/list", reference.repository())));
        for _ in 0..MAX_PAGES {
            let Some(url) = next else { break };
            let answer = session.send(&reading(WHAT, url.clone(), "application/json", reference)).await?;
            let answer = success(&session, WHAT, reference, answer).await?;
            next = next_page(&session, &url, answer.headers(), WHAT)?;
            let page: TagList = json(&session, WHAT, answer).await?;
            tags.extend(page.tags.unwrap_or_default());
        }
        Ok(tags)
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
        let https: Url = format!("https://{registry}/").parse().map_err(|error| wrong("host", format!("{error}")))?;
        let is_here = match https.host() {
            Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
            Some(url::Host::Ipv4(address)) => address.is_loopback(),
            Some(url::Host::Ipv6(address)) => address.is_loopback(),
            None => false,
        };
        let uses_http = config.plain_http || (is_here && config.ca_file.is_none());
        let scheme = if uses_http { "http" } else { "https" };
        let base: Url = format!("{scheme}://{registry}/").parse().map_err(|error| wrong("host", format!("{error}")))?;
        let own = base.host_str().filter(|_| is_here || config.allow_private);
        let own = own.map(|host| host.trim_matches(['[', ']']).parse::<AllowedDestination>());
        let allow = own.transpose().map_err(|error| wrong("host", error.to_string()))?.into_iter().collect();
        let screen = Screen::new(ScreenConfig { allow, https_only: false });
        // Fails if the process has installed a provider already, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = screen.guard(reqwest::Client::builder());
        // No read timeout of reqwest: it would end each upload that takes longer.
        builder = builder.connect_timeout(CONNECT_TIMEOUT);
        if let Some(file) = &config.ca_file {
            let read = annex_files::read(file, Purpose::Named, MAX_CA_BYTES);
            let read = read.map_err(|error| wrong("ca_file", format!("{} cannot be read: {error}", file.display())))?;
            let certificates = Certificate::from_pem_bundle(&read).unwrap_or_default();
            if certificates.is_empty() {
                return Err(wrong("ca_file", format!("{} has no certificate in PEM", file.display())));
            }
            for certificate in certificates {
                builder = builder.add_root_certificate(certificate);
            }
        }
        let http = builder.build().map_err(RegistryError::HttpClient)?;
        Ok(Session::new(registry, base, (http, screen), self.config.logins.get(registry).cloned()))
    }
}

/// The token that a request needs (the CNCF's distribution registry, "Token Scope").
fn scope(reference: &Reference, writes: bool) -> String {
    format!("repository:{}:{}", reference.repository(), if writes { "pull,push" } else { "pull" })
}

fn reading(what: &'static str, url: Url, accept: &'static str, reference: &Reference) -> Call<'static> {
    let (scope, limit) = (scope(reference, false), ANSWER_TIME);
    Call { method: Method::GET, what, url, accept, body: None, scope, limit, sent: None }
}

/// Reads a manifest, whose digest is `expected` if that is known.
async fn manifest(
    session: &Session,
    reference: &Reference,
    target: &str,
    expected: Option<&Digest>,
) -> Result<(Vec<u8>, Digest), RegistryError> {
    const WHAT: &str = "the manifest";
    let url = session.url(&format!("{}/manifests/{target}", reference.repository()));
    let answer = session.send(&reading(WHAT, url, MANIFEST_TYPE, reference)).await?;
    let answer = success(session, WHAT, reference, answer).await?;
    // The header says what the registry believes; it is not compared, because only the content counts.
    let read = bounded(session, WHAT, answer, MAX_MANIFEST_BYTES).await?;
    let found = Digest::of(&read);
    match expected {
        Some(expected) if *expected != found => {
            let (registry, expected) = (session.registry.clone(), expected.clone());
            Err(RegistryError::Digest { registry, expected, found })
        }
        _ => Ok((read, found)),
    }
}

async fn manifest_of(
    session: &Session,
    reference: &Reference,
    digest: &Digest,
) -> Result<(Vec<u8>, Digest), RegistryError> {
    manifest(session, reference, digest.as_str(), Some(digest)).await
}

/// Reads content of a known digest and size.
async fn blob(
    session: &Session,
    reference: &Reference,
    layer: &Layer,
    what: &'static str,
    progress: &dyn Progress,
) -> Result<Vec<u8>, RegistryError> {
    let Layer { digest, size } = layer;
    let url = session.url(&format!("{}/blobs/{digest}", reference.repository()));
    let call = Call { limit: time_for(*size), ..reading(what, url, "application/octet-stream", reference) };
    let answer = session.send(&call).await?;
    let mut answer = success(session, what, reference, answer).await?;
    progress.begin(*size);
    let other_size = |found| {
        let (registry, digest) = (session.registry.clone(), digest.clone());
        RegistryError::Size { registry, digest, expected: *size, found }
    };
    let mut read = Vec::new();
    while let Some(piece) = next_piece(session, what, &mut answer).await? {
        // Counted as the bytes arrive: neither the declared length nor the end is trusted.
        let found = length(&read) + length(&piece);
        if found > *size {
            return Err(other_size(found));
        }
        read.extend_from_slice(&piece);
        progress.advance(length(&piece));
    }
    if length(&read) != *size {
        return Err(other_size(length(&read)));
    }
    let found = Digest::of(&read);
    if found == *digest {
        return Ok(read);
    }
    Err(RegistryError::Digest { registry: session.registry.clone(), expected: digest.clone(), found })
}

/// The next piece of an answer, which has to come soon.
async fn next_piece(
    session: &Session,
    what: &'static str,
    answer: &mut Response,
) -> Result<Option<Bytes>, RegistryError> {
    let piece = timeout(READ_TIMEOUT, answer.next()).await.map_err(|late| session.answer_error(what, &late))?;
    piece.map_err(|error| session.answer_error(what, &error.without_url()))
}

/// The maximum time of a transfer of this size.
fn time_for(bytes: u64) -> Duration {
    ANSWER_TIME.saturating_add(Duration::from_secs(bytes / SLOWEST))
}

/// The manifests that name `subject` and say that they are signatures.
async fn referrers(
    session: &Session,
    reference: &Reference,
    subject: &Digest,
) -> Result<Vec<Descriptor>, RegistryError> {
    const WHAT: &str = "the list of signatures";
    let mut url = session.url(&format!("{}/referrers/{subject}", reference.repository()));
    url.query_pairs_mut().append_pair("artifactType", SIGNATURE_TYPE);
    let mut found = Vec::new();
    let mut next = Some(url);
    for page in 0..MAX_PAGES {
        let Some(url) = next else { break };
        let answer = session.send(&reading(WHAT, url.clone(), INDEX_TYPE, reference)).await?;
        // A registry without lists of referrers has a tag in place of a list.
        if page == 0 && answer.status() == StatusCode::NOT_FOUND {
            let index = fallback(session, reference, subject).await?;
            return Ok(signatures_of(index.map(|index| index.manifests).unwrap_or_default()));
        }
        let answer = success(session, WHAT, reference, answer).await?;
        next = next_page(session, &url, answer.headers(), WHAT)?;
        let index: Index = json(session, WHAT, answer).await?;
        // The registry may ignore the filter (OCI distribution specification, "Listing Referrers").
        found.extend(signatures_of(index.manifests));
        if found.len() > MAX_SIGNATURES {
            break;
        }
    }
    Ok(found)
}

fn signatures_of(manifests: Vec<Descriptor>) -> Vec<Descriptor> {
    let is_signature = |found: &Descriptor| found.artifact_type.as_deref() == Some(SIGNATURE_TYPE);
    manifests.into_iter().filter(is_signature).collect()
}

/// The tag of the list of a manifest's referrers (OCI distribution specification, "Referrers Tag Schema").
fn fallback_tag(subject: &Digest) -> String {
    format!("sha256-{}", subject.hex())
}

/// Reads the list below the fallback tag. `None` if there is none.
async fn fallback(session: &Session, reference: &Reference, subject: &Digest) -> Result<Option<Index>, RegistryError> {
    const WHAT: &str = "the list of signatures";
    let url = session.url(&format!("{}/manifests/{}", reference.repository(), fallback_tag(subject)));
    let answer = session.send(&reading(WHAT, url, INDEX_TYPE, reference)).await?;
    if answer.status() == StatusCode::NOT_FOUND {
        return Ok(None);
    }
    let answer = success(session, WHAT, reference, answer).await?;
    json(session, WHAT, answer).await.map(Some)
}

/// Uploads content, unless the repository has it.
async fn upload(
    session: &Session,
    reference: &Reference,
    (media_type, content): (&str, Bytes),
    progress: &dyn Progress,
) -> Result<(), RegistryError> {
    const WHAT: &str = "an upload";
    let digest = Digest::of(&content);
    let limit = time_for(length(&content));
    let writing = |method, url, body| Call {
        method,
        what: WHAT,
        url,
        accept: "*/*",
        body,
        scope: scope(reference, true),
        limit,
        sent: None,
    };
    let there = session.url(&format!("{}/blobs/{digest}", reference.repository()));
    if session.send(&writing(Method::HEAD, there, None)).await?.status().is_success() {
        progress.advance(length(&content));
        return Ok(());
    }
    let begin = session.url(&format!("{}/blobs/uploads/", reference.repository()));
    let begun = session.send(&writing(Method::POST, begin.clone(), Some((media_type, Bytes::new())))).await?;
    let begun = success(session, WHAT, reference, begun).await?;
    let location = begun.headers().get(LOCATION).and_then(|location| location.to_str().ok()).unwrap_or_default();
    let mut url = session.join(&begin, location, WHAT)?;
    url.query_pairs_mut().append_pair("digest", digest.as_str());
    let body = Some(("application/octet-stream", content));
    let sent = Arc::new(AtomicU64::new(0));
    let call = Call { sent: Some(Arc::clone(&sent)), ..writing(Method::PUT, url, body) };
    let ended = watched(session.send(&call), &sent, progress).await?;
    success(session, WHAT, reference, ended).await.map(drop)
}

/// Waits for the end of `sending`, and reports how many bytes have been sent.
async fn watched<T>(sending: impl Future<Output = T>, sent: &AtomicU64, progress: &dyn Progress) -> T {
    let mut sending = pin!(sending);
    let mut reported = 0;
    loop {
        let ended = timeout(REPORT_INTERVAL, &mut sending).await;
        // Less than before if the content is sent again after a challenge.
        let now = sent.load(Ordering::Relaxed);
        progress.advance(now.saturating_sub(reported));
        reported = reported.max(now);
        if let Ok(ended) = ended {
            return ended;
        }
    }
}

/// Stores a manifest under a tag or its digest. Returns the header fields of the answer.
async fn put(
    session: &Session,
    reference: &Reference,
    target: &str,
    body: (&str, Bytes),
) -> Result<HeaderMap, RegistryError> {
    const WHAT: &str = "the new manifest";
    let url = session.url(&format!("{}/manifests/{target}", reference.repository()));
    let call = Call {
        method: Method::PUT,
        what: WHAT,
        url,
        accept: "*/*",
        limit: time_for(length(&body.1)),
        body: Some(body),
        scope: scope(reference, true),
        sent: None,
    };
    let answer = session.send(&call).await?;
    let answer = success(session, WHAT, reference, answer).await?;
    Ok(answer.headers().clone())
}

/// The next page of a list (RFC 8288). A list that goes on at another server is refused.
fn next_page(
    session: &Session,
    from: &Url,
    headers: &HeaderMap,
    what: &'static str,
) -> Result<Option<Url>, RegistryError> {
    let Some(link) = headers.get(LINK).and_then(|link| link.to_str().ok()) else { return Ok(None) };
    let Some((target, _)) = link.strip_prefix('<').and_then(|link| link.split_once('>')) else { return Ok(None) };
    if !link.contains("rel=\"next\"") && !link.contains("rel=next") {
        return Ok(None);
    }
    let next = session.join(from, target, what)?;
    if next.origin() == from.origin() { Ok(Some(next)) } else { Err(session.redirect(what)) }
}

async fn success(
    session: &Session,
    what: &'static str,
    reference: &Reference,
    answer: Response,
) -> Result<Response, RegistryError> {
    match answer.status() {
        status if status.is_success() => Ok(answer),
        StatusCode::NOT_FOUND => Err(RegistryError::NotFound(reference.to_string())),
        _ => Err(session.status(what, answer).await),
    }
}

async fn bounded(
    session: &Session,
    what: &'static str,
    mut answer: Response,
    most: usize,
) -> Result<Vec<u8>, RegistryError> {
    let read = whole(&mut answer, most).await;
    read.map_err(|error| session.answer_error(what, &error.map_broken(reqwest::Error::without_url)))
}

async fn json<T: for<'de> Deserialize<'de>>(
    session: &Session,
    what: &'static str,
    answer: Response,
) -> Result<T, RegistryError> {
    let read = bounded(session, what, answer, MAX_MANIFEST_BYTES).await?;
    serde_json::from_slice(&read).map_err(|error| session.answer_error(what, &error))
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
