//! A registry in this process. It keeps what is pushed, and lies on demand.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use annex_registry::Digest;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::net::TcpListener;

const SIGNATURE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
/// `ada:secret` in base64.
const PASSWORD: &str = "Basic YWRhOnNlY3JldA==";
const TOKEN: &str = "the-token";

/// A way to lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    OtherManifest,
    OtherComponent,
    LongerComponent,
    ShorterComponent,
    EndlessComponent,
    HugeManifest,
    Fails,
    SecondLayer,
    NoLayer,
    ForeignLayer,
    ForeignConfig,
    AnIndex,
    AlsoAnIndex,
    /// Answers an upload late.
    SlowUpload,
    DrippingManifest,
    DrippingComponent,
    LongType,
    LongVersion,
    HugeLayer,
    ReferrersFail,
    ReferrersAreNoJson,
    SignatureOfAnother,
    SignaturesTwice,
    /// Each page of a list has a next page.
    EndlessPages,
    /// The tags are on a second page, which the second of two `Link` fields names.
    TagsOnSecondPage,
}

#[derive(Clone)]
pub(crate) struct FakeRegistry {
    host: String,
    contents: Arc<Mutex<Contents>>,
}

#[derive(Default)]
struct Contents {
    blobs: BTreeMap<String, Bytes>,
    /// Manifests by repository and by tag or digest.
    manifests: BTreeMap<(String, String), Bytes>,
    lie: Option<Lie>,
    has_no_referrers: bool,
    /// True if a token is wanted, and false if a password is.
    protected: Option<bool>,
    token_server: Option<String>,
    redirect: Option<String>,
    /// The requests, each with its method, its path and the names of its header fields.
    requests: Vec<String>,
}

impl FakeRegistry {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let host = listener.local_addr().expect("an address").to_string();
        let registry = Self { host, contents: Arc::default() };
        let router = Router::new().fallback(answer).with_state(registry.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        registry
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn lie(&self, lie: Lie) {
        self.lock().lie = Some(lie);
    }

    pub(crate) fn keep_referrers(&self, keeps: bool) {
        self.lock().has_no_referrers = !keeps;
    }

    pub(crate) fn protect(&self, by_token: bool) {
        self.lock().protected = Some(by_token);
    }

    pub(crate) fn ask_for_tokens_at(&self, realm: String) {
        let mut contents = self.lock();
        contents.protected = Some(true);
        contents.token_server = Some(realm);
    }

    pub(crate) fn redirect_blobs(&self, url: String) {
        self.lock().redirect = Some(url);
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.lock().requests.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to a request without the right credentials. `None` if the request may be served.
    fn challenge(&self, headers: &HeaderMap) -> Option<Response> {
        let contents = self.lock();
        let by_token = contents.protected?;
        let expected = if by_token { format!("Bearer {TOKEN}") } else { PASSWORD.to_owned() };
        if headers.get(header::AUTHORIZATION).is_some_and(|given| given.as_bytes() == expected.as_bytes()) {
            return None;
        }
        let realm = contents.token_server.clone().unwrap_or_else(|| format!("http://{}/token", self.host));
        let challenge = match by_token {
            true => format!("Bearer realm=\"{realm}\",service=\"fake\",scope=\"repository:other:pull,push\""),
            false => "Basic realm=\"fake\"".to_owned(),
        };
        Some((StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, challenge)]).into_response())
    }

    fn token(&self, request: &Request) -> Response {
        let is_known = request.headers().get(header::AUTHORIZATION).is_some_and(|given| given == PASSWORD);
        // The scope is the one that the client needs, and not the one of the challenge.
        let is_asked = request.uri().query().is_some_and(|query| query.contains("acme%2Fredact"));
        match is_known && is_asked {
            true => axum::Json(json!({"token": TOKEN})).into_response(),
            false => StatusCode::FORBIDDEN.into_response(),
        }
    }

