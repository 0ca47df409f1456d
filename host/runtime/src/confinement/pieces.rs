//! Measures the CPU time of a guest in pieces. A piece begins when the guest starts or continues, and ends at the next
//! tick, wait or return.
//!
//! No piece contains the time that a guest waits, or the host's work in a call that waits. The wall-clock limits and
//! the limit on host calls bound this time and this work. A piece shorter than a tick counts with its real duration: a
//! thousand short pieces do not cost a thousand ticks, and a guest cannot avoid the count by waiting just before each
//! tick.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::confinement::engine::TICK;

/// The moment from which times are counted. It lies before the first piece.
static BASE: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The pieces of the calls of one turn. They are shared by two users: the code that polls the guest, and the store of
/// the guest. Both run in the same tokio task, so relaxed ordering suffices.
#[derive(Default)]
pub(crate) struct Pieces {
    /// True while a worker runs the guest, or host code for it.
    is_polled: AtomicBool,
    /// Start of the current piece, in nanoseconds since [`BASE`]; 0 if there is none.
    began: AtomicU64,
    /// Start of the current host call, in nanoseconds since [`BASE`]; 0 if there is none.
    called: AtomicU64,
    /// True if the current host call has waited.
    has_waited: AtomicBool,
    /// True if the current host call has called the guest, for example to allocate memory.
    is_called_back: AtomicBool,
    /// Nanoseconds of finished pieces that the store has not charged yet.
    ended: AtomicU64,
    waits: AtomicU32,
}

impl Pieces {
    /// Call this when a worker starts or continues to poll the guest.
    pub(crate) fn go_on(&self) {
        self.is_polled.store(true, Ordering::Relaxed);
        if self.called.load(Ordering::Relaxed) == 0 {
            self.began.store(now(), Ordering::Relaxed);
        }
    }

    /// Call this when the worker has stopped polling. `waits` is true if the guest waits, and false if it has returned.
    pub(crate) fn leave(&self, waits: bool) {
        let took = nanos(self.take_running().unwrap_or_default());
        let ended = self.ended.load(Ordering::Relaxed).saturating_add(took);
        self.ended.store(ended, Ordering::Relaxed);
        self.is_polled.store(false, Ordering::Relaxed);
        if waits {
            self.waits.fetch_add(1, Ordering::Relaxed);
            self.has_waited.store(true, Ordering::Relaxed);
        } else {
            self.called.store(0, Ordering::Relaxed);
        }
    }

    /// Call this when the guest calls the host.
    pub(crate) fn call(&self) {
        self.has_waited.store(false, Ordering::Relaxed);
        self.called.store(now(), Ordering::Relaxed);
    }

    /// Call this when the host returns to the guest. The time of a call that did not wait belongs to the piece.
    pub(crate) fn return_to_guest(&self) {
        self.called.store(0, Ordering::Relaxed);
        if self.began.load(Ordering::Relaxed) == 0 && self.is_polled.load(Ordering::Relaxed) {
            self.began.store(now(), Ordering::Relaxed);
        }
    }

    /// Call this when the host calls the guest. If the host call has waited, a new piece begins.
    pub(crate) fn call_guest(&self) {
        if self.called.load(Ordering::Relaxed) != 0 && self.has_waited.load(Ordering::Relaxed) {
            self.is_called_back.store(true, Ordering::Relaxed);
            self.return_to_guest();
        }
    }

    /// Call this when the guest returns to the host.
    pub(crate) fn return_to_host(&self) {
        if self.is_called_back.load(Ordering::Relaxed) {
            self.is_called_back.store(false, Ordering::Relaxed);
            self.called.store(now(), Ordering::Relaxed);
        }
    }

