//! Access tokens for another server: by client credentials (RFC 6749, section 4.4), or in exchange for the token of a caller
//! (RFC 8693).
//!
//! Tokens stay in memory until shortly before they expire, by the digest of the caller's token. One request at a time
//! fetches the token for a caller, and all others wait for its answer. The authorization server is not trusted further than
//! its answer goes: an answer that is late, large, redirected or contradictory is no token.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use annex_egress::Screen;
use annex_protocol::Secret;
use http::HeaderValue;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use reqwest::{Client, RequestBuilder, StatusCode, Url};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::answer::{self, TextAnswer};
use crate::api_key::{Digest, sha256};
use crate::flights::Flights;
use crate::oauth_client::{self, FORM, encoded, form};
use crate::oauth_config::{ClientAuthentication, Grant, OAuthConfig, OAuthConfigError};
use crate::token_cache::{Bounds, TokenCache, lock};

mod granted_token;

use granted_token::{ACCESS_TOKEN, FetchError, GrantedToken, refusal};

/// The grant type of token exchange.
const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The time limit for one fetch, from the connection to the last byte of the answer. The wait for a place has the same limit.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// The longest time for which a token is kept.
const LONGEST_KEPT: Duration = Duration::from_secs(60 * 60);
/// A token is not used in the last seconds of its lifetime, or in the second half of a shorter one.
const MARGIN: Duration = Duration::from_secs(30);
/// The time for which a token is not fetched again after a fetch that failed.
const FAILED: Duration = Duration::from_secs(1);
/// A token that is younger is not replaced. If the other server does not accept a new token, it does not accept the next
/// one either.
const REPLACED_AFTER: Duration = Duration::from_secs(1);
const TOKEN_BOUNDS: Bounds = Bounds { entries: 10_000, bytes: 16 << 20 };
const FAILURE_BOUNDS: Bounds = Bounds { entries: 1_000, bytes: usize::MAX };
/// The maximum number of fetches that are sent at the same time.
const FETCHES: usize = 16;
/// The maximum number of fetches that are sent or wait for a place.
const WAITING_FETCHES: usize = 1_000;
/// The token that [`TokenSource::probe`] offers in exchange. No authorization server has issued it.
const PROBE: &str = "annex-doctor";

/// Gets access tokens for one other server, and keeps them in memory.
pub struct TokenSource {
    config: OAuthConfig,
    url: Url,
    client: Client,
    secret: Secret,
    /// The credentials of this server in the header. `None` if they are sent in the body.
    basic: Option<HeaderValue>,
    tokens: Mutex<TokenCache<AccessToken>>,
    failures: Mutex<TokenCache<TokenFetchError>>,
    /// The tokens that are fetched now. Everyone who needs the same token waits for the one answer.
    flights: Arc<Flights<Outcome>>,
    places: Semaphore,
}

type Outcome = Result<AccessToken, TokenFetchError>;

/// An access token for the other server.
#[derive(Clone)]
pub struct AccessToken {
    field: HeaderValue,
    /// The key of the token in the cache.
    key: Digest,
    fetched_at: Instant,
}

impl AccessToken {
    /// The value of the header `Authorization`.
    #[must_use]
    pub fn header_value(&self) -> HeaderValue {
        self.field.clone()
    }
}

/// Writes no token.
impl fmt::Debug for AccessToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("AccessToken").finish_non_exhaustive()
    }
}

/// The reason why there is no token. The text is for the operator, and contains no token and no secret.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot get an access token from {origin}")]
pub struct TokenFetchError {
    /// The scheme, the host and the port of the token endpoint.
    origin: Arc<str>,
    #[source]
    source: Arc<FetchError>,
}

