//! Instances that are kept between turns, if the operator allows it, and reset to their state before the first turn.
//!
//! Memories are reset at the end of a turn, globals at the beginning of the next. Tables cannot change. An instance
//! is not kept if it failed, was cancelled or has grown, or if its initial state differs from that of the first
//! instance.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use wasmtime::Store;
use wasmtime::component::{ComponentExportIndex, Instance, InstancePre, TypedFunc, WasmList};

use crate::confinement::instance::GuestInstance;
use crate::confinement::kept::memory::{MemoryRange, Snapshot};
use crate::confinement::kept::parking::{AllParked, InUse, Parking};
use crate::confinement::store::HostState;
use crate::load::keep_functions::{KeepFunctions, MAX_MEMORY};
use crate::observation::log::Log;

mod memory;
pub(crate) mod parking;

pub(crate) use memory::can_be_put_back;

/// Keeps instances of one component between turns. It has the functions that were added to the component, and the
/// parking of the idle instances.
pub(crate) struct InstanceKeeper {
    saves: Vec<ComponentExportIndex>,
    resets: Vec<ComponentExportIndex>,
    memories: Vec<ComponentExportIndex>,
    /// Initial memories of the first instance. The initial memories of all other instances must be equal to these.
    snapshots: OnceLock<Snapshots>,
    /// True while instances can be kept. Becomes false when the memories of a new instance differ from those of the
    /// first instance, or are too large. Each later turn gets a fresh instance.
    is_possible: AtomicBool,
    pub(crate) parking: Arc<Parking<GuestInstance>>,
    /// Maximum number of turns of an instance.
    turns: u32,
}

/// The bytes of all memories of an instance.
type Snapshots = Arc<Vec<Snapshot>>;

impl InstanceKeeper {
    /// Looks up the added functions.
    pub(crate) fn of(
        component: &InstancePre<HostState>,
        functions: KeepFunctions,
        parked: &Arc<AllParked>,
        turns: u32,
    ) -> wasmtime::Result<Self> {
        let find = |name: String| {
            let found = component.component().get_export_index(None, &name);
            found.ok_or_else(|| wasmtime::format_err!("the component has no function {name}"))
        };
        Ok(Self {
            saves: (0..functions.globals).map(KeepFunctions::save).map(find).collect::<Result<_, _>>()?,
            resets: (0..functions.globals).map(KeepFunctions::reset).map(find).collect::<Result<_, _>>()?,
            memories: (0..functions.memories).map(KeepFunctions::memory).map(find).collect::<Result<_, _>>()?,
            snapshots: OnceLock::new(),
            is_possible: AtomicBool::new(true),
            parking: Parking::new(parked),
            turns,
        })
    }

    /// True while instances can be kept. False after the memories of a new instance differed from those of the first
    /// instance, or were too large.
    pub(crate) fn is_possible(&self) -> bool {
        self.is_possible.load(Ordering::Relaxed)
    }

