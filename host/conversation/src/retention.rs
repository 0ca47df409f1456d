//! Retention of conversations and tasks.

use std::time::Duration;

use annex_protocol::TaskId;

use crate::key::Owner;

/// The retention rules of a sweep. Conversations and tasks have separate rules, so a task may outlive its conversation,
/// and a conversation its tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// The rule for conversations. The age of a conversation counts from its last change.
    pub conversations: Keep,
    /// The rule for finished tasks and for answers to messages. The age of a task counts from its final status.
    /// Unfinished tasks always stay.
    pub tasks: Keep,
    /// The bounds on waiting tasks. The sweep returns tasks above the bounds, and the caller ends them.
    pub waiting: WaitingBounds,
}

/// The limits on the age and the number of kept records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// The age above which a record is deleted. [`Duration::MAX`] keeps records for ever.
    pub age: Duration,
    /// The maximum number of records of one tenant, counted over all its owners. [`u64::MAX`] keeps all records.
    pub count: u64,
}

/// The limits on waiting tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingBounds {
    /// The longest wait of one task. With [`Duration::MAX`] a task may wait for ever.
    pub age: Duration,
    /// The maximum number of waiting tasks of one authenticated owner.
    pub per_owner: usize,
    /// The maximum number of waiting tasks of all anonymous clients of a tenant, who share one owner.
    pub anonymous: usize,
}

/// The result of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// The number of conversations that were deleted.
    pub conversations: u64,
    /// The number of tasks that were deleted.
    pub tasks: u64,
    /// At most 100 waiting tasks above [`Retention::waiting`], the oldest first. The caller ends these tasks. If there
    /// were 100, the caller sweeps again.
    pub overdue: Vec<TaskId>,
}

impl Keep {
    /// The rule that keeps every record.
    pub const ALL: Self = Self { age: Duration::MAX, count: u64::MAX };

    /// A record whose last change was before the returned time is deleted. The time is in milliseconds since
    /// 1970-01-01T00:00:00Z.
    pub(crate) fn before(&self, now: i64) -> i64 {
        before(now, self.age)
    }
}

impl Retention {
    /// The rules that keep every record and let every task wait.
    pub const ALL: Self = Self { conversations: Keep::ALL, tasks: Keep::ALL, waiting: WaitingBounds::UNBOUNDED };

    /// The time before which claims without a result are deleted, in milliseconds since 1970-01-01T00:00:00Z. A claim
    /// without a result is kept for one day, or for as long as a task if tasks are kept for less than a day.
    pub(crate) fn claimed_before(&self, now: i64) -> i64 {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        before(now, self.tasks.age.min(DAY))
    }
}

impl WaitingBounds {
    /// The limits that let any number of tasks wait for ever.
    pub const UNBOUNDED: Self = Self { age: Duration::MAX, per_owner: usize::MAX, anonymous: usize::MAX };

    /// The maximum number of tasks of this owner that may wait.
    pub(crate) fn of(&self, owner: &Owner) -> usize {
        if owner.principal.is_empty() { self.anonymous } else { self.per_owner }
    }

    /// A task that has waited since before the returned time is overdue. The time is in milliseconds since
    /// 1970-01-01T00:00:00Z.
    pub(crate) fn waited_before(&self, now: i64) -> i64 {
        before(now, self.age)
    }
}

fn before(now: i64, age: Duration) -> i64 {
    // `Duration::MAX` has more milliseconds than an `i64` can hold, so the age is cut off there.
    now.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX))
}
