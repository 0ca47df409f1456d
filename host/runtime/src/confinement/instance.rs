//! One instance, which serves one extension for one turn and is dropped with it, or put back and kept.
//!
//! Without the operator's word nothing of an instance is ever used again: instantiating costs microseconds and keeps
//! tenants apart. After a trap, or a call that was broken off, it is dropped in any case.

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

use crate::confinement::guest_time::Entered;
use crate::confinement::kept::{Keeping, Kept};
use crate::confinement::limits::{HostBusy, LimitReached};
use crate::confinement::profile::Profile;
use crate::confinement::store::{self, HostState};
use crate::error::Fault;
use crate::hook::Hook;
use crate::load::program::Program;
use crate::observation::log::Log;
use crate::observation::trap::Trap;
use crate::turn_view::TurnView;

/// The longest time that an instance waits before it is made.
const PATIENCE: Duration = Duration::from_secs(1);
/// The most attempts to find room in the engine's pool for one instance, each after another one has given way.
const MAX_ATTEMPTS: u32 = 4;

pub(crate) struct GuestInstance {
    store: Store<HostState>,
    component: Instance,
    profile: Arc<Profile>,
    log: Log,
    /// The fuel that was left when instructions were last counted; `None` when they are not.
    fuel: Option<u64>,
    /// The rest of [`Limits::turn_wall`](crate::Limits::turn_wall).
    wall_left: Duration,
    /// The state that it is put back to, if it can be kept.
    kept: Option<Box<Kept>>,
    // Fields are dropped in their order, so the store has left the pool when another turn gets the slot.
    _slot: Place,
}

