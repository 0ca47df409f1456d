//! The store of an instance: the host's state and the limits that every store has.

use std::sync::Arc;
use std::time::Duration;

use annex_protocol::Json;
use wasmtime::{CallHook, Engine, ResourceLimiter, Store, UpdateDeadline};

use crate::confinement::engine::{self, TICK};
use crate::confinement::guest_time::HeldPlace;
use crate::confinement::imports::task_metadata::TaskEntries;
use crate::confinement::imports::wasi_context::Wasi;
use crate::confinement::limits::LimitReached;
use crate::confinement::profile::Profile;
use crate::observation::log::Log;
use crate::overrides::ServiceOverrides;
use crate::turn_view::TurnView;

/// Maximum number of core instances of a component. Its tables and its memories have the same limit.
const MAX_PARTS: usize = 100;

pub(crate) struct HostState {
    pub(crate) profile: Arc<Profile>,
    /// The turn that the instance serves; `None` while the extension is loaded.
    pub(crate) turn: Option<Arc<dyn TurnView>>,
    pub(crate) log: Log,
    host_calls_left: u32,
    /// Remaining CPU time of the call.
    cpu_left: Duration,
    /// Remaining CPU time of the turn.
    turn_cpu_left: Duration,
    /// Number of ticks and waits when the guest last called the host.
    called_at: (u64, u32),
    memory: usize,
    table_elements: usize,
    /// The last snapshot of session state that the guest has read.
    pub(crate) shown: Option<Json>,
    /// The entries of the task's metadata that the guest has set in the turn.
    pub(crate) task_entries: TaskEntries,
    pub(crate) wasi: Option<Box<Wasi>>,
    /// The place of the running call; `None` if the call needs no place.
    pub(crate) place: Option<HeldPlace>,
}

pub(crate) fn new(
    engine: &Engine,
    profile: Arc<Profile>,
    turn: Option<Arc<dyn TurnView>>,
    log: Log,
) -> Store<HostState> {
    let output = profile.limits.output;
    let mut store = Store::new(engine, HostState::new(profile, turn, log, (0, 0)));
    store.limiter(|state| state);
    // The engine counts bytes lifted out of a guest before any host function sees them. Its default allows 128 MiB
    // per call.
    store.set_hostcall_fuel(output);
    store.call_hook(|mut context, transition| match transition {
        CallHook::CallingHost => context.data_mut().count_host_call(),
        CallHook::ReturningFromHost => context.data_mut().count_time_of_host_call(),
        CallHook::CallingWasm => {
            context.data_mut().log.pieces().call_guest();
            Ok(())
        }
        CallHook::ReturningFromWasm => {
            context.data_mut().log.pieces().return_to_host();
            Ok(())
        }
    });
    store.epoch_deadline_callback(|mut context| {
        let state = context.data_mut();
        state.give_back_host_call();
        let spent = state.log.pieces().tick();
        state.charge(spent)?;
        // Guests yield at each tick, so that a busy guest cannot hold a worker. tokio's own yield lets the worker
        // poll for I/O before the guest continues. A plain wake-up would run up to 61 times before that.
        let time = &state.profile.services.guest_time;
        match &state.place {
            Some(place) if time.is_busy() => {
                Ok(UpdateDeadline::YieldCustom(1, Box::pin(time.clone().go_on(place.clone()))))
            }
            _ => Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now()))),
        }
    });
    store
}

/// Reuses the store of a kept instance for another turn. All state is new, except the `sizes` of the instance.
pub(crate) fn begin_turn(
    store: &mut Store<HostState>,
    profile: Arc<Profile>,
    turn: Arc<dyn TurnView>,
    log: Log,
    sizes: (usize, usize),
) {
    *store.data_mut() = HostState::new(profile, Some(turn), log, sizes);
}

/// Resets the CPU limit for the next call.
pub(crate) fn rearm(store: &mut Store<HostState>) {
    let state = store.data_mut();
    // The rest of the previous call is charged to the turn only.
    state.turn_cpu_left = state.turn_cpu_left.saturating_sub(state.log.pieces().take_ended());
    state.cpu_left = state.profile.limits.cpu;
    // The epoch callback counts ticks and yields, so it must run at each tick.
    store.set_epoch_deadline(1);
}

impl HostState {
    /// Creates the state for an instance of this size: the bytes of its memories, and the elements of its tables.
    fn new(
        profile: Arc<Profile>,
        turn: Option<Arc<dyn TurnView>>,
        log: Log,
        (memory, table_elements): (usize, usize),
    ) -> Self {
        let limits = profile.limits;
        if turn.is_some() && memory > 0 {
            profile.meters.has_memory(memory);
        }
        Self {
            log,
            profile,
            turn,
            host_calls_left: limits.host_calls,
            cpu_left: Duration::ZERO,
            turn_cpu_left: limits.turn_cpu,
            called_at: (0, 0),
            memory,
            table_elements,
            shown: None,
            task_entries: TaskEntries::default(),
            wasi: None,
            place: None,
        }
    }

