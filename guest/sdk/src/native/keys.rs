//! `wasi:keyvalue` in memory.

use std::collections::BTreeMap;

/// A bucket for an extension's keys. It is public as `testing::Bucket`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bucket {
    /// The bucket of keys that outlive turns ([`Keys::open`](crate::keyvalue::Keys::open)).
    Lasting,
    /// The bucket of the turn's task ([`Keys::of_task`](crate::keyvalue::Keys::of_task)).
    Task,
    /// The bucket of the conversation ([`Keys::of_context`](crate::keyvalue::Keys::of_context)).
    Context,
}

/// The reason why a bucket cannot be used.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// The turn has no task, or no conversation.
    Missing,
    /// The host's store is not available.
    Failing(String),
}

#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) values: BTreeMap<String, Vec<u8>>,
    pub(crate) fault: Option<Fault>,
}

#[derive(Debug, Default)]
pub(crate) struct Buckets {
    lasting: Contents,
    task: Contents,
    context: Contents,
}

impl Buckets {
    pub(crate) fn of(&mut self, bucket: Bucket) -> &mut Contents {
        match bucket {
            Bucket::Lasting => &mut self.lasting,
            Bucket::Task => &mut self.task,
            Bucket::Context => &mut self.context,
        }
    }
}

pub(crate) mod store {
    use super::{Contents, Fault};
    use crate::native::ask;

    pub(crate) use crate::bindings::capabilities::wasi::keyvalue::store::{Error, KeyResponse};

    #[derive(Debug)]
    pub(crate) struct Bucket(super::Bucket);

    pub(crate) fn open(identifier: &str) -> Result<Bucket, Error> {
        let (bucket, function) = match identifier {
            "" => (super::Bucket::Lasting, "keyvalue::Keys::open"),
            "task" => (super::Bucket::Task, "keyvalue::Keys::of_task"),
            "context" => (super::Bucket::Context, "keyvalue::Keys::of_context"),
            _ => return Err(Error::NoSuchStore),
        };
        ask(function, |host| match host.buckets.of(bucket).fault {
            Some(Fault::Missing) => Err(Error::NoSuchStore),
            // A store that does not work is noticed when it is used.
            Some(Fault::Failing(_)) | None => Ok(Bucket(bucket)),
        })
    }

    impl Bucket {
        pub(crate) fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
            self.contents("get", |contents| Ok(contents.values.get(key).cloned()))
        }

        pub(crate) fn set(&self, key: &str, value: &[u8]) -> Result<(), Error> {
            self.contents("set", |contents| {
                contents.values.insert(key.to_owned(), value.to_vec());
                Ok(())
            })
        }

        pub(crate) fn delete(&self, key: &str) -> Result<(), Error> {
            self.contents("delete", |contents| {
                contents.values.remove(key);
                Ok(())
            })
        }

        /// All keys, on one page.
        pub(crate) fn list_keys(&self, _cursor: Option<u64>) -> Result<KeyResponse, Error> {
            let keys = self.contents("list", |contents| Ok(contents.values.keys().cloned().collect()))?;
            Ok(KeyResponse { keys, cursor: None })
        }

        pub(super) fn contents<T>(
            &self,
            method: &str,
            question: impl FnOnce(&mut Contents) -> Result<T, Error>,
        ) -> Result<T, Error> {
            ask(&format!("keyvalue::Keys::{method}"), |host| {
                let contents = host.buckets.of(self.0);
                match &contents.fault {
                    None => question(contents),
                    Some(Fault::Missing) => Err(Error::NoSuchStore),
                    Some(Fault::Failing(reason)) => Err(Error::Other(reason.clone())),
                }
            })
        }
    }
}

pub(crate) mod atomics {
    use super::store::{Bucket, Error};

    /// Adds to a counter, whose value is decimal text, as in the host.
    pub(crate) fn increment(bucket: &Bucket, key: &str, delta: u64) -> Result<u64, Error> {
        bucket.contents("increment", |contents| {
            let error = |reason: &str| Error::Other(reason.to_owned());
            let count = match contents.values.get(key) {
                None => 0,
                Some(value) => str::from_utf8(value)
                    .ok()
                    .and_then(|text| text.parse::<u64>().ok())
                    .ok_or_else(|| error("the value is not a decimal number of 64 bits"))?,
            };
            let count = count.checked_add(delta).ok_or_else(|| error("the counter would pass 64 bits"))?;
            contents.values.insert(key.to_owned(), count.to_string().into_bytes());
            Ok(count)
        })
    }
}
