//! An instance serves one extension for one turn. Afterwards it is dropped, or reset and kept.
//!
//! By default an instance is never reused: instantiating takes microseconds and isolates tenants. After a trap or a
//! cancelled call the instance is always dropped.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use annex_fairness::Place;
use annex_protocol::Json;
use tokio::time::{Instant, timeout};
use wasmtime::Store;
use wasmtime::component::Instance;

use crate::confinement::guest_time::GuestCall;
use crate::confinement::kept::{InstanceKeeper, ResetState};
use crate::confinement::limits::{HostBusy, LimitReached};
use crate::confinement::profile::Profile;
use crate::confinement::store::{self, HostState};
use crate::error::Fault;
use crate::hook::Hook;
use crate::load::program::Program;
use crate::observation::log::Log;
use crate::observation::trap::Trap;
use crate::turn_view::TurnView;

/// Maximum time for which the creation of an instance waits for CPU time.
const START_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of attempts to find room for one instance in the engine's pool. Before each further attempt a kept
/// instance is dropped.
const MAX_ATTEMPTS: u32 = 4;

pub(crate) struct GuestInstance {
    store: Store<HostState>,
    component: Instance,
    profile: Arc<Profile>,
    log: Log,
    /// Fuel at the last count of instructions; `None` if instructions are not counted.
    fuel: Option<u64>,
    /// Remaining part of [`Limits::turn_wall`](crate::Limits::turn_wall).
    wall_left: Duration,
    /// The state to reset the instance to, if it can be kept.
    kept: Option<Box<ResetState>>,
    // Fields are dropped in order, so the store leaves the pool before another turn gets the slot.
    _slot: Place,
}

impl GuestInstance {
    /// Returns a kept instance or a new one for a turn, with all limits armed. `hook` is the hook whose call needs the
    /// instance.
    pub(crate) async fn for_turn(
        program: &Program,
        profile: &Arc<Profile>,
        turn: Arc<dyn TurnView>,
        log: Log,
        hook: Hook,
    ) -> Result<Self, Fault> {
        let Some(keeping) = program.keeping.as_ref().filter(|keeping| keeping.is_possible()) else {
            return Self::start(program, profile, Some(turn), log, hook).await;
        };
        let began = Instant::now();
        let kept = match keeping.parking.take() {
            Some(kept) => {
                profile.meters.add_kept_turn();
                Some(kept)
            }
            // Preparing an instance costs time, which is wasted if it cannot be kept after the turn.
            None if !keeping.parking.has_room() => None,
            None => Self::to_be_kept(program, keeping, profile).await?,
        };
        match kept {
            Some(instance) => instance.begin_turn(profile, turn, log, hook, began.elapsed()).await,
            None => Self::start(program, profile, Some(turn), log, hook).await,
        }
    }

    /// Creates an instance that can be kept, before its first turn. `None` if it cannot be kept.
    ///
    /// The instance is created outside of any turn, so that its initial state contains no data of a turn. `describe`
    /// is called first, so that the guest has read its parameters and initialised itself.
    async fn to_be_kept(
        program: &Program,
        keeping: &InstanceKeeper,
        profile: &Arc<Profile>,
    ) -> Result<Option<Self>, Fault> {
        let hook = Hook::Descriptor;
        let log = Log::new(Arc::clone(profile), None);
        let mut instance = Self::start(program, profile, None, log, hook).await?;
        drop(instance.call(hook, async |store, component| program.hooks.describe(store, component).await).await?);
        instance.kept = instance.call(hook, async |store, component| keeping.begin(store, component).await).await?;
        Ok(instance.kept.is_some().then_some(instance))
    }