    fn manifest(&self, repository: &str, target: &str) -> Response {
        let contents = self.lock();
        let Some(found) = contents.manifests.get(&(repository.to_owned(), target.to_owned())) else {
            return StatusCode::NOT_FOUND.into_response();
        };
        let mut manifest: Value = serde_json::from_slice(found).expect("JSON");
        match contents.lie {
            Some(Lie::Fails) => {
                return (StatusCode::INTERNAL_SERVER_ERROR, "out of order\n\u{1b}").into_response();
            }
            Some(Lie::HugeManifest) => return vec![b' '; (1 << 20) + 1].into_response(),
            Some(Lie::OtherManifest) => manifest["annotations"] = json!({"other": "content"}),
            Some(Lie::SecondLayer) => {
                let first = manifest["layers"][0].clone();
                manifest["layers"] = json!([first, first]);
            }
            Some(Lie::NoLayer) => manifest["layers"] = json!([]),
            Some(Lie::ForeignLayer) => manifest["layers"][0]["mediaType"] = json!("application/x-sh"),
            Some(Lie::ForeignConfig) => manifest["config"]["mediaType"] = json!("application/json"),
            Some(Lie::AnIndex) => manifest["mediaType"] = json!("application/vnd.oci.image.index.v1+json"),
            Some(Lie::AlsoAnIndex) => manifest["manifests"] = json!([]),
            Some(Lie::DrippingManifest) => return dripping(found.clone()),
            Some(Lie::LongType) => manifest["config"]["mediaType"] = json!("\u{1b}".repeat(100_000)),
            Some(Lie::LongVersion) => manifest["schemaVersion"] = json!("x".repeat(100_000)),
            Some(Lie::HugeLayer) => manifest["layers"][0]["size"] = json!(99_999_999_999_u64),
            _ => return found.clone().into_response(),
        }
        manifest.to_string().into_response()
    }

    fn blob(&self, digest: &str) -> Response {
        let contents = self.lock();
        if let Some(url) = &contents.redirect {
            return (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, url.clone())]).into_response();
        }
        let Some(blob) = contents.blobs.get(digest) else { return StatusCode::NOT_FOUND.into_response() };
        match contents.lie {
            Some(Lie::OtherComponent) => vec![b'x'; blob.len()].into_response(),
            Some(Lie::LongerComponent) => [blob, &b"x"[..]].concat().into_response(),
            Some(Lie::ShorterComponent) => blob.slice(1..).into_response(),
            Some(Lie::EndlessComponent) => {
                let pieces = std::iter::repeat_with(|| Ok::<_, std::io::Error>(Bytes::from_static(&[0; 1_000])));
                Body::from_stream(futures::stream::iter(pieces)).into_response()
            }
            Some(Lie::DrippingComponent) => dripping(blob.clone()),
            _ => blob.clone().into_response(),
        }
    }

    fn referrers(&self, repository: &str, subject: &str) -> Response {
        let contents = self.lock();
        match contents.lie {
            Some(Lie::ReferrersFail) => return StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            Some(Lie::ReferrersAreNoJson) => return "no JSON".into_response(),
            _ if contents.has_no_referrers => return StatusCode::NOT_FOUND.into_response(),
            _ => {}
        }
        let mut found = Vec::new();
        for ((of, target), manifest) in &contents.manifests {
            let read: Value = serde_json::from_slice(manifest).expect("JSON");
            let is_referrer = read["subject"]["digest"] == subject;
            let is_claimed = contents.lie == Some(Lie::SignatureOfAnother) && read["subject"].is_null();
            if of == repository && target.starts_with("sha256:") && (is_referrer || is_claimed) {
                let descriptor = json!({
                    "mediaType": "application/vnd.oci.image.manifest.v1+json",
                    "digest": target,
                    "size": manifest.len(),
                    "artifactType": if is_claimed { json!(SIGNATURE) } else { read["artifactType"].clone() },
                });
                found.push(descriptor);
            }
        }
        if contents.lie == Some(Lie::SignaturesTwice) {
            found.extend(found.clone());
        }
        let mut answer = axum::Json(json!({"schemaVersion": 2, "manifests": found})).into_response();
        if contents.lie == Some(Lie::EndlessPages) {
            link(&mut answer, &format!("/v2/{repository}/referrers/{subject}"), "next");
        }
        answer
    }

    fn store(&self, repository: &str, target: &str, body: Bytes) -> Response {
        let mut contents = self.lock();
        let digest = Digest::of(&body).to_string();
        let is_signature = serde_json::from_slice::<Value>(&body).is_ok_and(|read| !read["subject"].is_null());
        contents.manifests.insert((repository.to_owned(), target.to_owned()), body.clone());
        contents.manifests.insert((repository.to_owned(), digest.clone()), body);
        match is_signature && !contents.has_no_referrers {
            true => (StatusCode::CREATED, [("oci-subject", digest)]).into_response(),
            false => StatusCode::CREATED.into_response(),
        }
    }
}

