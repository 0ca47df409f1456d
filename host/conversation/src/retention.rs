//! Retention of conversations and tasks.

use std::time::Duration;

use annex_protocol::TaskId;

use crate::key::Owner;

/// The retention rules of a sweep. Conversations and tasks have separate rules, so either may outlive the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Conversations, by the time of their last change.
    pub conversations: Keep,
    /// Finished tasks by the time of their final status, and answers to messages. Unfinished tasks always stay.
    pub tasks: Keep,
    /// The bounds on waiting tasks. The sweep returns tasks above the bounds, and the caller ends them.
    pub waiting: WaitingBounds,
}

/// The limits on the age and the number of kept records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// The longest time. [`Duration::MAX`] for ever.
    pub age: Duration,
    /// The most of one tenant, of all its owners together. [`u64::MAX`] for all.
    pub count: u64,
}

/// Bounds on how long tasks may wait for their client, and on how many may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingBounds {
    /// The longest wait of one task. [`Duration::MAX`] for ever.
    pub age: Duration,
    /// The most tasks of one owner that may wait.
    pub per_owner: usize,
    /// The most tasks that may wait of an owner without a principal, whom all anonymous clients share.
    pub anonymous: usize,
}

/// The result of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Conversations that were deleted.
    pub conversations: u64,
    /// Tasks that were deleted.
    pub tasks: u64,
    /// Tasks that wait for longer, or are more of one owner, than the bounds say, the oldest first: at most 100. The caller
    /// ends them, and sweeps again while there are as many.
    pub overdue: Vec<TaskId>,
}

impl Keep {
    /// Everything stays.
    pub const ALL: Self = Self { age: Duration::MAX, count: u64::MAX };

    /// Records that were last changed before this time are deleted. Milliseconds since 1970-01-01T00:00:00Z.
    pub(crate) fn before(&self, now: i64) -> i64 {
        before(now, self.age)
    }
}

impl Retention {
    /// Everything stays, and every task may wait.
    pub const ALL: Self = Self { conversations: Keep::ALL, tasks: Keep::ALL, waiting: WaitingBounds::UNBOUNDED };

    /// Claims of messages of which nothing came are forgotten after a day, or after the age of tasks if that is less.
    pub(crate) fn claimed_before(&self, now: i64) -> i64 {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        before(now, self.tasks.age.min(DAY))
    }
}

impl WaitingBounds {
    /// Tasks wait for ever, as many as there are.
    pub const UNBOUNDED: Self = Self { age: Duration::MAX, per_owner: usize::MAX, anonymous: usize::MAX };

    /// The most tasks of this owner that may wait.
    pub(crate) fn of(&self, owner: &Owner) -> usize {
        if owner.principal.is_empty() { self.anonymous } else { self.per_owner }
    }

    /// Tasks that have waited since before this are overdue. Milliseconds since 1970-01-01T00:00:00Z.
    pub(crate) fn waited_before(&self, now: i64) -> i64 {
        before(now, self.age)
    }
}

fn before(now: i64, age: Duration) -> i64 {
    // `Duration::MAX` stands for ever and has more milliseconds than the number, so the age is cut off there.
    now.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX))
}
