//! Pages of lists, and the cursors of the next pages.

use std::fmt;
use std::str::FromStr;

use annex_protocol::{ContextId, TaskId, TaskPushNotificationConfig, TaskState, Timestamp};

use crate::StoredTask;

/// The largest size of a page of tasks: the JSON of its tasks together, in bytes. The first task of a page may be
/// larger.
pub const MAX_PAGE_BYTES: usize = 8 << 20;

/// Which tasks to list (specification section 3.1.4). All conditions apply; a default lists nothing, as its limit is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskQuery {
    /// Only tasks of this conversation.
    pub context: Option<ContextId>,
    /// Only tasks in this state.
    pub state: Option<TaskState>,
    /// Only tasks whose status has this timestamp or a later one.
    pub status_after: Option<Timestamp>,
    /// The place where the previous page ended.
    pub after: Option<TaskCursor>,
    /// The most tasks on the page.
    pub limit: usize,
}

/// One page of tasks: the one whose status changed last comes first, and of equals the one with the greater id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskPage {
    /// The tasks.
    pub tasks: Vec<StoredTask>,
    /// The place after which the next page starts; `None` on the last one.
    pub next: Option<TaskCursor>,
    /// The number of tasks that match, on all pages.
    pub total: u64,
}

/// One page of the push notification configs of a task, in the order of their ids.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigPage {
    /// The configs.
    pub configs: Vec<TaskPushNotificationConfig>,
    /// The id after which the next page starts; `None` on the last one.
    pub next: Option<String>,
}

/// A place in the order of tasks. Its text is a page token: digits, a full stop and an id.
///
/// ```
/// use annex_tasks::TaskCursor;
///
/// let cursor: TaskCursor = "1795262400000.t-1".parse()?;
/// assert_eq!(cursor.to_string(), "1795262400000.t-1");
/// assert!("t-1".parse::<TaskCursor>().is_err());
/// # Ok::<(), annex_tasks::InvalidCursor>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskCursor {
    /// Milliseconds since 1970-01-01T00:00:00Z; the least possible number when the status has no timestamp.
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
        if !crate::key::is_key(id) {
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

/// The number of tasks of these sizes that fit on one page; at least 1.
pub(crate) fn fitting(sizes: impl Iterator<Item = usize>) -> usize {
    let sums = sizes.scan(0_usize, |sum, size| {
        *sum = sum.saturating_add(size);
        Some(*sum)
    });
    // A task that is larger than a page is listed alone. Otherwise no listing would ever get past it.
    sums.take_while(|sum| *sum <= MAX_PAGE_BYTES).count().max(1)
}

/// Removes the entries beyond `limit`, which were read to detect a further page. Returns the cursor of the last
/// remaining entry if a further page exists.
pub(crate) fn cut<T, C>(rows: &mut Vec<T>, limit: usize, cursor: impl Fn(&T) -> C) -> Option<C> {
    if rows.len() <= limit {
        return None;
    }
    rows.truncate(limit);
    rows.last().map(cursor)
}
