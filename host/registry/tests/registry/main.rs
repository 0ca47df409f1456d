//! Pulls and pushes at a registry in this process, which lies on demand.
#![cfg(test)]

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU64, Ordering};

use annex_registry::{
    Cache, Client, ClientConfig, Digest, Layer, Login, MAX_SBOM_BYTES, MAX_SBOMS, MAX_SIGNATURES, Progress, Pulled,
    Reference, RegistryError,
};

use crate::fake::{FakeRegistry, Lie};

mod credentials;
mod fake;
mod layout;

const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0 and further bytes";
const SBOM: &[u8] = b"{\"bomFormat\":\"CycloneDX\",\"specVersion\":\"1.5\"}";
const BUNDLE: &[u8] = b"{\"mediaType\":\"application/vnd.dev.sigstore.bundle.v0.3+json\"}";

fn reference(registry: &FakeRegistry) -> Reference {
    format!("oci://{}/acme/redact:1.2", registry.host()).parse().expect("a reference")
}

fn client() -> Client {
    Client::new(ClientConfig::default())
}

fn with_login(registry: &FakeRegistry, user: &str, password: &str) -> Client {
    let login = Login { user: user.to_owned(), password: password.to_owned() };
    Client::new(ClientConfig {
        logins: BTreeMap::from([(registry.host().to_owned(), login)]),
        ..ClientConfig::default()
    })
}

async fn push(client: &Client, reference: &Reference) -> Digest {
    client.push(reference, COMPONENT.into(), BTreeMap::new(), &()).await.expect("pushed")
}

async fn refusal(lie: Lie) -> String {
    let registry = FakeRegistry::start().await;
    let (client, reference) = (client(), reference(&registry));
    let digest = push(&client, &reference).await;
    registry.lie(lie);
    let pulled = client.pull(&reference.with_digest(&digest), &()).await;
    pulled.err().unwrap_or_else(|| panic!("{lie:?} is believed")).to_string()
}

#[tokio::test]
async fn a_component_comes_back_as_it_was_pushed() {
    let registry = FakeRegistry::start().await;
    let (client, reference) = (client(), reference(&registry));
    let digest = push(&client, &reference).await;
    let pulled = client.pull(&reference, &()).await.expect("a component");
    assert_eq!((&pulled.manifest_digest, pulled.component.as_slice()), (&digest, COMPONENT));
    assert_eq!(pulled.component_digest, Digest::of(COMPONENT));
    assert_eq!(client.tags(&reference).await.expect("tags"), ["1.2"]);
    // Pushed again, it is the same.
    assert_eq!(push(&client, &reference).await, digest);
    let missing: Reference = format!("{}/acme/other", registry.host()).parse().expect("a reference");
    assert!(matches!(client.pull(&missing, &()).await, Err(RegistryError::NotFound(_))));
}

/// Adds up the bytes of a transfer.
#[derive(Default)]
struct Sum(AtomicU64, AtomicU64);

impl Progress for Sum {
    fn begin(&self, total: u64) {
        self.0.store(total, Ordering::Relaxed);
    }

