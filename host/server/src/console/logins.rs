//! The logins of operators. They are only in memory, so a restart of the server ends them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use ring::error::Unspecified;
use ring::rand::{SecureRandom, SystemRandom};
use sha2::{Digest, Sha256};
use tokio::time::Instant;

/// The maximum number of logins. One more login ends the login of the same token that was used least recently, or that of
/// any token if the token has none.
const MAX_LOGINS: usize = 1_000;
/// A login that is not used for this time ends.
const IDLE: Duration = Duration::from_secs(30 * 60);
/// The longest duration of a login.
pub(super) const WHOLE: Duration = Duration::from_secs(12 * 60 * 60);
/// The number of random bytes of an id and of a CSRF token.
const RANDOM_BYTES: usize = 32;
/// The number of characters of an id in base64.
const ID_CHARACTERS: usize = 43;

/// The hash of a login's id. The id itself is only in the operator's browser.
pub(super) type LoginKey = [u8; 32];

#[derive(Default)]
pub(super) struct Logins(Mutex<HashMap<LoginKey, Login>>);

/// The login of an operator.
#[derive(Clone)]
pub(super) struct Login {
    /// The digest of the admin token with which the operator logged in.
    pub(super) token: [u8; 32],
    /// The token that each form of this login has.
    pub(super) csrf: Arc<str>,
    began: Instant,
    used: Instant,
}

impl Logins {
    /// Begins a login. Returns its id.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub(super) fn begin(&self, token: [u8; 32]) -> Result<String, Unspecified> {
        let (id, csrf) = (random()?, random()?);
        let now = Instant::now();
        let mut logins = self.lock();
        if logins.len() >= MAX_LOGINS {
            let oldest = logins.iter().min_by_key(|(_, login)| (login.token != token, login.used)).map(|(key, _)| *key);
            if let Some(key) = oldest {
                logins.remove(&key);
            }
        }
        logins.insert(key_of(&id), Login { token, csrf: csrf.into(), began: now, used: now });
        Ok(id)
    }

    /// Finds a login by its id. If `is_use` is true, the login counts as used now.
    pub(super) fn find(&self, id: &str, is_use: bool) -> Option<(LoginKey, Login)> {
        if id.len() != ID_CHARACTERS {
            return None;
        }
        let key = key_of(id);
        let mut logins = self.lock();
        let login = logins.get_mut(&key)?;
        if is_use {
            login.used = Instant::now();
        }
        Some((key, login.clone()))
    }

    pub(super) fn end(&self, key: &LoginKey) {
        self.lock().remove(key);
    }

    /// The logins that have not ended.
    fn lock(&self) -> MutexGuard<'_, HashMap<LoginKey, Login>> {
        let mut logins = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        logins.retain(|_, login| login.used.elapsed() < IDLE && login.began.elapsed() < WHOLE);
        logins
    }
}

fn random() -> Result<String, Unspecified> {
    let mut bytes = [0; RANDOM_BYTES];
    SystemRandom::new().fill(&mut bytes)?;
    Ok(BASE64.encode(bytes))
}

fn key_of(id: &str) -> LoginKey {
    Sha256::digest(id).into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{IDLE, Logins, MAX_LOGINS, WHOLE};

    const TOKEN: [u8; 32] = [7; 32];
    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_login_ends_when_it_is_idle_and_after_twelve_hours() {
        let logins = Logins::default();
        let idle = logins.begin(TOKEN).expect("a login");
        tokio::time::advance(IDLE - MINUTE).await;
        assert!(logins.find(&idle, false).is_some(), "a page that refreshes itself does not use the login");
        tokio::time::advance(MINUTE).await;
        assert!(logins.find(&idle, true).is_none());

        let used = logins.begin(TOKEN).expect("a login");
        let steps = WHOLE.as_secs() / (IDLE.as_secs() / 2);
        for step in 0..steps {
            assert!(logins.find(&used, true).is_some(), "{step}");
            tokio::time::advance(IDLE / 2).await;
        }
        assert!(logins.find(&used, true).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn one_login_too_many_ends_the_login_that_was_used_least_recently() {
        let logins = Logins::default();
        let first = logins.begin(TOKEN).expect("a login");
        tokio::time::advance(Duration::from_secs(1)).await;
        let second = logins.begin(TOKEN).expect("a login");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(logins.find(&first, true).is_some());
        for _ in 2..=MAX_LOGINS {
            logins.begin(TOKEN).expect("a login");
        }
        assert_eq!(logins.lock().len(), MAX_LOGINS);
        assert!(logins.find(&first, true).is_some());
        assert!(logins.find(&second, true).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn logins_of_one_token_end_no_login_of_another_token() {
        let logins = Logins::default();
        let other = logins.begin([8; 32]).expect("a login");
        tokio::time::advance(Duration::from_secs(1)).await;
        for _ in 0..=MAX_LOGINS {
            logins.begin(TOKEN).expect("a login");
        }
        assert_eq!(logins.lock().len(), MAX_LOGINS);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(logins.find(&other, true).is_some());
        logins.begin([9; 32]).expect("a login");
        assert!(logins.find(&other, true).is_some(), "this login was used last");
    }

    #[tokio::test]
    async fn ids_and_csrf_tokens_are_random_and_only_the_hash_of_an_id_is_kept() {
        let logins = Logins::default();
        let (one, other) = (logins.begin(TOKEN).expect("a login"), logins.begin(TOKEN).expect("a login"));
        assert_ne!(one, other);
        let (key, login) = logins.find(&one, true).expect("a login");
        let (_, other) = logins.find(&other, true).expect("a login");
        assert_ne!(login.csrf, other.csrf);
        assert_ne!(&*login.csrf, one);
        logins.end(&key);
        assert!(logins.find(&one, true).is_none());
        assert!(logins.find("", true).is_none());
    }
}
