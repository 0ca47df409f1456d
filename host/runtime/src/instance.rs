//! One instance, which serves one extension for one turn and is dropped with it.
//!
//! Nothing of an instance is ever used again: not after a trap, not after a call that was broken off, not for another
//! turn. Instantiating costs microseconds and keeps tenants apart.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use wasmtime::Store;
use wasmtime::component::Instance as ComponentInstance;

use crate::error::Fault;
use crate::extension::{Profile, Program};
use crate::hook::Hook;
use crate::limits::LimitReached;
use crate::store::{self, HostState, SessionReader};

pub(crate) struct Instance {
    store: Store<HostState>,
    component: ComponentInstance,
    profile: Arc<Profile>,
    _slot: OwnedSemaphorePermit,
}

impl Instance {
    /// Instantiates the program with all limits armed. `hook` is the call that the instance is started for.
    pub(crate) async fn start(
        program: &Program,
        profile: &Arc<Profile>,
        session: Option<Arc<dyn SessionReader>>,
        hook: Hook,
    ) -> Result<Self, Fault> {
        let overloaded = || Fault::Overloaded { uri: profile.uri.clone() };
        let slot = program.slots.take().await.ok_or_else(overloaded)?;
        let mut store = store::new(program.component.engine(), Arc::clone(profile), session);
        store::rearm(&mut store);
        let starting = program.component.instantiate_async(&mut store);
        let component = match timeout(profile.limits.wall, starting).await {
            Ok(Ok(component)) => component,
            Ok(Err(error)) => return Err(fault(profile, hook, error)),
            Err(_) => return Err(limit_reached(profile, hook, LimitReached::Wall)),
        };
        Ok(Self { store, component, profile: Arc::clone(profile), _slot: slot })
    }

    /// Runs one call into the guest under the CPU and time limits. After an error the instance must be dropped.
    pub(crate) async fn call<T>(
        &mut self,
        hook: Hook,
        body: impl AsyncFnOnce(&mut Store<HostState>, &ComponentInstance) -> wasmtime::Result<T>,
    ) -> Result<T, Fault> {
        store::rearm(&mut self.store);
        let profile = &self.profile;
        match timeout(profile.limits.wall, body(&mut self.store, &self.component)).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(fault(profile, hook, error)),
            Err(_) => Err(limit_reached(profile, hook, LimitReached::Wall)),
        }
    }
}

fn fault(profile: &Profile, hook: Hook, error: wasmtime::Error) -> Fault {
    let uri = profile.uri.clone();
    if error.is::<wasmtime::PoolConcurrencyLimitError>() {
        return Fault::Overloaded { uri };
    }
    match error.downcast_ref::<LimitReached>() {
        Some(limit) => Fault::LimitReached { uri, hook, limit: *limit },
        None => Fault::Trapped { uri, hook, source: error.into() },
    }
}

fn limit_reached(profile: &Profile, hook: Hook, limit: LimitReached) -> Fault {
    Fault::LimitReached { uri: profile.uri.clone(), hook, limit }
}
