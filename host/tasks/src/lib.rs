//! Durable storage of A2A tasks: snapshots, their events, push notification configs and the messages seen so far.
//!
//! A task is one row with its present JSON and a log of events that are counted from 1. Row and event change together
//! or not at all. A writer names the event that it expects to be the last, so that two writers never interleave. Other
//! crates run tasks, authorize access to tasks and show tasks.
//!
//! Three stores keep the same contract: [`MemoryTaskStore`], [`SqliteTaskStore`] and [`PostgresTaskStore`].

#![warn(missing_docs)]

mod cursor;
mod distance;
mod error;
mod event;
mod key;
mod limits;
mod lost;
mod memory;
mod messages;
mod page;
mod pins;
mod place;
mod postgres;
mod record;
mod size;
mod snapshot;
mod sql;
mod sqlite;
mod store;

pub use cursor::{MAX_PUSH_FAILURES, PushCursor, PushCursors, PushProgress, PushThen};
pub use error::StoreError;
pub use event::{StoredEvent, TaskEvent};
pub use key::MAX_KEY_BYTES;
pub use limits::{Excess, TaskLimits, TaskSize};
pub use lost::{Creator, LostTasks, LostTurn};
pub use memory::{MemoryBounds, MemoryTaskStore};
pub use messages::{MessageKey, Remembered};
pub use page::{ConfigPage, InvalidCursor, MAX_PAGE_BYTES, TaskCursor, TaskPage, TaskQuery};
pub use pins::{Interruption, PinStore, PinnedVersion, TaskPins};
pub use place::{AskedRunner, Place};
pub use postgres::{MIGRATIONS as POSTGRES_MIGRATIONS, PostgresTaskStore};
pub use record::{StoredTask, is_worked_on};
pub use snapshot::TaskSnapshot;
pub use sql::SqlTaskStore;
pub use sqlite::SqliteTaskStore;
pub use store::{MAX_PUSH_CONFIGS, Retention, TaskStore, WaitingBounds, WaitingWatcher};
