//! The outbox of hints. Hints leave the outbox in batches.

use std::collections::HashMap;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};
use uuid::Uuid;

use super::hints::Hint;

/// The shortest time between two batches.
const PAUSE: Duration = Duration::from_millis(20);
/// The maximum number of bytes in the payload of a notification. PostgreSQL accepts less than 8,000.
const MAX_BYTES: usize = 7_900;
/// The maximum number of tasks in the outbox. Hints of further tasks are lost.
const MAX_WAITING: usize = 10_000;
/// The time after which a process that was alone looks for other processes again.
const ALONE: Duration = Duration::from_secs(10);

/// The hints that wait to be sent.
#[derive(Debug)]
pub(super) struct Outbox {
    /// The name of this process in the payloads of its notifications. A process ignores payloads with its own name.
    sender: String,
    waiting: Mutex<HashMap<String, u64>>,
    filled: Notify,
    /// True while no other process exists.
    is_alone: AtomicBool,
    company: Notify,
}

impl Outbox {
    pub(super) fn new() -> Self {
        let sender = Uuid::new_v4().simple().to_string();
        let is_alone = AtomicBool::new(false);
        Self { sender, waiting: Mutex::default(), filled: Notify::new(), is_alone, company: Notify::new() }
    }

    pub(super) fn put(&self, id: &str, seq: u64) {
        // Relaxed: a hint that this load drops by mistake is a lost hint, which readers expect.
        if self.is_alone.load(Ordering::Relaxed) || self.sender.len() + 32 + id.len() > MAX_BYTES {
            return;
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(told) = waiting.get_mut(id) {
            // Zero stays zero: it makes readers look for any change, and a number only for events after their own.
            *told = if seq == 0 || *told == 0 { 0 } else { seq.max(*told) };
        } else if waiting.len() < MAX_WAITING {
            waiting.insert(id.to_owned(), seq);
        }
        self.filled.notify_one();
    }

    /// Waits until there are hints and the pause after the `last` batch has passed. Returns the hints as payloads of
    /// notifications.
    pub(super) async fn batch(&self, last: Instant) -> Vec<String> {
        loop {
            self.filled.notified().await;
            sleep_until(last + PAUSE).await;
            let waiting = mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
            if !waiting.is_empty() {
                return texts(&self.sender, waiting);
            }
        }
    }

    /// Drops all hints while this process is alone. Returns when another process may exist.
    pub(super) async fn wait_for_company(&self) {
        self.is_alone.store(true, Ordering::Relaxed);
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let _ = timeout(ALONE, self.company.notified()).await;
        self.is_alone.store(false, Ordering::Relaxed);
    }

    /// Called when another process may exist. Ends [`wait_for_company`](Self::wait_for_company).
    pub(super) fn is_joined(&self) {
        // The permit stays for a caller that begins to wait later.
        self.company.notify_one();
    }

    /// A payload without hints, which announces this process.
    pub(super) fn greeting(&self) -> String {
        self.sender.clone()
    }

    /// The hints in a payload. `None` if this process sent the payload. Empty if the payload is longer than the limit.
    pub(super) fn read(&self, text: &str) -> Option<Vec<Hint>> {
        if text.len() > MAX_BYTES {
            return Some(Vec::new());
        }
        let mut lines = text.lines();
        if lines.next()? == self.sender {
            return None;
        }
        // A later version may write lines of other kinds.
        let hint = |line: &str| {
            let (seq, id) = line.split_once(' ')?;
            Some(Hint { id: id.to_owned(), seq: seq.parse().ok()? })
        };
        Some(lines.filter_map(hint).collect())
    }
}

/// The hints as payloads within the limit. Each payload has the sender in the first line and a hint in each further
/// line.
fn texts(sender: &str, told: HashMap<String, u64>) -> Vec<String> {
    let mut texts = Vec::new();
    let mut text = sender.to_owned();
    for (id, seq) in told {
        let line = format!("\n{seq} {id}");
        if text.len() + line.len() > MAX_BYTES {
            texts.push(mem::replace(&mut text, sender.to_owned()));
        }
        text.push_str(&line);
    }
    texts.push(text);
    texts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_read_by_others_and_not_by_its_sender() {
        let outbox = Outbox::new();
        let told: HashMap<String, u64> = (0..1_000).map(|number| (format!("task-{number:032}"), number)).collect();
        let texts = texts(&outbox.sender, told.clone());
        assert!(texts.len() > 1 && texts.iter().all(|text| text.len() <= MAX_BYTES), "{}", texts.len());
        assert!(texts.iter().all(|text| outbox.read(text).is_none()));
        let other = Outbox::new();
        let read = texts.iter().flat_map(|text| other.read(text).unwrap());
        assert_eq!(read.map(|hint| (hint.id, hint.seq)).collect::<HashMap<_, _>>(), told);
        assert_eq!(other.read("somebody\n7 task\nwhat a later version says\n").unwrap().len(), 1);
        assert!(other.read(&format!("somebody\n7 {}", "x".repeat(MAX_BYTES))).unwrap().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_tells_of_each_task_once_and_the_next_comes_after_a_pause() {
        let outbox = Outbox::new();
        let begin = Instant::now();
        let long_ago = begin.checked_sub(PAUSE).unwrap_or(begin);
        for seq in [3, 1, 2] {
            outbox.put("task", seq);
        }
        let sender = &outbox.sender;
        assert_eq!(outbox.batch(long_ago).await, [format!("{sender}\n3 task")]);
        assert_eq!(begin.elapsed(), Duration::ZERO, "the first one waits for nothing");
        outbox.put("task", 4);
        outbox.put("task", 0);
        assert_eq!(outbox.batch(Instant::now()).await, [format!("{sender}\n0 task")]);
        assert_eq!(begin.elapsed(), PAUSE);
    }
}
