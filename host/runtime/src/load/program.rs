//! The linked component of an extension.

use std::sync::Arc;

use wasmtime::component::InstancePre;

use crate::bindings::Hooks;
use crate::confinement::kept::InstanceKeeper;
use crate::confinement::slots::Slots;
use crate::confinement::store::HostState;
use crate::load::compile::shared::Code;

/// A linked component, ready to be instantiated.
pub(crate) struct Program {
    pub(crate) component: InstancePre<HostState>,
    pub(crate) hooks: Hooks,
    /// The compiled code. While it is held here, other loads of the component share it.
    pub(crate) code: Arc<Code>,
    pub(crate) slots: Slots,
    /// The data for keeping instances, if they are kept.
    pub(crate) keeping: Option<InstanceKeeper>,
    /// True if the engine counts instructions as fuel.
    pub(crate) counts_instructions: bool,
}
