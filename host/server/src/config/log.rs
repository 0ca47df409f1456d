//! `[log]`: the access log.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

/// The table `[log]`: the access log.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// The requests that get a line in the log: `"all"`, `"off"`, or a share from 0 to 1, such as 0.1. Default `"all"`.
    pub access: RequestShare,
}

/// A share of requests, from 0 to 1: those that get a line in the log, or those whose traces are sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestShare(f64);

impl Default for RequestShare {
    fn default() -> Self {
        Self(1.0)
    }
}

impl RequestShare {
    /// The share, from 0 to 1.
    pub(crate) fn share(self) -> f64 {
        self.0
    }

    /// Chooses at random, with the probability of the share, whether the next request belongs to it.
    pub(crate) fn takes_one(self) -> bool {
        self.0 >= 1.0 || (self.0 > 0.0 && fastrand::f64() < self.0)
    }
}

/// A share that can change while requests are served.
#[derive(Debug)]
pub(crate) struct AtomicShare(AtomicU64);

impl From<RequestShare> for AtomicShare {
    fn from(share: RequestShare) -> Self {
        Self(share.0.to_bits().into())
    }
}

impl AtomicShare {
    pub(crate) fn set(&self, share: RequestShare) {
        self.0.store(share.0.to_bits(), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> RequestShare {
        RequestShare(f64::from_bits(self.0.load(Ordering::Relaxed)))
    }
}

impl<'de> Deserialize<'de> for RequestShare {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShareVisitor)
    }
}

struct ShareVisitor;

impl Visitor<'_> for ShareVisitor {
    type Value = RequestShare;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("\"all\", \"off\" or a number from 0 to 1")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<RequestShare, E> {
        match text {
            "all" => Ok(RequestShare(1.0)),
            "off" => Ok(RequestShare(0.0)),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }

    fn visit_f64<E: Error>(self, share: f64) -> Result<RequestShare, E> {
        if (0.0..=1.0).contains(&share) {
            Ok(RequestShare(share))
        } else {
            Err(E::invalid_value(Unexpected::Float(share), &self))
        }
    }

    fn visit_i64<E: Error>(self, share: i64) -> Result<RequestShare, E> {
        match share {
            0 => Ok(RequestShare(0.0)),
            1 => Ok(RequestShare(1.0)),
            _ => Err(E::invalid_value(Unexpected::Signed(share), &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{LogConfig, RequestShare};

    #[test]
    fn a_share_of_requests_is_a_word_or_a_number_from_0_to_1() {
        let share = |text: &str| toml::from_str::<LogConfig>(&format!("access = {text}")).map(|log| log.access);
        for (text, expected) in [("\"all\"", 1.0), ("\"off\"", 0.0), ("0.1", 0.1), ("1", 1.0), ("0", 0.0)] {
            assert_eq!(share(text), Ok(RequestShare(expected)), "{text}");
        }
        for text in ["\"none\"", "1.5", "-0.1", "2", "true", "nan"] {
            let error = share(text).expect_err(text).to_string();
            assert!(error.contains("\"all\", \"off\" or a number from 0 to 1"), "{text}: {error}");
        }
    }

    #[test]
    fn none_of_the_requests_is_taken_where_the_lines_are_off_and_each_where_all_are_wanted() {
        assert!((0..100).all(|_| !RequestShare(0.0).takes_one() && RequestShare(1.0).takes_one()));
        assert!((0..10_000).any(|_| RequestShare(0.1).takes_one()));
    }
}
