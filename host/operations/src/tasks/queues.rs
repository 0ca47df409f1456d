//! The queues in which turns of this process wait. Other processes send hints when a turn has left such a queue.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

use annex_conversation::{ConversationKey, ConversationStore};
use annex_leases::wake::Wake;
use sha2::{Digest, Sha256};

/// The prefix of each hint about a queue. No task id begins with it.
const PREFIX: &str = "queue ";

/// The queues in which turns of this process wait, by the names of their hints.
#[derive(Default)]
pub(super) struct WaitingQueues(Mutex<HashMap<String, (ConversationKey, usize)>>);

/// The registration of a waiting turn. Dropping it ends the registration.
pub(crate) struct WaitingTurn<'a> {
    queues: &'a WaitingQueues,
    name: String,
}

impl WaitingQueues {
    pub(super) fn wait(&self, key: &ConversationKey) -> WaitingTurn<'_> {
        let name = name(key);
        self.lock().entry(name.clone()).or_insert_with(|| (key.clone(), 0)).1 += 1;
        WaitingTurn { queues: self, name }
    }

    /// Wakes the turns of this process that wait in the queue named by the hint.
    pub(super) fn hint(&self, hint: &str, store: &dyn ConversationStore) {
        if let Some((key, _)) = self.lock().get(hint) {
            store.hint(key);
        }
    }

    /// Wakes all turns that wait here, because hints of other processes were lost.
    pub(super) fn hint_all(&self, store: &dyn ConversationStore) {
        self.lock().values().for_each(|(key, _)| store.hint(key));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (ConversationKey, usize)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WaitingTurn<'_> {
    fn drop(&mut self) {
        let mut queues = self.queues.lock();
        if let Some((_, turns)) = queues.get_mut(&self.name) {
            *turns -= 1;
            if *turns == 0 {
                queues.remove(&self.name);
            }
        }
    }
}

/// Notifies other processes that a turn has left the queue of a conversation.
pub(super) fn tell(wake: &dyn Wake, key: &ConversationKey) {
    wake.tell(&name(key), 0);
}

/// The name of a queue in hints. It contains a digest and not the names of the conversation, which clients choose and
/// which may be long.
fn name(key: &ConversationKey) -> String {
    let mut digest = Sha256::new();
    for name in [&*key.tenant, &*key.app, &*key.user, key.context.as_str()] {
        digest.update((name.len() as u64).to_le_bytes());
        digest.update(name);
    }
    let mut text = PREFIX.to_owned();
    for byte in digest.finalize().iter().take(16) {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
