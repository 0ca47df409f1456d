//! The log lines of an extension in one turn, counted and limited over all ways of writing them.

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

/// The text that replaces a secret in a line.
pub(crate) const HIDDEN: &str = "(secret)";

/// Lines of a multi-line secret with at least this many bytes are hidden individually.
const SHORTEST_LINE: usize = 8;

/// The log of an extension in one turn. Clones share the remaining limits.
#[derive(Clone)]
pub(crate) struct Log {
    profile: Arc<Profile>,
    turn: Arc<Turn>,
}

/// The turn that lines belong to.
struct Turn {
    left: LineBudget,
    /// The turn's view; `None` while the extension is loaded.
    view: Option<Arc<dyn TurnView>>,
    /// The ids of the turn. They are read when the first line is written, because most turns log nothing.
    ids: OnceLock<TurnIds>,
    /// The error id that the client gets if the extension fails in this turn. Each line has the id, so that the lines
    /// that explain a failure can be found.
    error_id: OnceLock<Uuid>,
    /// Index in [`Hook::ALL`] of the current or last hook.
    hook: AtomicU8,
    /// CPU time of the turn. It is stored here because all host code of the turn has access to the log.
    pieces: Pieces,
}

/// The lines and bytes that the turn may still log.
struct LineBudget {
    lines: AtomicU32,
    bytes: AtomicUsize,
}

impl LineBudget {
    /// Takes one line from the budget. Returns the number of bytes that the turn may still log, or `None` if the limit
    /// is reached.
    fn take_line(&self) -> Option<usize> {
        let bytes = self.bytes.load(Ordering::Relaxed);
        if bytes == 0 {
            return None;
        }
        // An instance writes one line at a time. The counters are atomic because clones share them.
        let take = |left: u32| left.checked_sub(1);
        self.lines.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok().map(|_| bytes)
    }

    /// Subtracts the bytes of a line. Returns true if the turn may log no further line.
    fn spend(&self, bytes: usize) -> bool {
        let spend = |left: usize| Some(left.saturating_sub(bytes));
        let before = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).unwrap_or(0);
        before <= bytes || self.lines.load(Ordering::Relaxed) == 0
    }
}

impl Log {
    pub(crate) fn new(profile: Arc<Profile>, view: Option<Arc<dyn TurnView>>) -> Self {
        let left = LineBudget { lines: profile.limits.log_lines.into(), bytes: profile.limits.log_bytes.into() };
        let hook = AtomicU8::new(Hook::Descriptor as u8);
        let pieces = Pieces::default();
        let turn = Turn { left, view, ids: OnceLock::new(), error_id: OnceLock::new(), hook, pieces };
        Self { profile, turn: Arc::new(turn) }
    }

    /// The error id of this turn.
    pub(crate) fn error_id(&self) -> Uuid {
        *self.turn.error_id.get_or_init(Uuid::new_v4)
    }

    /// Sets the hook that the following lines belong to.
    pub(crate) fn enter(&self, hook: Hook) {
        self.turn.hook.store(hook as u8, Ordering::Relaxed);
    }

    /// CPU time of the turn's calls.
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

    /// Number of bytes that a caller must collect of a long line before it writes the line. The number includes a whole
    /// secret that begins within the visible part, because part of a secret would not be recognised.
    pub(crate) fn taken_bytes(&self) -> usize {
        self.profile.limits.log_line.saturating_add(self.longest_secret())
    }

    /// Writes a line of which only the first [`Log::taken_bytes`] were collected. At the end of these bytes a secret
    /// may have been cut, and a cut secret is not recognised. So as many bytes as the longest secret has are dropped.
    pub(crate) fn write_cut(&self, level: LogLevel, context: &str, message: &str) {
        let hidden = self.profile.without_secrets(message);
        let end = hidden.floor_char_boundary(hidden.len().saturating_sub(self.longest_secret()));
        self.write(level, context, hidden.get(..end).unwrap_or_default());
    }

    /// Length of the longest secret in bytes.
    fn longest_secret(&self) -> usize {
        self.profile.grants.secrets.values().map(|secret| secret.expose().len()).max().unwrap_or(0)
    }

    /// Writes one line, unless the limit is reached.
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
        let (tenant, trace_id) = (ids.tenant(), ids.trace());
        let trace_id = trace_id.as_deref();
        let error_id = self.error_id();
        // `tracing` needs the level as a constant, so it cannot be an argument.
        macro_rules! line {
            ($level:ident) => {
                tracing::$level!(%extension, %hook, tenant, context, task, trace_id, %error_id, log_context, "{message}")
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

/// Text of a guest in one line, with secrets replaced, cut to `room` bytes.
pub(crate) fn shown(profile: &Profile, text: &str, room: usize) -> String {
    // Secrets are replaced first: escaping or cutting could make them unrecognisable.
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

/// The text with secrets replaced. Lines of a multi-line secret, such as a key, are replaced individually, because
/// guests write line by line.
pub(crate) fn without<'a>(text: &'a str, secrets: impl Iterator<Item = &'a Secret>) -> Cow<'a, str> {
    let lines = |secret: &'a Secret| secret.expose().lines().filter(|line| line.len() >= SHORTEST_LINE);
    let mut hidden: Vec<&str> = secrets.flat_map(|secret| lines(secret).chain([secret.expose()])).collect();
    // Longest first, because a secret may begin with another one.
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
