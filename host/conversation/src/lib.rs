//! Conversations: one append-only log each, with the tasks and the state that its entries make.
//!
//! | word | meaning |
//! |---|---|
//! | conversation | what one user and one agent say in one A2A context |
//! | entry | one addition to its log: a message of the client, an event of the agent, an update of a task, a note |
//! | task | the entries that belong to one piece of work, under one id |
//! | turn | the work of the agent on one message |
//! | queue | the turns of one conversation in the order in which they entered; the first one runs |
//! | fence | the right of a turn to write: the process that works on it, and a number that no other turn has |
//! | claim | the right to work on a message that may be delivered more than once |
//!
//! A [`ConversationStore`] keeps conversations, tasks, queues and claims: a [`MemoryStore`], a [`SqliteStore`] or a
//! [`PostgresStore`].
//!
//! Other crates run the turns, and decide who may see a task and how the task is shown.

#![warn(missing_docs)]

mod admin;
mod claim;
mod configs;
mod conversation;
mod cursors;
mod encoding;
mod entry;
mod error;
mod excess;
mod fence;
mod history;
mod key;
mod limits;
mod lost;
mod memory;
mod numbering;
mod page;
mod postgres;
mod queue;
mod retention;
mod size;
mod sql;
mod sqlite;
mod state;
mod store;
mod stored_task;
mod task;
mod view;

pub use admin::{ConversationAdmin, ConversationQuery, Holdings};
pub use annex_database::OpenError;
pub use annex_leases::Replica;
pub use claim::{Claim, Claimant, MessageKey};
pub use configs::{ConfigError, ConfigStore, MAX_PUSH_CONFIGS};
pub use conversation::{Arrival, Beginning, Conversation, QueuedTurn};
pub use cursors::{MAX_PUSH_FAILURES, PushCursor, PushCursors, PushProgress, PushThen};
pub use entry::{Entry, Event, EventError, Note, StoredEntry, USER_AUTHOR, UserMessage};
pub use error::{AppendError, StoreError};
pub use excess::{Excess, Measure};
pub use fence::{Fence, Leases, OneProcess};
pub use history::{ConversationCursor, ConversationSnapshot, StoredArtifact, Window};
pub use key::{ConversationKey, ConversationNames, InvalidName, MAX_KEY_BYTES, Owner};
pub use limits::{Limits, TaskLimits, TaskSize};
pub use lost::{EndOfLostTurn, end_lost_turn};
pub use memory::MemoryStore;
pub use memory::bounds::MemoryBounds;
pub use page::{ConfigPage, InvalidCursor, MAX_PAGE_BYTES, TaskCursor, TaskPage, TaskQuery};
pub use postgres::{MIGRATIONS as POSTGRES_MIGRATIONS, PostgresStore};
pub use queue::{Departure, Entrance, LostTurn, Submission, TurnOfTask};
pub use retention::{Keep, Retention, Swept, WaitingBounds};
pub use sql::SqlStore;
pub use sqlite::SqliteStore;
pub use state::{Scope, ScopedState, StateDelta};
pub use store::{Append, Appended, ConversationStore, Outcome, Position, Store};
pub use stored_task::StoredTask;
pub use task::TaskSnapshot;
