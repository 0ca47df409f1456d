//! The bounds of a memory store.

use crate::limits::Limits;
use crate::retention::WaitingBounds;

/// Bounds on the content of a [`MemoryStore`](crate::MemoryStore).
///
/// Above `max_conversations` or `max_conversation_bytes` the store drops the least recently used conversation, with its
/// history. Above `max_tasks` or `max_task_bytes` the store drops tasks of the owner with the largest share: first the
/// oldest finished tasks, then the oldest waiting tasks. Conversations and tasks with a turn stay. An owner never loses
/// tasks to an owner with a larger share. If no task can be dropped, the store refuses new tasks and entries. The store
/// always accepts an update that finishes a task. The running tasks of one owner may fill three quarters of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBounds {
    /// The maximum number of conversations. Default: 10,000.
    pub max_conversations: usize,
    /// The maximum memory for states and histories, in bytes, roughly counted. Default: 256 MiB.
    pub max_conversation_bytes: usize,
    /// The maximum number of tasks. Default: 10,000. The store remembers the claims of four times as many messages.
    pub max_tasks: usize,
    /// The limit on the memory for tasks, entries, configs and answers to messages, in bytes. Answers may take at most a
    /// quarter of this memory. Default: 256 MiB.
    pub max_task_bytes: usize,
    /// The bounds on waiting tasks. Default: any number of tasks may wait.
    pub waiting: WaitingBounds,
    /// The limits on one conversation.
    pub limits: Limits,
}

impl Default for MemoryBounds {
    fn default() -> Self {
        Self {
            max_conversations: 10_000,
            max_conversation_bytes: 256 << 20,
            max_tasks: 10_000,
            max_task_bytes: 256 << 20,
            waiting: WaitingBounds::UNBOUNDED,
            limits: Limits::default(),
        }
    }
}
