//! Log lines on standard error: readable on a terminal, JSON elsewhere. `ANNEX_LOG` filters, as in
//! `ANNEX_LOG=annex_server=debug`.

use std::env;
use std::io::{self, IsTerminal};

use anyhow::anyhow;
use tracing_subscriber::EnvFilter;

/// Starts logging for the rest of the process.
///
/// # Errors
/// When `ANNEX_LOG` is not a filter.
pub(crate) fn start() -> anyhow::Result<()> {
    // A line that cannot be written, because the disk that it goes to is full, is lost. It would be reported on standard
    // error otherwise, where it cannot be written either, and end whatever logged it.
    let lines = tracing_subscriber::fmt().log_internal_errors(false);
    let lines = lines.with_env_filter(filter()?).with_writer(io::stderr);
    if io::stderr().is_terminal() {
        lines.with_target(false).compact().init();
    } else {
        lines.json().flatten_event(true).init();
    }
    Ok(())
}

fn filter() -> anyhow::Result<EnvFilter> {
    let Some(value) = env::var_os("ANNEX_LOG").filter(|value| !value.is_empty()) else {
        return Ok(EnvFilter::new("info"));
    };
    let text = value.to_string_lossy();
    EnvFilter::try_new(&text).map_err(|error| {
        anyhow!("ANNEX_LOG={text} is not a log filter; write a level, such as debug, or target=level: {error}")
    })
}
