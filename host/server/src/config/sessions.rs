//! `[sessions]`: the limits of sessions. Sessions are stored with the tasks.

use std::path::PathBuf;

use serde::Deserialize;

use crate::redaction::Redaction;

/// The table `[sessions]`: the limits of sessions. Sessions are stored with the tasks.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionsConfig {
    /// If set, this must be the folder in `tasks.data_dir`, because sessions and tasks are in one store.
    pub data_dir: Option<PathBuf>,
    /// If set, this must be the variable in `tasks.postgres_env`, because sessions and tasks are in one store.
    pub postgres_env: Option<String>,
    /// Days for which a session is kept after its last change. Default 30.
    pub keep_days: u64,
    /// The maximum number of stored sessions per tenant. The sessions that were unchanged for longest are deleted
    /// first. Default 100,000.
    pub keep_count: u64,
    /// The maximum number of sessions in memory. The sessions that were idle for longest are dropped first. Default
    /// 10,000.
    pub max_sessions: usize,
    /// The maximum size of all sessions in memory together, in bytes. Default 256 MiB.
    pub max_bytes: usize,
    /// The maximum size of one scope of a session's state, in bytes. Default 256 KiB.
    pub max_state_bytes: usize,
    /// The maximum number of keys of one scope of a session's state. Default 1,000.
    pub max_state_keys: usize,
    /// The maximum depth to which arrays and objects nest in a value of the state, from 0 to 35. With 0 a value is
    /// neither an array nor an object. Default 35.
    pub max_state_depth: usize,
    /// The maximum number of artifacts per session. The artifacts that were written longest ago are dropped first.
    /// Default 100.
    pub max_artifacts: usize,
    /// The maximum size of all artifacts of a session together, in bytes. Default 8 MiB.
    pub max_artifact_bytes: usize,
    /// The maximum number of events per session. Older events are dropped, but their changes of the state stay. Default
    /// 1,000.
    pub max_events: usize,
    /// Treats `null` in a state delta as the removal of its key. Default: no, `null` is a value.
    pub null_removes: bool,
    /// Patterns of keys whose values operators do not see. `*` stands for any characters. Default: the usual names of
    /// secrets.
    pub hide: Option<Vec<String>>,
}

impl SessionsConfig {
    /// Checks that stored values nest less deeply than JSON may. Returns the key that is wrong, with the reason.
    pub(super) fn check(&self) -> Result<(), (&'static str, String)> {
        const MOST: usize = annex_conversation::Limits::MAX_STATE_DEPTH;
        let given = self.max_state_depth;
        if given > MOST {
            let reason =
                format!("is {given}; it must be between 0 and {MOST}: JSON may not nest more deeply in a message");
            return Err(("sessions.max_state_depth", reason));
        }
        Ok(())
    }

    /// Makes the redaction that hides values from operators.
    pub(crate) fn redaction(&self) -> Redaction {
        self.hide.clone().map_or_else(Redaction::default, Redaction::new)
    }
}

impl Default for SessionsConfig {
    fn default() -> Self {
        let bounds = annex_conversation::MemoryBounds::default();
        let limits = bounds.limits;
        Self {
            data_dir: None,
            postgres_env: None,
            keep_days: 30,
            keep_count: 100_000,
            max_sessions: bounds.max_conversations,
            max_bytes: bounds.max_conversation_bytes,
            max_state_bytes: limits.state_bytes,
            max_state_keys: limits.state_keys,
            max_state_depth: limits.state_depth,
            max_artifacts: limits.artifacts,
            max_artifact_bytes: limits.artifact_bytes,
            max_events: limits.events,
            null_removes: limits.null_removes,
            hide: None,
        }
    }
}
