//! Settings of a runtime.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use annex_egress::{Resolver, SystemResolver};
use annex_keyvalue::{KeyValueStore, MemoryKeyValueStore};

use crate::confinement::engine::EngineOptions;
use crate::load::compile::CompilerProcess;
use crate::overrides::ServiceOverrides;

/// Settings of a [`Runtime`](crate::Runtime).
#[derive(Clone)]
pub struct RuntimeConfig {
    /// Most live instances over all extensions and tenants.
    pub instances: u32,
    /// Longest wait of a turn for an instance. After that the turn is refused.
    pub instance_timeout: Duration,
    /// Folder for compiled components. `None` compiles at every start.
    pub cache: Option<PathBuf>,
    /// Maximum size of that folder in bytes. The least recently used files are deleted first.
    pub cache_bytes: u64,
    /// Timeout for compiling one component.
    pub compile_time: Duration,
    /// Memory limit for compiling one component, in bytes.
    pub compile_memory: u64,
    /// Most components that are compiled concurrently, each by its own process. At least one.
    pub compile_processes: u32,
    /// The program that compiles.
    pub compiler: CompilerProcess,
    /// True if traps report file and line for components with debug information. The host then reads that information
    /// at each trap, and no limit covers the reading. Use this for trusted components only.
    pub debug_info: bool,
    /// True if the instructions of guests are counted. Counting makes guests about half as fast.
    pub count_instructions: bool,
    /// True if compiled code is to run on every processor of the architecture. The code then uses no features that only
    /// this machine has.
    pub any_processor: bool,
    /// True if an extension that keeps failing is not called for a while. Use `false` while developing an extension.
    pub quarantine: bool,
    /// Replacements of host services, such as a fixed clock. They apply to loading, and to turns whose view has no
    /// replacements. Empty in a server.
    pub overrides: ServiceOverrides,
    /// The key-value store for extensions with the grant `keyvalue`.
    pub keyvalue: Arc<dyn KeyValueStore>,
    /// The resolver for requests of extensions with the grant `http`.
    pub resolver: Arc<dyn Resolver>,
}

impl Default for RuntimeConfig {
    /// The defaults are:
    ///
    /// - 1,000 instances, and a wait of at most one second for an instance
    /// - no cache for compiled code; with a folder, its limit is 1 GiB
    /// - 60 seconds and 512 MiB for each compilation, and two compilations at the same time by this program
    /// - neither debug information nor counting of instructions, and code for this machine's processor only
    /// - quarantine, keys in memory, and the resolver of the operating system
    fn default() -> Self {
        Self {
            instances: 1_000,
            instance_timeout: Duration::from_secs(1),
            cache: None,
            cache_bytes: 1 << 30,
            compile_time: Duration::from_secs(60),
            compile_memory: 512 << 20,
            compile_processes: 2,
            compiler: CompilerProcess::default(),
            debug_info: false,
            count_instructions: false,
            any_processor: false,
            quarantine: true,
            overrides: ServiceOverrides::default(),
            keyvalue: Arc::new(MemoryKeyValueStore::default()),
            resolver: Arc::new(SystemResolver::default()),
        }
    }
}

impl RuntimeConfig {
    pub(crate) fn engine_options(&self) -> EngineOptions {
        EngineOptions {
            debug_info: self.debug_info,
            count_instructions: self.count_instructions,
            any_processor: self.any_processor,
        }
    }
}
