//! Links a component to the host interfaces that it imports and that are granted.

use wasmtime::Engine;
use wasmtime::component::Linker;

use crate::confinement::grants::Grants;
use crate::confinement::imports::{self, offer::Offer};
use crate::confinement::store::HostState;
use crate::load::inspect::{Inspection, split_version};

/// Creates a linker with the interfaces that the component imports and the grants allow.
pub(crate) fn linker(engine: &Engine, inspection: &Inspection, grants: &Grants) -> wasmtime::Result<Linker<HostState>> {
    let mut linker = Linker::new(engine);
    let imported = |offer: &&Offer| inspection.imports.iter().any(|import| split_version(&import.name).0 == offer.name);
    for offer in imports::offers().filter(imported) {
        // `Inspection::check_grants` has refused components without a needed grant. This does not rely on it.
        if offer.needs.is_none_or(|grant| grants.allow(grant)) {
            (offer.link)(&mut linker)?;
        }
    }
    Ok(linker)
}