    /// The size of the instance: the bytes of all its memories, and the elements of all its tables.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        (self.memory, self.table_elements)
    }

    /// Drops everything that belongs to the turn. `idle` is a log that belongs to no turn.
    pub(crate) fn end_turn(&mut self, idle: Log) {
        self.count_made_calls();
        self.turn = None;
        self.shown = None;
        self.task_entries = TaskEntries::default();
        self.wasi = None;
        self.log = idle;
    }

    /// Adds the host calls to the metrics, unless the extension is being loaded.
    fn count_made_calls(&self) {
        if self.turn.is_some() {
            let made = self.profile.limits.host_calls.saturating_sub(self.host_calls_left);
            self.profile.meters.add_host_calls(made);
        }
    }

    /// Counts a call from the guest to the host. The engine calls this function for every import, so no import goes
    /// uncounted.
    fn count_host_call(&mut self) -> wasmtime::Result<()> {
        // The CPU limit does not bound calls: 100,000 log lines fit into 10 ms.
        self.host_calls_left = self.host_calls_left.checked_sub(1).ok_or(LimitReached::HostCalls)?;
        let pieces = self.log.pieces();
        pieces.call();
        self.called_at = (engine::ticks(), pieces.waits());
        Ok(())
    }

    /// Charges the time of a host call when the call returns, because the epoch does not interrupt host code. Time for
    /// which the call waited is not charged. The wall-clock limits bound the waiting.
    fn count_time_of_host_call(&mut self) -> wasmtime::Result<()> {
        let (began, waits) = self.called_at;
        let pieces = self.log.pieces();
        pieces.return_to_guest();
        // The piece before a wait.
        let mut spent = pieces.take_ended();
        // The first tick may have come at once, and the epoch callback charges the last one.
        let passed = engine::ticks().saturating_sub(began).saturating_sub(2);
        if passed > 0 && waits == pieces.waits() {
            spent = spent.saturating_add(TICK.saturating_mul(u32::try_from(passed).unwrap_or(u32::MAX)));
        }
        Ok(self.charge(spent)?)
    }

    /// Replacements of host services: those of the turn, or else those of the runtime.
    pub(crate) fn overrides(&self) -> &ServiceOverrides {
        self.turn.as_ref().and_then(|turn| turn.overrides()).unwrap_or(&self.profile.services.overrides)
    }

    /// Remaining CPU time of the guest.
    pub(crate) fn cpu_left(&self) -> Duration {
        self.cpu_left.min(self.turn_cpu_left)
    }

    /// Charges time to the guest.
    pub(crate) fn charge(&mut self, spent: Duration) -> Result<(), LimitReached> {
        if spent.is_zero() {
            return Ok(());
        }
        self.cpu_left = self.cpu_left.saturating_sub(spent);
        self.turn_cpu_left = self.turn_cpu_left.saturating_sub(spent);
        if self.cpu_left.is_zero() {
            return Err(LimitReached::Cpu);
        }
        if self.turn_cpu_left.is_zero() { Err(LimitReached::TurnCpu) } else { Ok(()) }
    }

    /// Takes back the count of one host call. The engine reports ticks and the growth of memory as host calls, but
    /// these have limits of their own.
    fn give_back_host_call(&mut self) {
        self.host_calls_left = self.host_calls_left.saturating_add(1).min(self.profile.limits.host_calls);
    }
}

/// Adds the host calls to the metrics once per instance, because counting every call there would cost more.
impl Drop for HostState {
    fn drop(&mut self) {
        self.count_made_calls();
    }
}

impl ResourceLimiter for HostState {
    /// Checks the limit on the size of all memories of the instance together.
    fn memory_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        self.give_back_host_call();
        // The engine refuses growth beyond the memory's own maximum, so it does not count.
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        self.memory = self.memory.saturating_add(desired.saturating_sub(current));
        // An error stops the guest and names the limit. With `false` the guest would continue and fail elsewhere.
        if self.memory > self.profile.limits.memory {
            return Err(LimitReached::Memory.into());
        }
        if self.turn.is_some() {
            self.profile.meters.has_memory(self.memory);
        }
        Ok(true)
    }

    fn table_growing(&mut self, current: usize, desired: usize, maximum: Option<usize>) -> wasmtime::Result<bool> {
        self.give_back_host_call();
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
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

#[cfg(test)]
mod tests;
