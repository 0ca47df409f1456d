//! A line of JSON for each event, for programs.

use std::fmt::{self, Debug, Write};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_log::NormalizeEvent;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

use super::{CappedWriter, MAX_FIELD};

/// Formats an event as one JSON object: `timestamp`, `level`, the fields of the event, `target`, and `spans`. The spans
/// around the event are in `spans`, outermost first.
pub(super) struct JsonLine;

impl<S, N> FormatEvent<S, N> for JsonLine
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut line: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        // For an event of the crate `log`, this metadata has the target and level of the original record.
        let normalized = event.normalized_metadata();
        let metadata = normalized.as_ref().unwrap_or_else(|| event.metadata());
        line.write_str("{\"timestamp\":\"")?;
        SystemTime.format_time(&mut line)?;
        write!(line, "\",\"level\":\"{}\"", metadata.level())?;
        let mut fields = Fields { line: line.by_ref(), written: Ok(()) };
        event.record(&mut fields);
        fields.written?;
        line.write_str(",\"target\":")?;
        write_text(&mut line, metadata.target())?;
        if let Some(spans) = context.event_scope() {
            let mut before = ",\"spans\":[";
            for span in spans.from_root() {
                write!(line, "{before}{{\"name\":\"{}\"", span.name())?;
                if let Some(fields) = span.extensions().get::<FormattedFields<N>>() {
                    write_span_fields(&mut line, fields)?;
                }
                line.write_str("}")?;
                before = ",";
            }
            line.write_str("]")?;
        }
        line.write_str("}\n")
    }
}

/// Adds the fields of a span to a JSON object that already has a member. `fields` is the text of a JSON object. If this
/// text is too long, it is cut and added as one string.
fn write_span_fields(line: &mut Writer<'_>, fields: &str) -> fmt::Result {
    match fields.strip_prefix('{').and_then(|fields| fields.strip_suffix('}')) {
        None | Some("") => Ok(()),
        Some(members) if fields.len() <= MAX_FIELD => write!(line, ",{}", annex_text::json(members)),
        Some(_) => {
            line.write_str(",\"fields\":")?;
            write_text(line, fields)
        }
    }
}

/// Writes the fields of an event into a JSON object that already has a member.
struct Fields<'a> {
    line: Writer<'a>,
    /// The result of the writes so far. After a failure no further field is written.
    written: fmt::Result,
}

impl Fields<'_> {
    fn add(&mut self, field: &Field, write: impl FnOnce(&mut Writer<'_>) -> fmt::Result) {
        // The content of these fields of the crate `log` is in the metadata.
        if self.written.is_ok() && !field.name().starts_with("log.") {
            // The name of a field is a Rust identifier, perhaps with dots.
            self.written = write!(self.line, ",\"{}\":", field.name()).and_then(|()| write(&mut self.line));
        }
    }
}

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = CappedWriter { inner: String::new(), room: MAX_FIELD };
        // A cut stops the value, which is no error of the line.
        if write!(text, "{value:?}").is_err() && text.room == 0 {
            text.inner.push('…');
        }
        self.add(field, |line| write_escaped(line, &text.inner));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, |line| write_text(line, value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, |line| write!(line, "{value}"));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, |line| write!(line, "{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, |line| write!(line, "{value}"));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // JSON has neither infinities nor NaN.
        self.add(field, |line| if value.is_finite() { write!(line, "{value:?}") } else { line.write_str("null") });
    }
}

/// Writes a text as a JSON string. A text that is too long is cut.
fn write_text(line: &mut Writer<'_>, text: &str) -> fmt::Result {
    if text.len() <= MAX_FIELD {
        write_escaped(line, text)
    } else {
        write_escaped(line, &annex_text::cut(text.to_owned(), MAX_FIELD))
    }
}

fn write_escaped(line: &mut Writer<'_>, text: &str) -> fmt::Result {
    // Nearly all texts are plain.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\') {
        line.write_str("\"")?;
        line.write_str(text)?;
        return line.write_str("\"");
    }
    let string = serde_json::to_string(text).map_err(|_| fmt::Error)?;
    line.write_str(&annex_text::json(&string))
}
