//! Shared parts of the tests: tokens signed with the keys in `fixtures`, configurations, servers, and a clock.

pub(crate) mod authorization_server;
pub(crate) mod jwks_server;
pub(crate) mod token;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use annex_auth::{AuthConfig, AuthError, Authenticator, Principal};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;
use tempfile::NamedTempFile;

/// The network of most clients.
pub(crate) const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// The path of a file in `fixtures`.
pub(crate) fn fixture_path(name: &str) -> String {
    format!("{}/tests/auth/fixtures/{name}", env!("CARGO_MANIFEST_DIR"))
}

pub(crate) fn fixture(name: &str) -> String {
    std::fs::read_to_string(fixture_path(name)).unwrap()
}

/// A file with a secret.
pub(crate) fn secret(text: &str) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

/// The object as JSON, with these members changed. A value of `null` removes a member.
pub(crate) fn changed(mut object: Value, changes: &Value) -> String {
    for (name, value) in changes.as_object().unwrap() {
        object[name] = value.clone();
    }
    object.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    object.to_string()
}

/// Moves the clock forward. The clock is paused only for this moment, because sockets need it to run.
pub(crate) async fn pass(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

/// Parses the tables below `[auth]`.
pub(crate) fn config(toml: &str) -> AuthConfig {
    toml::from_str(toml).unwrap()
}

pub(crate) fn authenticator(toml: &str) -> Authenticator {
    Authenticator::new(&config(toml)).unwrap()
}

/// The table `[jwt]` for the tokens of [`token::claims`], with the keys in `jwks.json`. `more` is the text of further
/// keys of the table.
pub(crate) fn jwt_config(more: &str) -> String {
    let path = fixture_path("jwks.json");
    format!("[jwt]\nissuer = 'https://issuer.example'\naudience = ['annex', 'other']\njwks_file = '{path}'\n{more}")
}

pub(crate) fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &str)| {
        (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
    };
    let mut headers = HeaderMap::new();
    for (name, value) in pairs.iter().map(pair) {
        headers.append(name, value);
    }
    headers
}

/// Authenticates a request from [`HERE`] with this token and nothing else.
pub(crate) async fn authenticate_token(authenticator: &Authenticator, token: &str) -> Result<Principal, AuthError> {
    authenticate_token_from(HERE, authenticator, token).await
}

/// Authenticates a request from this network with this token and nothing else.
pub(crate) async fn authenticate_token_from(
    network: IpAddr,
    authenticator: &Authenticator,
    token: &str,
) -> Result<Principal, AuthError> {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, HeaderValue::try_from(format!("Bearer {token}")).unwrap());
    authenticator.authenticate(&headers, network, None).await
}

pub(crate) fn is_invalid(result: &Result<Principal, AuthError>) -> bool {
    matches!(result, Err(AuthError::Invalid { .. }))
}
