//! Files and folders that other users can write or read: refused ones, accepted ones, and the messages for the
//! operator.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use annex_test_support::{TEST_EXTENSION, TestConfig};
use serde_json::{Value, json};

use crate::installation::{Installation, admin, extension, on_card};

const FOLDER: &str = "[runtime]\nwatch = false\nextensions_dir = \"managed\"\n";

fn set_mode(installation: &Installation, name: &str, mode: u32) {
    fs::set_permissions(installation.path(name), Permissions::from_mode(mode)).expect("own file");
}

/// The reason for which the server does not start.
async fn refusal(installation: &Installation) -> String {
    let Err(error) = installation.try_serve().await else {
        panic!("the server started");
    };
    format!("{error:#}")
}

/// Checks that a server refuses a file that others can write, with a hint to the operator, and accepts the file with
/// `mode`.
async fn check(installation: &Installation, name: &str, mode: u32) {
    set_mode(installation, name, 0o666);
    let reason = refusal(installation).await;
    let mended = format!("/{name}`");
    assert!(reason.contains("written by others (mode 0666): run `chmod go-w /"), "{reason}");
    assert!(reason.contains(&mended), "{reason}");
    set_mode(installation, name, mode);
    installation.serve().await;
}

/// The test extension in the managed folder, with settings.
fn managed() -> Installation {
    let installation = Installation::new();
    fs::create_dir(installation.path("managed")).expect("a folder");
    set_mode(&installation, "managed", 0o755);
    installation.component("managed/test.wasm", "managed");
    fs::write(installation.path("managed/test.toml"), "").expect("a file");
    installation.config(FOLDER);
    installation
}

#[tokio::test]
async fn a_managed_folder_that_others_can_write_is_refused() {
    let installation = managed();
    for mode in [0o777, 0o1777, 0o775] {
        set_mode(&installation, "managed", mode);
        let reason = refusal(&installation).await;
        assert!(reason.contains("runtime.extensions_dir") && reason.contains("chmod go-w"), "{mode:o}: {reason}");
    }
    set_mode(&installation, "managed", 0o755);
    assert_eq!(on_card(&installation.serve().await).await, [TEST_EXTENSION]);
}

#[tokio::test]
async fn a_managed_folder_that_is_opened_to_others_installs_nothing_more_and_what_was_there_stays() {
    let installation = managed();
    let server = installation.serve().await;
    set_mode(&installation, "managed", 0o777);
    fs::remove_file(installation.path("managed/test.wasm")).expect("own file");
    let error = server.installer().reload().await.expect_err("the folder is refused");
    assert!(error.to_string().contains("runtime.extensions_dir"), "{error}");
    assert_eq!(on_card(&server).await, [TEST_EXTENSION]);
    set_mode(&installation, "managed", 0o755);
    server.installer().reload().await.expect("a reload");
    assert!(on_card(&server).await.is_empty());
}

#[tokio::test]
async fn a_managed_component_that_others_or_its_group_can_write_is_not_installed_and_stops_no_other() {
    let installation = managed();
    installation.component("managed/open.wasm", "managed");
    fs::write(installation.path("managed/open.toml"), "[parameters]\nuri = \"https://annex.example/open\"")
        .expect("a file");
    for mode in [0o666, 0o664] {
        set_mode(&installation, "managed/open.wasm", mode);
        assert_eq!(on_card(&installation.serve().await).await, [TEST_EXTENSION], "{mode:o}");
    }
    set_mode(&installation, "managed/open.wasm", 0o644);
    assert_eq!(on_card(&installation.serve().await).await.len(), 2);
}

#[tokio::test]
async fn settings_in_the_managed_folder_that_others_can_write_grant_nothing() {
    let installation = managed();
    for mode in [0o664, 0o646] {
        set_mode(&installation, "managed/test.toml", mode);
        let reason = refusal(&installation).await;
        assert!(reason.contains("test.toml") && reason.contains("chmod go-w"), "{reason}");
    }
    set_mode(&installation, "managed/test.toml", 0o644);
    installation.serve().await;
}

#[tokio::test]
async fn a_component_that_the_config_names_is_refused_when_others_can_write_it() {
    let installation = Installation::new();
    installation.component("test.wasm", "named");
    installation.config(&extension("test.wasm", "", "ok"));
    check(&installation, "test.wasm", 0o664).await;
}

#[tokio::test]
async fn the_file_of_a_tenant_is_refused_when_others_can_write_it() {
    let installation = Installation::new();
    fs::write(installation.path("acme.toml"), TestConfig::template("i").toml()).expect("own file");
    installation.config("[admin]\ntoken_file = \"token\"\n[[tenant]]\nname = \"acme\"\nconfig = \"acme.toml\"");
    set_mode(&installation, "acme.toml", 0o666);
    let (_, list) = admin(&installation.serve().await, "GET", "extensions", Value::Null).await;
    let reason = list["failures"][0]["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("written by others (mode 0666): run `chmod go-w /"), "{list}");
    set_mode(&installation, "acme.toml", 0o664);
    let (_, list) = admin(&installation.serve().await, "GET", "extensions", Value::Null).await;
    assert_eq!(list["failures"], json!([]));
}

#[tokio::test]
async fn the_admin_token_is_refused_when_others_can_write_it() {
    let installation = Installation::new();
    installation.config("[admin]\ntoken_file = \"admin.token\"");
    fs::write(installation.path("admin.token"), "a-token-that-is-long-enough").expect("a file");
    for mode in [0o600, 0o440, 0o644] {
        check(&installation, "admin.token", mode).await;
    }
}

#[tokio::test]
async fn a_signing_key_is_refused_when_others_can_write_it() {
    let installation = Installation::new();
    installation.config("[card.signing]\nkid = \"k1\"\nkey_file = \"key.pem\"");
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../auth/tests/auth/fixtures/p256.pem");
    fs::write(installation.path("key.pem"), fs::read(fixture).expect("a fixture")).expect("a file");
    check(&installation, "key.pem", 0o600).await;
}

#[tokio::test]
async fn an_api_key_is_refused_when_others_can_write_it() {
    let installation = Installation::new();
    installation.config("[[auth.api_key]]\nprincipal = \"ada\"\nkey_file = \"ada.key\"");
    fs::write(installation.path("ada.key"), "ada-key-0123456789abcdef\n").expect("a file");
    check(&installation, "ada.key", 0o600).await;
}

#[tokio::test]
async fn keys_of_an_issuer_are_refused_when_others_can_write_them() {
    let installation = Installation::new();
    installation.config(
        "[auth.jwt]\nissuer = \"https://issuer.example\"\naudience = [\"annex\"]\nalgorithms = [\"ES256\"]\njwks_file \
         = \"keys.json\"",
    );
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../auth/tests/auth/fixtures/jwks.json");
    fs::write(installation.path("keys.json"), fs::read(fixture).expect("a fixture")).expect("a file");
    check(&installation, "keys.json", 0o644).await;
}

#[tokio::test]
async fn a_secret_of_an_extension_is_refused_when_others_can_write_it() {
    let installation = Installation::new();
    installation.component("test.wasm", "secret");
    installation.config(&extension("test.wasm", "grants.secrets.KEY = { file = \"secret\" }", "ok"));
    fs::write(installation.path("secret"), "hunter2").expect("a file");
    for mode in [0o600, 0o440] {
        check(&installation, "secret", mode).await;
    }
}
