//! What a guest can call: two tables of interfaces, with the grant that each one takes and what implements it. One is of
//! the contract (`bindings/v0_1/imports.rs`), the other of WASI (`wasi.rs`); the files beside that one do the work.
//!
//! An interface is linked when the component imports it and the operator has granted it. There is no other way into a
//! linker, so the tables are the whole of what a component can reach.

use wasmtime::Engine;
use wasmtime::component::Linker;

use crate::bindings;
use crate::grants::Grants;
use crate::imports::offer::Offer;
use crate::inspect::{Inspection, split_version};
use crate::store::HostState;

mod capabilities;
pub(crate) mod http;
pub(crate) mod keyvalue;
pub(crate) mod offer;
mod session;
mod stdio;
mod turn;
pub(crate) mod wasi;

#[cfg(test)]
mod tests;

/// Everything that a component can import.
fn offers() -> impl Iterator<Item = &'static Offer> {
    bindings::offers().chain(wasi::OFFERS)
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