impl TokenSource {
    /// Reads the secret. Nothing is sent. `screen` is set if a stranger has chosen the settings: it then takes the place of
    /// `allow_private`.
    ///
    /// # Errors
    /// When the settings cannot work. The error names the key.
    pub fn load(config: &OAuthConfig, screen: Option<&Screen>) -> Result<Arc<Self>, OAuthConfigError> {
        config.check()?;
        let secret = config.secret()?;
        let (url, screen) = match screen {
            None => oauth_client::screened("token_url", &config.token_url, &config.allow_private)?,
            Some(screen) => {
                let url = screen.parse(&config.token_url).map_err(|refusal| OAuthConfigError {
                    key: "oauth.token_url",
                    reason: format!("cannot be called: {refusal}"),
                })?;
                (url, screen.clone())
            }
        };
        let builder = screen.guard(annex_egress::client_builder(Vec::new()));
        let client = builder.connect_timeout(CONNECT_TIMEOUT).timeout(FETCH_TIMEOUT).build();
        let client = client.map_err(|error| OAuthConfigError {
            key: "oauth.token_url",
            reason: format!("cannot be called, because the HTTP client cannot be set up: {error}"),
        })?;
        let basic = match config.client_authentication {
            ClientAuthentication::Basic => Some(oauth_client::basic(&config.client_id, &secret)?),
            ClientAuthentication::Post => None,
        };
        Ok(Arc::new(Self {
            config: config.clone(),
            url,
            client,
            secret,
            basic,
            tokens: Mutex::new(TokenCache::new(TOKEN_BOUNDS)),
            failures: Mutex::new(TokenCache::new(FAILURE_BOUNDS)),
            flights: Flights::new(),
            places: Semaphore::new(FETCHES),
        }))
    }

    /// The settings of this source.
    #[must_use]
    pub fn config(&self) -> &OAuthConfig {
        &self.config
    }

    /// The token in exchange for `subject`, which is the verified token of a caller. Without `subject`, the token of this
    /// server. The token is fetched if none is kept. A fetch takes at most ten seconds.
    ///
    /// # Errors
    /// When the authorization server gives no token. Then the next fetch is at least a second later.
    pub async fn token(self: &Arc<Self>, subject: Option<&Secret>) -> Result<AccessToken, TokenFetchError> {
        // No token is empty, so the digest of the empty text is free for the token of this server.
        let key = sha256(subject.map_or("", Secret::expose).as_bytes());
        if let Some(outcome) = self.known(&key) {
            return outcome;
        }
        let outcome = self.flights.outcome(key, |running| {
            // The token may have arrived since the last look.
            if let Some(outcome) = self.known(&key) {
                return Err(outcome);
            }
            if running >= WAITING_FETCHES {
                return Err(Err(self.failed(FetchError::Busy)));
            }
            let (source, subject) = (Arc::clone(self), subject.cloned());
            Ok(async move { source.fetch(subject.as_ref(), key).await })
        });
        outcome.await.unwrap_or_else(|| Err(self.failed(FetchError::Ended)))
    }

    /// Forgets a token that the other server does not accept, so that the next call fetches a new one. False if the token
    /// has just been fetched: it stays, and a new one would not be accepted either.
    pub fn replace(&self, token: &AccessToken) -> bool {
        if token.fetched_at.elapsed() < REPLACED_AFTER {
            return false;
        }
        let mut tokens = lock(&self.tokens);
        // Another call may have fetched a newer one already.
        if tokens.get(&token.key).is_some_and(|kept| kept.fetched_at == token.fetched_at) {
            tokens.remove(&token.key);
        }
        true
    }

