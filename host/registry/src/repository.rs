//! Requests about one repository of a registry: manifests, blobs, lists and uploads.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use annex_egress::{Body, whole};
use bytes::Bytes;
use reqwest::header::{HeaderMap, LOCATION};
use reqwest::{Method, Response, StatusCode};
use serde::Deserialize;
use tokio::time::timeout;
use url::Url;

use crate::MAX_MANIFEST_BYTES;
use crate::client::{Progress, Resolved};
use crate::digest::Digest;
use crate::error::RegistryError;
use crate::link;
use crate::manifest::{Descriptor, INDEX_TYPE, Index, Layer, MANIFEST_TYPE, Referrer, component_layer, referrer_layer};
use crate::reference::Reference;
use crate::session::{ANSWER_TIME, Call, Session};

/// The maximum number of pages of a list that are read.
const MAX_PAGES: usize = 10;
/// The time without a byte after which a transfer counts as broken off.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// The slowest transfer that is waited for, in bytes per second.
const SLOWEST: u64 = 20_000;
/// The time between two reports of the progress of an upload.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// The repository of a reference.
pub(crate) struct Repository<'a> {
    pub(crate) session: Arc<Session>,
    pub(crate) reference: &'a Reference,
}

#[derive(Deserialize)]
struct TagList {
    #[serde(default)]
    tags: Option<Vec<String>>,
}

