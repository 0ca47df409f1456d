//! Introspection of tokens (RFC 7662): asks the authorization server whether a token is valid and whose it is.
//!
//! Anyone can send tokens, so questions are bounded: one at a time for each token, a few at the same time for each network
//! and for all tokens (`introspection/places.rs`), and a cache of answers. The authorization server is not trusted further
//! than its answer goes: an answer that is late, large, redirected or contradictory accepts no token.

use std::error::Error;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use annex_protocol::{Json, JsonObject, Secret};
use http::HeaderValue;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use reqwest::{Client, Url};
use tokio::time::Instant;

use crate::answer::{self, AnswerError};
use crate::api_key::{Digest, sha256};
use crate::config::IntrospectionConfig;
use crate::flights::Flights;
use crate::jwt::{MAX_TOKEN_BYTES, TokenError};
use crate::oauth_client::{self, FORM, form, is_bearer_token};
use crate::token_cache::{Bounds, TokenCache, lock};
use crate::{AuthConfigError, INTROSPECTION_SCHEME, Principal, principal};

mod places;

use places::{Admission, Origin, Places};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The time limit for one question, from the connection to the last byte of the answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// The longest time for which a valid token is not asked about again, so that revoked tokens stop working.
const LONGEST_ACCEPTED: Duration = Duration::from_secs(60);
/// The time for which a token counts as accepted lately, after it was accepted.
const LATELY: Duration = Duration::from_secs(60 * 60);
/// The time for which an invalid token is not asked about again.
const REFUSED: Duration = Duration::from_secs(5);
/// The time for which a token is not asked about again after a question that failed.
const FAILED: Duration = Duration::from_secs(1);
const ACCEPTED_BOUNDS: Bounds = Bounds { entries: 10_000, bytes: 32 << 20 };
const LATELY_BOUNDS: Bounds = Bounds { entries: 10_000, bytes: usize::MAX };
const REFUSED_BOUNDS: Bounds = Bounds { entries: 10_000, bytes: usize::MAX };
/// The accepted difference between the clocks for the claim `nbf`, in seconds.
const LEEWAY_SECONDS: u64 = 30;

pub(crate) struct Introspector {
    config: IntrospectionConfig,
    url: Url,
    client: Client,
    /// The credentials of this server for the authorization server.
    credentials: HeaderValue,
    accepted: Mutex<TokenCache<Arc<Principal>>>,
    refused: Mutex<TokenCache<TokenError>>,
    /// The tokens that were accepted lately. Strangers cannot use up the places of these tokens.
    lately: Mutex<TokenCache<()>>,
    /// The tokens that are asked about now. Everyone with the same token waits for the one answer.
    flights: Arc<Flights<Outcome>>,
    places: Arc<Places>,
    /// True while questions fail. Only the first failure is logged.
    is_failing: AtomicBool,
}

type Outcome = Result<Arc<Principal>, TokenError>;

/// The content of an answer about a token.
enum Verdict {
    /// The token is valid for this time. The principal takes this many bytes.
    Accepted(Arc<Principal>, Duration, usize),
    Refused,
}

impl Introspector {
    pub(crate) fn load(config: &IntrospectionConfig) -> Result<Arc<Self>, AuthConfigError> {
        config.check()?;
        let secret = config.secret()?;
        let (url, screen) = oauth_client::screened("url", &config.url, &config.allow_private)?;
        let builder = screen
            .guard(annex_egress::client_builder(Vec::new()))
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(ASK_TIMEOUT);
        Ok(Arc::new(Self {
            url,
            client: builder.build().map_err(AuthConfigError::HttpClient)?,
            credentials: oauth_client::basic(&config.client_id, &secret)?,
            config: config.clone(),
            accepted: Mutex::new(TokenCache::new(ACCEPTED_BOUNDS)),
            refused: Mutex::new(TokenCache::new(REFUSED_BOUNDS)),
            lately: Mutex::new(TokenCache::new(LATELY_BOUNDS)),
            flights: Flights::new(),
            places: Places::new(),
            is_failing: AtomicBool::new(false),
        }))
    }

    /// The principal of a token that a client in `network` has sent.
    pub(crate) async fn principal_of(self: &Arc<Self>, token: &str, network: IpAddr) -> Result<Principal, TokenError> {
        // The authorization server is not asked about a text that no bearer token can have.
        if !is_bearer_token(token, MAX_TOKEN_BYTES) {
            return Err(TokenError::Invalid);
        }
        let digest = sha256(token.as_bytes());
        let outcome = match self.known(&digest) {
            Some(outcome) => outcome,
            None => self.asked(digest, token, network).await,
        };
        outcome.map(|principal| Principal::clone(&principal))
    }

    fn known(&self, token: &Digest) -> Option<Outcome> {
        let accepted = lock(&self.accepted).get(token).map(Ok);
        accepted.or_else(|| lock(&self.refused).get(token).map(Err))
    }

