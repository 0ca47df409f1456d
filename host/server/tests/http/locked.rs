//! Components of registries: what is locked, cached and signed is served, and no registry is called.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use annex_registry::{Cache, Digest, Pulled};
use annex_server::lock::{LOCK_FILE, Lock, LockedComponent};
use annex_test_support::{TEST_EXTENSION, TestServer};
use annex_trust::{PrivateKey, sign};
use serde_json::{Value, json};

use crate::installation::{Installation, admin, marked, on_card};
use crate::life::test_uri;

/// No registry has this name (RFC 6761).
pub(crate) const REFERENCE: &str = "oci://registry.invalid/acme/redact:1.2";
const PLACE: &str = "registry.invalid/acme/redact";
pub(crate) const TRUST: &str = "[trust]\nall_of = [{ key = \"keys/acme.pub\" }]\n";
/// The time limit of each wait.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A server whose extension is a component of a registry.
pub(crate) struct LockedInstallation {
    files: Installation,
    key: PrivateKey,
    locked: LockedComponent,
}

impl LockedInstallation {
    pub(crate) fn new() -> Self {
        let files = Installation::new();
        let (key, _) = PrivateKey::generate().expect("a key");
        fs::create_dir(files.path("keys")).expect("a folder");
        fs::write(files.path("keys/acme.pub"), key.public().to_pem()).expect("a file");
        let pulled = pulled(marked("locked"));
        let reference = REFERENCE.parse().expect("a reference");
        let locked = locked(reference, &pulled);
        let installation = Self { files, key, locked };
        installation.cache(&pulled);
        installation.lock(&installation.locked);
        installation.config(TRUST, REFERENCE);
        installation
    }

    fn config(&self, trust: &str, reference: &str) {
        self.config_with(trust, &format!("[[extension]]\ncomponent = {reference:?}\n"));
    }

    fn config_with(&self, trust: &str, more: &str) {
        self.files.config(&format!("[admin]\ntoken_file = \"token\"\n{trust}{more}"));
    }

    /// Puts a component with its signature into the cache.
    fn cache(&self, pulled: &Pulled) {
        let signature = sign(&self.key, pulled.manifest_digest.as_str(), PLACE).expect("a signature");
        Cache::at(self.files.path("caches/registry")).put(pulled, &[signature]).expect("it is stored");
    }

    fn lock(&self, locked: &LockedComponent) {
        Lock { components: vec![locked.clone()] }.write(self.files.folder.path()).expect("it is written");
    }

    /// Writes the lock and the key into the folder of another config.
    pub(crate) fn install_in(&self, folder: &Path) {
        fs::create_dir(folder.join("keys")).expect("a folder");
        fs::copy(self.files.path("keys/acme.pub"), folder.join("keys/acme.pub")).expect("a copy");
        fs::copy(self.files.path(LOCK_FILE), folder.join(LOCK_FILE)).expect("a copy");
    }

    /// The folder of the caches.
    pub(crate) fn caches(&self) -> PathBuf {
        self.files.path("caches")
    }

    /// Replaces the key in the file by another key.
    fn change_key(&self) {
        let (other, _) = PrivateKey::generate().expect("a key");
        fs::write(self.files.path("keys/acme.pub"), other.public().to_pem()).expect("a file");
    }

    async fn serve(&self) -> anyhow::Result<TestServer> {
        fs::write(self.files.path("token"), crate::installation::TOKEN)?;
        let agent = Arc::clone(&self.files.agent) as _;
        TestServer::from_file_with_caches(&self.files.path("annex.toml"), Some(agent), &self.files.path("caches")).await
    }
}

/// A component with its manifest, as a registry sends them.
fn pulled(component: Vec<u8>) -> Pulled {
    let component_digest = Digest::of(&component);
    let layer = json!({
        "mediaType": "application/wasm", "digest": component_digest.as_str(), "size": component.len(),
    });
    let config = json!({
        "mediaType": "application/vnd.wasm.config.v0+json", "digest": Digest::of(b"{}").as_str(), "size": 2,
    });
    let media_type = "application/vnd.oci.image.manifest.v1+json";
    let manifest = json!({"schemaVersion": 2, "mediaType": media_type, "config": config, "layers": [layer]});
    let manifest = manifest.to_string().into_bytes();
    Pulled { manifest_digest: Digest::of(&manifest), manifest, component_digest, component }
}

fn locked(reference: annex_registry::Reference, pulled: &Pulled) -> LockedComponent {
    LockedComponent {
        reference,
        manifest: pulled.manifest_digest.clone(),
        component: pulled.component_digest.clone(),
        size: pulled.component.len().try_into().expect("a size"),
        signers: vec!["keys/acme.pub".to_owned()],
        grants: Vec::new(),
    }
}

