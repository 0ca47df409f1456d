use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tracing_subscriber::EnvFilter;

use super::batch::Batch;
use super::{json, text};

/// A name that an untrusted peer may have given itself. It contains an escape sequence, a bell, line ends of all kinds,
/// bidirectional controls, and invisible marks and spaces.
const NAME: &str = "a\x1b[2Jb\x07c\rd\ne\u{85}f\u{9b}31mg\u{2028}h\u{2029}i\u{202e}j\u{2066}k\u{feff}l\u{200b}m\x7f";

/// A writer whose clones share one buffer.
#[derive(Clone, Default)]
struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl SharedBuffer {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("nobody panicked").clone()).expect("UTF-8")
    }
}

impl Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panicked").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Logs one warning. [`NAME`] is in its message, in its fields, and in the span around it.
fn warn() {
    let span = tracing::info_span!("request", caller = NAME, shown = %NAME);
    let _entered = span.enter();
    tracing::warn!(extension = NAME, path = %NAME, debug = ?NAME, "{NAME} failed");
}

fn logged<S: tracing::Subscriber + Send + Sync + 'static>(subscriber: impl FnOnce(SharedBuffer) -> S) -> String {
    let kept = SharedBuffer::default();
    tracing::subscriber::with_default(subscriber(kept.clone()), warn);
    let text = kept.text();
    assert_eq!(text.matches("failed").count(), 1, "{text}");
    text
}

/// The only line of `text`, without its line end and without colours. A colour ends with `m` and otherwise has digits
/// only.
fn only_line(text: &str) -> String {
    let line = text.strip_suffix('\n').expect("a line");
    let mut plain = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        let (colour, behind) = after.split_once('m').expect("a colour");
        assert!(colour.bytes().all(|byte| byte.is_ascii_digit() || byte == b';'), "{line:?}");
        plain.push_str(before);
        rest = behind;
    }
    plain + rest
}

#[test]
fn a_strangers_words_stay_in_one_line_for_people() {
    let text = logged(|kept| text(EnvFilter::new("info"), move || kept.clone()));
    let line = only_line(&text);
    assert!(!line.contains(annex_text::steers), "{line:?}");
    assert!(line.contains("a\\u{1b}[2Jb\\u{7}c\\rd\\ne\\u{85}") && line.contains("i\\u{202e}j"), "{line:?}");
}

#[test]
fn a_strangers_words_stay_in_one_line_for_programs_and_say_what_they_said() {
    let text = logged(|kept| json(EnvFilter::new("info"), move || kept.clone()));
    let line = text.strip_suffix('\n').expect("a line");
    assert!(!line.contains(annex_text::steers), "{line:?}");
    let line: Value = serde_json::from_str(line).expect("JSON");
    assert_eq!((line["extension"].as_str(), line["path"].as_str()), (Some(NAME), Some(NAME)));
}

#[test]
fn a_long_field_is_cut_for_people_and_for_programs() {
    let long = || {
        let words = "ä\u{1b}".repeat(1 << 20);
        tracing::warn!(words, debug = ?words, short = "stays", "failed: {words}");
    };
    let kept = SharedBuffer::default();
    let writer = kept.clone();
    tracing::subscriber::with_default(text(EnvFilter::new("info"), move || writer.clone()), long);
    let line = kept.text();
    // Escapes make a field of people longer.
    assert!(line.len() < 200 << 10, "{} bytes", line.len());
    assert!(line.contains("stays") && line.matches('…').count() == 3, "{line}");

    let kept = SharedBuffer::default();
    let writer = kept.clone();
    tracing::subscriber::with_default(json(EnvFilter::new("info"), move || writer.clone()), long);
    let line = kept.text();
    assert!(line.len() < 100 << 10, "{} bytes", line.len());
    let line: Value = serde_json::from_str(line.strip_suffix('\n').expect("a line")).expect("JSON");
    let words = line["words"].as_str().expect("text");
    assert!(words.len() < 9 << 10 && words.ends_with('…'), "{words}");
    assert_eq!((&line["short"], &line["level"]), (&Value::from("stays"), &Value::from("WARN")));
}

/// Runs `log` with a batch that waits for `delay`. Returns the text that was written before `log` returned, and the
/// buffer that gets later writes.
fn batched(delay: Duration, log: impl FnOnce()) -> (String, SharedBuffer) {
    let kept = SharedBuffer::default();
    let batch: &Batch<SharedBuffer> = Box::leak(Box::new(Batch::new(kept.clone(), delay)));
    let written = tracing::subscriber::with_default(json(EnvFilter::new("info"), batch), || {
        log();
        kept.text()
    });
    (written, kept)
}

const FOR_EVER: Duration = Duration::from_secs(1 << 20);

fn access(number: u32) {
    tracing::info!(target: annex_telemetry::ACCESS_TARGET, number, "request");
}

#[test]
fn lines_of_the_access_log_are_written_together_and_before_the_line_that_follows_them() {
    let lines = || {
        access(1);
        access(2);
        tracing::warn!("a warning is written at once");
        access(3);
    };
    let (written, _) = batched(FOR_EVER, lines);
    let found = ["\"number\":1", "\"number\":2", "a warning"].map(|part| written.find(part).expect(part));
    assert!(found.is_sorted() && written.lines().count() == 3, "{written}");
}

#[test]
fn a_line_of_the_access_log_is_written_although_none_follows() {
    let (_, kept) = batched(Duration::from_millis(1), || access(1));
    while kept.text().lines().count() == 0 {
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_full_batch_of_the_access_log_is_written_at_once() {
    let (written, _) = batched(FOR_EVER, || (0..1_000).for_each(access));
    assert!(written.len() >= 64 << 10 && written.lines().count() < 1_000, "{} bytes", written.len());
}