    /// Records the initial state of a new instance. Returns `None` if the instance cannot be kept.
    pub(crate) async fn begin(
        &self,
        store: &mut Store<HostState>,
        instance: &Instance,
    ) -> wasmtime::Result<Option<Box<ResetState>>> {
        for save in &self.saves {
            function::<()>(store, instance, save)?.call_async(&mut *store, ()).await?;
        }
        let mut resets = Vec::with_capacity(self.resets.len());
        for reset in &self.resets {
            resets.push(function::<()>(store, instance, reset)?);
        }
        // Reading the memories counts as output of the guest, so the limit is lifted meanwhile.
        let output = store.hostcall_fuel();
        store.set_hostcall_fuel(usize::MAX);
        let mut lists = Vec::with_capacity(self.memories.len());
        for memory in &self.memories {
            let memory = function::<(WasmList<u8>,)>(store, instance, memory)?;
            lists.push(memory.call_async(&mut *store, ()).await?.0);
        }
        store.set_hostcall_fuel(output);
        let memories: Vec<&[u8]> = lists.iter().map(|list| list.as_le_slice(&*store)).collect();
        let bytes = memories.iter().map(|memory| memory.len()).sum::<usize>();
        let copy = || Arc::new(memories.iter().map(|bytes| Snapshot::of(bytes)).collect());
        // The limiter has counted all memories. A memory without a function would not be reset.
        let are_all = store.data().sizes().0 == bytes;
        let is_small = bytes <= MAX_MEMORY && are_all;
        let snapshots = is_small.then(|| self.snapshots.get_or_init(copy));
        let snapshots = snapshots.filter(|first| first.iter().map(Snapshot::bytes).eq(memories.iter().copied()));
        let Some(snapshots) = snapshots else {
            if self.is_possible.swap(false, Ordering::Relaxed) {
                let extension = &store.data().profile.uri;
                tracing::warn!(%extension, bytes, "no instance is kept: initial memories differ or are too large");
            }
            return Ok(None);
        };
        let mut places: Vec<MemoryRange> = memories.into_iter().map(MemoryRange::of).collect();
        // If the kernel cannot list the pages here, it cannot after a turn either.
        if places.iter_mut().try_for_each(MemoryRange::let_go).is_err() {
            return Ok(None);
        }
        let sizes = store.data().sizes();
        let snapshots = Arc::clone(snapshots);
        let idle_log = store.data().log.clone();
        let parking = Arc::downgrade(&self.parking);
        let turns_left = self.turns;
        let kept = ResetState { resets, places, snapshots, sizes, turns_left, idle_log, parking, in_use: None };
        Ok(Some(Box::new(kept)))
    }
}

fn function<R>(
    store: &mut Store<HostState>,
    instance: &Instance,
    index: &ComponentExportIndex,
) -> wasmtime::Result<TypedFunc<(), R>>
where
    R: wasmtime::component::ComponentNamedList + wasmtime::component::Lift,
{
    let function = instance.get_func(&mut *store, index);
    function.ok_or_else(|| wasmtime::format_err!("the instance lacks a function that was added"))?.typed(&*store)
}

/// The state before the first turn, to which an instance is reset after each turn.
pub(crate) struct ResetState {
    resets: Vec<TypedFunc<(), ()>>,
    places: Vec<MemoryRange>,
    snapshots: Snapshots,
    /// The size of the instance before the first turn: the bytes of all memories, and the elements of all tables.
    sizes: (usize, usize),
    /// Number of turns that the instance may still serve, including the current turn.
    turns_left: u32,
    /// A log that belongs to no turn, used while the instance is idle.
    pub(crate) idle_log: Log,
    /// Where the instance is parked. A weak reference, because parked instances must not keep the parking alive.
    parking: Weak<Parking<GuestInstance>>,
    /// Counts the instance as in use. `None` while the instance is idle.
    in_use: Option<InUse>,
}

impl ResetState {
    /// Marks the instance as in use.
    pub(crate) fn enter_use(&mut self) {
        self.in_use = self.parking.upgrade().map(|parking| parking.enter());
    }

    /// Resets the globals, at the beginning of a turn.
    pub(crate) async fn reset_globals(&self, store: &mut Store<HostState>) -> wasmtime::Result<()> {
        for reset in &self.resets {
            reset.call_async(&mut *store, ()).await?;
        }
        Ok(())
    }

    /// Resets the memories, at the end of a turn.
    fn reset_memories(&mut self) -> io::Result<()> {
        let mut pairs = self.places.iter_mut().zip(self.snapshots.iter());
        pairs.try_for_each(|(place, snapshot)| place.put_back(snapshot))
    }

    /// Ends a turn in which the instance used `store`. Returns the parking for the instance, or `None` if the
    /// instance must be dropped.
    pub(crate) fn end_turn(&mut self, store: &mut Store<HostState>) -> Option<Arc<Parking<GuestInstance>>> {
        self.in_use = None;
        self.turns_left = self.turns_left.saturating_sub(1);
        let parking = self.parking.upgrade()?;
        let has_grown = store.data().sizes() != self.sizes;
        if has_grown {
            parking.note_grown();
        }
        if has_grown || self.turns_left == 0 || !parking.has_room() {
            return None;
        }
        store.data_mut().end_turn(self.idle_log.clone());
        self.reset_memories().ok()?;
        Some(parking)
    }
}
