//! Requests to one registry: credentials, tokens and redirects.

use std::convert::Infallible;
use std::iter;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use annex_egress::{Screen, whole};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, LOCATION};
use reqwest::{Body, Client, Method, Response, StatusCode};
use tokio::time::timeout;
use url::Url;

use crate::client::Login;
use crate::error::{MAX_TEXT, RegistryError};
use crate::token::{Challenge, TokenAnswer};

/// The maximum time of a request with a small body and a small answer, from the connection to the end of the answer.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(60);
/// The maximum number of redirects of a request.
const MAX_REDIRECTS: usize = 5;
/// The maximum size of the answer of a token server in bytes.
const MAX_TOKEN_ANSWER: usize = 64 << 10;
/// The size of the pieces of a counted body in bytes.
const PIECE_BYTES: usize = 64 << 10;

/// Requests to one registry.
pub(crate) struct Session {
    pub(crate) registry: String,
    base: Url,
    http: Client,
    screen: Screen,
    login: Option<Login>,
    /// The value of `Authorization` that the registry has accepted last. It is used for the next request, and asked for
    /// again when the registry refuses it.
    authorization: Mutex<Option<HeaderValue>>,
}

/// A request to a registry.
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    /// The name of the request in errors, such as `the manifest`.
    pub(crate) what: &'static str,
    pub(crate) url: Url,
    pub(crate) accept: &'a str,
    /// The media type and the content of the body.
    pub(crate) body: Option<(&'a str, Bytes)>,
    /// The scope of the token, such as `repository:acme/redact:pull`. Empty for a check of the credentials alone.
    pub(crate) scope: String,
    /// The maximum time, from the connection to the end of the answer.
    pub(crate) limit: Duration,
    /// Counts the bytes of the body that have been sent, for uploads that take long.
    pub(crate) sent: Option<Arc<AtomicU64>>,
}

impl Session {
    pub(crate) fn new(registry: &str, base: Url, (http, screen): (Client, Screen), login: Option<Login>) -> Self {
        Self { registry: registry.to_owned(), base, http, screen, login, authorization: Mutex::default() }
    }

    /// The URL of a path below `/v2/`.
    pub(crate) fn url(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("/v2/{path}"));
        url
    }

    /// Resolves a `Location` or `Link` of this registry. An address without TLS is refused if `from` has TLS.
    pub(crate) fn join(&self, from: &Url, to: &str, what: &'static str) -> Result<Url, RegistryError> {
        joined(from, to).ok_or_else(|| self.redirect(what))
    }

    /// Sends a request. Answers a challenge once, and follows redirects of requests without a body.
    pub(crate) async fn send(&self, call: &Call<'_>) -> Result<Response, RegistryError> {
        let authorization = self.authorization();
        let answer = self.follow(call, authorization.as_ref()).await?;
        if answer.status() != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        // The challenge of another server could name a token server that would get the password for the registry.
        if answer.url().origin() != self.base.origin() {
            return Err(self.unauthorized("it redirects to a server that wants credentials"));
        }
        let Some(challenge) = Challenge::of(answer.headers()) else {
            return Err(self.unauthorized("it names no way to log in that Annex knows"));
        };
        let authorization = self.answer(challenge, &call.scope).await?;
        let answer = self.follow(call, Some(&authorization)).await?;
        if answer.status() == StatusCode::UNAUTHORIZED {
            let reason =
                if self.login.is_some() { "the credentials are not accepted" } else { "there are no credentials" };
            return Err(self.unauthorized(reason));
        }
        *self.authorization.lock().unwrap_or_else(PoisonError::into_inner) = Some(authorization);
        Ok(answer)
    }

    fn authorization(&self) -> Option<HeaderValue> {
        self.authorization.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn follow(&self, call: &Call<'_>, authorization: Option<&HeaderValue>) -> Result<Response, RegistryError> {
        let mut url = call.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            self.admit(&url)?;
            let mut request = self.http.request(call.method.clone(), url.clone()).timeout(call.limit);
            request = request.header(ACCEPT, call.accept);
            // The registry's credentials are for the registry alone.
            if let Some(authorization) = authorization.filter(|_| url.origin() == self.base.origin()) {
                request = request.header(AUTHORIZATION, authorization);
            }
            if let Some((media_type, body)) = &call.body {
                // The length stands here too, because a counted body has no length of its own.
                request = request.header(CONTENT_TYPE, *media_type).header(CONTENT_LENGTH, body.len());
                request = match &call.sent {
                    Some(sent) => request.body(counted(body.clone(), Arc::clone(sent))),
                    None => request.body(body.clone()),
                };
            }
            // An upload is answered when all of it has been sent. Any other answer begins soon, however long it is.
            let begin = if call.sent.is_some() { call.limit } else { ANSWER_TIME };
            let answer = timeout(begin, request.send()).await.map_err(|late| self.answer_error(call.what, &late))?;
            let answer = answer.map_err(|error| self.unreachable(error))?;
            // A redirect of an upload could send the content to a stranger.
            if !answer.status().is_redirection() || call.body.is_some() {
                return Ok(answer);
            }
            let location = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let location = location.ok_or_else(|| self.redirect(call.what))?;
            url = self.join(&url, location, call.what)?;
        }
        Err(self.redirect(call.what))
    }

    /// The value of `Authorization` for a challenge.
    async fn answer(&self, challenge: Challenge, scope: &str) -> Result<HeaderValue, RegistryError> {
        let (realm, service) = match challenge {
            Challenge::Basic => {
                let login = self.login.as_ref().ok_or_else(|| self.unauthorized("there are no credentials"))?;
                return self.header(login.basic());
            }
            // The scope of the challenge is not used: it could be that of another repository.
            Challenge::Bearer { realm, service, scope: _ } => (realm, service),
        };
        let mut url = self.screen.parse(&realm).map_err(|refusal| refused(&realm, refusal))?;
        if url.scheme() != "https" && url.origin() != self.base.origin() {
            return Err(self.unauthorized("its token server is not reached over https"));
        }
        url.query_pairs_mut().extend_pairs(service.iter().map(|service| ("service", service.as_str())));
        if !scope.is_empty() {
            url.query_pairs_mut().append_pair("scope", scope);
        }
        let mut request = self.http.get(url).timeout(ANSWER_TIME);
        if let Some(login) = &self.login {
            request = request.header(AUTHORIZATION, self.header(login.basic())?);
        }
        let mut answer = request.send().await.map_err(|error| self.unreachable(error))?;
        if !answer.status().is_success() {
            let reason = format!("its token server answers with the status {}", answer.status().as_u16());
            return Err(self.unauthorized(&reason));
        }
        let body =
            whole(&mut answer, MAX_TOKEN_ANSWER).await.map_err(|error| self.answer_error("the token", &error))?;
        let token = serde_json::from_slice::<TokenAnswer>(&body).ok().and_then(TokenAnswer::token);
        let token = token.ok_or_else(|| self.unauthorized("its token server gives no token"))?;
        self.header(format!("Bearer {token}"))
    }

    fn header(&self, value: String) -> Result<HeaderValue, RegistryError> {
        let value = HeaderValue::try_from(value);
        let mut value =
            value.map_err(|_| self.unauthorized("the credentials have a character that no header can have"))?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Checks an address before it is called. The addresses that its name resolves to are checked when it is connected.
    fn admit(&self, url: &Url) -> Result<(), RegistryError> {
        self.screen.parse(url.as_str()).map(drop).map_err(|refusal| refused(url.as_str(), refusal))
    }

    fn unreachable(&self, error: reqwest::Error) -> RegistryError {
        RegistryError::Unreachable { registry: self.registry.clone(), source: error.without_url() }
    }

    fn unauthorized(&self, reason: &str) -> RegistryError {
        RegistryError::Unauthorized { registry: self.registry.clone(), reason: reason.to_owned() }
    }

    pub(crate) fn redirect(&self, what: &'static str) -> RegistryError {
        RegistryError::Redirect { registry: self.registry.clone(), what }
    }

    /// An answer cannot be read.
    pub(crate) fn answer_error(&self, what: &'static str, error: &dyn std::error::Error) -> RegistryError {
        // The reason can quote the answer.
        let reason = annex_text::line_within(&annex_text::with_causes(error), MAX_TEXT);
        RegistryError::Answer { registry: self.registry.clone(), what, reason }
    }

    /// The registry's own words are quoted, for people.
    pub(crate) async fn status(&self, what: &'static str, mut answer: Response) -> RegistryError {
        let status = answer.status().as_u16();
        let text = annex_egress::beginning(&mut answer, MAX_TEXT).await;
        let text = annex_text::line_within(String::from_utf8_lossy(&text).trim(), MAX_TEXT);
        let text = if text.is_empty() { text } else { format!(" ({text})") };
        RegistryError::Status { registry: self.registry.clone(), what, status, text }
    }
}

