//! The bar that shows how many bytes of a component are transferred, and the time left.

use std::sync::OnceLock;

use annex_registry::Progress;
use indicatif::{ProgressBar, ProgressStyle};

const TEMPLATE: &str = "{msg} [{bar:30}] {bytes} of {total_bytes}, {eta} left";

/// A bar on standard error, from the begin of the transfer until this value is dropped. If standard error is not a
/// terminal, nothing is written.
pub(super) struct Bar {
    what: &'static str,
    bar: OnceLock<ProgressBar>,
}

impl Bar {
    /// Creates a bar for the operation `what`.
    pub(super) fn new(what: &'static str) -> Self {
        Self { what, bar: OnceLock::new() }
    }
}

impl Progress for Bar {
    fn begin(&self, total: u64) {
        let bar = self.bar.get_or_init(|| {
            let bar = ProgressBar::new(total).with_message(self.what);
            match ProgressStyle::with_template(TEMPLATE) {
                Ok(style) => bar.with_style(style.progress_chars("=> ")),
                Err(_) => bar,
            }
        });
        bar.set_length(total);
    }

    fn advance(&self, bytes: u64) {
        if let Some(bar) = self.bar.get() {
            bar.inc(bytes);
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}
