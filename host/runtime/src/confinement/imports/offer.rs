//! An interface that a component can import.

use wasmtime::component::Linker;

use crate::confinement::grants::GrantNeeded;
use crate::confinement::store::HostState;

/// An interface that a component can import, with the grant that it needs.
pub(crate) struct Offer {
    /// `package:name/interface`, without a version.
    pub(crate) name: &'static str,
    /// The grant that the import needs. `None` if the interface can neither observe nor affect anything outside of
    /// its own turn.
    pub(crate) needs: Option<GrantNeeded>,
    pub(crate) link: Link,
}

/// A function that adds the interface to a linker.
type Link = fn(&mut Linker<HostState>) -> wasmtime::Result<()>;

pub(crate) const fn free(name: &'static str, link: Link) -> Offer {
    Offer { name, needs: None, link }
}

pub(crate) const fn granted(grant: GrantNeeded, name: &'static str, link: Link) -> Offer {
    Offer { name, needs: Some(grant), link }
}
