//! The CPU time of a guest, measured in pieces: from when it goes on to the next tick, wait or end.
//!
//! Waiting is in no piece, however many ticks pass, and nor is the work of the host for a call that waits. Limits on the clock
//! and on the number of calls bound both. A piece that is shorter than a tick counts as what it took: a thousand short pieces
//! do not cost a thousand ticks, and waiting just before each tick does not avoid the count.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::confinement::engine::TICK;

/// Any moment before the first piece.
static BASE: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The pieces of the calls of one turn. Those who let the guest run and its store know of them; both are in the one task
/// that polls the call, so that no access needs an order.
#[derive(Default)]
pub(crate) struct Pieces {
    /// A worker is at the guest, or at the host's work for it.
    is_polled: AtomicBool,
    /// Nanoseconds from [`BASE`] to the beginning of the piece that runs; 0 while none does.
    began: AtomicU64,
    /// The same for the call of the host that the guest is in; 0 while it is in none.
    called: AtomicU64,
    /// That call has waited.
    has_waited: AtomicBool,
    /// In that call the host has called the guest: for memory, say.
    is_called_back: AtomicBool,
    /// Nanoseconds of pieces that have ended and that the store has not counted.
    ended: AtomicU64,
    waits: AtomicU32,
}

impl Pieces {
    /// A worker goes on with the guest.
    pub(crate) fn go_on(&self) {
        self.is_polled.store(true, Ordering::Relaxed);
        if self.called.load(Ordering::Relaxed) == 0 {
            self.began.store(now(), Ordering::Relaxed);
        }
    }

    /// The worker has left the guest, which waits or has returned.
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

    /// The guest calls the host.
    pub(crate) fn call(&self) {
        self.has_waited.store(false, Ordering::Relaxed);
        self.called.store(now(), Ordering::Relaxed);
    }

    /// The host returns to the guest. A call that did not wait is a part of the piece.
    pub(crate) fn return_to_guest(&self) {
        self.called.store(0, Ordering::Relaxed);
        if self.began.load(Ordering::Relaxed) == 0 && self.is_polled.load(Ordering::Relaxed) {
            self.began.store(now(), Ordering::Relaxed);
        }
    }

    /// The host calls the guest. In a call of the host that has waited, a piece begins with it.
    pub(crate) fn call_guest(&self) {
        if self.called.load(Ordering::Relaxed) != 0 && self.has_waited.load(Ordering::Relaxed) {
            self.is_called_back.store(true, Ordering::Relaxed);
            self.return_to_guest();
        }
    }

    /// The guest returns to the host.
    pub(crate) fn return_to_host(&self) {
        if self.is_called_back.load(Ordering::Relaxed) {
            self.is_called_back.store(false, Ordering::Relaxed);
            self.called.store(now(), Ordering::Relaxed);
        }
    }

    /// The number of times that a call had to wait.
    pub(crate) fn waits(&self) -> u32 {
        self.waits.load(Ordering::Relaxed)
    }

    /// The time of the pieces that have ended, which is counted once.
    pub(crate) fn take_ended(&self) -> Duration {
        match self.ended.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            ended => {
                self.ended.store(0, Ordering::Relaxed);
                Duration::from_nanos(ended)
            }
        }
    }

    /// The same at a tick, with which the piece that runs ends. Where no piece is measured it is the whole tick.
    pub(crate) fn tick(&self) -> Duration {
        self.take_ended().saturating_add(self.take_running().unwrap_or(TICK))
    }

    /// The time of the piece that runs. It has no tick in it, so whatever the clock says beyond one was others' time: the
    /// system had the worker wait.
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

/// Nanoseconds since [`BASE`], and never 0.
fn now() -> u64 {
    let since = BASE.elapsed();
    // Read at each call of the host. The product of all the seconds that a process runs is far below the limit of the type.
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

    /// Keeps the thread busy for so long.
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
    fn what_the_guest_does_in_a_call_of_the_host_that_has_waited_is_its_own() {
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
    fn a_piece_is_at_most_a_tick_and_where_none_is_measured_it_is_a_whole_one() {
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