#[tokio::test]
async fn a_locked_and_signed_component_is_served_without_a_network() {
    let server = LockedInstallation::new().serve().await.expect("a server");
    assert_eq!(on_card(&server).await, [TEST_EXTENSION]);
}

/// Starts a server after `change`, which must be refused with `reason`.
async fn check(name: &str, reason: &str, change: impl FnOnce(&LockedInstallation)) {
    let installation = LockedInstallation::new();
    change(&installation);
    let Err(error) = installation.serve().await else { panic!("{name} is served") };
    let text = format!("{error:#}");
    assert!(text.contains("extension.component") && text.contains(reason), "{name}: {text}");
}

#[tokio::test]
async fn a_component_that_is_not_locked_or_not_as_it_was_locked_is_refused_with_the_reason() {
    let other = Digest::of(b"other");
    check("no lock", "is not in annex.lock; run: annex lock", |installation| {
        fs::remove_file(installation.files.path(LOCK_FILE)).expect("a file");
    })
    .await;
    check("a lock with a mistake", "annex.lock:2: ", |installation| {
        fs::write(installation.files.path(LOCK_FILE), "\nversion = 2\n").expect("a file");
    })
    .await;
    check("a tag that is not locked", "redact:1.3 is not in annex.lock", |installation| {
        installation.config(TRUST, "oci://registry.invalid/acme/redact:1.3");
    })
    .await;
    check("a reference with a mistake", "is no reference", |installation| {
        installation.config(TRUST, "oci://registry.invalid/Acme:1.2");
    })
    .await;
    check("another manifest in the lock", "is not in the cache", |installation| {
        installation.lock(&LockedComponent { manifest: other.clone(), ..installation.locked.clone() });
    })
    .await;
    check("another component in the lock", "annex.lock has the component", |installation| {
        installation.lock(&LockedComponent { component: other.clone(), ..installation.locked.clone() });
    })
    .await;
    check("another size in the lock", "annex.lock has the size", |installation| {
        installation.lock(&LockedComponent { size: 1, ..installation.locked.clone() });
    })
    .await;
    check("a lock for another digest than the config names", "annex.lock has the manifest", |installation| {
        let pinned = installation.locked.reference.with_digest(&other);
        installation.config(TRUST, &pinned.to_string());
        installation.lock(&LockedComponent { reference: pinned, ..installation.locked.clone() });
    })
    .await;
}

#[tokio::test]
async fn a_component_that_is_not_cached_or_was_changed_in_the_cache_is_refused_with_the_reason() {
    check("no cache", "is not in the cache", |installation| {
        fs::remove_dir_all(installation.files.path("caches")).expect("a folder");
    })
    .await;
    check("another component in the cache", "has been changed", |installation| {
        let blob = format!("caches/registry/blobs/sha256/{}", installation.locked.component.hex());
        fs::write(installation.files.path(&blob), marked("other")).expect("a file");
    })
    .await;
    check("another manifest in the cache", "has been changed", |installation| {
        let blob = format!("caches/registry/blobs/sha256/{}", installation.locked.manifest.hex());
        fs::write(installation.files.path(&blob), pulled(marked("other")).manifest).expect("a file");
    })
    .await;
}

#[tokio::test]
async fn a_component_without_the_signatures_that_the_policy_needs_is_refused_with_the_rule() {
    check("no signature", "it has no signature", |installation| {
        fs::remove_dir_all(installation.files.path("caches/registry/signatures")).expect("a folder");
    })
    .await;
    check("a signature by another key", "trust.all_of[0], keys/acme.pub, has not signed it", |installation| {
        installation.change_key();
    })
    .await;
    check("no policy", "trust requires signatures", |installation| installation.config("", REFERENCE)).await;
    check("a missing key", "keys/gone.pub", |installation| {
        installation.config("[trust]\nall_of = [{ key = \"keys/gone.pub\" }]\n", REFERENCE);
    })
    .await;
}

#[tokio::test]
async fn signatures_are_checked_at_each_load_and_not_only_when_a_component_is_pulled() {
    let installation = LockedInstallation::new();
    let server = installation.serve().await.expect("a server");
    installation.change_key();
    let error = server.installer().reload().await.expect_err("a refusal");
    let text = anyhow::Error::new(error);
    assert!(format!("{text:#}").contains("has not signed it"), "{text:#}");

    // A server that starts now is refused too, although the code is in the cache of compiled components.
    assert!(installation.serve().await.is_err());
    assert_eq!(on_card(&server).await, [TEST_EXTENSION], "the version that was verified stays");
}

