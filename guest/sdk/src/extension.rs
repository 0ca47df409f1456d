//! The traits that an extension implements: one for what it is, one for each hook.

use crate::{
    Decision, Declaration, Descriptor, Event, ExtensionError, FromConfig, Json, MetadataEntry, Patch, Rejection,
    Request,
};

/// What the extension is. Every extension implements it.
pub trait Extension: Sized + 'static {
    /// The parameters in the operator's config, read at most once per instance. Put `#[serde(deny_unknown_fields)]` on
    /// it, so that a misspelt parameter stops the load. [`NoParameters`](crate::NoParameters) when there are none.
    type Parameters: FromConfig + Send + Sync + 'static;

    /// Called once per load. An empty `name` or `version` is filled in from the crate's `Cargo.toml`. The text of an
    /// error stops the load and is shown to the operator: check the parameters here.
    fn descriptor(parameters: &Self::Parameters) -> Result<Descriptor, String>;
}

/// The hook `card`: the extension's entry on the Agent Card. Without it the entry has the descriptor's description.
pub trait Card: Extension {
    /// Called once per load, after [`Extension::descriptor`]. The text of an error stops the load.
    fn declare(parameters: &Self::Parameters) -> Result<Declaration, String>;
}

/// The hook `activation`: whether to take part in a request that named the URI. Without it the answer is yes.
pub trait Activation: Extension {
    /// Called once per request, before any task or session exists. An error refuses the request.
    fn activate(parameters: &Self::Parameters, request: Request) -> Result<Decision, ExtensionError>;
}

/// The hook `state`: session state that the client sends beside its message.
pub trait State: Extension {
    /// Called once per active request. Returns the state delta as a JSON object, or `None` to change nothing.
    /// `metadata` holds the entries of the request whose keys the descriptor owns. A rejection refuses the request.
    fn validate(
        parameters: &Self::Parameters,
        request: Request,
        metadata: Vec<MetadataEntry>,
    ) -> Result<Option<Json>, Rejection>;
}

/// The hook `response`: metadata on what goes out.
pub trait Response: Extension {
    /// Called for each outgoing event of the kinds that the descriptor names. A patch, even an empty one, marks the
    /// event as touched by the extension; `None` leaves it alone. An error fails the turn.
    fn respond(parameters: &Self::Parameters, event: Event) -> Result<Option<Patch>, String>;
}
