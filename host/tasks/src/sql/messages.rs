//! Messages that came before, as a database has them.

use annex_database::{Row, Value};
use annex_protocol::{Owner, TaskId};

use crate::key::{is_key, is_owner_key};
use crate::record::repeated;
use crate::{MessageKey, Remembered, StoreError};

/// The result for a message, from the row that says when it came.
pub(super) fn remembered<R: Row>(row: &R, message: &MessageKey, task: &TaskId) -> Result<Remembered, StoreError> {
    let taken_for = TaskId::from(row.text(2)?);
    Ok(match (row.int(0)?, row.bytes(1)? == message.digest) {
        // `times` is 1 for the one caller whose statement made the row, or took it from a replica that is gone.
        (1, _) if taken_for == *task => Remembered::New,
        (1, _) => Remembered::Left(taken_for),
        (_, false) => Remembered::Different,
        (_, true) => {
            let answer = Some(row.text(3)?).filter(|answer| !answer.is_empty());
            match row.int(4)? {
                1 => Remembered::Elsewhere(taken_for),
                2 if answer.is_none() => Remembered::Own(taken_for),
                _ => repeated(&taken_for, answer.as_deref())?,
            }
        }
    })
}

/// True if a message with this key can have been remembered.
pub(super) fn is_named(owner: &Owner, message: &MessageKey) -> bool {
    is_owner_key(owner) && is_key(message.context.as_str()) && is_key(message.message.as_str())
}

/// The names that a message is found by, and its digest.
pub(super) fn named<'a>(owner: &'a Owner, message: &'a MessageKey) -> [Value<'a>; 5] {
    [
        Value::Text(&owner.tenant),
        Value::Text(&owner.principal),
        Value::Text(message.context.as_str()),
        Value::Text(message.message.as_str()),
        Value::Bytes(&message.digest),
    ]
}
