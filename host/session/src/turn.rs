//! Turns: at most one runs in a session, the others wait in order of arrival.
//!
//! These queues are in memory. Where several processes share the sessions, each turn also joins a queue in the
//! database, and the first turn of a queue here waits in that queue ([`TurnPlace`](crate::TurnPlace)).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::future::ready;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedMutexGuard};

use crate::SessionError;
use crate::session::SessionKey;

/// The default number of turns that may wait in one session.
const DEFAULT_MAX_WAITING: usize = 64;

/// The queues of all sessions. Sessions do not wait for each other, and a queue exists only while it has members.
#[derive(Clone)]
pub struct Turns {
    queues: Arc<Queues>,
}

struct Queues {
    max_waiting: AtomicUsize,
    by_session: Mutex<HashMap<SessionKey, Queue>>,
}

#[derive(Default)]
struct Queue {
    /// Tokio's mutex is fair: waiters get the lock in the order of their requests.
    lock: Arc<tokio::sync::Mutex<()>>,
    /// Makes the first turn check if the turns of other processes have ended.
    hint: Arc<Notify>,
    lining_up: Arc<tokio::sync::Mutex<()>>,
    /// The running turn and the waiting ones.
    members: usize,
}

impl Turns {
    /// Queues in which at most `max_waiting` turns wait behind the running one.
    pub fn new(max_waiting: usize) -> Self {
        let max_waiting = AtomicUsize::new(max_waiting);
        Self { queues: Arc::new(Queues { max_waiting, by_session: Mutex::default() }) }
    }

    /// Limits the waiting turns of each session to `max_waiting` from now on. Turns that wait already stay.
    pub fn set_max_waiting(&self, max_waiting: usize) {
        self.queues.max_waiting.store(max_waiting, Ordering::Relaxed);
    }

    /// Waits until no earlier turn of this session is left, then starts one. It ends when the guard is dropped.
    ///
    /// Dropping the future leaves the queue.
    ///
    /// # Errors
    /// [`SessionError::TooManyTurns`] at once, if the queue is full.
    pub async fn begin(&self, key: &SessionKey) -> Result<TurnGuard, SessionError> {
        self.begin_after(key, ready(Ok(()))).await
    }

    /// Like [`Turns::begin`], but a turn that has to wait runs `line_up` during the wait. The turns of a session line
    /// up one after the other.
    pub(crate) async fn begin_after(
        &self,
        key: &SessionKey,
        line_up: impl Future<Output = Result<(), SessionError>>,
    ) -> Result<TurnGuard, SessionError> {
        // The place is taken before the wait, so that the queue is bounded. A future that is dropped while it waits
        // gives it back.
        let (lock, place) = Queues::join(&self.queues, key)?;
        let mut running = pin!(lock.lock_owned());
        let line_up = async {
            let _one = place.lining_up.lock().await;
            line_up.await
        };
        let running = tokio::select! {
            biased;
            running = &mut running => running,
            lined_up = line_up => {
                lined_up?;
                running.await
            }
        };
        Ok(TurnGuard { _running: running, place })
    }

    /// Starts a turn if none runs or waits in this session.
    pub fn try_begin(&self, key: &SessionKey) -> Option<TurnGuard> {
        let (lock, place) = Queues::join(&self.queues, key).ok()?;
        Some(TurnGuard { _running: lock.try_lock_owned().ok()?, place })
    }

    /// Wakes the first turn that waits for another process, because a turn of another process may have left the
    /// session. A missed hint only delays the turn.
    pub fn hint(&self, key: &SessionKey) {
        if let Some(queue) = self.queues.lock().get(key) {
            // Kept for one that is about to wait.
            queue.hint.notify_one();
        }
    }
}

impl Default for Turns {
    /// 64 turns may wait in each session.
    fn default() -> Self {
        Self::new(DEFAULT_MAX_WAITING)
    }
}

/// A running turn. The next one of the session starts when this is dropped.
#[must_use = "the turn ends when its guard is dropped"]
pub struct TurnGuard {
    // Dropped before the place, so that the queue still exists when its next member gets the lock.
    _running: OwnedMutexGuard<()>,
    place: Place,
}

impl TurnGuard {
    pub(crate) fn hint(&self) -> &Notify {
        &self.place.hint
    }
}

impl fmt::Debug for TurnGuard {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TurnGuard").finish_non_exhaustive()
    }
}