    /// The outcome of the question about a token.
    async fn asked(self: &Arc<Self>, digest: Digest, token: &str, network: IpAddr) -> Outcome {
        let outcome = self.flights.outcome(digest, |_| {
            // The answer may have arrived since the last look.
            if let Some(outcome) = self.known(&digest) {
                return Err(outcome);
            }
            let is_known = lock(&self.lately).get(&digest).is_some();
            let origin = if is_known { Origin::Known } else { Origin::Stranger(network) };
            let Some(admission) = self.places.admit(origin) else { return Err(Err(TokenError::Unavailable)) };
            let (introspector, token) = (Arc::clone(self), Secret::new(token));
            Ok(async move { introspector.ask(&token, digest, &admission).await })
        });
        outcome.await.unwrap_or(Err(TokenError::Unavailable))
    }

    /// Asks the authorization server about a token, and remembers the answer.
    async fn ask(&self, token: &Secret, digest: Digest, admission: &Admission) -> Outcome {
        let verdict = self.answer(token, admission).await.and_then(|answer| self.judge(&answer));
        let now = Instant::now();
        let refused = match verdict {
            Ok(Verdict::Accepted(principal, time, bytes)) => {
                self.is_failing.store(false, Ordering::Relaxed);
                lock(&self.accepted).put(digest, Arc::clone(&principal), (now + time, bytes));
                lock(&self.lately).put(digest, (), (now + LATELY, 0));
                return Ok(principal);
            }
            Ok(Verdict::Refused) => {
                self.is_failing.store(false, Ordering::Relaxed);
                lock(&self.lately).remove(&digest);
                (TokenError::Invalid, now + REFUSED)
            }
            Err(error) => {
                if !self.is_failing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        error = &error as &dyn Error,
                        "the authorization server could not be asked about a token"
                    );
                }
                (TokenError::Unavailable, now + FAILED)
            }
        };
        let (error, until) = refused;
        lock(&self.refused).put(digest, error, (until, 0));
        Err(error)
    }

    /// Sends the question, and reads the answer.
    async fn answer(&self, token: &Secret, admission: &Admission) -> Result<String, AskError> {
        let _sending = admission.sending().await.ok_or(AskError::Busy)?;
        let body = form(&[("token", token.expose()), ("token_type_hint", "access_token")]);
        let request = self.client.post(self.url.clone()).header(AUTHORIZATION, self.credentials.clone());
        let request = request.header(CONTENT_TYPE, FORM);
        let request = request.header(ACCEPT, "application/json").body(body);
        answer::text_of(request, MAX_ANSWER_BYTES).await.map_err(AskError::Answer)
    }

    /// Decides about a token by the answer of the authorization server.
    fn judge(&self, answer: &str) -> Result<Verdict, AskError> {
        let mut claims = JsonObject::parse(answer).map_err(AskError::NotJson)?;
        let active = claims.remove("active").and_then(|active| active.to::<bool>().ok());
        if !active.ok_or(AskError::Member("active"))? {
            return Ok(Verdict::Refused);
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let left = match seconds(&claims, "exp")? {
            Some(exp) => Duration::from_secs(exp).checked_sub(now).filter(|left| !left.is_zero()),
            None => Some(LONGEST_ACCEPTED),
        };
        let begins = seconds(&claims, "nbf")?.unwrap_or(0);
        let has_begun = begins <= now.as_secs().saturating_add(LEEWAY_SECONDS);
        let Some(left) = left.filter(|_| has_begun && self.is_for_this_server(&claims)) else {
            return Ok(Verdict::Refused);
        };
        let IntrospectionConfig { issuer, principal_claim, .. } = &self.config;
        let principal =
            principal::of_claims((issuer.as_str(), principal_claim.as_str()), INTROSPECTION_SCHEME, &claims);
        Ok(principal.map_or(Verdict::Refused, |principal| {
            Verdict::Accepted(Arc::new(principal), left.min(LONGEST_ACCEPTED), answer.len())
        }))
    }

    /// True if the token is a bearer token of the issuer and for this server.
    fn is_for_this_server(&self, claims: &JsonObject) -> bool {
        let text = |name| claims.get(name).map(|claim: &Json| claim.to::<String>().ok());
        let is_issuers = text("iss").is_none_or(|issuer| issuer.as_ref() == Some(&self.config.issuer));
        let is_bearer = |kind: Option<String>| kind.is_some_and(|kind| kind.eq_ignore_ascii_case("bearer"));
        // A token that is bound to a key of its holder (RFC 7800) proves nothing without that key.
        let is_bound = claims.get("cnf").is_some();
        let audience = claims.get("aud").and_then(|audience| match audience.to::<String>() {
            Ok(one) => Some(vec![one]),
            Err(_) => audience.to::<Vec<String>>().ok(),
        });
        let is_meant = audience.unwrap_or_default().iter().any(|one| self.config.audience.contains(one));
        is_issuers && text("token_type").is_none_or(is_bearer) && !is_bound && is_meant
    }
}

/// The value of a claim with a time, in seconds since 1970.
fn seconds(claims: &JsonObject, name: &'static str) -> Result<Option<u64>, AskError> {
    claims.get(name).map(|time| time.to::<u64>().map_err(|_| AskError::Member(name))).transpose()
}

/// The reason why a question has no usable answer. The texts contain no token.
#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error("too many tokens are asked about at the same time")]
    Busy,
    #[error(transparent)]
    Answer(AnswerError),
    #[error("the answer is not a JSON object")]
    NotJson(#[source] serde_json::Error),
    #[error("the member `{0}` of the answer is missing or of another type")]
    Member(&'static str),
}
