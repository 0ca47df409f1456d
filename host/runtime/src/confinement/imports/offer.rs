//! One interface that a component can import, with the grant that it takes.

use wasmtime::component::Linker;

use crate::confinement::grants::GrantNeeded;
use crate::confinement::store::HostState;

/// One interface that a component can import.
pub(crate) struct Offer {
    /// `package:name/interface`, without a version.
    pub(crate) name: &'static str,
    /// The grant that it takes; `None` when it can neither observe nor affect anything outside of its own turn.
    pub(crate) needs: Option<GrantNeeded>,
    pub(crate) link: Link,
}

/// Adds the interface to a linker.
type Link = fn(&mut Linker<HostState>) -> wasmtime::Result<()>;

pub(crate) const fn free(name: &'static str, link: Link) -> Offer {
    Offer { name, needs: None, link }
}

pub(crate) const fn granted(grant: GrantNeeded, name: &'static str, link: Link) -> Offer {
    Offer { name, needs: Some(grant), link }
}
