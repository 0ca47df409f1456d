//! A bounded cache of the validity of tokens. The cache stores digests of tokens, and no tokens.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use crate::api_key::Digest;

/// Values by the digest of a token, each until a time. Beyond its bounds the oldest values are dropped.
pub(crate) struct TokenCache<T> {
    entries: HashMap<Digest, Entry<T>>,
    /// The entries in the order in which they were put. An entry that was put again or is gone stays in this order until
    /// its position is reached.
    order: VecDeque<(Digest, u64)>,
    bytes: usize,
    puts: u64,
    max: Bounds,
}

/// The bounds of a cache.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
}

struct Entry<T> {
    value: T,
    until: Instant,
    bytes: usize,
    /// The number of the put that made the entry.
    number: u64,
}

impl<T: Clone> TokenCache<T> {
    pub(crate) fn new(max: Bounds) -> Self {
        Self { entries: HashMap::new(), order: VecDeque::new(), bytes: 0, puts: 0, max }
    }

    /// The value for a token, if it is still valid.
    pub(crate) fn get(&self, token: &Digest) -> Option<T> {
        let entry = self.entries.get(token)?;
        (Instant::now() < entry.until).then(|| entry.value.clone())
    }

    /// Keeps a value until a time. `bytes` is the size of the value.
    pub(crate) fn put(&mut self, token: Digest, value: T, (until, bytes): (Instant, usize)) {
        self.puts += 1;
        let number = self.puts;
        self.remove(&token);
        self.entries.insert(token, Entry { value, until, bytes, number });
        self.bytes = self.bytes.saturating_add(bytes);
        self.order.push_back((token, number));
        self.shrink();
    }

    /// Drops entries that are over, and the oldest ones beyond the bounds.
    fn shrink(&mut self) {
        let now = Instant::now();
        while let Some((token, number)) = self.order.front().copied() {
            let entry = self.entries.get(&token).filter(|entry| entry.number == number);
            let is_over = entry.is_none_or(|entry| entry.until <= now);
            let is_current = entry.is_some();
            if !is_over && self.order.len() <= self.max.entries && self.bytes <= self.max.bytes {
                return;
            }
            self.order.pop_front();
            if is_current {
                self.remove(&token);
            }
        }
    }

    /// Forgets a token.
    pub(crate) fn remove(&mut self, token: &Digest) {
        if let Some(entry) = self.entries.remove(token) {
            self.bytes = self.bytes.saturating_sub(entry.bytes);
        }
    }
}

/// Locks, also after a panic of another holder: each change of these values is complete.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{Instant, advance};

    use super::{Bounds, TokenCache};

    fn digest(number: u8) -> [u8; 32] {
        [number; 32]
    }

    fn later(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_is_known_until_its_time() {
        let mut cache = TokenCache::new(Bounds { entries: 10, bytes: 100 });
        cache.put(digest(1), "a", (later(5), 1));
        assert_eq!(cache.get(&digest(1)), Some("a"));
        assert_eq!(cache.get(&digest(2)), None);
        advance(Duration::from_secs(5)).await;
        assert_eq!(cache.get(&digest(1)), None);
        cache.put(digest(2), "b", (later(5), 1));
        assert_eq!((cache.entries.len(), cache.order.len(), cache.bytes), (1, 1, 1), "what is over is dropped");
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_values_go_beyond_the_number_and_the_bytes() {
        let mut cache = TokenCache::new(Bounds { entries: 3, bytes: 100 });
        for number in 0..10 {
            cache.put(digest(number), number, (later(60), 1));
        }
        let known: Vec<u8> = (0..10).filter(|number| cache.get(&digest(*number)).is_some()).collect();
        assert_eq!(known, [7, 8, 9]);
        cache.put(digest(20), 20, (later(60), 99));
        assert_eq!((cache.get(&digest(9)), cache.get(&digest(20)), cache.bytes), (Some(9), Some(20), 100));
        cache.put(digest(21), 21, (later(60), 101));
        assert_eq!((cache.entries.len(), cache.order.len(), cache.bytes), (0, 0, 0), "too large to be kept");
    }

    #[tokio::test(start_paused = true)]
    async fn one_token_that_is_put_again_and_again_takes_one_place() {
        let mut cache = TokenCache::new(Bounds { entries: 3, bytes: 100 });
        cache.put(digest(1), 1, (later(60), 1));
        for number in 0..100 {
            cache.put(digest(2), number, (later(60), 7));
        }
        assert_eq!((cache.get(&digest(2)), cache.bytes), (Some(99), 7));
        assert!(cache.order.len() <= 3 && cache.entries.len() == 1);
    }
}
