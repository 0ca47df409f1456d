//! Components that are pulled from registries for added tenants.

use std::collections::BTreeMap;
use std::fs;

use annex_registry::{Client, ClientConfig, Digest, Reference};
use annex_test_support::{TEST_EXTENSION, TestRegistry, TestServer, until};
use annex_trust::{PrivateKey, sign};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::added::{add, ask, change, open, reason};
use super::{agent, call, message, serve};
use crate::auth::ADA;
use crate::installation::marked;
use crate::locked::TRUST;

/// A registry, the key that signs its components, and the folder of a server that trusts the key.
struct PulledInstallation {
    registry: TestRegistry,
    key: PrivateKey,
    folder: TempDir,
}

impl PulledInstallation {
    /// `tenants` is for `[tenants]`. `more` follows `[trust]`.
    fn new(tenants: &str, more: &str) -> Self {
        let registry = TestRegistry::start();
        let (key, _) = PrivateKey::generate().expect("a key");
        let registries = format!("registries = [\"{}/acme\"]\n", registry.host());
        let folder = open(&format!("{registries}{tenants}\n{TRUST}{more}"));
        fs::create_dir(folder.path().join("keys")).expect("a folder");
        fs::write(folder.path().join("keys/acme.pub"), key.public().to_pem()).expect("a file");
        fs::write(folder.path().join("denied.txt"), "").expect("a file");
        Self { registry, key, folder }
    }

    /// Pushes the test extension with this mark. Returns its reference with the digest.
    async fn push(&self, name: &str, mark: &str, is_signed: bool) -> Reference {
        let client = Client::new(ClientConfig::default());
        let reference: Reference = self.registry.reference(name).parse().expect("a reference");
        let component = marked(mark).into();
        let pushing = Box::pin(client.push(&reference, component, BTreeMap::new(), &()));
        let digest = pushing.await.expect("it is pushed");
        if is_signed {
            let subject = Box::pin(client.resolve(&reference)).await.expect("a manifest");
            let bundle = sign(&self.key, digest.as_str(), &reference.place()).expect("a signature");
            let signing = Box::pin(client.push_signature(&reference, &subject, bundle.into()));
            signing.await.expect("it is signed");
        }
        reference.with_digest(&digest)
    }
}

/// The text of a tenant with this component.
fn text(name: &str, reference: &str) -> String {
    agent(name, &format!("[[extension]]\ncomponent = {reference:?}"))
}

/// Adds a tenant with this component. Returns the status and the answer.
async fn put(server: &TestServer, name: &str, reference: &str) -> (u16, Value) {
    let body = json!({"config": text(name, reference)});
    let (status, body, _) = ask(server, "PUT", &format!("tenants/{name}"), &[("if-none-match", "*")], body).await;
    (status, body)
}

/// Unloads a tenant and lets it be loaded again. Returns its new tag.
async fn load_again(server: &TestServer, name: &str, tag: &str) -> String {
    let (_, _, tag) = change(server, name, tag, json!({"state": "suspended"})).await;
    let (status, body, tag) = change(server, name, &tag, json!({"state": "active"})).await;
    assert_eq!(status, 200, "{body}");
    tag
}

/// Sends a message to the tenant, which the extension of the component annotates.
async fn say(server: &TestServer, tenant: &str) -> Value {
    call(server, ADA, TEST_EXTENSION, "SendMessage", message(tenant, "x")).await
}

async fn serves(server: &TestServer, tenant: &str) {
    let said = say(server, tenant).await;
    assert_eq!(said["result"]["task"]["artifacts"][0]["extensions"], json!([TEST_EXTENSION]), "{said}");
}

