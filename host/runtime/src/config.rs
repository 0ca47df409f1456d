//! The settings that a process chooses for its runtime.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use annex_egress::{Resolver, SystemResolver};
use annex_keyvalue::{KeyValueStore, MemoryKeyValueStore};

use crate::confinement::engine::EngineOptions;
use crate::load::compile::CompilerProcess;
use crate::outside::Outside;

/// The settings of a runtime.
#[derive(Clone)]
pub struct RuntimeConfig {
    /// Instances that can be alive at once, over all extensions and tenants.
    pub instances: u32,
    /// The longest that a turn waits for an instance before it is refused.
    pub instance_timeout: Duration,
    /// Folder for compiled components; `None` compiles at every start.
    pub cache: Option<PathBuf>,
    /// Bytes of all compiled components in that folder; what was not used for longest goes.
    pub cache_bytes: u64,
    /// The longest that compiling one component may take.
    pub compile_time: Duration,
    /// Bytes of memory that compiling one component may take.
    pub compile_memory: u64,
    /// Components that are compiled at once, each by a process of its own; at least one.
    pub compile_processes: u32,
    /// The program of these processes.
    pub compiler: CompilerProcess,
    /// Traps have files and lines, of components that have debug information. Each trap then costs the host the reading of
    /// that information, which is work that no limit counts: for components of one's own.
    pub debug_info: bool,
    /// Counts the instructions of guests, which then run about half as fast.
    pub count_instructions: bool,
    /// Compiled code runs on every processor of the architecture, and makes no use of what only this machine's has.
    pub any_processor: bool,
    /// An extension that fails again and again is left alone for a while. Whoever works on one does without.
    pub quarantine: bool,
    /// The services that turns have which bring none of their own, and components while they are loaded. Empty in a server:
    /// the real ones serve.
    pub outside: Outside,
    /// The store of keys, for extensions with the grant.
    pub keyvalue: Arc<dyn KeyValueStore>,
    /// The source of addresses, for requests of extensions with the grant.
    pub resolver: Arc<dyn Resolver>,
}

impl Default for RuntimeConfig {
    /// 1,000 instances, one second to wait for one, no cache (of 1 GiB), 60 seconds and 512 MiB to compile a component, two of
    /// them at once by this program, no debug information, no counting, code for this machine's processor,
    /// quarantine, keys in memory, the resolver of the
    /// operating system.
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
            outside: Outside::default(),
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
