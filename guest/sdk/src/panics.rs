//! Reports panics. A panic traps without a text. This module first sends the message and the location of the panic to
//! the host's log.

use std::panic::{self, PanicHookInfo};
use std::sync::Once;

use crate::bindings::capabilities::wasi::logging::logging::{Level, log};

/// Installs the panic hook, once per instance.
pub(crate) fn report_to_host() {
    static INSTALLED: Once = Once::new();
    // Each hook comes by here, and an instance serves all hooks of a turn.
    INSTALLED.call_once(|| panic::set_hook(Box::new(|info| log(Level::Critical, "panic", &describe(info)))));
}

fn describe(info: &PanicHookInfo<'_>) -> String {
    let message = info.payload_as_str().unwrap_or("a panic without a message");
    match info.location() {
        Some(place) => format!("{message}, at {}:{}", place.file(), place.line()),
        None => message.to_owned(),
    }
}
