//! The time of day (import `wasi:clocks/wall-clock`, needs the grant `clock`).

use crate::imports::wall_clock;

const MILLIS_PER_SECOND: u64 = 1_000;
const SECONDS_PER_DAY: u64 = 86_400;
/// Days from 0000-03-01, the beginning of an era of 400 years, to 1970-01-01.
const DAYS_BEFORE_EPOCH: u64 = 719_468;
const DAYS_PER_ERA: u64 = 146_097;

/// The current time in RFC 3339, in UTC with milliseconds: `2026-11-20T09:41:07.250Z`.
pub fn now() -> String {
    let now = wall_clock::now();
    rfc3339(now.seconds, now.nanoseconds)
}

/// The current time in whole seconds since 1970-01-01T00:00:00Z, without leap seconds.
pub fn now_seconds() -> u64 {
    wall_clock::now().seconds
}

/// The current time in milliseconds since 1970-01-01T00:00:00Z, without leap seconds.
pub fn now_millis() -> u64 {
    let now = wall_clock::now();
    now.seconds * MILLIS_PER_SECOND + u64::from(now.nanoseconds / 1_000_000)
}

/// The time `millis` milliseconds after 1970-01-01T00:00:00Z, in the format of [`now`]. Works outside of a component
/// too.
pub fn text(millis: u64) -> String {
    let nanoseconds = u32::try_from(millis % MILLIS_PER_SECOND).unwrap_or_default() * 1_000_000;
    rfc3339(millis / MILLIS_PER_SECOND, nanoseconds)
}

/// Milliseconds (cut off, not rounded) from 1970-01-01T00:00:00Z to a time in RFC 3339, with `Z` or an offset. `None`
/// for any other text, and for a time before 1970. Works outside of a component too.
pub fn parse(text: &str) -> Option<u64> {
    let (date, rest) = text.split_at_checked(10)?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (time, rest) = rest.split_at_checked(8)?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let (millis, offset) = fraction(rest)?;
    let is_date = (1..=12).contains(&month) && (1..=days_of_month(year, month)).contains(&day);
    // RFC 3339 writes a leap second as 60.
    if !is_date || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let days = days_since_epoch(year, month, day)?;
    let local = days * SECONDS_PER_DAY + hour * 3_600 + minute * 60 + second;
    // A local time on the first day may lie before 1970 in UTC.
    let utc = local.checked_add_signed(-offset_seconds(offset)?)?;
    Some(utc * MILLIS_PER_SECOND + millis)
}

/// Parses three numbers with these widths, separated by `separator`.
fn numbers(text: &str, separator: char, widths: [usize; 3]) -> Option<[u64; 3]> {
    let mut pieces = text.split(separator);
    let mut numbers = [0; 3];
    for (number, width) in numbers.iter_mut().zip(widths) {
        *number = digits(pieces.next()?).filter(|(_, length)| *length == width)?.0;
    }
    pieces.next().is_none().then_some(numbers)
}

/// Parses a text of digits. Returns the number and the count of digits.
fn digits(text: &str) -> Option<(u64, usize)> {
    // `parse` alone would take a sign.
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok().map(|number| (number, text.len())))?
}

/// Parses the fraction of a second, if any. Returns its milliseconds and the rest of the text.
fn fraction(text: &str) -> Option<(u64, &str)> {
    let Some(rest) = text.strip_prefix('.') else { return Some((0, text)) };
    let length = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (fraction, rest) = rest.split_at_checked(length).filter(|_| length > 0)?;
    // Zeros fill up a short fraction, and digits beyond the third are cut off.
    let millis = fraction.bytes().chain(*b"00").take(3).fold(0, |millis, digit| millis * 10 + u64::from(digit - b'0'));
    Some((millis, rest))
}

/// Parses an offset from UTC such as `+02:00`, and returns it in seconds. An offset east of UTC is positive.
fn offset_seconds(text: &str) -> Option<i64> {
    if matches!(text, "Z" | "z") {
        return Some(0);
    }
    let (sign, rest) = match text.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':')?;
    let ((hours, 2), (minutes, 2)) = (digits(hours)?, digits(minutes)?) else { return None };
    let seconds = i64::try_from(hours * 3_600 + minutes * 60).ok()?;
    (hours < 24 && minutes < 60).then_some(sign * seconds)
}

fn days_of_month(year: u64, month: u64) -> u64 {
    let is_leap_year = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 if is_leap_year => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 to a date, counted as in [`civil_date`].
fn days_since_epoch(year: u64, month: u64, day: u64) -> Option<u64> {
    let year = if month <= 2 { year.checked_sub(1)? } else { year };
    let months_since_march = (month + 9) % 12;
    // From March on, each five months have 153 days: 31, 30, 31, 30 and 31.
    let day_of_year = (153 * months_since_march + 2) / 5 + day - 1;
    let era = year / 400;
    let year_of_era = year % 400;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    (era * DAYS_PER_ERA + day_of_era).checked_sub(DAYS_BEFORE_EPOCH)
}

/// Formats a time in RFC 3339, in UTC. The time counts from 1970-01-01T00:00:00Z without leap seconds. Milliseconds are
/// cut off, not rounded.
pub fn rfc3339(seconds: u64, nanoseconds: u32) -> String {
    let (year, month, day) = civil_date(seconds / SECONDS_PER_DAY);
    let second_of_day = seconds % SECONDS_PER_DAY;
    let hour = second_of_day / 3_600;
    let minute = second_of_day / 60 % 60;
    let second = second_of_day % 60;
    let millisecond = nanoseconds / 1_000_000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z")
}

/// Converts a count of days since 1970-01-01 to year, month (1–12) and day (1–31) of the Gregorian calendar.
///
/// The calculation begins each year in March. So the leap day is the last day of a year, and months need no table.
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
    fn what_is_written_is_read_back() {
        for millis in [0, 1, 951_868_799_999, 1_709_164_800_000, 4_107_542_400_123] {
            assert_eq!(parse(&text(millis)), Some(millis));
        }
        for day in 0..=DAYS_PER_ERA {
            let (year, month, date) = civil_date(day);
            assert_eq!(days_since_epoch(year, month, date), Some(day));
        }
    }

    #[test]
    fn times_are_read_with_any_fraction_and_offset() {
        let cases = [
            ("2026-11-20T09:41:07Z", 1_795_167_667_000),
            ("2026-11-20T09:41:07.2509999Z", 1_795_167_667_250),
            ("2026-11-20T09:41:07.5z", 1_795_167_667_500),
            ("2026-11-20t10:41:07+01:00", 1_795_167_667_000),
            ("2026-11-20 08:11:07.000001-01:30", 1_795_167_667_000),
        ];
        for (text, millis) in cases {
            assert_eq!(parse(text), Some(millis), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_not_read() {
        let texts = [
            "",
            "now",
            "2026-11-20",
            "2026-11-20T09:41Z",
            "2026-11-20T09:41:07",
            "2026-11-20T09:41:07.Z",
            "2026-11-20T24:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-00T00:00:00Z",
            "2026-11-20T09:41:07+1:00",
            "2026-11-20T09:41:07+24:00",
            "1969-12-31T23:59:59Z",
            "2026-11-20T09:41:07ZZ",
            "+026-11-20T09:41:07Z",
            "2026-1\u{fc}-20T09:41:07Z",
            "1970-01-01T00:00:00+00:01",
        ];
        for text in texts {
            assert_eq!(parse(text), None, "{text}");
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
