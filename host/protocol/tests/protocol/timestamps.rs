//! Timestamps on the wire.

use std::error::Error;

use annex_protocol::{Json, Task, TaskState, Timestamp, v0_3};

#[test]
fn timestamps_are_written_in_utc_with_three_digits() {
    let cases = [
        ("2026-11-20T12:00:00Z", "2026-11-20T12:00:00.000Z"),
        ("2026-11-20T12:00:00.1Z", "2026-11-20T12:00:00.100Z"),
        ("2026-11-20T12:00:00.123999999Z", "2026-11-20T12:00:00.123Z"),
        ("2026-11-20T23:30:00.5-01:30", "2026-11-21T01:00:00.500Z"),
        ("1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999Z"),
    ];
    for (text, written) in cases {
        let timestamp = Timestamp::parse(text).unwrap();
        assert_eq!(timestamp.to_string(), written);
        assert_eq!(serde_json::to_string(&timestamp).unwrap(), format!("\"{written}\""));
        assert_eq!(serde_json::from_str::<Timestamp>(&format!("\"{written}\"")).unwrap(), timestamp);
    }
}

#[test]
fn a_timestamp_without_a_zone_is_refused() {
    for text in ["2026-11-20T12:00:00", "2026-11-20", "12:00:00Z", "yesterday", "", "1763640000"] {
        let error = Timestamp::parse(text).unwrap_err();
        assert!(error.to_string().contains("is not an RFC 3339 timestamp with a zone"), "{error}");
        assert!(error.source().is_some());
    }
    assert!(serde_json::from_str::<Timestamp>("1763640000").is_err());
}

#[test]
fn a_status_is_read_without_a_time_that_cannot_be() {
    let read = |time: &str| {
        let [of_1_0, of_0_3] = ["TASK_STATE_WORKING", "working"]
            .map(|state| format!(r#"{{"id":"t","contextId":"c","status":{{"state":"{state}","timestamp":{time}}}}}"#));
        let task: Task = serde_json::from_str(&of_1_0).unwrap();
        assert_eq!(v0_3::answer::task(&Json::parse(of_0_3).unwrap()).unwrap(), task, "{time}");
        assert_eq!(task.status.state, TaskState::Working);
        task.status.timestamp.map(|time| time.to_string())
    };
    for time in ["\"\"", "\"garbage\"", "7", "{}", "\"10000-01-01T00:00:00Z\"", "\"0000-01-01T00:00:00Z\"", "null"] {
        assert_eq!(read(time), None, "{time}");
    }
    for time in
        ["2026-01-01T00:00:00.1234567891Z", "2026-01-01T01:00:00.1234567891234+01:00", "2026-01-01T00:00:00.1234567891"]
    {
        assert_eq!(read(&format!("\"{time}\"")).as_deref(), Some("2026-01-01T00:00:00.123Z"), "{time}");
    }
}

#[test]
fn milliseconds_round_trip_and_order() {
    for millis in [0, -1, 1_763_640_000_123] {
        assert_eq!(Timestamp::from_millis(millis).as_millis(), millis);
    }
    assert!(Timestamp::from_millis(1) < Timestamp::now());
    assert!(Timestamp::from_millis(i64::MIN) < Timestamp::from_millis(i64::MAX));
    let now = Timestamp::now();
    assert_eq!(Timestamp::parse(&now.to_string()).unwrap(), now);
}
