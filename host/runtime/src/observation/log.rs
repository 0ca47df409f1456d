//! The log lines of an extension in one turn, counted and bounded, whichever way they come.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use annex_protocol::Secret;
use uuid::Uuid;

use crate::confinement::pieces::Pieces;
use crate::confinement::profile::Profile;
use crate::contract::LogLevel;
use crate::hook::Hook;
use crate::observation::log_tail::LogLine;
use crate::turn_view::{TurnIds, TurnView};

/// The text that takes the place of a secret in a line.
pub(crate) const HIDDEN: &str = "(secret)";

/// Bytes of a secret's line from which on it is hidden by itself.
const SHORTEST_LINE: usize = 8;

/// The log of one extension in one turn. Clones share what is left of it.
#[derive(Clone)]
pub(crate) struct Log {
    profile: Arc<Profile>,
    turn: Arc<Turn>,
}

/// The turn that lines are written in.
struct Turn {
    left: Left,
    /// `None` when the extension is being loaded.
    view: Option<Arc<dyn TurnView>>,
    /// Asked for by the first line: most turns write none.
    ids: OnceLock<TurnIds>,
    /// The id that the client is told if the extension fails in this turn. Each line has it, so that the lines which explain
    /// a failure are found by it.
    error_id: OnceLock<Uuid>,
    /// The place in [`Hook::ALL`] of the hook that runs, or ran last.
    hook: AtomicU8,
    /// It stands here because this is what the host's sides of a turn share.
    pieces: Pieces,
}

/// The lines and bytes that may still be written.
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
    pub(crate) fn new(profile: Arc<Profile>, view: Option<Arc<dyn TurnView>>) -> Self {
        let left = Left { lines: profile.limits.log_lines.into(), bytes: profile.limits.log_bytes.into() };
        let hook = AtomicU8::new(Hook::Descriptor as u8);
        let pieces = Pieces::default();
        let turn = Turn { left, view, ids: OnceLock::new(), error_id: OnceLock::new(), hook, pieces };
        Self { profile, turn: Arc::new(turn) }
    }

    /// The id of the extension's failure in this turn, should there be one.
    pub(crate) fn error_id(&self) -> Uuid {
        *self.turn.error_id.get_or_init(Uuid::new_v4)
    }

    /// From here on lines are those of the hook.
    pub(crate) fn enter(&self, hook: Hook) {
        self.turn.hook.store(hook as u8, Ordering::Relaxed);
    }

    /// The CPU time of the calls of the turn.
    pub(crate) fn pieces(&self) -> &Pieces {
        &self.turn.pieces
    }

    fn hook(&self) -> Hook {
        let place = self.turn.hook.load(Ordering::Relaxed);
        Hook::ALL.into_iter().find(|hook| *hook as u8 == place).unwrap_or(Hook::Descriptor)
    }

    fn ids(&self) -> &TurnIds {
        self.turn.ids.get_or_init(|| self.turn.view.as_ref().map(|view| view.ids()).unwrap_or_default())
    }

    /// Bytes of one line that are worth collecting. A secret that begins within the line is among them to its end, because
    /// one that was cut would not be found.
    pub(crate) fn taken_bytes(&self) -> usize {
        self.profile.limits.log_line.saturating_add(self.longest_secret())
    }

    /// Writes the beginning of a line, of which [`Log::taken_bytes`] were taken. A secret may be cut at the end of it, where it
    /// would not be found, so that as much as can be of one is left out.
    pub(crate) fn write_cut(&self, level: LogLevel, context: &str, message: &str) {
        let hidden = self.profile.without_secrets(message);
        let end = hidden.floor_char_boundary(hidden.len().saturating_sub(self.longest_secret()));
        self.write(level, context, hidden.get(..end).unwrap_or_default());
    }

    /// Bytes of the longest secret.
    fn longest_secret(&self) -> usize {
        self.profile.grants.secrets.values().map(|secret| secret.expose().len()).max().unwrap_or(0)
    }

    /// Writes one line, if any are left.
    pub(crate) fn write(&self, level: LogLevel, context: &str, message: &str) {
        let Some(left) = self.turn.left.take_line() else { return self.profile.meters.add_dropped_log_line() };
        self.profile.meters.add_log_line();
        let room = left.min(self.profile.limits.log_line);
        let context = shown(&self.profile, context, room);
        let message = shown(&self.profile, message, room - context.len());
        let bytes = context.len() + message.len();
        self.trace(level, &context, &message);
        let TurnIds { task_id, context_id } = self.ids().clone();
        self.profile.log.push(LogLine {
            at: SystemTime::now(),
            level: level_name(level),
            context,
            message,
            hook: self.hook(),
            task_id,
            context_id,
            error_id: self.error_id().to_string(),
        });
        if self.turn.left.spend(bytes) {
            let TurnIds { task_id, context_id } = self.ids();
            let (task, context) = (task_id.as_deref(), context_id.as_deref());
            let ids = annex_telemetry::ids();
            tracing::warn!(
                extension = %self.profile.uri,
                tenant = ids.tenant(),
                context,
                task,
                "further log lines of this turn are dropped"
            );
        }
    }

    fn trace(&self, level: LogLevel, log_context: &str, message: &str) {
        let extension = &self.profile.uri;
        let hook = self.hook();
        let TurnIds { task_id, context_id } = self.ids();
        let (task, context) = (task_id.as_deref(), context_id.as_deref());
        let ids = annex_telemetry::ids();
        let tenant = ids.tenant();
        let error_id = self.error_id();
        // The level is a part of what each macro leaves behind, so that it cannot be an argument.
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(%extension, %hook, tenant, context, task, %error_id, log_context, "{message}")
            };
        }
        match level {
            LogLevel::Trace => line!(trace),
            LogLevel::Debug => line!(debug),
            LogLevel::Info => line!(info),
            LogLevel::Warn => line!(warn),
            LogLevel::Error => line!(error),
        }
    }
}

/// A guest's words: without secrets, in one line, and cut to `room` bytes.
pub(crate) fn shown(profile: &Profile, text: &str, room: usize) -> String {
    // Secrets go first: when the text is escaped and cut they may no longer be found in it.
    annex_text::line_within(&profile.without_secrets(text), room)
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

/// The text without secrets. Of a secret of several lines, a key for instance, each line is one, because a guest writes line
/// by line.
pub(crate) fn without<'a>(text: &'a str, secrets: impl Iterator<Item = &'a Secret>) -> Cow<'a, str> {
    let lines = |secret: &'a Secret| secret.expose().lines().filter(|line| line.len() >= SHORTEST_LINE);
    let mut hidden: Vec<&str> = secrets.flat_map(|secret| lines(secret).chain([secret.expose()])).collect();
    // A secret may begin with another one.
    hidden.sort_unstable_by_key(|secret| std::cmp::Reverse(secret.len()));
    let mut text = Cow::Borrowed(text);
    for secret in hidden {
        if text.contains(secret) {
            text = Cow::Owned(text.replace(secret, HIDDEN));
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
        let secrets = [Secret::new("abc"), Secret::new("abcdef"), Secret::new("-----BEGIN\nMIIEvQIBADAN\nxy\n")];
        assert_eq!(without("abcdef MIIEvQIBADAN xy", secrets.iter()), "(secret) (secret) xy");
    }
}
