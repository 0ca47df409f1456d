//! The one engine of the process: the only place that builds a wasmtime configuration.

use std::env::consts;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, WasmBacktraceDetails, WasmFeatures,
};

use crate::confinement::self_check;
use crate::error::RuntimeError;

/// The time from one advance of the epoch to the next. A guest yields to other work at each tick and is stopped at a
/// whole number of them.
pub const TICK: Duration = Duration::from_millis(5);

/// The most linear memory that any instance can be given, in bytes.
pub const MEMORY_CEILING: usize = 64 << 20;

/// The most elements that one table of any instance can have.
pub const TABLE_CEILING: usize = 20_000;

/// Ticks of the epoch since the process began, of all engines together; there is one but in tests.
static TICKS: AtomicU64 = AtomicU64::new(0);

/// Ticks so far: a clock that costs nothing to read.
pub(crate) fn ticks() -> u64 {
    // Relaxed is enough: the count orders nothing else, and a reading that is late by a tick is allowed for in `store`.
    TICKS.load(Ordering::Relaxed)
}

/// The work of an engine beside running guests. Compiled code depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EngineOptions {
    /// Traps have files and lines. The engine is the same without: the process that compiles takes the debug information
    /// out then.
    pub(crate) debug_info: bool,
    /// The instructions of guests are counted.
    pub(crate) count_instructions: bool,
    /// Code is made for every processor of the architecture.
    pub(crate) any_processor: bool,
}

/// Builds the engine with room for `instances` live instances and starts its ticker. It is not given away before it has
/// stopped a guest that loops.
pub(crate) fn start(instances: u32, options: EngineOptions) -> Result<Engine, RuntimeError> {
    let engine = config(instances, options)
        .and_then(|config| Engine::new(&config))
        .map_err(|error| RuntimeError::Engine(error.into()))?;
    start_ticker(&engine)?;
    self_check::a_loop_is_stopped(&engine, self_check::PATIENCE)?;
    Ok(engine)
}

/// Builds an engine that makes code for the other one, and has no pool, because it runs none.
pub(crate) fn for_compiling(options: EngineOptions) -> wasmtime::Result<Engine> {
    Engine::new(&settings(options)?)
}

/// Engines with one identity run each other's code: they have one version, and settings that make the same code.
pub(crate) fn identity(engine: &Engine) -> u64 {
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    hasher.finish()
}

pub(crate) fn config(instances: u32, options: EngineOptions) -> wasmtime::Result<Config> {
    let mut config = settings(options)?;
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(instances)));
    Ok(config)
}

/// The settings that compiled code depends on.
fn settings(options: EngineOptions) -> wasmtime::Result<Config> {
    let mut config = Config::new();
    if options.any_processor {
        // A target that is named has no features but those that each processor of its architecture has.
        config.target(&format!("{}-unknown-{}-gnu", consts::ARCH, consts::OS))?;
    }
    config
        // Reading a stranger's debug information at each trap is work that no limit of the guest counts. There is none in
        // code, unless `EngineOptions::debug_info` keeps it.
        .wasm_backtrace_details(WasmBacktraceDetails::Enable)
        // Fuel would be exact. It costs more in guest code, and 30 to 50 % more time to compile.
        .epoch_interruption(true)
        .wasm_backtrace_max_frames(NonZeroUsize::new(20))
        .consume_fuel(options.count_instructions)
        // Components with asynchronous lifting are refused and calls are five times cheaper.
        .concurrency_support(false)
        // One core is what a load may take from the requests that run meanwhile.
        .parallel_compilation(false)
        // Host functions run on the fiber's stack too: JSON Schema validation recurses with the document.
        .max_wasm_stack(256 << 10)
        .async_stack_size(1 << 20)
        // Proposals that no guest toolchain we know needs. Their code stays compiled in so that a component that uses
        // them is a validation error.
        .wasm_features(
            WasmFeatures::GC
                | WasmFeatures::FUNCTION_REFERENCES
                | WasmFeatures::EXCEPTIONS
                | WasmFeatures::THREADS
                | WasmFeatures::MEMORY64
                | WasmFeatures::STACK_SWITCHING,
            false,
        );
    Ok(config)
}

