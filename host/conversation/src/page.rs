//! Pages of tasks and of push notification configs.

use std::fmt;
use std::str::FromStr;

use annex_protocol::{ContextId, TaskId, TaskPushNotificationConfig, TaskState, Timestamp};

use crate::key::check_key;
use crate::stored_task::StoredTask;

/// The limit on the JSON of all tasks of a page, in bytes. A larger first task makes a page of its own.
pub const MAX_PAGE_BYTES: usize = 8 << 20;

/// The tasks to list (specification section 3.1.4), as conditions that all apply. The default query lists nothing,
/// because its limit is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskQuery {
    /// The conversation of the tasks; `None` for tasks of all conversations.
    pub context: Option<ContextId>,
    /// The state of the tasks; `None` for tasks in any state.
    pub state: Option<TaskState>,
    /// The earliest timestamp that the status of a listed task has; `None` for any timestamp.
    pub status_after: Option<Timestamp>,
    /// The end of the previous page; `None` for the first page.
    pub after: Option<TaskCursor>,
    /// The most tasks on the page.
    pub limit: usize,
}

/// One page of tasks. The task whose status changed last comes first. Tasks with the same time are ordered by
/// descending id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskPage {
    /// The tasks.
    pub tasks: Vec<StoredTask>,
    /// The cursor after which the next page starts; `None` on the last page.
    pub next: Option<TaskCursor>,
    /// The number of tasks that match, on all pages.
    pub total: u64,
}

/// One page of the push notification configs of a task, in the order of their ids.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigPage {
    /// The configs.
    pub configs: Vec<TaskPushNotificationConfig>,
    /// The id after which the next page starts; `None` on the last page.
    pub next: Option<String>,
}

/// A position in the order of tasks. Its text is a page token: digits, a full stop and an id.
///
/// ```
/// use annex_conversation::TaskCursor;
///
/// let cursor: TaskCursor = "1795262400000.t-1".parse()?;
/// assert_eq!(cursor.to_string(), "1795262400000.t-1");
/// assert!("t-1".parse::<TaskCursor>().is_err());
/// # Ok::<(), annex_conversation::InvalidCursor>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskCursor {
    /// The time of the task's status, in milliseconds since 1970-01-01T00:00:00Z. The smallest number if the status has
    /// no timestamp.
    pub(crate) status_at: i64,
    pub(crate) id: TaskId,
}

/// The error for a text that is not a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a page token of this server")]
pub struct InvalidCursor;

impl FromStr for TaskCursor {
    type Err = InvalidCursor;

    fn from_str(token: &str) -> Result<Self, InvalidCursor> {
        // The first full stop is the right one: an id may have more of them, a number has none.
        let (status_at, id) = token.split_once('.').ok_or(InvalidCursor)?;
        let status_at = status_at.parse().map_err(|_| InvalidCursor)?;
        // The token comes from a client. PostgreSQL fails on a NUL, which must not look like a fault of the database.
        if check_key("task id", id).is_err() {
            return Err(InvalidCursor);
        }
        Ok(Self { status_at, id: id.into() })
    }
}

impl fmt::Display for TaskCursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.status_at, self.id)
    }
}

/// The number of tasks that fit on one page, given their sizes in order; at least 1.
pub(crate) fn fitting(sizes: impl Iterator<Item = usize>) -> usize {
    let sums = sizes.scan(0_usize, |sum, size| {
        *sum = sum.saturating_add(size);
        Some(*sum)
    });
    // A task that is larger than a page is listed alone. Otherwise no listing would ever get past it.
    sums.take_while(|sum| *sum <= MAX_PAGE_BYTES).count().max(1)
}

/// Removes the rows beyond `limit`. Returns the cursor of the last remaining row if rows were removed, else `None`.
pub(crate) fn cut<T, C>(rows: &mut Vec<T>, limit: usize, cursor: impl Fn(&T) -> C) -> Option<C> {
    if rows.len() <= limit {
        return None;
    }
    rows.truncate(limit);
    rows.last().map(cursor)
}