    /// Prepares a kept instance for a turn: arms the limits, and resets the globals to their state before the first
    /// turn.
    async fn begin_turn(
        mut self,
        profile: &Arc<Profile>,
        turn: Arc<dyn TurnView>,
        log: Log,
        hook: Hook,
        spent: Duration,
    ) -> Result<Self, Fault> {
        if let Some(kept) = &mut self.kept {
            kept.enter_use();
        }
        let sizes = self.store.data().sizes();
        log.enter(hook);
        store::begin_turn(&mut self.store, Arc::clone(profile), turn, log.clone(), sizes);
        self.log = log;
        // The time for preparing the instance counts for the turn.
        self.wall_left = profile.limits.turn_wall.saturating_sub(spent);
        store::rearm(&mut self.store);
        let call = Call { profile, log: &self.log, hook };
        if let Some(fuel) = &mut self.fuel {
            *fuel = u64::MAX;
            self.store.set_fuel(*fuel).map_err(|error| call.fault(&error))?;
        }
        if let Some(kept) = &self.kept {
            let resetting = kept.reset_globals(&mut self.store);
            // Code of the host, which is short.
            call.bounded(self.wall_left, &mut GuestCall::without_place(), resetting).await?;
        }
        Ok(self)
    }

    /// Ends a turn without failures. Resets and keeps the instance if possible.
    pub(crate) fn end(mut self) {
        let Some(kept) = &mut self.kept else { return };
        if let Some(parking) = kept.end_turn(&mut self.store) {
            self.log = kept.idle_log.clone();
            parking.park(self);
        }
    }

    /// Creates an instance with all limits armed. `hook` is the hook whose call needs the instance.
    pub(crate) async fn start(
        program: &Program,
        profile: &Arc<Profile>,
        turn: Option<Arc<dyn TurnView>>,
        log: Log,
        hook: Hook,
    ) -> Result<Self, Fault> {
        let overloaded = || Fault::Overloaded { uri: profile.uri.clone() };
        // Waits for a slot. The engine's pool would refuse at once.
        let slot = program.slots.take(&profile.meters).await.ok_or_else(overloaded)?;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut pool_is_full = false;
            match Self::instantiate(program, profile, turn.clone(), (&log, hook), &mut pool_is_full).await {
                // Kept instances may use up the memories of the pool. Start functions may have run before the pool
                // was found full, so the number of attempts is limited.
                Err(_) if pool_is_full && attempts < MAX_ATTEMPTS && program.slots.give_up_one() => {}
                Err(fault) => return Err(fault),
                Ok((store, component, fuel)) => {
                    let profile = Arc::clone(profile);
                    let wall_left = profile.limits.turn_wall;
                    return Ok(Self { store, component, profile, log, fuel, wall_left, kept: None, _slot: slot });
                }
            }
        }
    }

    async fn instantiate(
        program: &Program,
        profile: &Arc<Profile>,
        turn: Option<Arc<dyn TurnView>>,
        (log, hook): (&Log, Hook),
        pool_is_full: &mut bool,
    ) -> Result<(Store<HostState>, Instance, Option<u64>), Fault> {
        let mut entered = enter(profile, START_TIMEOUT).await?;
        let mut store = store::new(program.component.engine(), Arc::clone(profile), turn, log.clone());
        store.data_mut().place = entered.place();
        log.enter(hook);
        // Instantiation may already run guest code: the start functions of core modules.
        store::rearm(&mut store);
        let fuel = program.counts_instructions.then_some(u64::MAX);
        let call = Call { profile, log, hook };
        if let Some(fuel) = fuel {
            store.set_fuel(fuel).map_err(|error| call.fault(&error))?;
        }
        let starting = async {
            let started = program.component.instantiate_async(&mut store).await;
            *pool_is_full = started.as_ref().is_err_and(|error| error.is::<wasmtime::PoolConcurrencyLimitError>());
            started
        };
        let component = call.bounded(profile.limits.turn_wall, &mut entered, starting).await?;
        Ok((store, component, fuel))
    }

    /// Takes the last session snapshot that the guest has requested.
    pub(crate) fn take_shown(&mut self) -> Option<Json> {
        self.store.data_mut().shown.take()
    }

    /// The host's state of the instance, between calls.
    pub(crate) fn host(&mut self) -> &mut HostState {
        self.store.data_mut()
    }

    /// Calls into the guest with the limits of the call and the remaining limits of the turn. After an error the
    /// instance must be dropped.
    pub(crate) async fn call<T>(
        &mut self,
        hook: Hook,
        body: impl AsyncFnOnce(&mut Store<HostState>, &Instance) -> wasmtime::Result<T>,
    ) -> Result<T, Fault> {
        let call = Call { profile: &self.profile, log: &self.log, hook };
        // The wall clock of a call starts when it first waits. A call that never waits would not notice that the
        // turn's time has run out.
        if self.wall_left.is_zero() {
            return Err(call.limit_reached(LimitReached::TurnWall));
        }
        // Waits as long as the turn allows, because a refused call would lose the turn's work.
        let mut entered = enter(&self.profile, self.wall_left).await?;
        self.store.data_mut().place = entered.place();
        self.log.enter(hook);
        store::rearm(&mut self.store);
        let started = Instant::now();
        let running = body(&mut self.store, &self.component);
        let ended = call.bounded(self.wall_left, &mut entered, running).await;
        // Only calls count. Between calls the agent works.
        self.wall_left = self.wall_left.saturating_sub(started.elapsed());
        self.count_instructions();
        ended
    }

    /// Adds the executed instructions to the metrics. One unit of fuel is about one instruction.
    fn count_instructions(&mut self) {
        let Some(before) = self.fuel else { return };
        let left = self.store.get_fuel().unwrap_or(before);
        self.profile.meters.add_instructions(before.saturating_sub(left));
        self.fuel = Some(left);
    }
}

