//! Points in time as A2A writes them.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::proto_json::FieldValue;

/// 0001-01-01T00:00:00Z in milliseconds.
const YEAR_1: i64 = -62_135_596_800_000;

/// A point in time, written as RFC 3339 in UTC with exactly three fraction digits.
///
/// Holds whole milliseconds, so that a value is equal to its decoded text.
///
/// ```
/// use annex_protocol::Timestamp;
///
/// let timestamp = Timestamp::parse("2026-11-20T12:00:00.123456+01:00")?;
/// assert_eq!(timestamp.to_string(), "2026-11-20T11:00:00.123Z");
/// # Ok::<(), annex_protocol::TimestampError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(jiff::Timestamp);

/// The error for a text that is not an RFC 3339 timestamp with a time zone.
#[derive(Clone, Debug, thiserror::Error)]
#[error("`{text}` is not an RFC 3339 timestamp with a zone, such as 2026-11-20T12:00:00.000Z")]
pub struct TimestampError {
    text: String,
    #[source]
    source: jiff::Error,
}

impl Timestamp {
    /// The current time of the system clock.
    pub fn now() -> Self {
        Self::from_millis(jiff::Timestamp::now().as_millisecond())
    }

    /// Parses an RFC 3339 timestamp. Digits beyond milliseconds are dropped.
    ///
    /// # Errors
    /// When `text` has another form, or has no zone and so is not a point in time.
    pub fn parse(text: &str) -> Result<Self, TimestampError> {
        let timestamp: jiff::Timestamp =
            text.parse().map_err(|source| TimestampError { text: text.to_owned(), source })?;
        Ok(Self::from_millis(timestamp.as_millisecond()))
    }

    /// Parses a timestamp that another implementation wrote. In addition to the texts that [`parse`](Self::parse) accepts, a
    /// time may have no zone, which counts as UTC, and a second may have more than nine fraction digits.
    ///
    /// ```
    /// use annex_protocol::Timestamp;
    ///
    /// let timestamp = Timestamp::parse_or_utc("2026-11-26T01:09:32.903703")?;
    /// assert_eq!(timestamp.to_string(), "2026-11-26T01:09:32.903Z");
    /// # Ok::<(), annex_protocol::TimestampError>(())
    /// ```
    ///
    /// # Errors
    /// When `text` has another form.
    pub fn parse_or_utc(text: &str) -> Result<Self, TimestampError> {
        let text = within_nanoseconds(text);
        let text: &str = &text;
        Self::parse(text).or_else(|error| {
            // A date without a time is not a timestamp.
            let local = text.parse::<jiff::civil::DateTime>().ok().filter(|_| text.contains([':', 'T', 't']));
            let utc = local.and_then(|local| local.to_zoned(jiff::tz::TimeZone::UTC).ok());
            utc.map(|utc| Self::from_millis(utc.timestamp().as_millisecond())).ok_or(error)
        })
    }

    /// The time `millis` milliseconds after 1970-01-01T00:00:00Z. A time outside the years -9999 to 9999 becomes the nearest
    /// time inside.
    pub fn from_millis(millis: i64) -> Self {
        let nearest = if millis < 0 { jiff::Timestamp::MIN } else { jiff::Timestamp::MAX };
        Self(jiff::Timestamp::from_millisecond(millis).unwrap_or(nearest))
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    pub fn as_millis(self) -> i64 {
        self.0.as_millisecond()
    }
}

/// The text with at most nine fraction digits. Further digits are dropped.
fn within_nanoseconds(text: &str) -> Cow<'_, str> {
    const DIGITS: usize = 9;
    let Some((before, fraction)) = text.split_once('.') else { return Cow::Borrowed(text) };
    let zone = fraction.trim_start_matches(|digit: char| digit.is_ascii_digit());
    match (fraction.len() - zone.len(), fraction.get(..DIGITS)) {
        (digits, Some(kept)) if digits > DIGITS => Cow::Owned([before, ".", kept, zone].concat()),
        _ => Cow::Borrowed(text),
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The specification recommends milliseconds and UTC, and the official Python client refuses a time without a
        // zone.
        write!(formatter, "{:.3}", self.0)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let timestamp = Self::parse_or_utc(&text).map_err(serde::de::Error::custom)?;
        // Neither protobuf nor most clients have the years before 1.
        if timestamp.as_millis() < YEAR_1 {
            return Err(serde::de::Error::custom(format_args!("`{text}` is before the year 1")));
        }
        Ok(timestamp)
    }
}

impl FieldValue for Timestamp {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(deserializer)
    }

    fn is_default(&self) -> bool {
        // 1970-01-01 is a time as any other, not an absent one.
        false
    }
}