impl Repository<'_> {
    /// Finds out which manifest the reference names now.
    pub(crate) async fn resolve(&self) -> Result<Resolved, RegistryError> {
        let reference = self.reference;
        let (manifest, digest) = self.manifest(reference.target(), reference.digest()).await?;
        let layer = component_layer(&manifest);
        let layer =
            layer.map_err(|source| RegistryError::Manifest { reference: Box::new(reference.clone()), source })?;
        Ok(Resolved { digest, manifest, layer })
    }

    /// Reads a manifest, whose digest is `expected` if that is known.
    pub(crate) async fn manifest(
        &self,
        target: &str,
        expected: Option<&Digest>,
    ) -> Result<(Vec<u8>, Digest), RegistryError> {
        const WHAT: &str = "the manifest";
        let url = self.url(&format!("manifests/{target}"));
        let answer = self.read(WHAT, url, MANIFEST_TYPE).await?;
        let answer = self.success(WHAT, answer).await?;
        // The header says what the registry believes; it is not compared, because only the content counts.
        let read = self.bounded(WHAT, answer).await?;
        let found = Digest::of(&read);
        match expected {
            Some(expected) if *expected != found => {
                let (registry, expected) = (self.session.registry.clone(), expected.clone());
                Err(RegistryError::Digest { registry, expected, found })
            }
            _ => Ok((read, found)),
        }
    }

    /// Reads content of a known digest and size.
    pub(crate) async fn blob(
        &self,
        layer: &Layer,
        what: &'static str,
        progress: &dyn Progress,
    ) -> Result<Vec<u8>, RegistryError> {
        let Layer { digest, size } = layer;
        let url = self.url(&format!("blobs/{digest}"));
        let call = Call { limit: time_for(*size), ..self.reading(what, url, "application/octet-stream") };
        let answer = self.session.send(&call).await?;
        let mut answer = self.success(what, answer).await?;
        progress.begin(*size);
        let other_size = |found| {
            let (registry, digest) = (self.session.registry.clone(), digest.clone());
            RegistryError::Size { registry, digest, expected: *size, found }
        };
        let mut read = Vec::new();
        while let Some(piece) = self.next_piece(what, &mut answer).await? {
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
        Err(RegistryError::Digest { registry: self.session.registry.clone(), expected: digest.clone(), found })
    }

    /// The next piece of an answer, which has to come soon.
    async fn next_piece(&self, what: &'static str, answer: &mut Response) -> Result<Option<Bytes>, RegistryError> {
        let wrong = |error: &dyn std::error::Error| self.session.answer_error(what, error);
        let piece = timeout(READ_TIMEOUT, answer.next()).await.map_err(|late| wrong(&late))?;
        piece.map_err(|error| wrong(&error.without_url()))
    }

    /// The signatures or the SBOMs of a manifest, sorted by the digests of their own manifests.
    pub(crate) async fn referring_layers(&self, subject: &Digest, kind: Referrer) -> Result<Vec<Layer>, RegistryError> {
        let found = self.referrers(subject, kind).await?;
        // A registry can list one again.
        let found: BTreeSet<Digest> = found.into_iter().map(|descriptor| descriptor.digest).collect();
        if found.len() > kind.max_number() {
            let (reference, what, most) = (self.reference.to_string(), kind.plural(), kind.max_number());
            return Err(RegistryError::TooMany { reference, what, most });
        }
        let mut layers = Vec::with_capacity(found.len());
        for digest in found {
            let (read, _) = self.manifest(digest.as_str(), Some(&digest)).await?;
            let layer = referrer_layer(kind, &read, subject).map_err(|source| {
                let reference = Box::new(self.reference.with_digest(&digest));
                RegistryError::Manifest { reference, source }
            })?;
            layers.push(layer);
        }
        Ok(layers)
    }

    /// The manifests that name `subject` and say that they are of this kind.
    async fn referrers(&self, subject: &Digest, kind: Referrer) -> Result<Vec<Descriptor>, RegistryError> {
        let what = kind.list();
        let mut url = self.url(&format!("referrers/{subject}"));
        url.query_pairs_mut().append_pair("artifactType", kind.media_type());
        let mut found = Vec::new();
        let mut next = Some(url);
        for page in 0..MAX_PAGES {
            let Some(url) = next else { return Ok(found) };
            let answer = self.read(what, url.clone(), INDEX_TYPE).await?;
            // A registry without lists of referrers has a tag in place of a list.
            if page == 0 && answer.status() == StatusCode::NOT_FOUND {
                let index = self.fallback(subject, what).await?;
                return Ok(of_kind(kind, index.map(|index| index.manifests).unwrap_or_default()));
            }
            let answer = self.success(what, answer).await?;
            next = self.next_page(&url, answer.headers(), what)?;
            let index: Index = self.json(what, answer).await?;
            // The registry may ignore the filter (OCI distribution specification, "Listing Referrers").
            found.extend(of_kind(kind, index.manifests));
            if found.len() > kind.max_number() {
                return Ok(found);
            }
        }
        self.all_pages(next.as_ref(), what)?;
        Ok(found)
    }

    /// Reads the list below the fallback tag. `None` if there is none. `what` is the name of the list in errors.
    pub(crate) async fn fallback(&self, subject: &Digest, what: &'static str) -> Result<Option<Index>, RegistryError> {
        let url = self.url(&format!("manifests/{}", fallback_tag(subject)));
        let answer = self.read(what, url, INDEX_TYPE).await?;
        if answer.status() == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let answer = self.success(what, answer).await?;
        self.json(what, answer).await.map(Some)
    }

    /// The tags, as the registry sorts them.
    pub(crate) async fn tags(&self) -> Result<Vec<String>, RegistryError> {
        const WHAT: &str = "the list of tags";
        let mut tags = Vec::new();
        let mut next = Some(self.url("tags/list"));
        for _ in 0..MAX_PAGES {
            let Some(url) = next else { return Ok(tags) };
            let answer = self.read(WHAT, url.clone(), "application/json").await?;
            let answer = self.success(WHAT, answer).await?;
            next = self.next_page(&url, answer.headers(), WHAT)?;
            let page: TagList = self.json(WHAT, answer).await?;
            tags.extend(page.tags.unwrap_or_default());
        }
        self.all_pages(next.as_ref(), WHAT)?;
        Ok(tags)
    }

    /// The next page of a list (RFC 8288). A list that goes on at another server is refused.
    fn next_page(&self, from: &Url, headers: &HeaderMap, what: &'static str) -> Result<Option<Url>, RegistryError> {
        let Some(target) = link::next_target(headers) else { return Ok(None) };
        let next = self.session.join(from, target, what)?;
        if next.origin() == from.origin() { Ok(Some(next)) } else { Err(self.session.redirect(what)) }
    }

    /// Refuses a list with more pages than are read.
    fn all_pages(&self, next: Option<&Url>, what: &'static str) -> Result<(), RegistryError> {
        if next.is_none() {
            return Ok(());
        }
        Err(RegistryError::TooManyPages { registry: self.session.registry.clone(), what, pages: MAX_PAGES })
    }

    /// Uploads content, unless the repository has it.
    pub(crate) async fn upload(
        &self,
        (media_type, content): (&str, Bytes),
        progress: &dyn Progress,
    ) -> Result<(), RegistryError> {
        const WHAT: &str = "an upload";
        let digest = Digest::of(&content);
        let limit = time_for(length(&content));
        let writing = |method, url, body| Call { limit, ..self.writing(WHAT, method, url, body) };
        let there = self.url(&format!("blobs/{digest}"));
        if self.session.send(&writing(Method::HEAD, there, None)).await?.status().is_success() {
            progress.advance(length(&content));
            return Ok(());
        }
        let begin = self.url("blobs/uploads/");
        let begun = self.session.send(&writing(Method::POST, begin.clone(), Some((media_type, Bytes::new())))).await?;
        let begun = self.success(WHAT, begun).await?;
        let location = begun.headers().get(LOCATION).and_then(|location| location.to_str().ok()).unwrap_or_default();
        let mut url = self.session.join(&begin, location, WHAT)?;
        url.query_pairs_mut().append_pair("digest", digest.as_str());
        let body = Some(("application/octet-stream", content));
        let sent = Arc::new(AtomicU64::new(0));
        let call = Call { sent: Some(Arc::clone(&sent)), ..writing(Method::PUT, url, body) };
        let ended = watched(self.session.send(&call), &sent, progress).await?;
        self.success(WHAT, ended).await.map(drop)
    }

    /// Stores a manifest under a tag or its digest. Returns the header fields of the answer.
    pub(crate) async fn put(&self, target: &str, body: (&str, Bytes)) -> Result<HeaderMap, RegistryError> {
        const WHAT: &str = "the new manifest";
        let limit = time_for(length(&body.1));
        let url = self.url(&format!("manifests/{target}"));
        let call = Call { limit, ..self.writing(WHAT, Method::PUT, url, Some(body)) };
        let answer = self.session.send(&call).await?;
        let answer = self.success(WHAT, answer).await?;
        Ok(answer.headers().clone())
    }

    /// The URL of a path below the repository.
    fn url(&self, path: &str) -> Url {
        self.session.url(&format!("{}/{path}", self.reference.repository()))
    }

    async fn read(&self, what: &'static str, url: Url, accept: &'static str) -> Result<Response, RegistryError> {
        self.session.send(&self.reading(what, url, accept)).await
    }

    fn reading(&self, what: &'static str, url: Url, accept: &'static str) -> Call<'static> {
        let (method, scope, limit) = (Method::GET, self.scope("pull"), ANSWER_TIME);
        Call { method, what, url, accept, body: None, scope, limit, sent: None }
    }

    fn writing<'c>(&self, what: &'static str, method: Method, url: Url, body: Option<(&'c str, Bytes)>) -> Call<'c> {
        let (accept, scope, limit) = ("*/*", self.scope("pull,push"), ANSWER_TIME);
        Call { method, what, url, accept, body, scope, limit, sent: None }
    }

    /// The token that a request needs (the CNCF's distribution registry, "Token Scope").
    fn scope(&self, actions: &str) -> String {
        format!("repository:{}:{actions}", self.reference.repository())
    }

    async fn success(&self, what: &'static str, answer: Response) -> Result<Response, RegistryError> {
        match answer.status() {
            status if status.is_success() => Ok(answer),
            StatusCode::NOT_FOUND => Err(RegistryError::NotFound(self.reference.to_string())),
            _ => Err(self.session.status(what, answer).await),
        }
    }

    /// Reads a manifest, an index or a list.
    async fn bounded(&self, what: &'static str, mut answer: Response) -> Result<Vec<u8>, RegistryError> {
        let read = whole(&mut answer, MAX_MANIFEST_BYTES).await;
        read.map_err(|error| self.session.answer_error(what, &error.map_broken(reqwest::Error::without_url)))
    }

    async fn json<T: for<'de> Deserialize<'de>>(
        &self,
        what: &'static str,
        answer: Response,
    ) -> Result<T, RegistryError> {
        let read = self.bounded(what, answer).await?;
        serde_json::from_slice(&read).map_err(|error| self.session.answer_error(what, &error))
    }
}

fn of_kind(kind: Referrer, manifests: Vec<Descriptor>) -> Vec<Descriptor> {
    let is_of_kind = |found: &Descriptor| found.artifact_type.as_deref() == Some(kind.media_type());
    manifests.into_iter().filter(is_of_kind).collect()
}

/// The tag of the list of a manifest's referrers (OCI distribution specification, "Referrers Tag Schema").
pub(crate) fn fallback_tag(subject: &Digest) -> String {
    format!("sha256-{}", subject.hex())
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

/// The maximum time of a transfer of this size.
fn time_for(bytes: u64) -> Duration {
    ANSWER_TIME.saturating_add(Duration::from_secs(bytes / SLOWEST))
}

pub(crate) fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
