//! The store of one instance: what the host keeps about it, and the limits that it cannot be made without.

use std::sync::Arc;

use annex_protocol::{Json, JsonObject};
use wasmtime::component::ResourceTable;
use wasmtime::{Engine, ResourceLimiter, Store, UpdateDeadline};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use crate::engine::TICK;
use crate::extension::Profile;
use crate::limits::{LimitReached, Limits};

/// Reads the session that the running turn belongs to. Implemented by whoever owns sessions; called while a guest
/// waits, so it must not block.
pub trait SessionReader: Send + Sync {
    /// The JSON text of a session-scope key.
    fn get(&self, key: &str) -> Option<String>;
    /// All session-scope keys.
    fn snapshot(&self) -> JsonObject;
}

/// Core instances, tables and memories that one component may be made of.
const MAX_PARTS: usize = 100;

pub(crate) struct HostState {
    pub(crate) profile: Arc<Profile>,
    pub(crate) session: Option<Arc<dyn SessionReader>>,
    pub(crate) host_calls_left: u32,
    pub(crate) log_lines_left: u32,
    ticks_left: u64,
    memory: usize,
    table_elements: usize,
    /// The last snapshot of the session that the guest was shown.
    pub(crate) shown: Option<Json>,
    wasi: Option<Box<Wasi>>,
}

/// A WASI context with nothing in it, for components of toolchains that cannot do without one.
struct Wasi {
    context: WasiCtx,
    table: ResourceTable,
}

pub(crate) fn new(engine: &Engine, profile: Arc<Profile>, session: Option<Arc<dyn SessionReader>>) -> Store<HostState> {
    let limits = profile.limits;
    let state = HostState {
        profile,
        session,
        host_calls_left: limits.host_calls,
        log_lines_left: limits.log_lines,
        ticks_left: 0,
        memory: 0,
        table_elements: 0,
        shown: None,
        wasi: None,
    };
    let mut store = Store::new(engine, state);
    store.limiter(|state| state);
    store.set_hostcall_fuel(limits.output);
    store.epoch_deadline_callback(|mut context| {
        let state = context.data_mut();
        state.ticks_left = state.ticks_left.saturating_sub(1);
        if state.ticks_left == 0 {
            return Err(LimitReached::Cpu.into());
        }
        // Guests yield each tick, so that a busy one cannot hold a worker.
        Ok(UpdateDeadline::Yield(1))
    });
    store
}

/// Gives the next call its full share of CPU time.
pub(crate) fn rearm(store: &mut Store<HostState>) {
    let state = store.data_mut();
    state.ticks_left = ticks(&state.profile.limits);
    store.set_epoch_deadline(1);
}

fn ticks(limits: &Limits) -> u64 {
    // The first tick may come at once, so a share is a whole number of ticks and one more.
    u64::try_from(limits.cpu.as_nanos().div_ceil(TICK.as_nanos())).unwrap_or(u64::MAX).saturating_add(1)
}

impl HostState {
    /// Counts one call to an import.
    pub(crate) fn count_host_call(&mut self) -> wasmtime::Result<()> {
        self.host_calls_left = self.host_calls_left.checked_sub(1).ok_or(LimitReached::HostCalls)?;
        Ok(())
    }
}

impl ResourceLimiter for HostState {
    /// Counts all memories of the instance together.
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        self.memory = self.memory.saturating_add(desired.saturating_sub(current));
        if self.memory > self.profile.limits.memory { Err(LimitReached::Memory.into()) } else { Ok(true) }
    }

    fn table_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        self.table_elements = self.table_elements.saturating_add(desired.saturating_sub(current));
        if self.table_elements > self.profile.limits.table_elements {
            return Err(LimitReached::TableElements.into());
        }
        Ok(true)
    }

    fn instances(&self) -> usize {
        MAX_PARTS
    }

    fn tables(&self) -> usize {
        MAX_PARTS
    }

    fn memories(&self) -> usize {
        MAX_PARTS
    }
}

impl WasiView for HostState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let wasi = self.wasi.get_or_insert_with(|| {
            let mut table = ResourceTable::new();
            table.set_max_capacity(MAX_PARTS);
            Box::new(Wasi { context: WasiCtx::builder().build(), table })
        });
        WasiCtxView { ctx: &mut wasi.context, table: &mut wasi.table }
    }
}
