//! Converts names, and turns in a queue, to parameters of statements.

use annex_database::Value;

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
