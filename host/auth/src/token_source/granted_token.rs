//! The answers of a token endpoint (RFC 6749, section 5; RFC 8693, section 2.2).

use std::time::Duration;

use annex_protocol::{Json, JsonObject};
use http::HeaderValue;

use crate::answer::AnswerError;
use crate::oauth_client::is_bearer_token;

/// The longest access token, in bytes.
const MAX_TOKEN_BYTES: usize = 16 << 10;
/// The lifetime of a token whose lifetime the answer does not say.
const UNKNOWN_LIFETIME: Duration = Duration::from_secs(60);
/// The maximum size of an error code and of its description in a log, in bytes.
const MAX_CODE_BYTES: usize = 64;
const MAX_DESCRIPTION_BYTES: usize = 300;
/// The text in place of a secret in an error description.
const HIDDEN: &str = "(hidden)";

/// The type of an access token in token exchange (RFC 8693, section 3).
pub(super) const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
/// The type of a JSON Web Token in token exchange.
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";

/// The reason why there is no token. The texts contain no token and no secret.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("too many tokens are fetched at the same time")]
    Busy,
    #[error(transparent)]
    Answer(AnswerError),
    #[error("the authorization server refused with the error {code:?}{}", in_brackets(.description))]
    Refused { code: String, description: String },
    #[error("the answer is not a JSON object")]
    NotJson,
    #[error("the member `{0}` of the answer is missing or has a value that cannot be used")]
    Member(&'static str),
    #[error("the token in the answer is not a bearer token")]
    NotBearer,
    #[error("the fetch of the token ended without an answer")]
    Ended,
}

fn in_brackets(description: &str) -> String {
    if description.is_empty() { String::new() } else { format!(" ({description})") }
}

/// An access token with its lifetime.
pub(super) struct GrantedToken {
    /// The value of the header `Authorization`.
    pub(super) field: HeaderValue,
    pub(super) lifetime: Duration,
}

impl GrantedToken {
    /// Reads an answer with status 200.
    pub(super) fn read(text: &str) -> Result<Self, FetchError> {
        let answer = JsonObject::parse(text).map_err(|_| FetchError::NotJson)?;
        let token = text_of(&answer, "access_token").filter(|token| is_bearer_token(token, MAX_TOKEN_BYTES));
        let token = token.ok_or(FetchError::Member("access_token"))?;
        let kind = text_of(&answer, "token_type").ok_or(FetchError::Member("token_type"))?;
        let issued = answer.get("issued_token_type").map(|kind: &Json| kind.to::<String>().unwrap_or_default());
        if !kind.eq_ignore_ascii_case("bearer") || issued.is_some_and(|issued| issued != ACCESS_TOKEN && issued != JWT)
        {
            return Err(FetchError::NotBearer);
        }
        let lifetime = match answer.get("expires_in") {
            None => UNKNOWN_LIFETIME,
            Some(seconds) => Duration::from_secs(whole(seconds).ok_or(FetchError::Member("expires_in"))?),
        };
        let field = HeaderValue::try_from(format!("Bearer {token}"));
        let mut field = field.map_err(|_| FetchError::Member("access_token"))?;
        // Debug output hides a sensitive value, and HTTP/2 keeps the value out of the header table.
        field.set_sensitive(true);
        Ok(Self { field, lifetime })
    }
}

/// Reads an answer with status 400 or 401. The texts in `hidden` do not get into the error.
pub(super) fn refusal(text: &str, hidden: &[String]) -> FetchError {
    let Ok(answer) = JsonObject::parse(text) else { return FetchError::NotJson };
    let Some(code) = text_of(&answer, "error") else { return FetchError::Member("error") };
    let fit = |text: String, limit| {
        let hidden = hidden.iter().filter(|secret| !secret.is_empty());
        let text = hidden.fold(text, |text, secret| text.replace(secret.as_str(), HIDDEN));
        annex_text::line_within(&text, limit)
    };
    let description = text_of(&answer, "error_description").unwrap_or_default();
    FetchError::Refused { code: fit(code, MAX_CODE_BYTES), description: fit(description, MAX_DESCRIPTION_BYTES) }
}

fn text_of(answer: &JsonObject, name: &str) -> Option<String> {
    answer.get(name)?.to().ok()
}

/// A whole number. Some servers write it in quotes.
fn whole(number: &Json) -> Option<u64> {
    number.to::<u64>().ok().or_else(|| number.to::<String>().ok()?.parse().ok())
}
