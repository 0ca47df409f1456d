//! An OCI registry in this process, which stores all pushed content (OCI distribution specification 1.1).

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// A registry on loopback. It ends with the process of the test.
#[derive(Clone)]
pub struct TestRegistry {
    host: String,
    /// The header field `Authorization` that each request must have.
    authorization: Option<String>,
    contents: Arc<Mutex<RegistryContents>>,
}

#[derive(Default)]
struct RegistryContents {
    blobs: BTreeMap<String, Bytes>,
    /// Manifests by repository and by tag or digest.
    manifests: BTreeMap<(String, String), Bytes>,
}

impl TestRegistry {
    /// Starts a registry that serves everybody.
    ///
    /// # Panics
    /// No port is free.
    #[must_use]
    pub fn start() -> Self {
        Self::serve(None)
    }

    /// Starts a registry that serves one user.
    ///
    /// # Panics
    /// No port is free.
    #[must_use]
    pub fn with_login(user: &str, password: &str) -> Self {
        Self::serve(Some(format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))))
    }

    fn serve(authorization: Option<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a socket");
        let host = listener.local_addr().expect("an address").to_string();
        let registry = Self { host, authorization, contents: Arc::default() };
        let router = Router::new().fallback(answer).with_state(registry.clone());
        // A thread of its own, because the tests of programs have no runtime.
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                axum::serve(listener, router).await.expect("served");
            });
        });
        registry
    }

    /// The host and the port.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The reference of a component, such as `acme/redact:1.2`, in this registry.
    #[must_use]
    pub fn reference(&self, name: &str) -> String {
        format!("oci://{}/{name}", self.host)
    }

    /// Changes the last byte of each blob.
    pub fn corrupt_blobs(&self) {
        for blob in self.lock().blobs.values_mut() {
            let mut bytes = blob.to_vec();
            if let Some(last) = bytes.last_mut() {
                *last ^= 1;
            }
            *blob = bytes.into();
        }
    }

    /// Lets one tag of a repository mean the manifest of another tag.
    ///
    /// # Panics
    /// The other tag is missing.
    pub fn move_tag(&self, repository: &str, tag: &str, to: &str) {
        let mut contents = self.lock();
        let manifest = contents.manifests.get(&(repository.to_owned(), to.to_owned())).expect("a manifest").clone();
        contents.manifests.insert((repository.to_owned(), tag.to_owned()), manifest);
    }

    fn lock(&self) -> MutexGuard<'_, RegistryContents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admits(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(header::AUTHORIZATION).map(|given| given.as_bytes());
        self.authorization.as_ref().is_none_or(|expected| given == Some(expected.as_bytes()))
    }

    fn manifest(&self, repository: &str, target: &str) -> Response {
        let found = self.lock().manifests.get(&(repository.to_owned(), target.to_owned())).cloned();
        let found = found.map(|manifest| ([(header::CONTENT_TYPE, MANIFEST)], manifest));
        found.map_or_else(|| StatusCode::NOT_FOUND.into_response(), IntoResponse::into_response)
    }

    fn put_manifest(&self, repository: &str, target: &str, body: Bytes) -> Response {
        let digest = digest(&body);
        let read: Value = serde_json::from_slice(&body).unwrap_or_default();
        let mut contents = self.lock();
        contents.manifests.insert((repository.to_owned(), target.to_owned()), body.clone());
        contents.manifests.insert((repository.to_owned(), digest.clone()), body);
        if read.get("subject").is_none() {
            return StatusCode::CREATED.into_response();
        }
        (StatusCode::CREATED, [("oci-subject", digest)]).into_response()
    }

    fn referrers(&self, repository: &str, subject: &str) -> Response {
        let contents = self.lock();
        let mut found = Vec::new();
        for ((of, target), manifest) in &contents.manifests {
            let read: Value = serde_json::from_slice(manifest).unwrap_or_default();
            if of == repository
                && target.starts_with("sha256:")
                && read.pointer("/subject/digest").is_some_and(|of| of == subject)
            {
                let (size, kind) = (manifest.len(), read.get("artifactType"));
                found.push(json!({"mediaType": MANIFEST, "digest": target, "size": size, "artifactType": kind}));
            }
        }
        axum::Json(json!({"schemaVersion": 2, "manifests": found})).into_response()
    }

    fn tags(&self, repository: &str) -> Response {
        let contents = self.lock();
        let own = contents.manifests.keys().filter(|(of, target)| of == repository && !target.contains(':'));
        let tags: Vec<&str> = own.map(|(_, target)| target.as_str()).collect();
        axum::Json(json!({"name": repository, "tags": tags})).into_response()
    }

    fn end_upload(&self, query: &str, body: Bytes) -> Response {
        let digest = digest(&body);
        if !query.contains(digest.trim_start_matches("sha256:")) {
            return StatusCode::BAD_REQUEST.into_response();
        }
        self.lock().blobs.insert(digest, body);
        StatusCode::CREATED.into_response()
    }
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(bytes))
}

async fn answer(State(registry): State<TestRegistry>, request: Request) -> Response {
    if !registry.admits(request.headers()) {
        return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Basic realm=\"test\"")]).into_response();
    }
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let query = request.uri().query().unwrap_or_default().to_owned();
    let Ok(body) = axum::body::to_bytes(request.into_body(), usize::MAX).await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let Some(rest) = path.strip_prefix("/v2/") else { return StatusCode::NOT_FOUND.into_response() };
    if rest.is_empty() {
        return StatusCode::OK.into_response();
    }
    if let Some(repository) = rest.strip_suffix("/blobs/uploads/") {
        let location = format!("/v2/{repository}/blobs/uploads/1");
        return (StatusCode::ACCEPTED, [(header::LOCATION, location)]).into_response();
    }
    if rest.ends_with("/blobs/uploads/1") {
        return registry.end_upload(&query, body);
    }
    if let Some(repository) = rest.strip_suffix("/tags/list") {
        return registry.tags(repository);
    }
    if let Some((repository, subject)) = rest.split_once("/referrers/") {
        return registry.referrers(repository, subject);
    }
    if let Some((repository, target)) = rest.split_once("/manifests/") {
        return match method {
            Method::PUT => registry.put_manifest(repository, target, body),
            _ => registry.manifest(repository, target),
        };
    }
    let blob = rest.split_once("/blobs/").and_then(|(_, digest)| registry.lock().blobs.get(digest).cloned());
    blob.map_or_else(|| StatusCode::NOT_FOUND.into_response(), IntoResponse::into_response)
}
