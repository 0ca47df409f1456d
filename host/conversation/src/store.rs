//! The contract of a store of conversations.
//!
//! A turn takes four steps here: [`claim`](ConversationStore::claim) its message, [`enter`](ConversationStore::enter) the queue
//! of its conversation, [`append`](ConversationStore::append) the message, and append what the agent did, which leaves the
//! queue. Each is one trip to a database.

use annex_protocol::{Message, TaskId};
use async_trait::async_trait;

use crate::claim::{Claim, MessageKey};
use crate::entry::{Entry, StoredEntry};
use crate::error::{AppendError, StoreError};
use crate::fence::{Fence, Replica};
use crate::history::{ConversationSnapshot, StoredArtifact, Window};
use crate::key::{ConversationKey, Owner};
use crate::limits::Limits;
use crate::page::{TaskPage, TaskQuery};
use crate::queue::{Departure, Entrance, LostTurn, Submission, TurnOfTask};
use crate::retention::{Retention, Swept};
use crate::stored_task::StoredTask;
use crate::task::TaskSnapshot;

/// The entry that a writer believes to be the last one. Entries of a task are numbered from 1 without gaps. A writer that
/// writes for no task names the number of events that the conversation has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The task that the entries belong to.
    pub task: Option<TaskId>,
    /// The number of the last entry of the task, or of the last event of the conversation; 0 before the first.
    pub number: u64,
}

/// What an append changes. All of it is stored or nothing.
#[derive(Debug, Default)]
pub struct Append<'a> {
    /// The right of a turn to write. `None` for a writer without a turn, which may write only where no turn works.
    pub by: Option<&'a Fence>,
    /// The entries, in this order. `temp:` keys of their deltas are dropped.
    pub entries: &'a [Entry],
    /// The task as it is with them; `None` where the position has no task.
    pub task: Option<&'a TaskSnapshot>,
    /// True if the turn leaves the queue with these entries.
    pub ends: bool,
    /// The answer to the message of the turn, where it is answered with a message. Whoever repeats the message gets it, and
    /// the task of the turn goes, while what was said stays in the history.
    pub answer: Option<&'a Message>,
}

/// The result of an append.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Appended {
    /// The number of the last entry of the position from now on.
    pub number: u64,
    /// Waiting tasks that a full store has dropped to make room, as if they had been deleted.
    pub displaced: Vec<TaskId>,
    /// The oldest of more waiting tasks than their owner may have. It is still there, and the caller's to end.
    pub surplus: Option<TaskId>,
}

