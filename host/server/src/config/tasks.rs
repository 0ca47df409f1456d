//! `[tasks]`: the store of conversations and tasks, the retention of tasks, and their limits.

use std::path::PathBuf;

use serde::Deserialize;

/// The table `[tasks]`: the store of tasks, and its limits.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TasksConfig {
    /// Folder of the SQLite file with the tasks. It is created if missing. Default: tasks are kept in memory.
    pub data_dir: Option<PathBuf>,
    /// Name of the environment variable with the URL of a PostgreSQL database for the tasks.
    pub postgres_env: Option<String>,
    /// Days for which a finished task is kept. Default 30.
    pub keep_days: u64,
    /// The maximum number of finished tasks per tenant. The oldest finished tasks are deleted first. Default 100,000.
    pub keep_count: u64,
    /// The maximum number of tasks in memory. Above the limit, the caller with the most tasks loses its oldest finished
    /// task. If no finished task can be dropped, a caller loses its oldest waiting task. Default 10,000.
    pub max_tasks: usize,
    /// The maximum size, in bytes, of all tasks in memory and their events, including the overhead of their values.
    /// Default 256 MiB.
    pub max_bytes: usize,
    /// The maximum size of one task in bytes, including the overhead of its values. Default 8 MiB.
    pub max_task_bytes: usize,
    /// The maximum number of messages in a task's history. Default 1,000.
    pub max_task_messages: usize,
    /// The maximum number of artifacts of a task. Default 100.
    pub max_task_artifacts: usize,
    /// Days after which a task that waits for its client fails. Default 7.
    pub keep_waiting_days: u64,
    /// The maximum number of tasks of one caller that wait for the client. Above the limit, the task that has waited
    /// longest fails. All anonymous callers share one limit, which is `max_tasks`. Default 1,000.
    pub max_waiting_per_caller: usize,
    /// Lets every anonymous client list all tasks. Only for servers in tests of clients. Default: no.
    pub list_all_anonymous: bool,
}

impl TasksConfig {
    /// Checks that tasks are in PostgreSQL, because the setting `key` requires this. The error is a pair of key and
    /// reason.
    pub(super) fn check_shared(&self, key: &'static str) -> Result<(), (&'static str, String)> {
        if self.postgres_env.is_none() {
            let reason = "is for several processes on one PostgreSQL database, but tasks.postgres_env is not set";
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