#[tokio::test]
async fn a_text_names_components_of_allowed_registries_by_digest_and_they_are_pulled_once() {
    let installation = PulledInstallation::new("max_uploads = 1", "");
    let registry = &installation.registry;
    let pinned = installation.push("acme/redact:1.2", "pulled", true).await.to_string();
    let another = installation.push("acme/other:1", "another", true).await.to_string();
    let server = serve(&installation.folder).await;
    let hooli = add(&server, "hooli", &text("hooli", &pinned)).await;
    serves(&server, "hooli").await;

    // What was pulled is loaded, and given to other tenants, without the registry.
    registry.corrupt_blobs();
    let hooli = load_again(&server, "hooli", &hooli).await;
    serves(&server, "hooli").await;
    let other = add(&server, "other", &text("other", &pinned)).await;
    serves(&server, "other").await;
    let (status, refused) = put(&server, "next", &another).await;
    assert!(status == 422 && reason(&refused).contains("cannot be pulled"), "{refused}");
    registry.corrupt_blobs();

    // The component goes with the last tenant that has it.
    let remove = async |name: &str, tag: &str| {
        let (status, removed, _) =
            ask(&server, "DELETE", &format!("tenants/{name}"), &[("if-match", tag)], Value::Null).await;
        assert_eq!(status, 200, "{removed}");
    };
    remove("hooli", &hooli).await;
    let (status, refused) = put(&server, "next", &another).await;
    assert!(status == 422 && reason(&refused).contains("tenants.max_uploads"), "{refused}");
    let other = load_again(&server, "other", &other).await;
    serves(&server, "other").await;
    remove("other", &other).await;
    until("the component to be removed", async || put(&server, "next", &another).await.0 == 201).await;
    serves(&server, "next").await;
}

#[tokio::test]
async fn a_component_that_is_not_allowed_pinned_and_signed_is_not_pulled_for_a_tenant() {
    let installation = PulledInstallation::new("", "deny_file = \"denied.txt\"\n");
    let pinned = installation.push("acme/redact:1.2", "pulled", true).await;
    let foreign = installation.push("acmes/redact:1.2", "foreign", true).await;
    let unsigned = installation.push("acme/unsigned:1", "unsigned", false).await;
    let denied = installation.push("acme/denied:1", "denied", true).await;
    let digest = denied.digest().expect("a digest").to_string();
    fs::write(installation.folder.path().join("denied.txt"), digest).expect("a file");
    let server = serve(&installation.folder).await;
    for (reference, expected) in [
        (installation.registry.reference("acme/redact:1.2"), "no tag is looked up for a tenant"),
        (foreign.to_string(), "tenants.registries"),
        (unsigned.to_string(), "it has no signature"),
        (denied.to_string(), "denies its manifest"),
        (pinned.with_digest(&Digest::of(b"other")).to_string(), "cannot be pulled"),
        ("oci://127.0.0.1/Acme".to_owned(), "is no reference"),
    ] {
        let (status, refused) = put(&server, "hooli", &reference).await;
        assert!(status == 422 && reason(&refused).contains("extension"), "{refused}");
        assert!(reason(&refused).contains(expected), "{expected}: {refused}");
    }
    assert_eq!(put(&server, "hooli", &pinned.to_string()).await.0, 201);
}

#[tokio::test]
async fn a_pulled_component_is_verified_again_at_each_load_of_its_tenant() {
    let installation = PulledInstallation::new("", "");
    let pinned = installation.push("acme/redact:1.2", "pulled", true).await.to_string();
    let server = serve(&installation.folder).await;
    let tag = add(&server, "hooli", &text("hooli", &pinned)).await;
    serves(&server, "hooli").await;
    let (other, _) = PrivateKey::generate().expect("a key");
    fs::write(installation.folder.path().join("keys/acme.pub"), other.public().to_pem()).expect("a file");
    load_again(&server, "hooli", &tag).await;
    let said = say(&server, "hooli").await;
    assert!(said["error"]["code"].is_number(), "{said}");
    let (_, shown, _) = ask(&server, "GET", "tenants/hooli", &[], Value::Null).await;
    assert!(shown.to_string().contains("has not signed it"), "{shown}");
}

#[tokio::test]
async fn a_pulled_component_is_loaded_by_the_next_process_without_the_registry() {
    let installation = PulledInstallation::new("", "[tasks]\ndata_dir = \"data\"\n");
    let pinned = installation.push("acme/redact:1.2", "pulled", true).await.to_string();
    let mut server = serve(&installation.folder).await;
    add(&server, "hooli", &text("hooli", &pinned)).await;
    server.begin_shutdown();
    server.ended().await.expect("an end");
    installation.registry.corrupt_blobs();
    serves(&serve(&installation.folder).await, "hooli").await;
}
