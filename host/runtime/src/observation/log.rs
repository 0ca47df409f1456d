//! The log lines of an extension in one turn, counted and bounded, whichever way they come.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use annex_protocol::Secret;

use crate::confinement::profile::Profile;
use crate::contract::LogLevel;

/// The text that takes the place of a secret in a line.
const HIDDEN: &str = "(secret)";

/// The log of one instance. Clones share what is left of it.
#[derive(Clone)]
pub(crate) struct Log {
    profile: Arc<Profile>,
    left: Arc<Left>,
}

/// The lines and bytes that an instance may still write.
struct Left {
    lines: AtomicU32,
    bytes: AtomicUsize,
}

impl Left {
    /// The bytes that one more line may have; `None` when there may be no further line.
    fn take_line(&self) -> Option<usize> {
        let bytes = self.bytes.load(Ordering::Relaxed);
        if bytes == 0 {
            return None;
        }
        // An instance writes one line at a time. The counts are atomic because clones share them, and order nothing.
        let take = |left: u32| left.checked_sub(1);
        self.lines.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok().map(|_| bytes)
    }

    /// Counts the bytes of a line. Returns true if it was the last one.
    fn spend(&self, bytes: usize) -> bool {
        let spend = |left: usize| Some(left.saturating_sub(bytes));
        let before = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).unwrap_or(0);
        before <= bytes || self.lines.load(Ordering::Relaxed) == 0
    }
}

impl Log {
    pub(crate) fn new(profile: Arc<Profile>) -> Self {
        let lines = profile.limits.log_lines.into();
        let bytes = profile.limits.log_bytes.into();
        Self { profile, left: Arc::new(Left { lines, bytes }) }
    }

    /// Bytes of one line that are worth collecting. A secret that begins within the line is among them to its end, because
    /// one that was cut would not be found.
    pub(crate) fn taken_bytes(&self) -> usize {
        let secrets = self.profile.grants.secrets.values().map(|secret| secret.expose().len());
        self.profile.limits.log_line.saturating_add(secrets.max().unwrap_or(0))
    }

    /// Writes one line, if any are left.
    pub(crate) fn write(&self, level: LogLevel, context: &str, message: &str) {
        let Some(left) = self.left.take_line() else { return self.profile.meters.add_dropped_log_line() };
        self.profile.meters.add_log_line();
        let extension = &self.profile.uri;
        let room = left.min(self.profile.limits.log_line);
        let context = shown(&self.profile, context, room);
        // `shown` returns at most `room` bytes, so the difference is never below zero.
        let message = shown(&self.profile, message, room - context.len());
        self.profile.log.push(level_name(level), context.clone(), message.clone());
        match level {
            LogLevel::Trace => tracing::trace!(%extension, context, "{message}"),
            LogLevel::Debug => tracing::debug!(%extension, context, "{message}"),
            LogLevel::Info => tracing::info!(%extension, context, "{message}"),
            LogLevel::Warn => tracing::warn!(%extension, context, "{message}"),
            LogLevel::Error => tracing::error!(%extension, context, "{message}"),
        }
        // Said once, by the line that takes the last of them. A warning per dropped line would be a flood as well.
        if self.left.spend(context.len() + message.len()) {
            tracing::warn!(%extension, "further log lines of this turn are dropped");
        }
    }
}

/// A guest's words: without secrets, in one line, and cut to `room` bytes.
pub(crate) fn shown(profile: &Profile, text: &str, room: usize) -> String {
    // Secrets go first: when the text is escaped and cut they may no longer be found in it.
    annex_text::line_within(&without(text, profile.grants.secrets.values()), room)
}

fn level_name(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Trace => "trace",
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warn => "warn",
        LogLevel::Error => "error",
    }
}

/// The text without secrets.
pub(crate) fn without<'a>(text: &'a str, secrets: impl Iterator<Item = &'a Secret>) -> Cow<'a, str> {
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
