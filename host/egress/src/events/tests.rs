use std::collections::VecDeque;

use super::{Decoder, StreamEvent};

fn data(events: &VecDeque<StreamEvent>) -> Vec<&str> {
    events.iter().map(|event| event.data.as_str()).collect()
}

/// Checks that the stream gives the same events for every split into two chunks.
fn check(stream: &str, expected: &[&str]) {
    let bytes = stream.as_bytes();
    for cut in 0..=bytes.len() {
        let mut decoder = Decoder::default();
        let (head, tail) = bytes.split_at(cut);
        let mut events = VecDeque::new();
        for chunk in [head, b"", tail] {
            decoder.push(chunk, &mut events);
        }
        assert_eq!(data(&events), expected, "cut at byte {cut}");
    }
    let mut decoder = Decoder::default();
    let mut events = VecDeque::new();
    bytes.iter().for_each(|byte| decoder.push(&[*byte], &mut events));
    assert_eq!(data(&events), expected, "byte by byte");
}

#[test]
fn lines_end_with_lf_cr_or_both() {
    check("data: a\n\ndata: b\n\n", &["a", "b"]);
    check("data: a\r\rdata: b\r\r", &["a", "b"]);
    check("data: a\r\n\r\ndata: b\r\n\r\n", &["a", "b"]);
    check("data: a\n\r\ndata: b\r\n\n", &["a", "b"]);
}

#[test]
fn data_over_several_lines_is_joined_by_line_breaks() {
    check("data: {\ndata:  \"a\"\ndata:}\n\n", &["{\n \"a\"\n}"]);
    check("data\ndata: a\ndata\n\n", &["\na\n"]);
}

#[test]
fn comments_other_fields_and_empty_events_are_skipped() {
    check(": keep-alive\n\n\nevent: message\nid: 1\nretry: 5\ndata: a\nunknown\n\nevent: x\n\n", &["a"]);
}

#[test]
fn events_with_blank_data_are_skipped() {
    check("data:\n\ndata\n\ndata:  \n\ndata\ndata\n\ndata: a\n\n", &["a"]);
}

#[test]
fn an_event_has_its_own_name_and_not_that_of_one_before() {
    let mut events = VecDeque::new();
    let stream = b"event: skipped\n\nevent: ping\ndata: a\n\ndata: b\n\nevent: x\ndata: c\nevent:message\n\n";
    Decoder::default().push(stream, &mut events);
    let names: Vec<&str> = events.iter().map(|event| event.name.as_str()).collect();
    assert_eq!((names, data(&events)), (vec!["ping", "", "message"], vec!["a", "b", "c"]));
}

#[test]
fn characters_of_several_bytes_survive_a_cut() {
    check("data: é€😀\n\n", &["é€😀"]);
}

#[test]
fn a_byte_order_mark_is_skipped_at_the_start_only() {
    check("\u{feff}data: a\n\n\u{feff}data: b\n\n", &["a"]);
}

#[test]
fn an_event_without_its_blank_line_is_dropped() {
    check("data: a\n\ndata: b\n", &["a"]);
    check("data: a\n\ndata: b", &["a"]);
}

#[test]
fn bytes_of_an_incomplete_event_are_counted() {
    let mut decoder = Decoder::default();
    decoder.push(b"data: abc\ndata: d", &mut VecDeque::new());
    assert_eq!(decoder.pending(), "abc\n".len() + "data: d".len());
    decoder.push(b"\n\n", &mut VecDeque::new());
    assert_eq!(decoder.pending(), 0);
}
