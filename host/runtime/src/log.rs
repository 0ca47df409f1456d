//! What an extension writes to the log in one turn, counted and bounded, whichever way it comes.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use annex_protocol::Secret;

use crate::bindings::v0_1::wasi::logging::logging::Level;
use crate::extension::Profile;

/// What stands in a line where a secret stood.
const HIDDEN: &str = "(secret)";

/// The log of one instance. Clones share what is left of it.
#[derive(Clone)]
pub(crate) struct Log {
    profile: Arc<Profile>,
    lines_left: Arc<AtomicU32>,
}

impl Log {
    pub(crate) fn new(profile: Arc<Profile>) -> Self {
        let lines_left = Arc::new(AtomicU32::new(profile.limits.log_lines));
        Self { profile, lines_left }
    }

    /// Bytes of one line; the rest is cut off.
    pub(crate) fn line_bytes(&self) -> usize {
        self.profile.limits.log_line
    }

    /// Writes one line, if any are left.
    pub(crate) fn write(&self, level: Level, context: &str, message: &str) {
        let take = |left: u32| left.checked_sub(1);
        let Ok(left) = self.lines_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) else {
            return self.profile.meters.add_dropped_log_line();
        };
        self.profile.meters.add_log_line();
        let extension = &self.profile.uri;
        let (context, message) = (printable(&self.profile, context), printable(&self.profile, message));
        self.profile.log.push(level_name(level), context.clone(), message.clone());
        match level {
            Level::Trace => tracing::trace!(%extension, context, "{message}"),
            Level::Debug => tracing::debug!(%extension, context, "{message}"),
            Level::Info => tracing::info!(%extension, context, "{message}"),
            Level::Warn => tracing::warn!(%extension, context, "{message}"),
            Level::Error | Level::Critical => tracing::error!(%extension, context, "{message}"),
        }
        if left == 1 {
            tracing::warn!(%extension, "further log lines of this turn are dropped");
        }
    }
}

/// Without secrets, cut to the limit, and with control characters escaped, so that a guest can forge no log line.
pub(crate) fn printable(profile: &Profile, text: &str) -> String {
    let text = without(text, profile.grants.secrets.values());
    let cut = text.get(..text.floor_char_boundary(profile.limits.log_line)).unwrap_or(&text);
    let mut line = String::with_capacity(cut.len());
    for character in cut.chars() {
        if character.is_control() { line.extend(character.escape_default()) } else { line.push(character) }
    }
    line
}

/// As the process's log has it, which has no level beyond errors.
fn level_name(level: Level) -> &'static str {
    match level {
        Level::Trace => "trace",
        Level::Debug => "debug",
        Level::Info => "info",
        Level::Warn => "warn",
        Level::Error | Level::Critical => "error",
    }
}

fn without<'a>(text: &'a str, secrets: impl Iterator<Item = &'a Secret>) -> Cow<'a, str> {
    let mut text = Cow::Borrowed(text);
    for secret in secrets {
        if text.contains(secret.expose()) {
            text = Cow::Owned(text.replace(secret.expose(), HIDDEN));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use annex_protocol::Secret;

    use super::without;

    #[test]
    fn secrets_are_taken_out_of_a_line() {
        let secrets = [Secret::new("hunter2"), Secret::new("abc")];
        assert_eq!(without("key=hunter2 id=abcd", secrets.iter()), "key=(secret) id=(secret)d");
        assert_eq!(without("nothing here", secrets.iter()), "nothing here");
    }
}
