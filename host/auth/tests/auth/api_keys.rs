use annex_auth::{API_KEY_SCHEME, AuthError};

use crate::support::token::token;
use crate::support::{HERE, authenticator, headers, is_invalid, jwt_config};

fn sha256_hex(key: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, key.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn by_digest(principal: &str, key: &str) -> String {
    format!("[[api_key]]\nprincipal = '{principal}'\nkey_sha256 = '{}'\n", sha256_hex(key))
}

#[tokio::test]
async fn a_key_names_its_principal() {
    let authenticator = authenticator(&(by_digest("ci", "first-key-of-ci!") + &by_digest("ops", "the-key-of-ops!!")));
    for (key, principal) in [("first-key-of-ci!", "ci"), ("the-key-of-ops!!", "ops")] {
        let caller = authenticator.authenticate(&headers(&[("x-api-key", key)]), HERE, None).await.unwrap();
        assert_eq!((caller.id.as_str(), caller.scheme), (principal, API_KEY_SCHEME));
        assert!(caller.scopes.is_empty());
    }
}

#[tokio::test]
async fn the_key_comes_from_the_environment_or_a_file() {
    // Cargo sets this one for every test.
    let variable = "[[api_key]]\nprincipal = 'env'\nkey_env = 'CARGO_MANIFEST_DIR'\n";
    let directory = env!("CARGO_MANIFEST_DIR");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    std::fs::write(&path, "a key from a file\r\n").unwrap();
    let file = format!("[[api_key]]\nprincipal = 'file'\nkey_file = '{}'\n", path.display());
    let authenticator = authenticator(&(variable.to_owned() + &file));
    for (key, principal) in [(directory, "env"), ("a key from a file", "file")] {
        assert_eq!(
            authenticator.authenticate(&headers(&[("x-api-key", key)]), HERE, None).await.unwrap().id,
            principal
        );
    }
}

#[tokio::test]
async fn one_principal_may_have_two_keys() {
    let authenticator = authenticator(&(by_digest("ci", "first-key-of-ci!") + &by_digest("ci", "other-key-of-ci!")));
    for key in ["first-key-of-ci!", "other-key-of-ci!"] {
        assert_eq!(authenticator.authenticate(&headers(&[("x-api-key", key)]), HERE, None).await.unwrap().id, "ci");
    }
}

#[tokio::test]
async fn another_header_can_hold_the_key() {
    let authenticator =
        authenticator(&(by_digest("ci", "first-key-of-ci!") + "[api_key_header]\nname = 'X-Annex-Key'\n"));
    let caller =
        authenticator.authenticate(&headers(&[("x-annex-key", "first-key-of-ci!")]), HERE, None).await.unwrap();
    assert_eq!(caller.id, "ci");
    let elsewhere = authenticator.authenticate(&headers(&[("x-api-key", "first-key-of-ci!")]), HERE, None).await;
    assert!(matches!(elsewhere, Err(AuthError::Missing { .. })));
}

#[tokio::test]
async fn a_key_that_is_not_exactly_right_lets_nobody_in() {
    let authenticator = authenticator(&by_digest("ci", "first-key-of-ci!"));
    let digest = sha256_hex("first-key-of-ci!");
    let long = "a".repeat(5000);
    for key in ["", "first-key-of-ci", "first-key-of-ci!!", "First-key-of-ci!", "first-key-of-ci\u{e9}", &digest, &long]
    {
        let refused = authenticator.authenticate(&headers(&[("x-api-key", key)]), HERE, None).await.unwrap_err();
        assert!(matches!(refused, AuthError::Invalid { .. }), "{key}");
        assert_eq!(refused.www_authenticate().unwrap(), r#"ApiKey realm="annex""#);
        assert!(!format!("{refused} {refused:?}").contains("first-key"));
    }
}

#[tokio::test]
async fn a_request_without_a_key_is_told_what_to_send() {
    let authenticator = authenticator(&by_digest("ci", "first-key-of-ci!"));
    let missing = authenticator.authenticate(&headers(&[("authorization", "Bearer x")]), HERE, None).await.unwrap_err();
    assert!(matches!(missing, AuthError::Missing { .. }));
    assert_eq!(missing.www_authenticate().unwrap(), r#"ApiKey realm="annex""#);
}

#[tokio::test]
async fn two_credentials_in_one_request_are_refused_though_both_are_good() {
    let authenticator = authenticator(&(by_digest("ci", "first-key-of-ci!") + &jwt_config("")));
    let bearer = format!("Bearer {}", token(&serde_json::json!({})));
    let key = ("x-api-key", "first-key-of-ci!");
    for pair in [key, ("authorization", &bearer)] {
        assert!(authenticator.authenticate(&headers(&[pair]), HERE, None).await.is_ok());
        assert!(is_invalid(&authenticator.authenticate(&headers(&[pair, pair]), HERE, None).await));
    }
    assert!(is_invalid(&authenticator.authenticate(&headers(&[key, ("authorization", &bearer)]), HERE, None).await));
}

#[test]
fn keys_do_not_show_in_debug_output() {
    let text = format!("{:?}", authenticator(&by_digest("ci", "first-key-of-ci!")));
    assert_eq!(text, "Authenticator { .. }");
}
