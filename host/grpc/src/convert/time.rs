//! Points in time as `google.protobuf.Timestamp`.

use annex_protocol::Timestamp;

use super::{FieldError, FromProto, IntoProto};

const MILLIS_PER_SECOND: i64 = 1000;
const NANOS_PER_MILLI: i32 = 1_000_000;
/// The range of `google.protobuf.Timestamp`: 0001-01-01T00:00:00Z to 9999-12-31T23:59:59Z.
const SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// Reads a timestamp, and drops its digits beyond milliseconds.
impl FromProto<prost_types::Timestamp> for Timestamp {
    fn from_proto(proto: prost_types::Timestamp) -> Result<Self, FieldError> {
        if !SECONDS.contains(&proto.seconds) || !(0..1_000_000_000).contains(&proto.nanos) {
            return Err(FieldError::new("", "not a timestamp between the years 1 and 9999"));
        }
        Ok(Self::from_millis(proto.seconds * MILLIS_PER_SECOND + i64::from(proto.nanos / NANOS_PER_MILLI)))
    }
}

impl IntoProto<prost_types::Timestamp> for Timestamp {
    fn into_proto(self) -> Result<prost_types::Timestamp, FieldError> {
        // Rounded down and not to zero, because protobuf wants nanoseconds from 0 on, also before 1970.
        let millis = self.as_millis();
        // The remainder is below 1000, so that its nanoseconds fit.
        let nanos = millis.rem_euclid(MILLIS_PER_SECOND) as i32 * NANOS_PER_MILLI;
        Ok(prost_types::Timestamp { seconds: millis.div_euclid(MILLIS_PER_SECOND), nanos })
    }
}