    /// Number of waits so far.
    pub(crate) fn waits(&self) -> u32 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Takes the time of finished pieces. The caller charges this time, so a second call returns zero for the same
    /// pieces.
    pub(crate) fn take_ended(&self) -> Duration {
        match self.ended.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            ended => {
                self.ended.store(0, Ordering::Relaxed);
                Duration::from_nanos(ended)
            }
        }
    }

    /// Ends the current piece at a tick. Returns the time of all pieces that were not charged yet. If there is no
    /// current piece, a whole tick is added.
    pub(crate) fn tick(&self) -> Duration {
        self.take_ended().saturating_add(self.take_running().unwrap_or(TICK))
    }

    /// Ends the current piece and returns its time, which is at most one tick. A piece contains no tick, so a longer
    /// time means that the system also did other work. `None` if there is no current piece.
    fn take_running(&self) -> Option<Duration> {
        let began = self.began.load(Ordering::Relaxed);
        if began == 0 {
            return None;
        }
        self.began.store(0, Ordering::Relaxed);
        let end = match self.called.load(Ordering::Relaxed) {
            0 => now(),
            called => called,
        };
        Some(Duration::from_nanos(end.saturating_sub(began)).min(TICK))
    }
}

/// Nanoseconds since [`BASE`]; never 0.
fn now() -> u64 {
    let since = BASE.elapsed();
    // Cheap, because this is read at each host call. The product stays far below the limit of the type.
    (since.as_secs() * 1_000_000_000 + u64::from(since.subsec_nanos())) | 1
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::Pieces;
    use crate::confinement::engine::TICK;

    /// Keeps the thread busy for this time.
    fn work(time: Duration) {
        let began = Instant::now();
        while began.elapsed() < time {}
    }

    #[test]
    fn short_pieces_count_as_what_they_take_and_waits_between_them_as_nothing() {
        let pieces = Pieces::default();
        let began = Instant::now();
        let mut elsewhere = Duration::ZERO;
        pieces.go_on();
        for _ in 0..20 {
            work(TICK / 10);
            pieces.call();
            let since = Instant::now();
            // The host's own work for a call that waits.
            work(TICK / 10);
            pieces.leave(true);
            thread::sleep(TICK);
            pieces.go_on();
            work(TICK / 10);
            elsewhere += since.elapsed();
            pieces.return_to_guest();
        }
        pieces.leave(false);
        let taken = pieces.take_ended();
        assert!(taken >= TICK * 2, "{taken:?}: waiting before each tick does not get anybody by");
        assert!(taken <= began.elapsed() - elsewhere, "{taken:?}");
        assert_eq!((pieces.take_ended(), pieces.waits()), (Duration::ZERO, 20));
    }

    #[test]
    fn guest_code_called_by_a_host_call_that_waited_counts_for_the_guest() {
        let pieces = Pieces::default();
        pieces.go_on();
        pieces.call();
        pieces.leave(true);
        pieces.go_on();
        pieces.take_ended();
        for _ in 0..4 {
            pieces.call_guest();
            work(TICK / 10);
            pieces.return_to_host();
        }
        pieces.return_to_guest();
        pieces.leave(false);
        assert!(pieces.take_ended() >= TICK * 4 / 10);
    }

    #[test]
    fn a_call_that_does_not_wait_is_a_part_of_the_piece() {
        let pieces = Pieces::default();
        pieces.go_on();
        for _ in 0..4 {
            pieces.call();
            work(TICK / 10);
            pieces.return_to_guest();
        }
        pieces.leave(false);
        assert!(pieces.take_ended() >= TICK * 4 / 10);
    }

    #[test]
    fn a_piece_is_at_most_one_tick_and_an_unmeasured_one_counts_as_a_tick() {
        let pieces = Pieces::default();
        pieces.call();
        assert_eq!(pieces.tick(), TICK);
        pieces.return_to_guest();
        pieces.go_on();
        work(TICK * 2);
        pieces.call();
        assert_eq!(pieces.tick(), TICK);
        pieces.leave(true);
        assert_eq!(pieces.take_ended(), Duration::ZERO, "the tick has counted it");
    }
}
