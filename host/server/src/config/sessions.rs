//! `[sessions]`: where sessions are kept, and how many.

use std::path::PathBuf;

use serde::Deserialize;

use crate::redaction::Redaction;

/// `[sessions]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionsConfig {
    /// Folder of the SQLite file that keeps the sessions; it is made if needed. Default: where `[tasks]` keeps the tasks.
    pub data_dir: Option<PathBuf>,
    /// Name of the environment variable with the URL of the PostgreSQL database that keeps the sessions.
    pub postgres_env: Option<String>,
    /// Days that a session is kept unchanged. Default 30.
    pub keep_days: u64,
    /// Sessions kept of each tenant; its one unchanged for longest goes first. Default 100,000.
    pub keep_count: u64,
    /// Sessions kept in memory; the one idle for longest goes first. Default 10,000.
    pub max_sessions: usize,
    /// Bytes of all sessions in memory. Default 256 MiB.
    pub max_bytes: usize,
    /// Bytes of one scope of one session's state. Default 256 KiB.
    pub max_state_bytes: usize,
    /// Keys of one scope of one session's state. Default 1,000.
    pub max_state_keys: usize,
    /// The deepest nesting of a value. Default 35, which is also the most.
    pub max_state_depth: usize,
    /// Artifacts kept per session; the one that was not written for longest goes first. Default 100.
    pub max_artifacts: usize,
    /// Bytes of one session's artifacts. Default 8 MiB.
    pub max_artifact_bytes: usize,
    /// Events kept per session; older ones are dropped, their state stays. Default 1,000.
    pub max_events: usize,
    /// A `null` in a change of the state removes its key. Default: `false`, `null` is a value.
    pub null_removes: bool,
    /// Keys whose values operators are not shown, `*` for any characters. Default: names of secrets.
    pub hide: Option<Vec<String>>,
}

impl SessionsConfig {
    /// The keys whose values operators are not shown.
    pub(crate) fn redaction(&self) -> Redaction {
        self.hide.clone().map_or_else(Redaction::default, Redaction::new)
    }
}

impl Default for SessionsConfig {
    fn default() -> Self {
        let bounds = annex_session::Bounds::default();
        let limits = bounds.limits;
        Self {
            data_dir: None,
            postgres_env: None,
            keep_days: 30,
            keep_count: 100_000,
            max_sessions: bounds.max_sessions,
            max_bytes: bounds.max_bytes,
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
