//! An authorization: the request that a person answers, and the exchange of its code for a token.
//!
//! The task's keys have the number of the last authorization and the redirect URI. State and verifier (RFC 7636) are derived
//! from the operator's key, the task and the number, so none of them is stored. A number is used once.

use annex_sdk::http::Request;
use annex_sdk::keyvalue::Keys;
use annex_sdk::log;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac_sha256::{HMAC, Hash};
use serde::Deserialize;

use crate::parameters::Parameters;
use crate::url;

/// The counter of authorizations of the task. It also counts each answer, which ends its authorization.
const NUMBER: &str = "number";
/// The redirect URI that the client has named.
const REDIRECT_URI: &str = "redirect_uri";

/// The maximum length of a code, in bytes.
const MAX_CODE: usize = 4 << 10;
/// The maximum length of a token, in bytes.
const MAX_TOKEN: usize = 16 << 10;
/// The maximum length of the error code of an authorization server.
const MAX_ERROR: usize = 64;

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: Option<String>,
    token_type: Option<String>,
    error: Option<String>,
}

/// The redirect URI of the task. `None` if no client has named one.
///
/// # Errors
/// The task has no keys, or their store is not available.
pub fn redirect_uri() -> Result<Option<String>, String> {
    let stored = Keys::of_task()?.get(REDIRECT_URI)?;
    Ok(stored.and_then(|bytes| String::from_utf8(bytes).ok()))
}

/// Begins an authorization: returns the URL at which a person grants access.
///
/// # Errors
/// The task has no keys, or their store is not available.
pub fn begin(parameters: &Parameters, task_id: &str, redirect_uri: &str) -> Result<String, String> {
    let keys = Keys::of_task()?;
    keys.set(REDIRECT_URI, redirect_uri.as_bytes())?;
    let number = keys.increment(NUMBER, 1)?;
    let key = parameters.key()?;
    let state = derived(&key, "state", task_id, number);
    let challenge = URL_SAFE_NO_PAD.encode(Hash::hash(derived(&key, "verifier", task_id, number).as_bytes()));
    let mut fields = vec![
        ("response_type", "code"),
        ("client_id", parameters.client_id.as_str()),
        ("redirect_uri", redirect_uri),
        ("state", state.as_str()),
        ("code_challenge", challenge.as_str()),
        ("code_challenge_method", "S256"),
    ];
    fields.extend(parameters.scope.as_deref().map(|scope| ("scope", scope)));
    fields.extend(parameters.resource.as_deref().map(|resource| ("resource", resource)));
    let endpoint = &parameters.authorization_endpoint;
    let separator = if endpoint.contains('?') { '&' } else { '?' };
    Ok(format!("{endpoint}{separator}{}", url::encode(&fields)))
}

/// Ends the last authorization of the task, and exchanges the code in `answer` for a token. `answer` is the URL to which the
/// authorization server has sent the person. No error repeats the code or the token.
///
/// # Errors
/// The answer belongs to no authorization that is open, access was denied, or the token endpoint gives no token.
pub fn finish(parameters: &Parameters, task_id: &str, answer: &str) -> Result<String, String> {
    let Some(redirect_uri) = redirect_uri()? else { return Err("answers no authorization of this task".to_owned()) };
    let place = answer.split(['?', '#']).next().unwrap_or_default();
    if place.trim_end_matches('/') != redirect_uri.trim_end_matches('/') {
        return Err("is not at the redirect URI of the authorization".to_owned());
    }
    // Counted first, so that of two answers at once only one has the number of the authorization.
    let number = Keys::of_task()?.increment(NUMBER, 1)?.saturating_sub(1);
    let key = parameters.key()?;
    if url::field(answer, "state") != Some(derived(&key, "state", task_id, number)) {
        return Err("belongs to no authorization that is open; send a message to the task to get a new one".to_owned());
    }
    if let Some(error) = url::field(answer, "error") {
        return Err(format!("says that access was not granted: {}", shown(&error)));
    }
    let Some(code) = url::field(answer, "code").filter(|code| !code.is_empty() && code.len() <= MAX_CODE) else {
        return Err("has no code".to_owned());
    };
    exchange(parameters, &code, &redirect_uri, &derived(&key, "verifier", task_id, number))
}

fn exchange(parameters: &Parameters, code: &str, redirect_uri: &str, verifier: &str) -> Result<String, String> {
    let mut fields = vec![
        ("grant_type", "authorization_code"),
        ("code", code),
        ("redirect_uri", redirect_uri),
        ("client_id", parameters.client_id.as_str()),
        ("code_verifier", verifier),
    ];
    fields.extend(parameters.resource.as_deref().map(|resource| ("resource", resource)));
    let mut request = Request::post(parameters.token_endpoint.clone(), url::encode(&fields))
        .field("content-type", "application/x-www-form-urlencoded")
        .field("accept", "application/json");
    if let Some(password) = parameters.password()? {
        // RFC 6749, section 2.3.1.
        let pair = format!("{}:{}", url::escaped(&parameters.client_id), url::escaped(&password));
        request = request.field("authorization", format!("Basic {}", STANDARD.encode(pair)));
    }
    let failed = |reason: &str| format!("gets no token: {reason}");
    let response = request.send().map_err(|error| {
        log::warn(&format!("the token endpoint cannot be called: {error}"));
        failed("the token endpoint cannot be called")
    })?;
    let answer: Option<TokenAnswer> = serde_json::from_slice(&response.body).ok();
    if response.status != 200 {
        let error = answer.and_then(|answer| answer.error).map(|error| format!(" ({})", shown(&error)));
        let reason =
            format!("the token endpoint answers with the status {}{}", response.status, error.unwrap_or_default());
        return Err(failed(&reason));
    }
    let Some(TokenAnswer { access_token: Some(token), token_type, .. }) = answer else {
        return Err(failed("the answer of the token endpoint has none"));
    };
    if !token_type.is_some_and(|name| name.eq_ignore_ascii_case("bearer")) {
        return Err(failed("the token is no bearer token"));
    }
    if token.is_empty() || token.len() > MAX_TOKEN || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(failed("the token is empty, too long, or has characters that no header field has"));
    }
    Ok(token)
}

/// A value that only the holder of the key can compute: 43 characters.
fn derived(key: &str, what: &str, task_id: &str, number: u64) -> String {
    URL_SAFE_NO_PAD.encode(HMAC::mac(format!("{what}\n{number}\n{task_id}"), key))
}

/// An error code of an authorization server, for the client.
fn shown(error: &str) -> String {
    error.chars().filter(|one| one.is_ascii_alphanumeric() || *one == '_').take(MAX_ERROR).collect()
}