    fn advance(&self, bytes: u64) {
        self.1.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn progress_is_reported_for_each_byte_of_a_transfer() {
    let registry = FakeRegistry::start().await;
    registry.protect(false);
    let (client, reference) = (with_login(&registry, "ada", "secret"), reference(&registry));
    let component: Vec<u8> = (0..300_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    // The second push finds the component at the registry.
    for _ in 0..2 {
        let sum = Sum::default();
        client.push(&reference, component.clone().into(), BTreeMap::new(), &sum).await.expect("pushed");
        assert_eq!((sum.0.into_inner(), sum.1.into_inner()), (300_000, 300_000));
    }
    let sum = Sum::default();
    assert_eq!(client.pull(&reference, &sum).await.expect("pulled").component, component);
    assert_eq!((sum.0.into_inner(), sum.1.into_inner()), (300_000, 300_000));
}

#[tokio::test]
async fn signatures_are_found_with_and_without_lists_of_referrers() {
    for has_referrers in [true, false] {
        let registry = FakeRegistry::start().await;
        registry.keep_referrers(has_referrers);
        let (client, reference) = (client(), reference(&registry));
        push(&client, &reference).await;
        let resolved = client.resolve(&reference).await.expect("a manifest");
        assert!(client.signatures(&reference, &resolved.digest).await.expect("none").is_empty());
        for bundle in [BUNDLE, b"{}", BUNDLE] {
            client.push_signature(&reference, &resolved, bundle.into()).await.expect("signed");
        }
        let mut signatures = client.signatures(&reference, &resolved.digest).await.expect("signatures");
        signatures.sort();
        assert_eq!(signatures, [BUNDLE, b"{}"], "{has_referrers}");
        registry.lie(Lie::SignaturesTwice);
        assert_eq!(client.signatures(&reference, &resolved.digest).await.expect("signatures").len(), 2);
    }
}

#[tokio::test]
async fn sboms_are_stored_beside_signatures_and_are_none() {
    for has_referrers in [true, false] {
        let registry = FakeRegistry::start().await;
        registry.keep_referrers(has_referrers);
        let (client, reference) = (client(), reference(&registry));
        push(&client, &reference).await;
        let resolved = client.resolve(&reference).await.expect("a manifest");
        assert!(client.sboms(&reference, &resolved.digest).await.expect("none").is_empty());
        client.push_signature(&reference, &resolved, BUNDLE.into()).await.expect("signed");
        // Pushed again, it is the same.
        for _ in 0..2 {
            client.push_sbom(&reference, &resolved, SBOM.into()).await.expect("pushed");
        }
        let sboms = client.sboms(&reference, &resolved.digest).await.expect("SBOMs");
        let expected = Layer { digest: Digest::of(SBOM), size: SBOM.len() as u64 };
        assert_eq!(sboms, std::slice::from_ref(&expected), "{has_referrers}");
        assert_eq!(client.pull_sbom(&reference, &expected).await.expect("an SBOM"), SBOM);
        assert_eq!(client.signatures(&reference, &resolved.digest).await.expect("signatures"), [BUNDLE]);
    }
}

#[tokio::test]
async fn too_many_or_too_large_sboms_and_a_registry_that_fails_are_errors() {
    let registry = FakeRegistry::start().await;
    let (client, reference) = (client(), reference(&registry));
    push(&client, &reference).await;
    let resolved = client.resolve(&reference).await.expect("a manifest");
    let refused = async || client.sboms(&reference, &resolved.digest).await.expect_err("refused").to_string();
    for number in 0..=MAX_SBOMS {
        client.push_sbom(&reference, &resolved, number.to_string().into()).await.expect("pushed");
    }
    assert!(refused().await.contains("has more than 10 SBOMs"));
    registry.lie(Lie::ReferrersFail);
    assert!(refused().await.contains("answers the list of SBOMs with the status 500"));

    let registry = FakeRegistry::start().await;
    let reference = self::reference(&registry);
    push(&client, &reference).await;
    let resolved = client.resolve(&reference).await.expect("a manifest");
    client.push_sbom(&reference, &resolved, vec![b' '; MAX_SBOM_BYTES + 1].into()).await.expect("pushed");
    let large = client.sboms(&reference, &resolved.digest).await.expect_err("refused").to_string();
    assert!(large.contains("its content has 8388609 bytes; at most 8388608 are allowed"), "{large}");
}

#[tokio::test]
async fn a_list_is_read_to_its_last_page_or_refused() {
    let registry = FakeRegistry::start().await;
    let (client, reference) = (client(), reference(&registry));
    let digest = push(&client, &reference).await;
    registry.lie(Lie::TagsOnSecondPage);
    assert_eq!(client.tags(&reference).await.expect("tags"), ["1.2"]);
    registry.lie(Lie::EndlessPages);
    let tags = client.tags(&reference).await.expect_err("refused").to_string();
    assert!(tags.contains("more than 10 pages for the list of tags"), "{tags}");
    let signatures = client.signatures(&reference, &digest).await.expect_err("refused").to_string();
    assert!(signatures.contains("more than 10 pages for the list of signatures"), "{signatures}");
}

#[tokio::test]
async fn a_registry_that_fails_is_not_one_without_signatures() {
    for lie in [Lie::ReferrersFail, Lie::ReferrersAreNoJson, Lie::SignatureOfAnother] {
        let registry = FakeRegistry::start().await;
        let (client, reference) = (client(), reference(&registry));
        push(&client, &reference).await;
        let resolved = client.resolve(&reference).await.expect("a manifest");
        client.push_signature(&reference, &resolved, BUNDLE.into()).await.expect("signed");
        registry.lie(lie);
        assert!(client.signatures(&reference, &resolved.digest).await.is_err(), "{lie:?}");
    }
}

#[tokio::test]
async fn what_a_registry_sends_is_compared_with_what_was_asked_for() {
    for (lie, reason) in [
        (Lie::OtherManifest, "has sent other content than sha256:"),
        (Lie::OtherComponent, "has sent other content than sha256:"),
        (Lie::LongerComponent, "which has"),
        (Lie::ShorterComponent, "which has"),
        (Lie::EndlessComponent, "which has"),
        (Lie::HugeManifest, "is longer than 1048576 bytes"),
        (Lie::Fails, "answers the manifest with the status 500 (out of order\\n\\u{1b})"),
    ] {
        let refusal = refusal(lie).await;
        assert!(refusal.contains(reason), "{lie:?}: {refusal}");
    }
}

#[tokio::test]
async fn an_answer_that_takes_too_long_is_not_waited_for() {
    for lie in [Lie::DrippingManifest, Lie::DrippingComponent] {
        let registry = FakeRegistry::start().await;
        let (client, reference) = (client(), reference(&registry));
        push(&client, &reference).await;
        registry.lie(lie);
        let pulled = client.pull(&reference, &()).await;
        tokio::time::resume();
        assert!(pulled.is_err(), "{lie:?}");
    }
}

#[tokio::test]
async fn an_upload_may_take_longer_than_a_pause_of_a_download() {
    let registry = FakeRegistry::start().await;
    let (client, reference) = (client(), reference(&registry));
    registry.lie(Lie::SlowUpload);
    push(&client, &reference).await;
}

#[tokio::test]
async fn a_manifest_with_anything_that_annex_does_not_know_is_refused() {
    for (lie, reason) in [
        (Lie::SecondLayer, "it has 2 layers; a component is one layer"),
        (Lie::NoLayer, "it has 0 layers"),
        (Lie::ForeignLayer, "its layers[0].mediaType is \"application/x-sh\""),
        (Lie::ForeignConfig, "its config.mediaType is"),
        (Lie::AnIndex, "its mediaType is"),
        (Lie::AlsoAnIndex, "it has `layers` and `manifests`"),
        (Lie::LongType, "its config.mediaType is"),
        (Lie::LongVersion, "it is not an image manifest of OCI: invalid type"),
        (Lie::HugeLayer, "its component has 99999999999 bytes; at most 33554432 are allowed"),
    ] {
        let registry = FakeRegistry::start().await;
        let (client, reference) = (client(), reference(&registry));
        push(&client, &reference).await;
        registry.lie(lie);
        // By its tag: each of these manifests has the digest that it has.
        let refusal = client.pull(&reference, &()).await.expect_err("refused").to_string();
        assert!(refusal.contains(reason), "{lie:?}: {refusal}");
        assert!(refusal.len() < 1_000 && !refusal.contains('\u{1b}'), "{lie:?}: {} bytes", refusal.len());
    }
}

#[tokio::test]
async fn a_tag_that_has_moved_names_other_bytes_and_a_digest_does_not() {
    let registry = FakeRegistry::start().await;
    let (client, reference) = (client(), reference(&registry));
    let digest = push(&client, &reference).await;
    client.push(&reference, b"other".as_slice().into(), BTreeMap::new(), &()).await.expect("pushed");
    assert_ne!(client.resolve(&reference).await.expect("a manifest").digest, digest);
    let pinned = client.pull(&reference.with_digest(&digest), &()).await.expect("a component");
    assert_eq!(pinned.component, COMPONENT);
}

#[tokio::test]
async fn a_password_or_a_token_opens_the_registry() {
    for (user, password, expected) in [("ada", "secret", true), ("ada", "wrong", false)] {
        for by_token in [false, true] {
            let registry = FakeRegistry::start().await;
            registry.protect(by_token);
            let (client, reference) = (with_login(&registry, user, password), reference(&registry));
            let pushed = client.push(&reference, COMPONENT.into(), BTreeMap::new(), &()).await;
            assert_eq!(pushed.is_ok(), expected, "{user} {password} {by_token}: {pushed:?}");
            if expected {
                assert!(client.pull(&reference, &()).await.is_ok());
            }
            let anonymous = Client::new(ClientConfig::default()).pull(&reference, &()).await;
            let error = anonymous.expect_err("refused").to_string();
            assert!(error.contains("annex login"), "{error}");
        }
    }
}

#[tokio::test]
async fn credentials_do_not_follow_a_redirect_to_another_server() {
    let (registry, other) = (FakeRegistry::start().await, FakeRegistry::start().await);
    registry.protect(false);
    let (client, reference) = (with_login(&registry, "ada", "secret"), reference(&registry));
    let digest = push(&client, &reference).await;
    registry.redirect_blobs(format!("http://{}/stolen", other.host()));
    // The registry's own address may be called at another port, but without its credentials.
    let refusal = client.pull(&reference.with_digest(&digest), &()).await.expect_err("refused");
    assert!(other.requests().iter().all(|request| !request.contains("authorization")), "{:?}", other.requests());
    assert!(!refusal.to_string().is_empty());
    registry.redirect_blobs(format!("http://{}/v2/loop", registry.host()));
    let refusal = client.pull(&reference.with_digest(&digest), &()).await.expect_err("refused").to_string();
    assert!(refusal.contains("redirects the component to another address that cannot be followed"), "{refusal}");
}

#[tokio::test]
async fn another_server_cannot_ask_for_the_credentials_of_the_registry() {
    let (registry, other) = (FakeRegistry::start().await, FakeRegistry::start().await);
    let (client, reference) = (with_login(&registry, "ada", "secret"), reference(&registry));
    let digest = push(&client, &reference).await;
    registry.redirect_blobs(format!("http://{}/v2/stolen", other.host()));
    other.ask_for_tokens_at(format!("http://{}/token", registry.host()));
    let refusal = client.pull(&reference.with_digest(&digest), &()).await.expect_err("refused").to_string();
    assert!(refusal.contains("it redirects to a server that wants credentials"), "{refusal}");
    assert!(other.requests().iter().any(|request| request.contains("/v2/stolen")), "{:?}", other.requests());
    let requests = [registry.requests(), other.requests()].concat();
    assert!(requests.iter().all(|request| !request.contains("authorization")), "{requests:?}");
}

#[tokio::test]
async fn neither_a_redirect_nor_a_token_server_reaches_into_the_network() {
    for url in ["http://169.254.169.254/latest/", "http://10.0.0.1/x", "ftp://registry.example/x"] {
        let registry = FakeRegistry::start().await;
        let (client, reference) = (client(), reference(&registry));
        let digest = push(&client, &reference).await;
        registry.redirect_blobs(url.to_owned());
        let refusal = client.pull(&reference.with_digest(&digest), &()).await.expect_err("refused").to_string();
        assert!(refusal.contains("is not called"), "{url}: {refusal}");
        let protected = FakeRegistry::start().await;
        protected.ask_for_tokens_at(url.to_owned());
        let reference: Reference = format!("{}/acme/redact", protected.host()).parse().expect("a reference");
        let refusal = client.pull(&reference, &()).await.expect_err("refused").to_string();
        assert!(refusal.contains("is not called"), "{url}: {refusal}");
    }
}

#[test]
fn the_cache_gives_back_the_bytes_that_were_stored_or_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = Cache::at(folder.path().join("cache"));
    let pulled = pulled();
    assert_eq!(cache.get(&pulled.manifest_digest).expect("no error"), None);
    cache.put(&pulled, &[BUNDLE.to_vec()]).expect("stored");
    let cached = cache.get(&pulled.manifest_digest).expect("no error").expect("a component");
    assert_eq!((cached.component, cached.signatures), (COMPONENT.to_vec(), vec![BUNDLE.to_vec()]));
    for (kind, digest) in [("blobs/sha256", &pulled.manifest_digest), ("blobs/sha256", &pulled.component_digest)] {
        let file = folder.path().join("cache").join(kind).join(digest.hex());
        let original = std::fs::read(&file).expect("a file");
        std::fs::write(&file, b"changed").expect("written");
        let error = cache.get(&pulled.manifest_digest).expect_err("refused").to_string();
        assert!(error.contains("in the cache has been changed"), "{error}");
        std::fs::write(&file, original).expect("written");
    }
    let signature = folder.path().join("cache/signatures").join(pulled.manifest_digest.hex());
    std::fs::write(signature.join(Digest::of(BUNDLE).hex()), b"{}").expect("written");
    assert!(cache.get(&pulled.manifest_digest).is_err());
}

#[test]
fn the_signatures_of_the_last_pull_are_read_however_many_were_stored_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = Cache::at(folder.path().join("cache"));
    let pulled = pulled();
    let signatures = || cache.get(&pulled.manifest_digest).expect("no error").expect("a component").signatures;
    cache.put(&pulled, &[BUNDLE.to_vec()]).expect("stored");
    cache.put(&pulled, &[b"{}".to_vec()]).expect("stored");
    assert_eq!(signatures().len(), 2, "the signature of the earlier pull stays");
    for pull in 0..3 {
        let junk: Vec<Vec<u8>> = (0..MAX_SIGNATURES).map(|number| format!("{pull} {number}").into_bytes()).collect();
        cache.put(&pulled, &junk).expect("stored");
        assert_eq!(signatures().len(), MAX_SIGNATURES);
    }
    cache.put(&pulled, &[BUNDLE.to_vec()]).expect("stored");
    assert_eq!(signatures(), [BUNDLE]);
}

#[test]
fn nothing_is_stored_in_a_folder_that_others_can_write_to() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).expect("a mode");
    let refused = Cache::at(folder.path().to_owned()).put(&pulled(), &[]).expect_err("refused");
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied, "{refused}");
}

#[test]
fn several_processes_can_store_the_same_component() {
    let folder = tempfile::tempdir().expect("a folder");
    let pulled = pulled();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                // Each has a cache of its own, as in processes of their own.
                let cache = Cache::at(folder.path().join("cache"));
                for _ in 0..50 {
                    cache.put(&pulled, &[BUNDLE.to_vec()]).expect("stored");
                    assert!(cache.get(&pulled.manifest_digest).expect("no error").is_some());
                }
            });
        }
    });
}

/// A component as a registry would have sent it.
fn pulled() -> Pulled {
    let digest = Digest::of(COMPONENT);
    let manifest = format!(
        r#"{{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{{"mediaType":"application/vnd.wasm.config.v0+json","digest":"{digest}","size":2}},"layers":[{{"mediaType":"application/wasm","digest":"{digest}","size":{}}}]}}"#,
        COMPONENT.len()
    );
    let manifest = manifest.into_bytes();
    Pulled { manifest_digest: Digest::of(&manifest), manifest, component_digest: digest, component: COMPONENT.to_vec() }
}
