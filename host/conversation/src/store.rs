//! The contract of a store of conversations.
//!
//! A turn calls three methods: [`claim`](ConversationStore::claim) for its message, [`enter`](ConversationStore::enter) for the
//! queue of its conversation, and [`append`](ConversationStore::append) at least twice. The first append stores the message,
//! and the last append stores the end of the work and leaves the queue. Each call is one trip to a database.

use annex_protocol::{Message, TaskId};
use async_trait::async_trait;

use crate::admin::ConversationAdmin;
use crate::claim::{Claim, Claimant, MessageKey};
use crate::configs::ConfigStore;
use crate::entry::{Entry, StoredEntry};
use crate::error::{AppendError, StoreError};
use crate::fence::Fence;
use crate::history::{ConversationSnapshot, StoredArtifact, Window};
use crate::key::{ConversationKey, Owner};
use crate::limits::Limits;
use crate::page::{TaskPage, TaskQuery};
use crate::queue::{Departure, Entrance, LostTurn, Submission, TurnOfTask};
use crate::retention::{Retention, Swept};
use crate::stored_task::StoredTask;
use crate::task::TaskSnapshot;
use annex_leases::Replica;

/// The position of an append: the last entry that the writer knows. If another entry was stored since, the append is refused.
/// Entries of a task are numbered from 1 without gaps. A writer without a task gives the number of events in the conversation
/// instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The task that the entries belong to.
    pub task: Option<TaskId>,
    /// The number of the last entry of the task, or of the last event of the conversation. 0 if nothing is stored yet.
    pub number: u64,
}

/// The changes of one append. The store makes all of the changes or none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Append<'a> {
    /// The fence of the writing turn. `None` for a writer without a turn, which may write only while no turn works on
    /// the conversation.
    pub by: Option<&'a Fence>,
    /// The submission with which the turn entered the queue. The store marks the message of the submission as accepted,
    /// and keeps [`Submission::resume`] until the turn ends.
    pub submission: Option<&'a Submission>,
    /// The entries, in this order. `temp:` keys of their deltas are dropped.
    pub entries: &'a [Entry],
    /// The task with these entries applied. `None` if the position has no task.
    pub task: Option<&'a TaskSnapshot>,
    /// True if the turn leaves the queue with these entries.
    pub ends: bool,
    /// The outcome of the turn, if the turn ends.
    pub outcome: Outcome<'a>,
}

/// The outcome of a turn. The events of the turn stay in the history.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Outcome<'a> {
    /// The result of the turn is a task. The task stays in the state that the entries have given it.
    #[default]
    Task,
    /// The turn ended with a message as the answer. A repeated message gets the same answer. The task is deleted.
    Answer(&'a Message),
    /// The agent refused the message. The task is deleted, and so is the claim of the message.
    Refusal,
}

/// The result of an append.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Appended {
    /// The number of the last entry after the append: of the task, or of the conversation if the position has no task.
    pub number: u64,
    /// Waiting tasks that a full store has deleted to make room.
    pub displaced: Vec<TaskId>,
    /// The oldest waiting task of an owner with too many waiting tasks. The caller ends that task.
    pub surplus: Option<TaskId>,
}

