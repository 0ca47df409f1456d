//! Rate limit for warnings that clients can cause as often as they like.

use std::time::Duration;

use tokio::time::Instant;

/// The minimum time between two warnings of one kind.
const WARNING_PAUSE: Duration = Duration::from_secs(10);

/// The rate limit of one warning.
#[derive(Default)]
pub(crate) struct Warnings {
    last: Option<Instant>,
    /// The number of events since the last warning.
    times: usize,
}

impl Warnings {
    /// Counts one event. Returns the number of events since the last warning if a new warning is due.
    pub(crate) fn due(&mut self) -> Option<usize> {
        self.times += 1;
        if self.is_pausing() {
            return None;
        }
        self.last = Some(Instant::now());
        Some(std::mem::take(&mut self.times))
    }

    /// True if the last warning was less than [`WARNING_PAUSE`] ago.
    pub(crate) fn is_pausing(&self) -> bool {
        self.last.is_some_and(|last| last.elapsed() < WARNING_PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Warnings;

    #[tokio::test(start_paused = true)]
    async fn what_happens_often_is_logged_once_in_a_while_and_counted() {
        let mut warnings = Warnings::default();
        assert_eq!(warnings.due(), Some(1));
        for _ in 0..98 {
            tokio::time::advance(Duration::from_millis(100)).await;
            assert_eq!(warnings.due(), None);
        }
        tokio::time::advance(Duration::from_millis(200)).await;
        assert_eq!(warnings.due(), Some(99));
        assert_eq!(warnings.due(), None);
    }
}