fn link(answer: &mut Response, target: &str, relation: &str) {
    let field = format!("<{target}>; rel=\"{relation}\"").parse().expect("a field");
    answer.headers_mut().append(header::LINK, field);
}

/// A page of the list of tags.
fn tags(registry: &FakeRegistry, repository: &str, path: &str, query: &str) -> Response {
    let contents = registry.lock();
    let is_tag = |(of, target): &&(String, String)| of == repository && !target.contains("sha256");
    let tags: Vec<&String> = contents.manifests.keys().filter(is_tag).map(|(_, target)| target).collect();
    let lie = contents.lie;
    let is_first = lie == Some(Lie::TagsOnSecondPage) && query.is_empty();
    let shown = if is_first { Vec::new() } else { tags };
    let mut answer = axum::Json(json!({"name": repository, "tags": shown})).into_response();
    if is_first {
        link(&mut answer, path, "first");
        link(&mut answer, &format!("{path}?last=1"), "next");
    } else if lie == Some(Lie::EndlessPages) {
        link(&mut answer, path, "next");
    }
    answer
}

/// Each byte comes so late that the connection is not quite broken off. The clock stands still from now on.
fn dripping(content: Bytes) -> Response {
    tokio::time::pause();
    let pieces = futures::stream::iter(content).then(|byte| async move {
        tokio::time::sleep(Duration::from_secs(25)).await;
        Ok::<_, std::io::Error>(Bytes::copy_from_slice(&[byte]))
    });
    Body::from_stream(pieces).into_response()
}

async fn answer(State(registry): State<FakeRegistry>, request: Request) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let names: Vec<String> = request.headers().keys().map(ToString::to_string).collect();
    registry.lock().requests.push(format!("{method} {path} {}", names.join(" ")));
    if path == "/token" {
        return registry.token(&request);
    }
    if let Some(challenge) = registry.challenge(request.headers()) {
        return challenge;
    }
    let query = request.uri().query().unwrap_or_default().to_owned();
    let body = axum::body::to_bytes(request.into_body(), usize::MAX).await.expect("a body");
    let Some(rest) = path.strip_prefix("/v2/") else { return StatusCode::NOT_FOUND.into_response() };
    if rest == "loop" {
        let location = format!("http://{}/v2/loop", registry.host);
        return (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, location)]).into_response();
    }
    if let Some(repository) = rest.strip_suffix("/blobs/uploads/") {
        // Like Debian's registry, with a query of its own.
        let location = format!("/v2/{repository}/blobs/uploads/1?_state=x");
        return (StatusCode::ACCEPTED, [(header::LOCATION, location)]).into_response();
    }
    if rest.contains("/blobs/uploads/") {
        let digest = Digest::of(&body).to_string();
        assert!(
            query.starts_with("_state=x&digest=") && query.contains(digest.trim_start_matches("sha256:")),
            "{query}"
        );
        let is_slow = registry.lock().lie == Some(Lie::SlowUpload);
        if is_slow {
            tokio::time::pause();
            tokio::time::sleep(Duration::from_secs(40)).await;
            tokio::time::resume();
        }
        registry.lock().blobs.insert(digest, body);
        return StatusCode::CREATED.into_response();
    }
    if let Some((_, digest)) = rest.split_once("/blobs/") {
        return registry.blob(digest);
    }
    if let Some((repository, subject)) = rest.split_once("/referrers/") {
        return registry.referrers(repository, subject);
    }
    if let Some(repository) = rest.strip_suffix("/tags/list") {
        return tags(&registry, repository, &path, &query);
    }
    match rest.split_once("/manifests/") {
        Some((repository, target)) if method == Method::PUT => registry.store(repository, target, body),
        Some((repository, target)) => registry.manifest(repository, target),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
