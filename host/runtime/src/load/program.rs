//! The linked component of one extension.

use std::sync::Arc;

use wasmtime::component::InstancePre;

use crate::bindings::Hooks;
use crate::confinement::kept::Keeping;
use crate::confinement::slots::Slots;
use crate::confinement::store::HostState;
use crate::load::compile::shared::Code;

/// The linked component: instantiating it is all that is left to do for a turn.
pub(crate) struct Program {
    pub(crate) component: InstancePre<HostState>,
    pub(crate) hooks: Hooks,
    /// Held, so that whoever loads the component meanwhile gets the same code.
    pub(crate) code: Arc<Code>,
    pub(crate) slots: Slots,
    /// How its instances are kept between turns, if they are.
    pub(crate) keeping: Option<Keeping>,
    /// The engine counts instructions as fuel.
    pub(crate) counts_instructions: bool,
}
