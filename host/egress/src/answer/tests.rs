use std::convert::Infallible;
use std::fs;
use std::path::Path;

use bytes::Bytes;

use super::{Body, Events, ReadError, StreamLimits, beginning, whole};

/// A peer that sends the same piece for ever and counts the bytes that were read.
struct Endless {
    piece: &'static [u8],
    sent: usize,
}

impl Endless {
    fn of(piece: &'static [u8]) -> Self {
        Self { piece, sent: 0 }
    }
}

impl Body for Endless {
    type Error = Infallible;

    async fn next(&mut self) -> Result<Option<Bytes>, Infallible> {
        self.sent += self.piece.len();
        Ok(Some(Bytes::from_static(self.piece)))
    }
}

const LIMITS: StreamLimits = StreamLimits { event: 1_000, total: 10_000 };

#[tokio::test]
async fn a_body_without_end_is_read_to_its_limit_and_no_further() {
    let mut body = Endless::of(b"0123456789");
    let error = whole(&mut body, 1_000).await.unwrap_err();
    assert!(matches!(error, ReadError::TooLong { part: "answer", limit: 1_000 }), "{error}");
    assert_eq!(body.sent, 1_010);
}

#[tokio::test]
async fn the_beginning_of_a_body_without_end_is_as_long_as_asked_for() {
    let mut body = Endless::of(b"0123456789");
    assert_eq!(beginning(&mut body, 25).await, b"0123456789012345678901234".as_slice());
    assert_eq!(body.sent, 30);
}

#[tokio::test]
async fn an_event_and_a_line_without_end_are_read_to_their_limit_and_no_further() {
    for (mut events, part) in [
        (Events::new(Endless::of(b"data: aaa"), LIMITS), "event"),
        (Events::new(Endless::of(b"data: aaa\n"), LIMITS), "event"),
        (Events::new(Endless::of(b"aaaaaaaaaa"), LIMITS), "event"),
        (Events::lines(Endless::of(b"aaaaaaaaaa"), LIMITS), "line"),
    ] {
        let error = events.next().await.unwrap_err();
        assert!(matches!(error, ReadError::TooLong { part: found, limit: 1_000 } if found == part), "{error}");
        // One piece more than what is kept of them; field names are not kept.
        assert!(events.body.sent <= 4_000, "{part}: {}", events.body.sent);
    }
}

#[tokio::test]
async fn events_without_number_and_comments_without_end_are_read_to_the_limit_of_all() {
    for piece in [b"data: a\n\n".as_slice(), b": ping\n\n", b"\n\n\n\n"] {
        let mut events = Events::new(Endless::of(piece), LIMITS);
        let error = loop {
            match events.next().await {
                Ok(event) => assert_eq!(event.as_deref(), Some("a")),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, ReadError::TooLong { part: "answer", limit: 10_000 }), "{error}");
        assert!(events.body.sent <= 10_010, "{}", events.body.sent);
    }
}

#[tokio::test]
async fn lines_are_read_across_pieces_and_the_last_needs_no_line_break() {
    struct Bytewise(&'static [u8]);
    impl Body for Bytewise {
        type Error = Infallible;
        async fn next(&mut self) -> Result<Option<Bytes>, Infallible> {
            let Some((first, rest)) = self.0.split_first() else { return Ok(None) };
            self.0 = rest;
            Ok(Some(Bytes::copy_from_slice(&[*first])))
        }
    }
    let mut lines = Events::lines(Bytewise(b"{\"a\":1}\r\n\n  \n{\"b\":2}"), LIMITS);
    let mut read = Vec::new();
    while let Some(line) = lines.next().await.unwrap() {
        read.push(line);
    }
    assert_eq!(read, ["{\"a\":1}", "{\"b\":2}"]);
}

/// Calls that read an answer without a limit.
const UNBOUNDED: [&str; 6] =
    [".text().await", ".bytes().await", ".json().await", ".json::<", ".bytes_stream()", ".chunk().await"];
/// Files that may use the calls in [`UNBOUNDED`], because they count bytes themselves.
const COUNTING: [&str; 3] = ["egress/src/answer.rs", "client/src/http.rs", "cli/src/record.rs"];

#[test]
fn answers_of_peers_are_read_by_the_readers_that_have_bounds() {
    let host = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = 0;
    for folder in fs::read_dir(host).unwrap() {
        let folder = folder.unwrap().path();
        // These crates read servers that they started themselves.
        if ["bench", "test-support"].iter().all(|name| !folder.ends_with(name)) {
            files += check(host, &folder.join("src"));
        }
    }
    assert!(files > 300, "{files} files");
}

fn check(host: &Path, folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let mut files = 0;
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            files += check(host, &path);
        } else if path.extension().is_some_and(|ending| ending == "rs") && !path.ends_with("tests.rs") {
            let code: String = fs::read_to_string(&path).unwrap().split_whitespace().collect();
            let name = path.strip_prefix(host).unwrap();
            let reads = UNBOUNDED.iter().find(|reads| code.contains(**reads));
            let may = COUNTING.iter().any(|counting| name == Path::new(counting));
            assert!(may || reads.is_none(), "{} has {}", name.display(), reads.unwrap());
            files += 1;
        }
    }
    files
}