#[tokio::test]
async fn a_reload_applies_another_policy() {
    let installation = LockedInstallation::new();
    installation.config("[trust]\ndefault = \"allow\"\n", REFERENCE);
    let server = installation.serve().await.expect("a server");
    installation.config("[trust]\ndefault = \"require\"\n", REFERENCE);
    let (status, refused) = admin(&server, "POST", "reload", Value::Null).await;
    assert!(status != 200 && refused.to_string().contains("trust requires signatures"), "{status} {refused}");
    installation.config(TRUST, REFERENCE);
    let (status, reloaded) = admin(&server, "POST", "reload", Value::Null).await;
    assert_eq!((status, &reloaded["needs_restart"]), (200, &json!([])), "{reloaded}");
    assert_eq!(on_card(&server).await, [TEST_EXTENSION]);
}

#[tokio::test]
async fn a_new_lock_is_put_in_force_while_the_server_runs() {
    let installation = LockedInstallation::new();
    let server = installation.serve().await.expect("a server");
    let update = pulled(marked("update"));
    installation.cache(&update);
    installation.lock(&locked(installation.locked.reference.clone(), &update));
    let expected = annex_runtime::Digest::of(&update.component);
    let look = async {
        while server.installer().installed().get(&test_uri()).expect("installed").digest() != expected {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(TIMEOUT, look).await.expect("it is installed some time");
}

#[tokio::test]
async fn a_component_that_needs_more_grants_than_the_lock_lists_is_refused_with_the_difference() {
    const DIFFERENCE: &str = "does not list as accepted: clock; to accept them, run: annex lock CONFIG --accept clock";
    let installation = LockedInstallation::new();
    let clock = pulled(fs::read(annex_components::TIMESTAMP).expect("a component"));
    installation.cache(&clock);
    let extension = format!("[[extension]]\ncomponent = {REFERENCE:?}\n[extension.grants]\nclock = true\n");
    installation.config_with(TRUST, &extension);
    let fewer = locked(REFERENCE.parse().expect("a reference"), &clock);
    installation.lock(&fewer);
    let Err(error) = installation.serve().await else { panic!("it is served") };
    assert!(format!("{error:#}").contains(DIFFERENCE), "{error:#}");

    installation.lock(&LockedComponent { grants: vec!["clock".to_owned()], ..fewer.clone() });
    let server = installation.serve().await.expect("a server");
    installation.lock(&fewer);
    let error = anyhow::Error::new(server.installer().reload().await.expect_err("a refusal"));
    assert!(format!("{error:#}").contains(DIFFERENCE), "{error:#}");
    assert_eq!(on_card(&server).await.len(), 1, "the version that was accepted stays");
}

#[tokio::test]
async fn a_reference_in_a_request_is_installed_only_as_it_is_locked_cached_and_signed() {
    let installation = LockedInstallation::new();
    installation.config_with(TRUST, "[runtime]\nextensions_dir = \"installed\"\n");
    let server = installation.serve().await.expect("a server");
    let add = async |body: Value| admin(&server, "POST", "extensions", body).await;

    let (status, refused) = add(json!({"reference": "oci://registry.invalid/acme/redact:1.3"})).await;
    assert_eq!((status, &refused["error"]["code"]), (422, &json!("invalid_settings")), "{refused}");
    assert!(refused.to_string().contains("redact:1.3 is not in annex.lock; run: annex lock CONFIG"), "{refused}");
    for body in [
        json!({}),
        json!({"reference": "oci://registry.invalid/Acme:1"}),
        json!({"reference": "registry.invalid/acme/redact:1.2"}),
        json!({"reference": REFERENCE, "name": "redact", "component": "AA=="}),
        json!({"component": "AA=="}),
    ] {
        let (status, refused) = add(body).await;
        assert_eq!((status, &refused["error"]["code"]), (400, &json!("invalid_request")), "{refused}");
    }

    let (status, added) = add(json!({"reference": REFERENCE})).await;
    assert_eq!(status, 201, "{added}");
    assert_eq!(added["source"], json!({"kind": "added", "name": "redact", "until": "restart"}), "{added}");
    assert_eq!(added["digest"], json!(installation.locked.component.as_str()));
    assert_eq!(on_card(&server).await, [TEST_EXTENSION]);
    let copies = fs::read_dir(installation.files.path("installed")).expect("a folder").count();
    assert_eq!(copies, 0, "a copy would not be verified again");

    installation.change_key();
    let (status, refused) = add(json!({"reference": REFERENCE})).await;
    assert!(status == 422 && refused.to_string().contains("has not signed it"), "{status} {refused}");
    assert_eq!(on_card(&server).await, [TEST_EXTENSION], "the version that was verified stays");
}
