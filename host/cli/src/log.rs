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
    let lines = tracing_subscriber::fmt().with_env_filter(filter()?).with_writer(io::stderr);
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
