//! Credentials in the config files of docker. The tests of the `annex` command have those of helpers.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use annex_registry::{Credentials, Login};
use serde_json::{Value, json};

fn login(user: &str, password: &str) -> Login {
    Login { user: user.to_owned(), password: password.to_owned() }
}

#[tokio::test]
async fn stored_credentials_are_found_and_the_rest_of_the_file_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, link) = (folder.path().join("own.json"), folder.path().join("config.json"));
    let before = json!({
        "HttpHeaders": {"X-Meta": "kept"},
        "auths": {"https://registry.example/v2/": {"auth": "b2xk"}, "other.example": {"auth": "YTpiOmM="}},
    });
    fs::write(&file, before.to_string()).expect("written");
    symlink(&file, &link).expect("a link");
    let credentials = Credentials::in_file(link);
    let place = credentials.store("registry.example", &login("ada", "secret")).await.expect("stored");
    assert!(place.ends_with("config.json"), "{place}");
    assert_eq!(credentials.find("registry.example").await.expect("read"), Some(login("ada", "secret")));
    assert_eq!(credentials.find("other.example").await.expect("read"), Some(login("a", "b:c")));
    assert_eq!(credentials.find("registry.example:5000").await.expect("read"), None);
    let after: Value = serde_json::from_slice(&fs::read(&file).expect("read")).expect("JSON");
    let auths = json!({"other.example": {"auth": "YTpiOmM="}, "registry.example": {"auth": "YWRhOnNlY3JldA=="}});
    assert_eq!(after, json!({"HttpHeaders": {"X-Meta": "kept"}, "auths": auths}));
    assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn a_missing_file_has_no_credentials_and_is_created_with_its_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("docker/config.json");
    let credentials = Credentials::in_file(file.clone());
    assert_eq!(credentials.find("registry.example").await.expect("none"), None);
    credentials.store("docker.io", &login("ada", "secret")).await.expect("stored");
    assert_eq!(credentials.find("registry-1.docker.io").await.expect("read"), Some(login("ada", "secret")));
    assert!(fs::read_to_string(&file).expect("read").contains("https://index.docker.io/v1/"));
    let refused = credentials.store("registry.example", &login("a:b", "c")).await.expect_err("a colon");
    assert!(refused.to_string().contains("colon"), "{refused}");
    assert!(Credentials::default().store("registry.example", &login("a", "b")).await.is_err());
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_an_error_and_no_file_without_credentials() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("config.json");
    let credentials = Credentials::in_file(file.clone());
    let of = |auth: Value| json!({"auths": {"registry.example": auth}}).to_string();
    for (text, reason) in [
        ("{".to_owned(), "is not a config of docker"),
        (r#"{"auths": {"registry.example": "c2VjcmV0"}}"#.to_owned(), "is not a config of docker: line 1, column"),
        (of(json!({"auth": "%"})), "base64"),
        (of(json!({"auth": "YWRh"})), "base64"),
        (of(json!({"identitytoken": "x"})), "identity token"),
        (json!({"credsStore": "../evil"}).to_string(), "a credential helper that fails"),
        (
            json!({"credHelpers": {"registry.example": "annex-test-missing"}}).to_string(),
            "a credential helper that fails",
        ),
    ] {
        fs::write(&file, &text).expect("written");
        let refused = credentials.find("registry.example").await.expect_err(&text);
        let error = annex_text::with_causes(&refused);
        assert!(error.contains(reason) && error.contains("config.json"), "{text}: {error}");
        assert!(!error.contains("c2VjcmV0"), "{error}");
    }
    for text in ["{}", r#"{"auths": null}"#, r#"{"auths": {"registry.example": {}}}"#] {
        fs::write(&file, text).expect("written");
        assert_eq!(credentials.find("registry.example").await.expect(text), None, "{text}");
    }
}
