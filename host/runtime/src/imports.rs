//! What a guest can call: one table of interfaces, with the grant that each one takes and what implements it.
//!
//! An interface is linked when the component imports it and the operator has granted it. There is no other way into a
//! linker, so the table is the whole of what a component can reach.

use wasmtime::Engine;
use wasmtime::component::{HasSelf, Linker};

use crate::bindings::v0_1::annex::extension::{
    agent_steps, json_schema, session_state, task, task_resumption, tasks, types,
};
use crate::bindings::v0_1::wasi::clocks::wall_clock;
use crate::bindings::v0_1::wasi::config::store as config;
use crate::bindings::v0_1::wasi::keyvalue::{atomics, store as keyvalue_store};
use crate::bindings::v0_1::wasi::logging::logging;
use crate::grants::{GrantNeeded, Grants};
use crate::inspect::{Inspection, split_version};
use crate::store::HostState;

mod capabilities;
pub(crate) mod http;
pub(crate) mod keyvalue;
mod session;
mod stdio;
mod turn;
pub(crate) mod wasi;

#[cfg(test)]
mod tests;

/// One interface that a component can import.
pub(crate) struct Offer {
    /// `package:name/interface`, without a version.
    pub(crate) name: &'static str,
    /// The grant that it takes; `None` when it can neither observe nor affect anything outside of its own turn.
    pub(crate) needs: Option<GrantNeeded>,
    link: Link,
}

type Link = fn(&mut Linker<HostState>) -> wasmtime::Result<()>;

const fn free(name: &'static str, link: Link) -> Offer {
    Offer { name, needs: None, link }
}

const fn granted(grant: GrantNeeded, name: &'static str, link: Link) -> Offer {
    Offer { name, needs: Some(grant), link }
}

/// Interfaces of Annex, and those of WASI that it implements itself.
const OWN: &[Offer] = &[
    free("annex:extension/types", |linker| types::add_to_linker::<_, HasSelf<_>>(linker, |state| state)),
    free("annex:extension/json-schema", |linker| json_schema::add_to_linker::<_, HasSelf<_>>(linker, |state| state)),
    granted(GrantNeeded::SessionState, "annex:extension/session-state", |linker| {
        session_state::add_to_linker::<_, HasSelf<_>>(linker, |state| state)
    }),
    granted(GrantNeeded::Task, "annex:extension/task", |linker| {
        task::add_to_linker::<_, HasSelf<_>>(linker, |state| state)
    }),
    granted(GrantNeeded::Tasks, "annex:extension/tasks", |linker| {
        tasks::add_to_linker::<_, HasSelf<_>>(linker, |state| state)
    }),
    granted(GrantNeeded::TaskResumption, "annex:extension/task-resumption", |linker| {
        task_resumption::add_to_linker::<_, HasSelf<_>>(linker, |state| state)
    }),
    granted(GrantNeeded::AgentSteps, "annex:extension/agent-steps", |linker| {
        agent_steps::add_to_linker::<_, HasSelf<_>>(linker, |state| state)
    }),
    free("wasi:logging/logging", |linker| logging::add_to_linker::<_, HasSelf<_>>(linker, |state| state)),
    free("wasi:config/store", |linker| config::add_to_linker::<_, HasSelf<_>>(linker, |state| state)),
    granted(GrantNeeded::Clock, "wasi:clocks/wall-clock", |linker| {
        wall_clock::add_to_linker::<_, HasSelf<_>>(linker, |state| state)
    }),
    granted(GrantNeeded::KeyValue, "wasi:keyvalue/store", |linker| {
        keyvalue_store::add_to_linker::<_, HasSelf<_>>(linker, |state| state)
    }),
    granted(GrantNeeded::KeyValue, "wasi:keyvalue/atomics", |linker| {
        atomics::add_to_linker::<_, HasSelf<_>>(linker, |state| state)
    }),
];

/// Everything that a component can import.
fn offers() -> impl Iterator<Item = &'static Offer> {
    OWN.iter().chain(wasi::OFFERS)
}

/// What is offered under `interface` (`package:name/interface`, no version).
pub(crate) fn offer(interface: &str) -> Option<&'static Offer> {
    offers().find(|offer| offer.name == interface)
}

/// Links what the component imports and the grants allow.
pub(crate) fn linker(engine: &Engine, inspection: &Inspection, grants: &Grants) -> wasmtime::Result<Linker<HostState>> {
    let mut linker = Linker::new(engine);
    let imported = |offer: &&Offer| inspection.imports.iter().any(|import| split_version(&import.name).0 == offer.name);
    for offer in offers().filter(imported) {
        if offer.needs.is_none_or(|grant| grants.allow(grant)) {
            (offer.link)(&mut linker)?;
        }
    }
    Ok(linker)
}