/// Resolves an address that an answer names. `None` if it is no address, or leads from https to another scheme.
fn joined(from: &Url, to: &str) -> Option<Url> {
    from.join(to).ok().filter(|next| from.scheme() != "https" || next.scheme() == "https")
}

/// A body that counts its bytes as they are sent.
fn counted(mut content: Bytes, sent: Arc<AtomicU64>) -> Body {
    sent.store(0, Ordering::Relaxed);
    let pieces = iter::from_fn(move || {
        let piece = content.split_to(content.len().min(PIECE_BYTES));
        sent.fetch_add(u64::try_from(piece.len()).unwrap_or(u64::MAX), Ordering::Relaxed);
        (!piece.is_empty()).then_some(Ok::<_, Infallible>(piece))
    });
    Body::wrap_stream(futures::stream::iter(pieces))
}

impl Login {
    fn basic(&self) -> String {
        format!("Basic {}", STANDARD.encode(format!("{}:{}", self.user, self.password)))
    }
}

fn refused(url: &str, refusal: annex_egress::UrlRefusal) -> RegistryError {
    RegistryError::Refused { url: annex_text::line_within(url, MAX_TEXT), refusal }
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::joined;

    #[test]
    fn an_answer_over_tls_leads_to_no_address_without_it() {
        let (https, http) = ("https://registry.example/v2/", "http://registry.example/v2/");
        for (from, to, expected) in [
            (https, "https://cdn.example/x", Some("https://cdn.example/x")),
            (https, "/v2/a?b=c", Some("https://registry.example/v2/a?b=c")),
            (https, "//cdn.example/x", Some("https://cdn.example/x")),
            (https, "http://registry.example/v2/a", None),
            (https, "HTTP://cdn.example/x", None),
            (https, "ftp://cdn.example/x", None),
            (https, "https://", None),
            (http, "http://cdn.example/x", Some("http://cdn.example/x")),
            (http, "https://cdn.example/x", Some("https://cdn.example/x")),
        ] {
            let from = Url::parse(from).expect("a URL");
            assert_eq!(joined(&from, to).as_ref().map(Url::as_str), expected, "{from} {to}");
        }
    }
}
