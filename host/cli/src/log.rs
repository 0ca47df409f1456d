//! Log lines on standard error: readable on a terminal, JSON elsewhere. `ANNEX_LOG` filters, as in
//! `ANNEX_LOG=annex_server=debug`.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

/// Starts logging for the rest of the process.
pub(crate) fn start() {
    let filter = EnvFilter::try_from_env("ANNEX_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    if io::stderr().is_terminal() {
        lines.with_target(false).compact().init();
    } else {
        lines.json().flatten_event(true).init();
    }
}
