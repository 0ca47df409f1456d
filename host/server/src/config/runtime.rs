//! `[runtime]`: the engine and what may be installed while the server runs.

use std::path::PathBuf;

use serde::Deserialize;

use super::limits::LimitsConfig;
use super::tasks::TasksConfig;

/// `[runtime]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuntimeSection {
    /// Component instances alive at once. Default 1,000.
    pub max_instances: u32,
    /// Folder for compiled components. Default: `annex/components` in the user's cache folder.
    pub cache_dir: Option<PathBuf>,
    /// Bytes of all compiled components in that folder; what was not used for longest goes. Default 1 GiB.
    pub cache_bytes: u64,
    /// Seconds that compiling one component may take. Default 60.
    pub compile_seconds: u64,
    /// Bytes of memory that compiling one component may take. Default 512 MiB.
    pub compile_memory_bytes: u64,
    /// Components that are compiled at once, each by a process of its own. Default 2.
    pub compile_processes: u32,
    /// The log names files and lines of traps, of components with debug information. Reading it is work for the host that
    /// no limit counts: for components that are trusted. Default: no.
    pub debug_info: bool,
    /// An extension that fails five times in a row is left alone for a while. Default: yes.
    pub quarantine: bool,
    /// Folder whose components are installed, each `NAME.wasm` with the settings of `NAME.toml`. Default: none.
    pub extensions_dir: Option<PathBuf>,
    /// Watches component files and loads them again when they change. Default: yes.
    pub watch: bool,
    /// Replaced versions of each extension that are kept for a rollback. Default 3.
    pub keep_versions: usize,
    /// The bounds that no extension's limits may go beyond.
    pub ceiling: LimitsConfig,
}

impl RuntimeSection {
    /// Checks it beside the place of the tasks. An error is the key and the reason.
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
