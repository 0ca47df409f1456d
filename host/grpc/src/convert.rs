//! Converts the messages of `lf.a2a.v1` to the types of the protocol and back. `v0_3` does this for those of `a2a.v1`.
//!
//! The server reads requests and writes responses, and a client does the reverse. proto3 cannot distinguish an empty
//! string from an absent one, so an empty optional field is read as absent.

mod card;
mod event;
mod json;
mod message;
mod push;
mod request;
mod security;
mod task;
mod time;
mod v0_3;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;

use indexmap::IndexMap;

/// A fault in one field of a message that is read or written.
#[derive(Debug, thiserror::Error)]
#[error("{field}: {description}")]
pub(crate) struct FieldError {
    /// The path of the field by its JSON names, such as `message.parts[2].raw`.
    pub(crate) field: String,
    pub(crate) description: String,
    /// True if the value is valid, but protobuf cannot carry it.
    pub(crate) is_not_carried: bool,
}

impl FieldError {
    fn new(field: &str, description: impl Into<String>) -> Self {
        Self { field: field.to_owned(), description: description.into(), is_not_carried: false }
    }

    /// The error for a value that exists in JSON but not in protobuf.
    fn not_carried(problem: impl fmt::Display) -> Self {
        let description = format!("{problem}; gRPC cannot carry it, use JSON-RPC or HTTP+JSON");
        Self { is_not_carried: true, ..Self::new("", description) }
    }

    /// Puts `field` in front of the path in the error.
    fn within(mut self, field: impl fmt::Display) -> Self {
        // A path is built from the inside out, so that no field has to know the messages around it.
        let separator = if self.field.is_empty() || self.field.starts_with('[') { "" } else { "." };
        self.field = format!("{field}{separator}{}", self.field);
        self
    }
}

/// A type that can be read from the message `P` of a peer.
pub(crate) trait FromProto<P>: Sized {
    /// Reads the message.
    ///
    /// # Errors
    /// When a `oneof` has no value, when an enum value is unknown, or when a value does not exist in JSON.
    fn from_proto(proto: P) -> Result<Self, FieldError>;
}

thread_local! {
    /// True while this thread reads an agent's answer.
    static READS_ANSWER: Cell<bool> = const { Cell::new(false) };
}

/// Reads an agent's answer. Values that some readers cannot read are replaced. In requests such values are refused, but
/// an agent cannot be sent an error about its answer.
pub(crate) fn of_answer<P, T: FromProto<P>>(proto: P) -> Result<T, FieldError> {
    let _before = RestoreFlag(READS_ANSWER.replace(true));
    T::from_proto(proto)
}

/// Restores the previous value of the flag on drop. Answers may be read within answers, and reading may panic.
struct RestoreFlag(bool);

impl Drop for RestoreFlag {
    fn drop(&mut self) {
        READS_ANSWER.set(self.0);
    }
}

/// True while this thread reads an agent's answer.
fn reads_answer() -> bool {
    READS_ANSWER.get()
}

/// A type that can be written as the message `P`.
pub(crate) trait IntoProto<P>: Sized {
    /// Writes the value.
    ///
    /// # Errors
    /// When a value does not exist in protobuf.
    fn into_proto(self) -> Result<P, FieldError>;
}

impl FromProto<()> for () {
    fn from_proto((): ()) -> Result<Self, FieldError> {
        Ok(())
    }
}

impl IntoProto<()> for () {
    fn into_proto(self) -> Result<(), FieldError> {
        Ok(())
    }
}

fn read<P, T: FromProto<P>>(field: &str, proto: P) -> Result<T, FieldError> {
    T::from_proto(proto).map_err(|error| error.within(field))
}

fn read_optional<P, T: FromProto<P>>(field: &str, proto: Option<P>) -> Result<Option<T>, FieldError> {
    proto.map(|proto| read(field, proto)).transpose()
}