/// Linear memories of one component. Adapters for WASI bring a second one, and the stubs that a toolchain puts in their
/// place a third.
const MEMORIES: u32 = 4;

/// Slots are reset by scanning for touched pages where the kernel can (Linux 6.7); copying a megabyte each time
/// otherwise would cost more than it saves.
fn pool(instances: u32) -> PoolingAllocationConfig {
    let scans = PoolingAllocationConfig::is_pagemap_scan_available() && !swaps();
    let keep_resident = if scans { 1 << 20 } else { 256 << 10 };
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(instances)
        .total_core_instances(instances.saturating_mul(16))
        // Most components have one or two. Room for four each would reserve 17 TiB of addresses for 1,000 instances.
        .total_memories(instances.saturating_mul(2).max(MEMORIES))
        .total_tables(instances.saturating_mul(4))
        // One component takes the slots of two instances at most. A turn that finds none is told that the host is overloaded.
        .max_memories_per_component(MEMORIES)
        .max_tables_per_component(8)
        .max_core_instances_per_component(16)
        .total_stacks(instances)
        .max_memory_size(MEMORY_CEILING)
        .table_elements(TABLE_CEILING)
        // Measured: a fresh instance takes 4.5 to 7 µs with these settings, and 18 to 24 µs with the pool's defaults.
        .linear_memory_keep_resident(keep_resident)
        .table_keep_resident(64 << 10)
        .async_stack_keep_resident(64 << 10)
        .max_unused_warm_slots(instances)
        .pagemap_scan(if scans { Enabled::Yes } else { Enabled::No });
    pool
}

/// True if the machine has swap space, or does not tell.
///
/// The engine's scan passes over pages that are swapped out (bytecodealliance/wasmtime#14357), so that the next instance in
/// a slot could find what another one has left.
fn swaps() -> bool {
    // A line of titles, and one for each space.
    fs::read_to_string("/proc/swaps").map_or(true, |spaces| spaces.lines().count() > 1)
}

/// The ticker has a thread of its own, so that busy workers cannot hold it up; it ends with the engine.
fn start_ticker(engine: &Engine) -> Result<(), RuntimeError> {
    // A strong handle in a thread that never ends would keep the engine for ever.
    let engine = engine.weak();
    let advance = move || {
        let engine = engine.upgrade();
        if let Some(engine) = &engine {
            engine.increment_epoch();
            TICKS.fetch_add(1, Ordering::Relaxed);
        }
        engine.is_some()
    };
    let ticker = move || tick(advance, || thread::sleep(TICK));
    thread::Builder::new().name("annex-epoch".to_owned()).spawn(ticker).map(drop).map_err(RuntimeError::Ticker)
}

/// One step for each pause, however long it took: when the whole process was stopped, the guests were too, and ticks that
/// came all at once would end them.
fn tick(mut advance: impl FnMut() -> bool, mut pause: impl FnMut()) {
    while advance() {
        pause();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::{EngineOptions, TICK, start, tick};
    use crate::confinement::self_check::{self, PATIENCE};

    /// The test's one worker is the thread that waits here.
    #[tokio::test]
    async fn the_ticker_goes_on_while_every_worker_is_busy() {
        let engine = start(1, EngineOptions::default()).expect("the engine starts");
        for _ in 0..3 {
            self_check::a_loop_is_stopped(&engine, PATIENCE).expect("the loop is stopped");
        }
    }

    #[test]
    fn ticks_that_were_missed_are_not_made_up_for() {
        let mut ticks = 0;
        let mut pauses = 0;
        tick(
            || {
                ticks += 1;
                ticks <= 5
            },
            || {
                pauses += 1;
                thread::sleep(if pauses == 2 { 20 * TICK } else { TICK });
            },
        );
        assert_eq!((ticks, pauses), (6, 5));
    }
}
