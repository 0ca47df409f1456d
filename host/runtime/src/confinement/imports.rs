//! The interfaces that a guest can call: two tables, with the grant that each interface takes and what implements it.
//! One is of the contract (`bindings/v0_1/imports.rs`), the other of WASI (`wasi.rs`). The files beside `wasi.rs` do
//! the work for both.
//!
//! An interface is linked when the component imports it and the operator has granted it. There is no other way into a
//! linker, so the tables are the whole of what a component can reach.

use crate::bindings;
use crate::confinement::grants::GrantNeeded;
use crate::confinement::imports::offer::Offer;

mod capabilities;
mod http;
pub(crate) mod keyvalue;
pub(crate) mod offer;
pub(crate) mod session;
mod stdio;
mod turn;
pub(crate) mod wasi;
pub(crate) mod wasi_context;

#[cfg(test)]
mod tests;

/// Everything that a component can import.
pub(crate) fn offers() -> impl Iterator<Item = &'static Offer> {
    bindings::offers().chain(wasi::OFFERS)
}

impl GrantNeeded {
    /// The grant that importing `interface` (`package:name/interface`, no version) takes: `None` when the host has no
    /// such interface, `Some(None)` when it is free.
    #[must_use]
    pub fn of_import(interface: &str) -> Option<Option<Self>> {
        offers().find(|offer| offer.name == interface).map(|offer| offer.needs)
    }
}
