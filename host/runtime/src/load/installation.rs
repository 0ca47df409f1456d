//! The operator's settings for a component.

use annex_protocol::JsonObject;

use crate::confinement::grants::Grants;
use crate::confinement::limits::Limits;
use crate::digest::Digest;
use crate::load::selection::Selection;

/// The operator's settings for a component.
#[derive(Clone, Debug)]
pub struct Installation {
    /// The capabilities that the component may use.
    pub grants: Grants,
    /// The bounds on memory, time and calls.
    pub limits: Limits,
    /// Parameters, checked against the extension's own schema.
    pub parameters: JsonObject,
    /// True if requests without the extension are refused.
    pub required: bool,
    /// Requests that the extension is active for.
    pub selection: Selection,
    /// The effect of a failure of the extension on a request. A required extension cannot be skipped.
    pub on_failure: OnFailure,
    /// The lifetime of instances: fresh or kept.
    pub instances: Instances,
}

impl Installation {
    /// Settings with these limits and with defaults: no grants, no parameters, not required, active if requested. A
    /// request fails if the extension fails. Each turn gets a fresh instance.
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

    /// Digest of all settings, without the values of secrets. It is computed from the debug form, whose order is fixed.
    pub(crate) fn digest(&self) -> Digest {
        Digest::of(format!("{self:?}").as_bytes())
    }
}

/// The lifetime of instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Instances {
    /// Each instance serves one turn.
    #[default]
    Fresh,
    /// Instances serve several turns, and are reset to their state after `describe` in between. A component that
    /// cannot be reset is not loaded.
    Kept {
        /// Most turns of one instance.
        turns: u32,
    },
}

impl Instances {
    /// Default number of turns of a kept instance.
    pub const TURNS: u32 = 1_000;
}

/// The effect on a request when an extension traps, exceeds a limit, breaks the contract, is quarantined or overloaded.
/// A refusal by the extension is not a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// The request is refused, or its task fails.
    #[default]
    Reject,
    /// The request continues without the extension, which counts as inactive.
    Skip,
}