fn read_all<P, T: FromProto<P>>(field: &str, protos: Vec<P>) -> Result<Vec<T>, FieldError> {
    let read = |(index, proto)| T::from_proto(proto).map_err(|error: FieldError| error.within(at(field, index)));
    protos.into_iter().enumerate().map(read).collect()
}

fn read_map<P, T: FromProto<P>>(field: &str, protos: BTreeMap<String, P>) -> Result<IndexMap<String, T>, FieldError> {
    let read = |(key, proto): (String, P)| match T::from_proto(proto) {
        Ok(value) => Ok((key, value)),
        Err(error) => Err(error.within(format_args!("{field}.{key}"))),
    };
    // A map of protobuf has no order. The `BTreeMap` gives its keys sorted, so that a message is always read the same
    // way.
    protos.into_iter().map(read).collect()
}

fn write<P, T: IntoProto<P>>(field: &str, value: T) -> Result<P, FieldError> {
    value.into_proto().map_err(|error| error.within(field))
}

fn write_optional<P, T: IntoProto<P>>(field: &str, value: Option<T>) -> Result<Option<P>, FieldError> {
    value.map(|value| write(field, value)).transpose()
}

fn write_all<P, T: IntoProto<P>>(field: &str, values: Vec<T>) -> Result<Vec<P>, FieldError> {
    let write = |(index, value): (usize, T)| value.into_proto().map_err(|error| error.within(at(field, index)));
    values.into_iter().enumerate().map(write).collect()
}

fn write_map<P, T: IntoProto<P>>(field: &str, values: IndexMap<String, T>) -> Result<BTreeMap<String, P>, FieldError> {
    let write = |(key, value): (String, T)| match value.into_proto() {
        Ok(proto) => Ok((key, proto)),
        Err(error) => Err(error.within(format_args!("{field}.{key}"))),
    };
    values.into_iter().map(write).collect()
}

fn at(field: &str, index: usize) -> String {
    format!("{field}[{index}]")
}

fn non_empty<T: From<String>>(text: String) -> Option<T> {
    // proto3 gives the empty string for a string that was not sent.
    (!text.is_empty()).then(|| T::from(text))
}

fn strings<T: Into<String>>(values: Vec<T>) -> Vec<String> {
    values.into_iter().map(Into::into).collect()
}

fn text<T: Into<String>>(value: Option<T>) -> String {
    value.map(Into::into).unwrap_or_default()
}

/// Reads an enum value by its number. `all` lists the values in the order of their numbers.
fn enumeration<T: Copy + fmt::Display>(field: &str, type_name: &str, number: i32, all: &[T]) -> Result<T, FieldError> {
    // proto3 enums are open: a later version of A2A may send a number that this one does not know.
    let found = usize::try_from(number).ok().and_then(|number| all.get(number)).copied();
    found.ok_or_else(|| {
        let names = all.iter().map(T::to_string).collect::<Vec<_>>().join("`, `");
        FieldError::new(field, format!("unknown {type_name} `{number}`, expected one of `{names}`"))
    })
}

#[cfg(test)]
mod tests {
    use std::panic::{catch_unwind, resume_unwind};

    use super::*;

    /// For a test: a type that reads an answer within an answer. Holds true if the flag is still set after the inner
    /// one.
    struct Outer(bool);

    impl FromProto<()> for Outer {
        fn from_proto((): ()) -> Result<Self, FieldError> {
            of_answer::<(), ()>(())?;
            Ok(Self(reads_answer()))
        }
    }

    /// Reading from a text panics.
    impl FromProto<&'static str> for Outer {
        fn from_proto(payload: &'static str) -> Result<Self, FieldError> {
            resume_unwind(Box::new(payload))
        }
    }

    #[test]
    fn an_answer_is_read_until_its_own_end_and_no_longer() {
        assert!(of_answer::<(), Outer>(()).unwrap().0);
        assert!(!reads_answer());
        assert!(catch_unwind(|| of_answer::<_, Outer>("while an answer is read").is_ok()).is_err());
        assert!(!reads_answer());
    }
}