/// Waits until the guest may use a CPU core.
async fn enter(profile: &Profile, patience: Duration) -> Result<GuestCall, Fault> {
    let entered = profile.services.guest_time.enter(patience).await;
    entered.ok_or_else(|| Fault::Overloaded { uri: profile.uri.clone() })
}

/// The facts about a running call that its errors contain if it fails.
struct Call<'a> {
    profile: &'a Profile,
    log: &'a Log,
    hook: Hook,
}

impl Call<'_> {
    /// Runs guest code with the wall-clock limits of the call and the turn. The timeout starts when the call first
    /// waits. Until then the CPU limit applies, and most calls never wait.
    async fn bounded<T>(
        &self,
        wall_left: Duration,
        entered: &mut GuestCall,
        running: impl Future<Output = wasmtime::Result<T>>,
    ) -> Result<T, Fault> {
        let wall = self.profile.limits.wall;
        let mut running = pin!(running);
        let pieces = self.log.pieces();
        let mut poll = |context: &mut Context<'_>| {
            pieces.go_on();
            let polled = entered.poll(running.as_mut(), context);
            pieces.leave(polled.is_pending());
            polled
        };
        let ended = match poll_fn(|context| Poll::Ready(poll(context))).await {
            Poll::Ready(ended) => ended,
            Poll::Pending => match timeout(wall.min(wall_left), poll_fn(poll)).await {
                Ok(ended) => ended,
                // The guest was ready, and the host had no time for it.
                Err(_) if entered.waits_for_turn() => {
                    return Err(Fault::Overloaded { uri: self.profile.uri.clone() });
                }
                Err(_) if wall_left < wall => return Err(self.limit_reached(LimitReached::TurnWall)),
                Err(_) => return Err(self.limit_reached(LimitReached::Wall)),
            },
        };
        ended.map_err(|error| self.fault(&error))
    }

    fn fault(&self, error: &wasmtime::Error) -> Fault {
        // A component may use more tables than its share of the pool, so the pool can be full although slots are
        // free.
        if error.is::<wasmtime::PoolConcurrencyLimitError>() || error.is::<HostBusy>() {
            return Fault::Overloaded { uri: self.profile.uri.clone() };
        }
        match error.downcast_ref::<LimitReached>() {
            Some(limit) => self.limit_reached(*limit),
            None if is_of_output(error) => self.limit_reached(LimitReached::Output),
            None => {
                let (uri, hook) = (self.profile.uri.clone(), self.hook);
                Fault::Trapped { uri, error_id: self.log.error_id(), hook, source: Trap::of(error) }
            }
        }
    }

    fn limit_reached(&self, limit: LimitReached) -> Fault {
        let (uri, hook) = (self.profile.uri.clone(), self.hook);
        Fault::LimitReached { uri, error_id: self.log.error_id(), hook, limit }
    }
}

/// True if the guest exceeded its output limit. The engine has no public error type for this, so the text of the error
/// decides.
fn is_of_output(error: &wasmtime::Error) -> bool {
    error.root_cause().to_string().contains("fuel allocated for hostcalls")
}
