//! Builds the engine of the process. No other module builds a wasmtime configuration.

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

/// Interval of the epoch. A guest yields to other work at each tick, and is stopped after a whole number of ticks.
pub const TICK: Duration = Duration::from_millis(5);

/// Upper bound of [`Limits::memory`](crate::Limits::memory), in bytes.
pub const MEMORY_CEILING: usize = 64 << 20;

/// Maximum number of elements in one table.
pub const TABLE_CEILING: usize = 20_000;

/// Number of ticks since the process began, over all engines. Only tests have more than one engine.
static TICKS: AtomicU64 = AtomicU64::new(0);

/// Number of ticks so far: a clock that is cheap to read.
pub(crate) fn ticks() -> u64 {
    // Relaxed: the count orders nothing else, and `store` allows for a value that is one tick old.
    TICKS.load(Ordering::Relaxed)
}

/// Options of an engine. They change the compiled code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EngineOptions {
    /// True if traps report file and line. The settings of the engine are the same with and without this option.
    /// Without the option the compiling process removes the debug information.
    pub(crate) debug_info: bool,
    /// True if instructions of guests are counted.
    pub(crate) count_instructions: bool,
    /// True if compiled code runs on every processor of the architecture.
    pub(crate) any_processor: bool,
}

/// Builds the engine with room for `instances` live instances, starts its ticker, and checks that it stops a guest
/// that loops.
pub(crate) fn start(instances: u32, options: EngineOptions) -> Result<Engine, RuntimeError> {
    let engine = config(instances, options)
        .and_then(|config| Engine::new(&config))
        .map_err(|error| RuntimeError::Engine(error.into()))?;
    start_ticker(&engine)?;
    self_check::a_loop_is_stopped(&engine, self_check::STOP_TIMEOUT)?;
    Ok(engine)
}

/// Builds an engine that only compiles. It has no instance pool.
pub(crate) fn for_compiling(options: EngineOptions) -> wasmtime::Result<Engine> {
    Engine::new(&settings(options)?)
}

/// Returns a number for comparing two engines. If the numbers are equal, each engine can run the code that the other
/// engine has compiled: both have the same version of wasmtime and the same settings that affect compiled code.
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

/// Settings that compiled code depends on.
fn settings(options: EngineOptions) -> wasmtime::Result<Config> {
    let mut config = Config::new();
    if options.any_processor {
        // A named target has only the features that every processor of the architecture has.
        config.target(&format!("{}-unknown-{}-gnu", consts::ARCH, consts::OS))?;
    }
    config
        // Reading debug information at each trap is work that no guest limit covers. Compiled code has none, unless
        // `EngineOptions::debug_info` keeps it.
        .wasm_backtrace_details(WasmBacktraceDetails::Enable)
        // Fuel would be exact, but makes guest code slower and compilation 30 to 50 % longer.
        .epoch_interruption(true)
        .wasm_backtrace_max_frames(NonZeroUsize::new(20))
        .consume_fuel(options.count_instructions)
        // Refuses components with asynchronous lifting, and makes calls five times cheaper.
        .concurrency_support(false)
        // Compiling uses one core, so that requests keep the others.
        .parallel_compilation(false)
        // Host functions run on the fiber's stack too, and JSON Schema validation recurses with the document.
        .max_wasm_stack(256 << 10)
        .async_stack_size(1 << 20)
        // Proposals that no known guest toolchain needs. Support stays compiled in, so that a component that uses one
        // fails validation.
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

/// Maximum number of linear memories in one component. An adapter for WASI adds a second memory, and stubs of some
/// toolchains add a third.
const MEMORIES: u32 = 4;

/// The settings of the instance pool, which decide how the engine resets a slot. If the kernel can list the touched
/// pages (Linux 6.7), the engine overwrites only touched pages, and at most 1 MiB of each memory. Otherwise it overwrites
/// the first 256 KiB of each memory, because overwriting 1 MiB for each turn would take longer than resetting the pages.
fn pool(instances: u32) -> PoolingAllocationConfig {
    let scans = PoolingAllocationConfig::is_pagemap_scan_available() && !swaps();
    let keep_resident = if scans { 1 << 20 } else { 256 << 10 };
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(instances)
        .total_core_instances(instances.saturating_mul(16))
        // Most components have one or two memories. Four for each of 1,000 instances would reserve 17 TiB of address
        // space.
        .total_memories(instances.saturating_mul(2).max(MEMORIES))
        .total_tables(instances.saturating_mul(4))
        // A component takes the slots of at most two instances. A turn that finds no slot is refused as overload.
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

/// True if the machine has swap space, or if this cannot be found out.
///
/// The engine's scan skips pages that are swapped out (bytecodealliance/wasmtime#14357), so the next instance in a slot
/// could read data of the previous one.
fn swaps() -> bool {
    // The file has a header line, and one line per swap space.
    fs::read_to_string("/proc/swaps").map_or(true, |spaces| spaces.lines().count() > 1)
}

/// Starts the thread that advances the epoch. A thread of its own cannot be delayed by busy workers. The thread ends
/// with the engine.
fn start_ticker(engine: &Engine) -> Result<(), RuntimeError> {
    // A strong reference in an endless thread would keep the engine alive.
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

/// Makes one tick per pause, even if the pause took longer than a tick. During a long pause the whole process may have
/// been stopped, and guests did not run either. Further ticks for the missed time would end these guests.
fn tick(mut advance: impl FnMut() -> bool, mut pause: impl FnMut()) {
    while advance() {
        pause();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::{EngineOptions, TICK, start, tick};
    use crate::confinement::self_check::{self, STOP_TIMEOUT};

    /// The test has one worker, which is the thread that waits here.
    #[tokio::test]
    async fn the_ticker_goes_on_while_every_worker_is_busy() {
        let engine = start(1, EngineOptions::default()).expect("the engine starts");
        for _ in 0..3 {
            self_check::a_loop_is_stopped(&engine, STOP_TIMEOUT).expect("the loop is stopped");
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
