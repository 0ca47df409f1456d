//! Components that were signed without a key.

use std::fs;

use annex_registry::{Client, ClientConfig, Reference};
use annex_test_support::TestRegistry;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::registry::{check, push};
use crate::sigstore::{SIGNED_AT, Signing, Sigstore};
use crate::support::run;

const ISSUER: &str = "https://token.actions.githubusercontent.com";

/// Stores a signature of a component in its repository.
fn store(reference: &str, bundle: &Value) -> Result<()> {
    let reference: Reference = reference.parse()?;
    let bundle = bundle.to_string().into_bytes();
    Runtime::new()?.block_on(async {
        let client = Client::new(ClientConfig::default());
        let subject = Box::pin(client.resolve(&reference)).await?;
        Box::pin(client.push_signature(&reference, &subject, bundle.into())).await?;
        Ok(())
    })
}

/// What a workflow of `acme/clock` signs.
fn signing(hex: &str) -> Signing {
    Signing {
        issuer: ISSUER,
        subject: "https://github.com/acme/clock/.github/workflows/release.yml@refs/tags/v1",
        repository: Some("https://github.com/acme/clock"),
        time: SIGNED_AT,
        statement: json!({
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{ "digest": { "sha256": hex } }],
            "predicateType": "https://sigstore.dev/cosign/sign/v1",
            "predicate": {},
        }),
    }
}

#[test]
fn a_keyless_identity_is_asked_for_by_options() -> Result<()> {
    let (registry, sigstore) = (TestRegistry::start(), Sigstore::new());
    let folder = tempfile::tempdir()?;
    let root = folder.path().join("trusted_root.json");
    fs::write(&root, sigstore.root().to_string())?;
    let root = root.display().to_string();
    let reference = registry.reference("acme/clock:1.2");
    let pinned = push("timestamp", &reference)?;
    let (_, hex) = pinned.rsplit_once("sha256:").context("a digest")?;
    let signed_by = |command: &str, repository: &str| {
        run([command, &reference, "--root-file", &root, "--issuer", ISSUER, "--repository", repository])
    };
    let signer = format!("https://github.com/acme/clock ({ISSUER})");
    let unsigned = format!("is not trusted: --issuer, {signer}, has not signed it; it has no signature");
    check(&signed_by("verify", "acme/clock")?, 3, &[&unsigned]);

    store(&pinned, &sigstore.sign(&signing(hex)))?;
    check(&signed_by("verify", "acme/clock")?, 0, &[&pinned, &format!("signed by {signer}")]);
    check(&signed_by("inspect", "acme/clock")?, 0, &["signatures     by ", "https://github.com/acme/clock"]);
    let other = ["--issuer, https://github.com/acme/other", "the policy does not name https://github.com/acme/clock"];
    check(&signed_by("verify", "acme/other")?, 3, &other);
    let inspected = signed_by("inspect", "acme/other")?;
    check(&inspected, 3, &other);
    assert_eq!(inspected.out, "", "it was not run");

    check(&signed_by("verify", "acme")?, 1, &["--repository: \"acme\" cannot be a repository"]);
    check(&run(["verify", &reference, "--issuer", ISSUER, "--subject", "x"])?, 2, &["--root-file"]);
    let bare = run(["verify", &reference, "--issuer", ISSUER, "--root-file", &root])?;
    check(&bare, 1, &["--issuer: needs a subject or a repository"]);
    let both = ["--issuer", ISSUER, "--root-file", &root, "--subject", "x"];
    check(&run(["verify", &root].into_iter().chain(both))?, 2, &["--issuer is for components in registries"]);
    check(&run(["inspect", "timestamp"].into_iter().chain(both))?, 2, &["--issuer is for components of registries"]);
    Ok(())
}
