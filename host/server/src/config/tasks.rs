//! `[tasks]`: where tasks are kept, which stay, and how large they may become.

use std::path::PathBuf;

use serde::Deserialize;

/// `[tasks]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TasksConfig {
    /// Folder of the SQLite file that keeps the tasks; it is made if needed. Default: they are kept in memory.
    pub data_dir: Option<PathBuf>,
    /// Name of the environment variable with the URL of the PostgreSQL database that keeps the tasks.
    pub postgres_env: Option<String>,
    /// Days that a finished task is kept. Default 30.
    pub keep_days: u64,
    /// Finished tasks kept of each tenant; its oldest goes first. Default 100,000.
    pub keep_count: u64,
    /// Tasks kept in memory; the oldest finished one of the caller that has most goes first, then the oldest that waits.
    /// Default 10,000.
    pub max_tasks: usize,
    /// Bytes of all tasks in memory and their events, of their texts and of the values that hold them. Default 256 MiB.
    pub max_bytes: usize,
    /// Bytes of one task, of its texts and of the values that hold them. Default 8 MiB.
    pub max_task_bytes: usize,
    /// Messages of one task's history. Default 1,000.
    pub max_task_messages: usize,
    /// Artifacts of one task. Default 100.
    pub max_task_artifacts: usize,
    /// Days that a task may wait for its client; then it fails. Default 7.
    pub keep_waiting_days: u64,
    /// Tasks of one caller that may wait for it; beyond, the one that has waited longest fails. Default 1,000. Anonymous
    /// callers, who cannot be told apart, have `max_tasks` together.
    pub max_waiting_per_caller: usize,
    /// Lets everybody list everybody's tasks where nobody is authenticated. For servers that clients are tested with.
    /// Default: no.
    pub list_all_anonymous: bool,
}

impl TasksConfig {
    /// Checks that several processes can have the tasks, because `key` is for them alone. An error is the key and the reason.
    pub(super) fn check_shared(&self, key: &'static str) -> Result<(), (&'static str, String)> {
        if self.postgres_env.is_none() {
            let reason = "is for several processes on one PostgreSQL database, and there is no tasks.postgres_env";
            return Err((key, reason.to_owned()));
        }
        Ok(())
    }
}

impl Default for TasksConfig {
    fn default() -> Self {
        Self {
            data_dir: None,
            postgres_env: None,
            keep_days: 30,
            keep_count: 100_000,
            max_tasks: 10_000,
            max_bytes: 256 << 20,
            max_task_bytes: 8 << 20,
            max_task_messages: 1_000,
            max_task_artifacts: 100,
            keep_waiting_days: 7,
            max_waiting_per_caller: 1_000,
            list_all_anonymous: false,
        }
    }
}
