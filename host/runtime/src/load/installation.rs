//! The operator's decisions about a component.

use annex_protocol::JsonObject;

use crate::confinement::grants::Grants;
use crate::confinement::limits::Limits;
use crate::digest::Digest;
use crate::load::selection::Selection;

/// The operator's decisions about a component when it is installed.
#[derive(Clone, Debug)]
pub struct Installation {
    /// Its grants.
    pub grants: Grants,
    /// Its limits.
    pub limits: Limits,
    /// Its parameters, checked against its own schema.
    pub parameters: JsonObject,
    /// True when requests that it is not active for are refused.
    pub required: bool,
    /// The requests that it is active for.
    pub selection: Selection,
    /// The effect of its failure on a request. Required extensions must not be skipped.
    pub on_failure: OnFailure,
    /// The life of its instances.
    pub instances: Instances,
}

impl Installation {
    /// A component that has nothing but limits: no grants, no parameters, not required, active for who requests it,
    /// requests that it fails are refused, an instance for each turn.
    #[must_use]
    pub fn with_limits(limits: Limits) -> Self {
        Self {
            grants: Grants::default(),
            limits,
            parameters: JsonObject::new(),
            required: false,
            selection: Selection::default(),
            on_failure: OnFailure::Reject,
            instances: Instances::Fresh,
        }
    }

    /// The form for logs has all of it but the values of secrets, in one order.
    pub(crate) fn digest(&self) -> Digest {
        Digest::of(format!("{self:?}").as_bytes())
    }
}

/// The life of the instances of a component.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Instances {
    /// Each serves one turn.
    #[default]
    Fresh,
    /// Each serves one turn after the other and is put back in between to what it was once it had described itself. A
    /// component that cannot be put back is not loaded.
    Kept {
        /// The most turns that one serves.
        turns: u32,
    },
}

impl Instances {
    /// The turns that a kept instance serves, unless the operator says otherwise.
    pub const TURNS: u32 = 1_000;
}

/// The fate of a request when an extension fails it: traps, overruns a limit, breaks the contract, is quarantined or
/// overloaded. That an extension refuses a request is its verdict and no failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// The request is refused, or its task fails.
    #[default]
    Reject,
    /// The request goes on without the extension, which does not count as active.
    Skip,
}