/// Keeps conversations and their tasks.
///
/// A dropped call has stored its change in whole or not at all.
#[async_trait]
pub trait ConversationStore: Send + Sync + 'static {
    /// Claims a message for `task`, unless another caller has claimed the message before. The task need not exist yet.
    /// If the process that claimed the message has lost its lease, the caller gets the claim. If a call fails, but its
    /// statement makes the claim anyway, the store takes the claim back.
    ///
    /// # Errors
    /// [`AppendError::Name`] and [`AppendError::Store`].
    async fn claim(
        &self,
        owner: &Owner,
        message: &MessageKey,
        task: &TaskId,
        by: &Claimant,
    ) -> Result<Claim, AppendError>;

    /// Deletes the claim of a message that was refused. The claim of another holder stays, also of another one in the
    /// same process. So does the claim of an accepted or answered message.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn release(&self, owner: &Owner, message: &MessageKey, by: &Claimant) -> Result<(), StoreError>;

    /// Enters the queue of a conversation, and reads the conversation if the turn runs at once. If the turn has to wait,
    /// its message is accepted: the task is stored as SUBMITTED, and any process can run the turn.
    ///
    /// # Errors
    /// [`AppendError::QueueFull`], [`AppendError::Fenced`] when the lease of the replica is over or a turn works on the
    /// stored task already, [`AppendError::Full`] from the memory store, [`AppendError::Store`].
    async fn enter(
        &self,
        key: &ConversationKey,
        submission: Submission,
        window: Window,
    ) -> Result<Entrance, AppendError>;

    /// Waits until a queued turn runs, and reads the conversation. A dropped call does not leave the queue.
    ///
    /// # Errors
    /// [`AppendError::Fenced`] when another process has taken the turn, and [`AppendError::Store`].
    async fn wait(
        &self,
        key: &ConversationKey,
        fence: &Fence,
        window: Window,
    ) -> Result<ConversationSnapshot, AppendError>;

    /// Leaves the queue without a last entry. An unknown fence is no error: the turn has left, or another process has taken
    /// the turn.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn leave(&self, key: &ConversationKey, fence: &Fence, departure: Departure) -> Result<(), StoreError>;

    /// Appends entries after a position, changes the state, stores the task, and leaves the queue if `ends` is set. The
    /// store does all of that or nothing. The first event creates the conversation.
    ///
    /// The first turn of the queue may append any entry to its own task. A waiting turn may only end its task, without an
    /// event. The caller is trusted to name the task of its turn.
    ///
    /// # Errors
    /// [`AppendError::Fenced`], [`AppendError::Stale`], [`AppendError::Missing`], [`AppendError::TooLarge`],
    /// [`AppendError::Name`], [`AppendError::Store`]; and [`AppendError::Full`] from the memory store, which always has
    /// room for a single update that finishes its task.
    async fn append(&self, key: &ConversationKey, at: &Position, append: Append<'_>) -> Result<Appended, AppendError>;

    /// The entries of a task after number `after`, in order: at most `limit.0` entries with at most `limit.1` bytes of
    /// JSON. The first entry is returned even if it is larger. The memory store has no JSON and no limit on bytes. It has no
    /// entries of a finished task: [`task`](Self::task) returns the whole task.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn entries_after(
        &self,
        task: &TaskId,
        after: u64,
        limit: (usize, usize),
    ) -> Result<Vec<StoredEntry>, StoreError>;

    /// Reads a conversation. A missing conversation has the number 0 and its shared state.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`] and [`StoreError::Database`].
    async fn conversation(&self, key: &ConversationKey, window: Window) -> Result<ConversationSnapshot, StoreError>;

    /// The latest version of an artifact of a conversation.
    ///
    /// # Errors
    /// [`StoreError::Unreadable`] and [`StoreError::Database`].
    async fn artifact(&self, key: &ConversationKey, name: &str) -> Result<Option<StoredArtifact>, StoreError>;

    /// A task of any owner. The caller checks the owner with [`StoredTask::is_of`].
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn task(&self, id: &TaskId) -> Result<Option<StoredTask>, StoreError>;

    /// One page of the owner's tasks, of at most [`MAX_PAGE_BYTES`](crate::MAX_PAGE_BYTES). Another query counts the total, so
    /// the total may differ from the page if tasks change between the two queries.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn tasks(&self, owner: &Owner, query: &TaskQuery) -> Result<TaskPage, StoreError>;

    /// The tasks in `known` whose last entry no longer has the given number. Each task comes with the present number of its
    /// last entry, or `None` if the task was deleted.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn changed(&self, known: &[(TaskId, u64)]) -> Result<Vec<(TaskId, Option<u64>)>, StoreError>;

    /// Marks the turn of a task as cancelled, and returns the turn; `None` when no turn works on the task.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn cancel(&self, task: &TaskId) -> Result<Option<TurnOfTask>, StoreError>;

    /// The tasks in `running` whose turn was cancelled or taken over by another process. `running` has each task with the fence
    /// of its turn in this process.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn turns_to_stop(&self, running: &[(TaskId, Fence)]) -> Result<Vec<TaskId>, StoreError>;

    /// Takes over the turn with the fence `from`, even if its process is alive. `None` when the turn has ended or has
    /// another fence.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn take(&self, task: &TaskId, from: &Fence, by: &Replica) -> Result<Option<LostTurn>, StoreError>;

    /// Takes over at most `limit` turns of dead processes and turns that were handed over. A turn without an accepted
    /// message is dropped, because its client sends the message again.
    ///
    /// # Errors
    /// [`StoreError::Database`], if no turn was taken before the failure. Otherwise returns the turns that were taken.
    async fn take_lost(&self, by: &Replica, limit: usize) -> Result<Vec<LostTurn>, StoreError>;

    /// Deletes records beyond the limits, oldest first. Also deletes claims without a result after a day. Conversations and
    /// tasks with a turn stay.
    ///
    /// # Errors
    /// [`StoreError::Database`]. Earlier deletions stay.
    async fn sweep(&self, retention: &Retention) -> Result<Swept, StoreError>;

    /// Deletes the oldest finished tasks of one tenant until `count` are left, and returns the number of deleted tasks.
    ///
    /// # Errors
    /// [`StoreError::Database`]. Earlier deletions stay.
    async fn sweep_tenant(&self, tenant: &str, count: u64) -> Result<u64, StoreError>;

    /// Wakes the waiting turns of a conversation whose queue may have moved in another process. Without such hints,
    /// waiting turns query the store from time to time.
    fn hint(&self, _key: &ConversationKey) {}

    /// The limits on one conversation.
    fn limits(&self) -> &Limits;

    /// Checks with a small query that the database answers.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    async fn probe(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Waits for running calls and closes the connections. Later calls fail.
    async fn close(&self) {}
}

/// A store that implements all three traits.
pub trait Store: ConversationStore + ConversationAdmin + ConfigStore {}

impl<S: ConversationStore + ConversationAdmin + ConfigStore> Store for S {}

impl Position {
    /// The position after entry `number` of a task.
    #[must_use]
    pub fn of_task(task: TaskId, number: u64) -> Self {
        Self { task: Some(task), number }
    }

    /// The position after event `number` of a conversation, for a writer without a task.
    #[must_use]
    pub fn of_conversation(number: u64) -> Self {
        Self { task: None, number }
    }
}