    /// Tries a grant at the token endpoint once, without the tokens that are kept. In token exchange a text that is no token
    /// is offered, because there is no caller. The authorization server authenticates this server before it refuses the
    /// text.
    ///
    /// # Errors
    /// When the authorization server does not answer as expected, or does not accept this server as its client.
    pub async fn probe(&self, grant: Grant) -> Result<(), TokenFetchError> {
        let subject = (grant == Grant::TokenExchange).then(|| Secret::new(PROBE));
        match self.granted(subject.as_ref()).await {
            Ok(_) => Ok(()),
            Err(FetchError::Refused { code, .. }) if subject.is_some() && is_about_token(&code) => Ok(()),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn known(&self, key: &Digest) -> Option<Outcome> {
        let token = lock(&self.tokens).get(key).map(Ok);
        token.or_else(|| lock(&self.failures).get(key).map(Err))
    }

    /// Fetches a token, and keeps it or the failure.
    async fn fetch(&self, subject: Option<&Secret>, key: Digest) -> Outcome {
        let granted = self.granted(subject).await;
        let now = Instant::now();
        match granted {
            Ok(GrantedToken { field, lifetime }) => {
                let bytes = field.len();
                let token = AccessToken { field, key, fetched_at: now };
                let lifetime = lifetime.min(LONGEST_KEPT);
                let until = now + lifetime.saturating_sub(MARGIN.min(lifetime / 2));
                lock(&self.tokens).put(key, token.clone(), (until, bytes));
                Ok(token)
            }
            Err(error) => {
                let error = self.failed(error);
                lock(&self.failures).put(key, error.clone(), (now + FAILED, 0));
                Err(error)
            }
        }
    }

    async fn granted(&self, subject: Option<&Secret>) -> Result<GrantedToken, FetchError> {
        let place = timeout(FETCH_TIMEOUT, self.places.acquire()).await.map_err(|_| FetchError::Busy)?;
        let _place = place.map_err(|_| FetchError::Busy)?;
        // RFC 6749, section 5.2: these are the statuses of errors.
        let expected = [StatusCode::OK, StatusCode::BAD_REQUEST, StatusCode::UNAUTHORIZED];
        let answer = answer::text_with(self.request(subject), &expected, MAX_ANSWER_BYTES).await;
        let TextAnswer { status, text } = answer.map_err(FetchError::Answer)?;
        if status == StatusCode::OK {
            return GrantedToken::read(&text);
        }
        Err(refusal(&text, &self.hidden(subject)))
    }

    /// The texts that no error contains: the secrets of a request, and their forms in the request.
    fn hidden(&self, subject: Option<&Secret>) -> Vec<String> {
        let secrets = subject.into_iter().chain([&self.secret]).map(Secret::expose);
        let mut hidden: Vec<String> = secrets.flat_map(|secret| [secret.to_owned(), encoded(secret)]).collect();
        hidden.dedup();
        let basic = self.basic.as_ref().and_then(|field| field.to_str().ok()?.strip_prefix("Basic "));
        hidden.extend(basic.map(str::to_owned));
        hidden
    }

    fn request(&self, subject: Option<&Secret>) -> RequestBuilder {
        let OAuthConfig { client_id, scope, audience, resource, .. } = &self.config;
        let mut pairs = match subject {
            None => vec![("grant_type", "client_credentials")],
            Some(token) => vec![
                ("grant_type", TOKEN_EXCHANGE),
                ("subject_token", token.expose()),
                ("subject_token_type", ACCESS_TOKEN),
                ("requested_token_type", ACCESS_TOKEN),
            ],
        };
        let wanted = [("scope", scope), ("audience", audience), ("resource", resource)];
        pairs.extend(wanted.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?))));
        if self.basic.is_none() {
            pairs.extend([("client_id", client_id.as_str()), ("client_secret", self.secret.expose())]);
        }
        let request = self.client.post(self.url.clone()).header(CONTENT_TYPE, FORM).header(ACCEPT, "application/json");
        let request = match &self.basic {
            Some(basic) => request.header(AUTHORIZATION, basic.clone()),
            None => request,
        };
        request.body(form(&pairs))
    }

    fn failed(&self, error: FetchError) -> TokenFetchError {
        // The path and the query may have a credential.
        TokenFetchError { origin: self.url.origin().ascii_serialization().into(), source: Arc::new(error) }
    }
}

/// Writes no secret and no token.
impl fmt::Debug for TokenSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TokenSource").field("config", &self.config).finish_non_exhaustive()
    }
}

/// True for an error code that is about the offered token. All other codes are about this server or its settings.
fn is_about_token(code: &str) -> bool {
    // RFC 8693, section 2.2.2, names `invalid_request`. Some servers have other codes for it.
    ["invalid_request", "invalid_grant", "invalid_token", "access_denied"].contains(&code)
}