/// A place in a queue, running or waiting.
struct Place {
    queues: Arc<Queues>,
    key: SessionKey,
    hint: Arc<Notify>,
    /// Held while a turn lines up.
    lining_up: Arc<tokio::sync::Mutex<()>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.queues.leave(&self.key);
    }
}

impl Queues {
    fn join(self: &Arc<Self>, key: &SessionKey) -> Result<(Arc<tokio::sync::Mutex<()>>, Place), SessionError> {
        let mut by_session = self.lock();
        let queue = by_session.entry(key.clone()).or_default();
        // The running turn is a member as well, and does not wait.
        let waiting = self.max_waiting.load(Ordering::Relaxed);
        if queue.members > waiting {
            return Err(SessionError::TooManyTurns { waiting });
        }
        queue.members += 1;
        let hint = Arc::clone(&queue.hint);
        let place = Place { queues: Arc::clone(self), key: key.clone(), hint, lining_up: Arc::clone(&queue.lining_up) };
        Ok((Arc::clone(&queue.lock), place))
    }

    fn leave(&self, key: &SessionKey) {
        if let Entry::Occupied(mut queue) = self.lock().entry(key.clone()) {
            queue.get_mut().members -= 1;
            if queue.get().members == 0 {
                // A queue without members goes, or the map would grow with every context that a client names.
                queue.remove();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<SessionKey, Queue>> {
        self.by_session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn key(context: &str) -> SessionKey {
        SessionKey::new("t", "a", "u", context)
    }

    fn is_pending(future: std::pin::Pin<&mut impl Future>) -> bool {
        future.poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    #[tokio::test]
    async fn turns_of_one_session_run_in_order_of_arrival() {
        let turns = Turns::default();
        let first = turns.begin(&key("c")).await.unwrap();
        let key = key("c");
        let mut second = pin!(turns.begin(&key));
        let mut third = pin!(turns.begin(&key));
        assert!(is_pending(second.as_mut()));
        assert!(is_pending(third.as_mut()));

        drop(first);
        assert!(is_pending(third.as_mut()));
        let second = second.await.unwrap();
        assert!(is_pending(third.as_mut()));
        drop(second);
        drop(third.await.unwrap());
    }

    #[tokio::test]
    async fn a_turn_that_cannot_wait_starts_only_where_there_is_none() {
        let turns = Turns::default();
        let first = turns.try_begin(&key("c")).unwrap();
        assert!(turns.try_begin(&key("c")).is_none());
        drop(first);
        drop(turns.try_begin(&key("c")).unwrap());
        assert!(turns.queues.lock().is_empty());
    }

    #[tokio::test]
    async fn sessions_do_not_wait_for_each_other() {
        let turns = Turns::default();
        let _one = turns.begin(&key("one")).await.unwrap();
        let _other_context = turns.begin(&key("two")).await.unwrap();
        let other_user = SessionKey::new("t", "a", "v", "one");
        let _other_user = turns.begin(&other_user).await.unwrap();
    }

    #[tokio::test]
    async fn a_full_queue_refuses_at_once() {
        let turns = Turns::new(1);
        let key = key("c");
        let _running = turns.begin(&key).await.unwrap();
        let mut waiting = pin!(turns.begin(&key));
        assert!(is_pending(waiting.as_mut()));
        assert!(matches!(turns.begin(&key).await, Err(SessionError::TooManyTurns { waiting: 1 })));
    }

    #[tokio::test]
    async fn a_queue_takes_as_many_as_it_was_last_told_to() {
        let turns = Turns::new(0);
        let key = key("c");
        let _running = turns.begin(&key).await.unwrap();
        assert!(turns.begin(&key).await.is_err());
        turns.set_max_waiting(1);
        assert!(is_pending(pin!(turns.begin(&key)).as_mut()));
        turns.set_max_waiting(0);
        assert!(matches!(turns.begin(&key).await, Err(SessionError::TooManyTurns { waiting: 0 })));
    }

    #[tokio::test]
    async fn a_waiter_that_gives_up_leaves_no_trace() {
        let turns = Turns::new(1);
        let key = key("c");
        let running = turns.begin(&key).await.unwrap();
        {
            let mut waiting = pin!(turns.begin(&key));
            assert!(is_pending(waiting.as_mut()));
        }
        let mut next = pin!(turns.begin(&key));
        assert!(is_pending(next.as_mut()));
        drop(running);
        drop(next.await.unwrap());
        assert!(turns.queues.lock().is_empty());
    }
}
