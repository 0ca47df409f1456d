//! Converts names, and turns in a queue, to parameters of statements.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use annex_database::Value;
use uuid::Uuid;

use crate::claim::MessageKey;
use crate::fence::Fence;
use crate::key::{ConversationKey, Owner};

/// The tenant, agent, user and context of a conversation, as parameters of a statement.
pub(super) fn named(key: &ConversationKey) -> [Value<'_>; 4] {
    [Value::Text(&key.tenant), Value::Text(&key.app), Value::Text(&key.user), Value::Text(key.context.as_str())]
}

/// The tenant, principal, context id and message id of a message, as parameters of a statement.
pub(super) fn message<'a>(owner: &'a Owner, message: &'a MessageKey) -> [Value<'a>; 4] {
    [
        Value::Text(&owner.tenant),
        Value::Text(&owner.principal),
        Value::Text(message.context.as_str()),
        Value::Text(message.message.as_str()),
    ]
}

/// A turn in the form in which the column of a queue contains it, for example `<one/7>`.
pub(super) fn member(fence: &Fence) -> String {
    format!("<{}/{}>", fence.replica.id(), fence.epoch)
}

/// The turns in the column of a queue, in order.
pub(super) fn members(turns: &str) -> impl Iterator<Item = &str> {
    turns.split_inclusive('>')
}

/// The id of the replica in a turn of [`members`].
pub(super) fn replica_of(member: &str) -> &str {
    let inner = member.trim_start_matches('<');
    inner.rsplit_once('/').map_or(inner, |(replica, _)| replica)
}

/// A number that no process has returned before. Each process counts from a random number. If all processes counted
/// from 1, two turns that different processes have handed over could be confused, because only their numbers differ.
pub(super) fn next_number() -> u64 {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(Uuid::new_v4().as_u64_pair().0 >> 2));
    NEXT.fetch_add(1, Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::next_number;

    #[test]
    fn two_processes_do_not_count_from_the_same_number() {
        let number = next_number();
        assert!(number > u64::from(u32::MAX) && i64::try_from(number).is_ok(), "{number}");
        assert_ne!(next_number(), number);
    }
}
