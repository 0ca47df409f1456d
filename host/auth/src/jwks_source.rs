//! Where the keys of an issuer come from: a file, read at start, or a URL, fetched when needed.

use std::error::Error;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use reqwest::header::ACCEPT;
use reqwest::{Client, Url, redirect};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::answer::{self, AnswerError};
use crate::url::{UNSAFE, is_on_this_machine, is_safe};
use crate::{Algorithm, AuthConfigError, Jwks, KeyError, jwks::PublicKey};

/// The shortest time between two fetches of the key set, also if the first one failed. All tokens share this limit.
const MIN_REFRESH_INTERVAL: Duration = Duration::from_secs(30);
/// A key set of this age is fetched again before it is used. So keys that the issuer has revoked stop working.
const MAX_AGE: Duration = Duration::from_secs(600);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_BODY_BYTES: usize = 256 * 1024;

/// The reason why a token's key is not available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoKey {
    /// The issuer has no such key.
    Unknown,
    /// The issuer's keys cannot be fetched.
    Unavailable,
}

pub(crate) enum JwksSource {
    File(Jwks),
    Url(Arc<RemoteJwks>),
}

impl JwksSource {
    /// The key that verifies a token: the key with the token's key id, or the only key of the set if the token has no
    /// key id.
    pub(crate) async fn key(&self, kid: Option<&str>, algorithm: Algorithm) -> Result<PublicKey, NoKey> {
        match self {
            Self::File(jwks) => find(jwks, kid, algorithm).ok_or(NoKey::Unknown),
            Self::Url(remote) => remote.key(kid, algorithm).await,
        }
    }
}

fn find(jwks: &Jwks, kid: Option<&str>, algorithm: Algorithm) -> Option<PublicKey> {
    match kid {
        Some(kid) => jwks.named(kid, algorithm).cloned(),
        None => jwks.only(algorithm).cloned(),
    }
}

/// The keys from a URL. The last valid set stays in use while the issuer is down.
pub(crate) struct RemoteJwks {
    url: Url,
    client: Client,
    state: RwLock<JwksState>,
    /// Held during a fetch, so that only one runs at a time.
    fetching: Mutex<()>,
}

#[derive(Clone, Default)]
struct JwksState {
    jwks: Option<Arc<Jwks>>,
    fetched_at: Option<Instant>,
    attempted_at: Option<Instant>,
    last_attempt_failed: bool,
}

impl RemoteJwks {
    pub(crate) fn new(url: &str) -> Result<Arc<Self>, AuthConfigError> {
        let url = Url::parse(url).map_err(|_| AuthConfigError::Jwt { field: "jwks_url", problem: "is not a URL" })?;
        if !is_safe(&url) {
            return Err(AuthConfigError::Jwt { field: "jwks_url", problem: UNSAFE });
        }
        let mut builder = annex_egress::client_builder(Vec::new())
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(FETCH_TIMEOUT)
            // A redirect could lead to plain HTTP or into the local network.
            .redirect(redirect::Policy::none());
        // A proxy would look for the issuer on its own machine.
        if is_on_this_machine(&url) {
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(AuthConfigError::HttpClient)?;
        Ok(Arc::new(Self { url, client, state: RwLock::default(), fetching: Mutex::default() }))
    }

    async fn key(self: &Arc<Self>, kid: Option<&str>, algorithm: Algorithm) -> Result<PublicKey, NoKey> {
        let state = self.state();
        let known = state.find(kid, algorithm);
        let stale = state.fetched_at.is_none_or(|at| at.elapsed() >= MAX_AGE);
        if let Some(key) = known {
            // A stale key is still used while another call fetches the keys.
            if !stale || !state.may_fetch() {
                return Ok(key);
            }
        }
        // A running fetch may bring the key, so this call waits for its end. Anyone can send tokens with unknown key
        // ids; the pause prevents them from making this server flood the issuer.
        if state.may_fetch() || self.fetching.try_lock().is_err() {
            // The fetch runs in its own task: if the caller disconnects, the fetch must still finish, because its
            // attempt counts for the pause.
            let remote = Arc::clone(self);
            let _ = tokio::spawn(async move { remote.refresh().await }).await;
        }
        let state = self.state();
        let missing =
            if state.jwks.is_none() || state.last_attempt_failed { NoKey::Unavailable } else { NoKey::Unknown };
        state.find(kid, algorithm).ok_or(missing)
    }

    /// Fetches the key set. Does nothing if another call has fetched it, or tried to, within [`MIN_REFRESH_INTERVAL`].
    /// This includes a fetch for which this call had to wait.
    async fn refresh(&self) {
        let _turn = self.fetching.lock().await;
        if !self.state().may_fetch() {
            return;
        }
        // The attempt is recorded first, so that a failed attempt counts too.
        self.update(|state| state.attempted_at = Some(Instant::now()));
        match self.fetch().await {
            Ok(jwks) => self.update(|state| {
                state.jwks = Some(Arc::new(jwks));
                state.fetched_at = Some(Instant::now());
                state.last_attempt_failed = false;
            }),
            Err(error) => {
                tracing::warn!(error = &error as &dyn Error, "the keys of the token issuer could not be fetched");
                self.update(|state| state.last_attempt_failed = true);
            }
        }
    }

    async fn fetch(&self) -> Result<Jwks, FetchError> {
        let request = self.client.get(self.url.clone()).header(ACCEPT, "application/jwk-set+json, application/json");
        let text = answer::text_of(request, MAX_BODY_BYTES).await.map_err(FetchError::Answer)?;
        Jwks::parse(&text).map_err(FetchError::Keys)
    }

    fn state(&self) -> JwksState {
        // A panic cannot leave the state half written: every change is a few assignments.
        self.state.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn update(&self, change: impl FnOnce(&mut JwksState)) {
        change(&mut self.state.write().unwrap_or_else(PoisonError::into_inner));
    }
}

impl JwksState {
    fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<PublicKey> {
        self.jwks.as_deref().and_then(|jwks| find(jwks, kid, algorithm))
    }

    fn may_fetch(&self) -> bool {
        self.attempted_at.is_none_or(|at| at.elapsed() >= MIN_REFRESH_INTERVAL)
    }
}

#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error(transparent)]
    Answer(AnswerError),
    #[error("the answer is not a key set")]
    Keys(#[source] KeyError),
}
