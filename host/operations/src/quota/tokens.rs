//! The tokens of a tenant or of a caller in a day (UTC). Each process counts its own tokens. If there is a quota on these
//! tokens, the sum over all processes is kept in the key-value store, under a name that no extension can have.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use annex_agent::TokenCount;
use annex_protocol::ExtensionUri;
use annex_runtime::{KeyValueError, KeyValueStore, Quota, Scope, Space};
use sha2::{Digest, Sha256};

/// The name that stands for an extension's URI in the store. It is not a URI, so no extension has it.
const NAME: &str = "tokens";
const SECONDS_OF_DAY: u64 = 24 * 60 * 60;

/// The tokens of one tenant or of one caller.
#[derive(Debug)]
pub(super) struct Tokens {
    /// The name of the bucket in the store. The callers of a tenant share 256 buckets, so that each bucket has few keys.
    bucket: String,
    /// The suffix of the keys in the bucket.
    suffix: String,
    /// The tokens that were counted since the last settlement and are not in `known` yet.
    new: TokenCount,
    known: Mutex<Known>,
    /// The tokens of all days that this process has counted and moved from `new` to `known`.
    settled: AtomicU64,
    /// The day on which the stored counts of earlier days were last removed.
    cleared: AtomicU64,
}

/// The tokens of one day.
#[derive(Clone, Copy, Debug)]
struct Known {
    day: u64,
    tokens: u64,
}

impl Tokens {
    /// The tokens of a tenant.
    pub(super) fn new() -> Self {
        Self::under(NAME.to_owned(), String::new(), today().0)
    }

    /// The tokens of a caller. A principal may be longer than a key, so its digest is stored.
    pub(super) fn of_caller(principal: &str) -> Self {
        let digest: String = Sha256::digest(principal).iter().map(|byte| format!("{byte:02x}")).collect();
        let bucket = digest.get(..2).unwrap_or_default();
        // A caller may be new in this process every day, so the first settlement of each caller removes old counts.
        Self::under(format!("{NAME}.{bucket}"), format!(".{digest}"), 0)
    }

    fn under(bucket: String, suffix: String, day: u64) -> Self {
        Self {
            bucket,
            suffix,
            new: TokenCount::default(),
            known: Mutex::new(Known { day, tokens: 0 }),
            settled: AtomicU64::new(0),
            cleared: AtomicU64::new(day),
        }
    }

    fn space(&self, tenant: &str) -> Space {
        Space { extension: ExtensionUri::from(self.bucket.as_str()), scope: Scope::lasting(tenant) }
    }

    fn key(&self, day: u64) -> String {
        format!("{day}{}", self.suffix)
    }

    /// The counter for new tokens. Models add to the counter.
    pub(super) fn count(&self) -> &TokenCount {
        &self.new
    }

    /// The tokens of today that this process knows of.
    pub(super) fn used(&self) -> u64 {
        let known = *self.known();
        let stored = if known.day == today().0 { known.tokens } else { 0 };
        stored.saturating_add(self.new.read())
    }

    /// The tokens that this process has counted on all days.
    pub(super) fn all(&self) -> u64 {
        self.settled.load(Ordering::Relaxed).saturating_add(self.new.read())
    }

    /// Adds the new tokens to the count of this process.
    pub(super) fn settle_here(&self) {
        let (day, _) = today();
        let new = self.new.take();
        self.settled.fetch_add(new, Ordering::Relaxed);
        let mut known = self.known();
        if known.day != day {
            *known = Known { day, tokens: 0 };
        }
        known.tokens = known.tokens.saturating_add(new);
    }

    /// Adds the new tokens to the count of all processes, and reads that count.
    ///
    /// # Errors
    /// When the store fails. The tokens then stay new.
    pub(super) async fn settle(&self, tenant: &str, store: &dyn KeyValueStore) -> Result<(), KeyValueError> {
        let (day, _) = today();
        let (space, key) = (self.space(tenant), self.key(day));
        let mut taken = Taken { from: &self.new, tokens: self.new.take() };
        let settled = if taken.tokens == 0 {
            read(store, &space, &key).await
        } else {
            store.increment(&space, &key, taken.tokens, &Quota::default()).await
        };
        let tokens = settled?;
        self.settled.fetch_add(taken.tokens, Ordering::Relaxed);
        taken.tokens = 0;
        *self.known() = Known { day, tokens };
        if self.cleared.swap(day, Ordering::Relaxed) != day {
            forget_others(store, &space, day).await?;
        }
        Ok(())
    }

    /// Reads the count of all processes, unless this process has read the count of today before.
    ///
    /// # Errors
    /// When the store fails.
    pub(super) async fn learn(&self, tenant: &str, store: &dyn KeyValueStore) -> Result<(), KeyValueError> {
        let (day, _) = today();
        if self.known().day == day {
            return Ok(());
        }
        let tokens = read(store, &self.space(tenant), &self.key(day)).await?;
        let mut known = self.known();
        // A settlement in the meantime knows more.
        if known.day != day {
            *known = Known { day, tokens };
        }
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tokens that are being stored. If storing fails or is cancelled, the tokens count as new again.
struct Taken<'a> {
    from: &'a TokenCount,
    tokens: u64,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.from.add(self.tokens);
    }
}

/// The time until the next day.
pub(super) fn until_tomorrow() -> Duration {
    today().1
}

/// The number of days since 1970-01-01T00:00:00Z, and the time until the next day.
fn today() -> (u64, Duration) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    (now / SECONDS_OF_DAY, Duration::from_secs(SECONDS_OF_DAY - now % SECONDS_OF_DAY))
}

async fn read(store: &dyn KeyValueStore, space: &Space, key: &str) -> Result<u64, KeyValueError> {
    let value = store.get(space, key).await?;
    // The value is valid, because only the host writes it.
    let number = value.and_then(|value| str::from_utf8(&value).ok()?.parse().ok());
    Ok(number.unwrap_or(0))
}

/// Removes the stored counts of all days before yesterday. The count of yesterday stays, because the clock of another process
/// may be behind.
async fn forget_others(store: &dyn KeyValueStore, space: &Space, day: u64) -> Result<(), KeyValueError> {
    for other in store.keys(space, 0).await? {
        let of_day = other.split('.').next().unwrap_or_default();
        if of_day.parse().is_ok_and(|other: u64| other.saturating_add(1) < day) {
            store.delete(space, &other).await?;
        }
    }
    Ok(())
}