impl GuestInstance {
    /// An instance for a turn, with all limits armed: one that was kept, or a new one. `hook` is the call that it is
    /// started for.
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
            // An instance that could not wait after its turn is not worth being made ready for that.
            None if !keeping.parking.has_room() => None,
            None => Self::to_be_kept(program, keeping, profile).await?,
        };
        match kept {
            Some(instance) => instance.begin_turn(profile, turn, log, hook, began.elapsed()).await,
            None => Self::start(program, profile, Some(turn), log, hook).await,
        }
    }

    /// A new instance that can be kept, before its first turn; `None` if it cannot be.
    ///
    /// It belongs to no turn: what it learns by being instantiated is there for all that come. It is asked what it is,
    /// so that it has read its parameters and set itself up, for all of them as well.
    async fn to_be_kept(program: &Program, keeping: &Keeping, profile: &Arc<Profile>) -> Result<Option<Self>, Fault> {
        let hook = Hook::Descriptor;
        let log = Log::new(Arc::clone(profile), None);
        let mut instance = Self::start(program, profile, None, log, hook).await?;
        drop(instance.call(hook, async |store, component| program.hooks.describe(store, component).await).await?);
        instance.kept = instance.call(hook, async |store, component| keeping.begin(store, component).await).await?;
        Ok(instance.kept.is_some().then_some(instance))
    }

    /// Gives a kept instance to a turn, with all limits armed. It is what it was before its first one.
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
        // The turn pays for making its instance ready.
        self.wall_left = profile.limits.turn_wall.saturating_sub(spent);
        store::rearm(&mut self.store);
        let call = Call { profile, log: &self.log, hook };
        if let Some(fuel) = &mut self.fuel {
            *fuel = u64::MAX;
            self.store.set_fuel(*fuel).map_err(|error| call.fault(&error))?;
        }
        if let Some(kept) = &self.kept {
            let resetting = kept.reset_globals(&mut self.store);
            // Code of the host's, which is short.
            call.bounded(self.wall_left, &mut Entered::without_place(), resetting).await?;
        }
        Ok(self)
    }

    /// Ends the turn, in which nothing failed. An instance that can be kept waits for the next one.
    pub(crate) fn end(mut self) {
        let Some(kept) = &mut self.kept else { return };
        if let Some(parking) = kept.end_turn(&mut self.store) {
            self.log = kept.idle_log.clone();
            parking.park(self);
        }
    }

    /// Instantiates the program with all limits armed. `hook` is the call that the instance is started for.
    pub(crate) async fn start(
        program: &Program,
        profile: &Arc<Profile>,
        turn: Option<Arc<dyn TurnView>>,
        log: Log,
        hook: Hook,
    ) -> Result<Self, Fault> {
        let overloaded = || Fault::Overloaded { uri: profile.uri.clone() };
        // A turn waits here for a while. The pool of the engine would refuse it at once.
        let slot = program.slots.take(&profile.meters).await.ok_or_else(overloaded)?;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut pool_is_full = false;
            match Self::instantiate(program, profile, turn.clone(), (&log, hook), &mut pool_is_full).await {
                // Instances that are kept may have the last memories of the pool. Start functions may have run before it
                // was found full, so it is not tried for ever.
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
        let mut entered = enter(profile, PATIENCE).await?;
        let mut store = store::new(program.component.engine(), Arc::clone(profile), turn, log.clone());
        store.data_mut().place = entered.place();
        log.enter(hook);
        // Instantiating may run guest code already: the start functions of core modules.
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

    /// The last snapshot of the session that the guest asked for.
    pub(crate) fn take_shown(&mut self) -> Option<Json> {
        self.store.data_mut().shown.take()
    }

    /// The host's side of it, between two calls.
    pub(crate) fn host(&mut self) -> &mut HostState {
        self.store.data_mut()
    }

    /// Runs one call into the guest under the CPU and time limits, its own and what is left of the turn's. After an
    /// error the instance must be dropped.
    pub(crate) async fn call<T>(
        &mut self,
        hook: Hook,
        body: impl AsyncFnOnce(&mut Store<HostState>, &Instance) -> wasmtime::Result<T>,
    ) -> Result<T, Fault> {
        let call = Call { profile: &self.profile, log: &self.log, hook };
        // The clock of a call starts when it first waits. One that never waits would not notice that the turn is over.
        if self.wall_left.is_zero() {
            return Err(call.limit_reached(LimitReached::TurnWall));
        }
        // As long as the turn may take: with its call it would lose all that it has done.
        let mut entered = enter(&self.profile, self.wall_left).await?;
        self.store.data_mut().place = entered.place();
        self.log.enter(hook);
        store::rearm(&mut self.store);
        let started = Instant::now();
        let running = body(&mut self.store, &self.component);
        let ended = call.bounded(self.wall_left, &mut entered, running).await;
        // Only the call itself counts: between two calls it is the agent that works.
        self.wall_left = self.wall_left.saturating_sub(started.elapsed());
        self.count_instructions();
        ended
    }

    /// One unit of fuel is about one instruction.
    fn count_instructions(&mut self) {
        let Some(before) = self.fuel else { return };
        let left = self.store.get_fuel().unwrap_or(before);
        self.profile.meters.add_instructions(before.saturating_sub(left));
        self.fuel = Some(left);
    }
}

/// Waits until a call may begin.
async fn enter(profile: &Profile, patience: Duration) -> Result<Entered, Fault> {
    let entered = profile.services.guest_time.enter(patience).await;
    entered.ok_or_else(|| Fault::Overloaded { uri: profile.uri.clone() })
}

/// One call into a guest, as its faults name it.
struct Call<'a> {
    profile: &'a Profile,
    log: &'a Log,
    hook: Hook,
}

impl Call<'_> {
    /// Waits for guest code, but no longer than it may take, in this call or with what is left of the turn. The clock
    /// starts when it first has to wait; until then the CPU limit holds, and most calls never do.
    async fn bounded<T>(
        &self,
        wall_left: Duration,
        entered: &mut Entered,
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
                // The host had no time for it.
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
        // A component may have more tables than its share of the pool, so the pool can be full while there are slots.
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

/// The engine counts what a guest hands over and has no public type for the error when it is too much.
fn is_of_output(error: &wasmtime::Error) -> bool {
    error.root_cause().to_string().contains("fuel allocated for hostcalls")
}
