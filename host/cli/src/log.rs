//! Log lines on standard error: text on a terminal, otherwise JSON. `ANNEX_LOG` sets the filter, as in
//! `ANNEX_LOG=annex_server=debug`.
//!
//! Any field may hold text from an untrusted peer. Both forms escape control characters and cut long fields when they
//! write, so no caller has to do so.

use std::env;
use std::fmt::{self, Debug, Write as _};
use std::io::{self, IsTerminal};

use annex_text::Line;
use anyhow::anyhow;
use tracing::field::Field;
use tracing::{Dispatch, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{JsonFields, Writer, debug_fn};
use tracing_subscriber::fmt::{MakeWriter, SubscriberBuilder};
use tracing_subscriber::util::SubscriberInitExt;

use crate::color;

mod batch;
mod json;

use batch::STANDARD_ERROR;
use json::JsonLine;

/// The maximum size of one field, in bytes. Longer fields are cut.
const MAX_FIELD: usize = 8 << 10;

/// The filter that hides a notice of PostgreSQL. The notice says at each start that the tables of the migrations
/// already exist. `ANNEX_LOG` can show the notice by its target, `sqlx::postgres::notice`.
const QUIET: &str = "sqlx::postgres::notice=warn";

/// Starts logging for the rest of the process.
///
/// # Errors
/// When `ANNEX_LOG` is not a filter.
pub(crate) fn start() -> anyhow::Result<()> {
    let filter = filter()?;
    let subscriber: Dispatch =
        if io::stderr().is_terminal() { text(filter, io::stderr).into() } else { json(filter, &STANDARD_ERROR).into() };
    subscriber.init();
    Ok(())
}

/// Writes the log lines that still wait. Called before the process ends.
pub(crate) fn flush() {
    STANDARD_ERROR.flush();
}

/// Creates the subscriber that writes log lines as text, for people.
fn text<W>(filter: EnvFilter, writer: W) -> impl Subscriber + Send + Sync + 'static
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let fields = debug_fn(write_field).delimited(" ");
    let lines = lines().with_env_filter(filter).with_writer(writer).with_target(false);
    lines.with_ansi(color::on_standard_error()).compact().fmt_fields(fields).finish()
}

/// Creates the subscriber that writes log lines as JSON, for programs.
fn json<W>(filter: EnvFilter, writer: W) -> impl Subscriber + Send + Sync + 'static
where
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let lines = lines().with_env_filter(filter).with_writer(writer);
    lines.fmt_fields(JsonFields::new()).event_format(JsonLine).finish()
}

/// Sets the options that text and JSON lines share. A line that cannot be written, for instance because the disk is
/// full, is lost. Without these options, `tracing_subscriber` would report the failure on standard error, and panic if
/// that failed too.
fn lines() -> SubscriberBuilder {
    tracing_subscriber::fmt().log_internal_errors(false)
}

fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    if field.name() != "message" {
        write!(writer, "{}=", field.name())?;
    }
    let mut writer = CappedWriter { inner: Line(writer), room: MAX_FIELD };
    match write!(writer, "{value:?}") {
        // The field was cut. This stops the writing of the field and is not an error of the line.
        Err(_) if writer.room == 0 => write!(writer.inner, "…"),
        written => written,
    }
}

/// Writes text until `room` is used up, and then fails.
struct CappedWriter<W> {
    inner: W,
    /// The number of bytes that may still be written; 0 after the text was cut.
    room: usize,
}

impl<W: fmt::Write> fmt::Write for CappedWriter<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if text.len() < self.room {
            self.room -= text.len();
            return self.inner.write_str(text);
        }
        let fitting = text.get(..text.floor_char_boundary(self.room)).unwrap_or_default();
        self.room = 0;
        self.inner.write_str(fitting)?;
        Err(fmt::Error)
    }
}

fn filter() -> anyhow::Result<EnvFilter> {
    let Some(value) = env::var_os("ANNEX_LOG").filter(|value| !value.is_empty()) else {
        return Ok(EnvFilter::new(format!("{QUIET},info")));
    };
    let text = value.to_string_lossy();
    EnvFilter::try_new(format!("{QUIET},{text}")).map_err(|error| {
        anyhow!("ANNEX_LOG={text} is not a log filter; write a level, such as debug, or target=level: {error}")
    })
}

#[cfg(test)]
mod tests;
