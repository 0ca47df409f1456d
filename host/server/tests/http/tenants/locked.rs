//! Components of registries in the texts of added tenants.

use std::fs;

use annex_test_support::{TEST_EXTENSION, TestServer};
use annex_trust::PrivateKey;
use serde_json::{Value, json};

use super::added::{add, ask, open, reason};
use super::{agent, call, message};
use crate::auth::ADA;
use crate::locked::{LockedInstallation, REFERENCE, TRUST};

#[tokio::test]
async fn a_tenant_gets_a_component_of_a_registry_that_the_operator_lets_tenants_have() {
    let installation = LockedInstallation::new();
    let folder = open(&format!("components = [{REFERENCE:?}]\n{TRUST}"));
    installation.install_in(folder.path());
    let config = folder.path().join("annex.toml");
    let server = TestServer::from_file_with_caches(&config, None, &installation.caches()).await.expect("a server");
    let text = |name: &str, reference: &str| agent(name, &format!("[[extension]]\ncomponent = {reference:?}"));
    let put = async |name: &str, reference: &str| {
        let body = json!({"config": text(name, reference)});
        let (status, body, _) = ask(&server, "PUT", &format!("tenants/{name}"), &[("if-none-match", "*")], body).await;
        (status, body)
    };
    add(&server, "hooli", &text("hooli", REFERENCE)).await;
    let said = call(&server, ADA, TEST_EXTENSION, "SendMessage", message("hooli", "x")).await;
    assert_eq!(said["result"]["task"]["artifacts"][0]["extensions"], json!([TEST_EXTENSION]), "{said}");

    let (status, refused) = put("other", "oci://registry.invalid/acme/another:1").await;
    assert_eq!(status, 422, "{refused}");
    assert!(reason(&refused).contains("tenants.components"), "{refused}");

    // The policy of the process decides about the components of tenants too.
    let (other, _) = PrivateKey::generate().expect("a key");
    fs::write(folder.path().join("keys/other.pub"), other.public().to_pem()).expect("a file");
    let changed = fs::read_to_string(&config).expect("a config").replace("keys/acme.pub", "keys/other.pub");
    fs::write(&config, changed).expect("a config");
    let (status, reloaded, _) = ask(&server, "POST", "reload", &[], Value::Null).await;
    assert_eq!(status, 200, "{reloaded}");
    let (status, refused) = put("later", REFERENCE).await;
    assert_eq!(status, 422, "{refused}");
    assert!(reason(&refused).contains("has not signed it"), "{refused}");
}
