//! The interfaces that a guest can import, in two tables with the grant and the implementation of each. One table has
//! the interfaces of the contract (`bindings/v0_1/imports.rs`), the other those of WASI (`wasi.rs`). The other files in
//! this folder implement the interfaces.
//!
//! An interface is linked if the component imports it and the operator has granted it. Nothing else is added to a
//! linker, so the tables list everything that a component can reach.

use crate::bindings;
use crate::confinement::grants::GrantNeeded;
use crate::confinement::imports::offer::Offer;
use crate::hook::Hook;

mod caller;
mod capabilities;
mod http;
pub(crate) mod keyvalue;
pub(crate) mod offer;
pub(crate) mod session;
mod stdio;
pub(crate) mod task_metadata;
mod turn;
pub(crate) mod wasi;
pub(crate) mod wasi_context;

#[cfg(test)]
mod tests;

/// All interfaces that a component can import.
pub(crate) fn offers() -> impl Iterator<Item = &'static Offer> {
    bindings::offers().chain(wasi::OFFERS)
}

impl GrantNeeded {
    /// The grant that the import `interface` (`package:name/interface`, without a version) needs. `None` if the host
    /// has no such interface, `Some(None)` if the interface is free.
    #[must_use]
    pub fn of_import(interface: &str) -> Option<Option<Self>> {
        offers().find(|offer| offer.name == interface).map(|offer| offer.needs)
    }

    /// True if a component that needs this grant has an import or a hook that shows it.
    pub(crate) fn has_import_or_hook(self) -> bool {
        offers().any(|offer| offer.needs == Some(self)) || Hook::ALL.iter().any(|hook| hook.grant() == Some(self))
    }
}
