//! `[runtime]`: the component engine and its cache.

use std::path::PathBuf;

use serde::Deserialize;

use super::limits::LimitsConfig;
use super::tasks::TasksConfig;

/// The table `[runtime]`: the component engine and its cache.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuntimeSection {
    /// The maximum number of component instances at the same time. Default 1,000.
    pub max_instances: u32,
    /// Folder for compiled components. Default: `annex/components` in the user's cache folder.
    pub cache_dir: Option<PathBuf>,
    /// The maximum size of all compiled components in `cache_dir`, in bytes. The components that were unused for
    /// longest are deleted first. Default 1 GiB.
    pub cache_bytes: u64,
    /// Time limit in seconds for compiling one component. Default 60.
    pub compile_seconds: u64,
    /// Memory limit in bytes for compiling one component. Default 512 MiB.
    pub compile_memory_bytes: u64,
    /// The maximum number of components that are compiled at the same time, each in its own process. Default 2.
    pub compile_processes: u32,
    /// Logs file and line of each trap, for components with debug information. Only for trusted components, because the
    /// host reads their debug information without a limit. Default: no.
    pub debug_info: bool,
    /// Stops calling an extension for a while after five failures in a row. Default: yes.
    pub quarantine: bool,
    /// Folder of components that are installed automatically. The settings of `NAME.wasm` are in `NAME.toml`. Default:
    /// none.
    pub extensions_dir: Option<PathBuf>,
    /// Loads a component again when its file changes. Default: yes.
    pub watch: bool,
    /// The maximum number of replaced versions that are kept per extension for a rollback. Default 3.
    pub keep_versions: usize,
    /// The highest limits that any extension may have.
    pub ceiling: LimitsConfig,
}

impl RuntimeSection {
    /// Refuses `extensions_dir` if tasks are in PostgreSQL. The error is a pair of key and reason.
    pub(super) fn check(&self, tasks: &TasksConfig) -> Result<(), (&'static str, String)> {
        if self.extensions_dir.is_none() || tasks.postgres_env.is_none() {
            return Ok(());
        }
        let reason = "is a folder of one process, and with tasks.postgres_env all processes have the same extensions, which \
                      are kept in the database; leave it out, and use [[extension]] or `annex extension add`";
        Err(("runtime.extensions_dir", reason.to_owned()))
    }
}

impl Default for RuntimeSection {
    fn default() -> Self {
        Self {
            max_instances: 1_000,
            cache_dir: None,
            cache_bytes: 1 << 30,
            compile_seconds: 60,
            compile_memory_bytes: 512 << 20,
            compile_processes: 2,
            debug_info: false,
            quarantine: true,
            extensions_dir: None,
            watch: true,
            keep_versions: 3,
            ceiling: LimitsConfig::default(),
        }
    }
}