/// Keeps conversations and their tasks.
///
/// When a call is dropped before it is ready, its change may be stored or not, but never half of it.
#[async_trait]
pub trait ConversationStore: Send + Sync + 'static {
    /// Claims a message for `task`, unless somebody has claimed it before. The task is stored later, if at all. A claim of a
    /// process whose lease is over goes to the caller.
    ///
    /// # Errors
    /// [`AppendError::Name`] and [`AppendError::Store`].
    async fn claim(
        &self,
        owner: &Owner,
        message: &MessageKey,
        task: &TaskId,
        by: &Replica,
    ) -> Result<Claim, AppendError>;

    /// Takes a claim back, because the message was refused. A claim of another process, and that of a message which was
    /// accepted or answered, stays.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn release(&self, owner: &Owner, message: &MessageKey, by: &Replica) -> Result<(), StoreError>;

    /// Enters the queue of a conversation, and reads the conversation if the turn runs at once. If it has to wait, its task is
    /// stored as SUBMITTED: the message is accepted from then on, and any process can run the turn.
    ///
    /// # Errors
    /// [`AppendError::QueueFull`], [`AppendError::Fenced`] when the lease of the replica is over or a turn works on the task
    /// already, [`AppendError::Full`] from the memory store, [`AppendError::Store`].
    async fn enter(
        &self,
        key: &ConversationKey,
        submission: Submission,
        window: Window,
    ) -> Result<Entrance, AppendError>;

    /// Waits until a turn that has entered runs, and reads the conversation. Dropping the future does not leave the queue.
    ///
    /// # Errors
    /// [`AppendError::Fenced`] when another process has taken the turn, and [`AppendError::Store`].
    async fn wait(
        &self,
        key: &ConversationKey,
        fence: &Fence,
        window: Window,
    ) -> Result<ConversationSnapshot, AppendError>;

    /// Leaves the queue without a last entry. A turn that has left, or that another process has taken, is no error.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn leave(&self, key: &ConversationKey, fence: &Fence, departure: Departure) -> Result<(), StoreError>;

    /// Appends entries behind a position, applies their changes of state, stores the task as it is with them, and leaves the
    /// queue if they are the last ones of their turn: all of that or nothing. A conversation begins with its first event.
    ///
    /// A turn writes while it is the first of the queue. One that waits may only end its task, with entries that say nothing
    /// in the conversation.
    ///
    /// # Errors
    /// [`AppendError::Fenced`], [`AppendError::Stale`], [`AppendError::Missing`], [`AppendError::TooLarge`],
    /// [`AppendError::Name`], [`AppendError::Store`]; and [`AppendError::Full`] from the memory store, which always has room
    /// for a single update that finishes its task.
    async fn append(&self, key: &ConversationKey, at: &Position, append: Append<'_>) -> Result<Appended, AppendError>;

    /// Entries of a task after number `after`, in order: at most `limit.0`, and only as many as take at most `limit.1` bytes of
    /// JSON, the first one in any case. A store in memory keeps no entries of a finished task, whose
    /// [`task`](Self::task) tells all of it.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn entries_after(
        &self,
        task: &TaskId,
        after: u64,
        limit: (usize, usize),
    ) -> Result<Vec<StoredEntry>, StoreError>;

    /// Reads a conversation. One that does not exist has the number 0, and sees what others set in the scopes that it shares.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`] and [`StoreError::Database`].
    async fn conversation(&self, key: &ConversationKey, window: Window) -> Result<ConversationSnapshot, StoreError>;

    /// The latest version of an artifact of a conversation.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`] and [`StoreError::Database`].
    async fn artifact(&self, key: &ConversationKey, name: &str) -> Result<Option<StoredArtifact>, StoreError>;

    /// A task, whoever owns it ([`StoredTask::is_of`]).
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn task(&self, id: &TaskId) -> Result<Option<StoredTask>, StoreError>;

    /// One page of the owner's tasks, of at most [`MAX_PAGE_BYTES`](crate::MAX_PAGE_BYTES). The total is counted apart from
    /// the page, so that a change in between can show.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn tasks(&self, owner: &Owner, query: &TaskQuery) -> Result<TaskPage, StoreError>;

    /// Those of the tasks whose last entry is another than the one named with them, each with its number; `None` for a task
    /// that is gone.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn changed(&self, known: &[(TaskId, u64)]) -> Result<Vec<(TaskId, Option<u64>)>, StoreError>;

    /// Asks for the turn of a task to be cancelled, and tells what is known of it; `None` when no turn works on the task.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn cancel(&self, task: &TaskId) -> Result<Option<TurnOfTask>, StoreError>;

    /// Those of the turns, each named by its task, that somebody has asked to be cancelled or has taken over.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn turns_to_stop(&self, running: &[(TaskId, Fence)]) -> Result<Vec<TaskId>, StoreError>;

    /// Takes a turn over from whoever has it under the fence `from`, whether its process is alive or not. `None` when it has
    /// ended or somebody else was faster.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn take(&self, task: &TaskId, from: &Fence, by: &Replica) -> Result<Option<LostTurn>, StoreError>;

    /// Takes turns over whose process is gone, or has handed them over: at most `limit`. A turn that was refused nothing and
    /// promised nothing, because its message was not accepted yet, is forgotten instead.
    ///
    /// # Errors
    /// [`StoreError::Database`]. What was taken until then is taken again by a later call.
    async fn take_lost(&self, by: &Replica, limit: usize) -> Result<Vec<LostTurn>, StoreError>;

    /// Deletes what need not stay, the oldest first, with all that belongs to it; also claims of messages of which nothing came
    /// within a day. Conversations and tasks that a turn works on stay.
    ///
    /// # Errors
    /// [`StoreError::Database`]. What was deleted until then stays deleted.
    async fn sweep(&self, retention: &Retention) -> Result<Swept, StoreError>;

    /// Deletes the oldest finished tasks of one tenant beyond a count, as [`sweep`](Self::sweep) does, and tells how many.
    ///
    /// # Errors
    /// [`StoreError::Database`]. What was deleted until then stays deleted.
    async fn sweep_tenant(&self, tenant: &str, count: u64) -> Result<u64, StoreError>;

    /// The limits on one conversation.
    fn limits(&self) -> &Limits;

    /// Reads a little, to see whether the database answers.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn probe(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Waits for what is under way and closes what is open. Later calls fail.
    async fn close(&self) {}
}

impl Position {
    /// Behind an entry of a task.
    #[must_use]
    pub fn of_task(task: TaskId, number: u64) -> Self {
        Self { task: Some(task), number }
    }

    /// Behind an event of a conversation, for a writer that writes for no task.
    #[must_use]
    pub fn of_conversation(number: u64) -> Self {
        Self { task: None, number }
    }
}
