//! The time of day (import `wasi:clocks/wall-clock`, needs the grant `clock`).

use crate::bindings::capabilities::wasi::clocks::wall_clock;

const SECONDS_PER_DAY: u64 = 86_400;
/// Days from 0000-03-01, where an era of 400 years begins, to 1970-01-01.
const DAYS_BEFORE_EPOCH: u64 = 719_468;
const DAYS_PER_ERA: u64 = 146_097;

/// Now, as RFC 3339 in UTC with milliseconds: `2026-11-20T09:41:07.250Z`.
pub fn now() -> String {
    let now = wall_clock::now();
    rfc3339(now.seconds, now.nanoseconds)
}

/// RFC 3339 in UTC with milliseconds (cut off, not rounded) of a time since 1970-01-01T00:00:00Z without leap seconds.
pub fn rfc3339(seconds: u64, nanoseconds: u32) -> String {
    let (year, month, day) = civil_date(seconds / SECONDS_PER_DAY);
    let second_of_day = seconds % SECONDS_PER_DAY;
    let (hour, minute, second) = (second_of_day / 3_600, second_of_day / 60 % 60, second_of_day % 60);
    let millisecond = nanoseconds / 1_000_000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z")
}

/// Year, month (1–12) and day (1–31) in the Gregorian calendar of a count of days since 1970-01-01.
///
/// It counts years from March, so that the leap day is the last of a year and months need no table.
fn civil_date(days_since_epoch: u64) -> (u64, u64, u64) {
    let days = days_since_epoch + DAYS_BEFORE_EPOCH;
    let era = days / DAYS_PER_ERA;
    let day_of_era = days % DAYS_PER_ERA;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let months_since_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * months_since_march + 2) / 5 + 1;
    let month = if months_since_march < 10 { months_since_march + 3 } else { months_since_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_instants_are_written_as_rfc_3339() {
        let cases = [
            (0, 0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, 0, "2000-02-29T00:00:00.000Z"),
            (951_868_799, 999_999_999, "2000-02-29T23:59:59.999Z"),
            (951_868_800, 0, "2000-03-01T00:00:00.000Z"),
            (1_704_067_199, 1_500_000, "2023-12-31T23:59:59.001Z"),
            (1_709_164_800, 0, "2024-02-29T00:00:00.000Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799, 0, "9999-12-31T23:59:59.000Z"),
        ];
        for (seconds, nanoseconds, expected) in cases {
            assert_eq!(rfc3339(seconds, nanoseconds), expected);
        }
    }

    #[test]
    fn each_day_of_four_centuries_follows_the_one_before() {
        let mut previous = civil_date(0);
        for day in 1..=DAYS_PER_ERA {
            let date = civil_date(day);
            assert!(date > previous, "{date:?} after {previous:?}");
            assert!((1..=12).contains(&date.1) && (1..=31).contains(&date.2), "{date:?}");
            previous = date;
        }
        assert_eq!(previous, (2370, 1, 1));
    }
}
