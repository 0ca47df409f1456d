//! The traits that an extension implements: one for the extension itself, and one for each hook.

use crate::{
    Addition, Answer, Beginning, Decision, Declaration, Descriptor, Entry, Event, ExtensionError, FromConfig, Incoming,
    Json, MetadataEntry, MethodDeclaration, Outgoing, Patch, Rejection, Request, Rewrite, Ruling, StateChange,
};

/// The extension itself: its parameters and its descriptor. Every extension implements it.
pub trait Extension: Sized + 'static {
    /// The parameters in the operator's config, read at most once per instance. Put `#[serde(deny_unknown_fields)]` on
    /// it, so that a misspelt parameter stops the load. [`NoParameters`](crate::NoParameters) when there are none.
    type Parameters: FromConfig + Send + Sync + 'static;

    /// The JSON Schema of the parameters. Tools show it before there are any, and what it does not admit stops the load
    /// with the place of the parameter. A schema in the descriptor itself takes its place.
    const PARAMETER_SCHEMA: Option<&'static str> = None;

    /// Called once per load. An empty `name` or `version` is filled in from the crate's `Cargo.toml`. The text of an
    /// error stops the load and is shown to the operator: check the parameters here.
    fn descriptor(parameters: &Self::Parameters) -> Result<Descriptor, String>;
}

/// The hook `card`: the extension's entry on the Agent Card. Without it the entry has the descriptor's description.
pub trait Card: Extension {
    /// Called once per load, after [`Extension::descriptor`]. The text of an error stops the load.
    fn declare(parameters: &Self::Parameters) -> Result<Declaration, String>;
}

/// The hook `activation`: whether to take part in a request that named the URI, or that the operator has the extension active
/// for without that. Without the hook the answer is yes, and a request is one call cheaper.
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

/// The hook `message`: what a message may contain.
pub trait Message: Extension {
    /// Called once per active request, before [`State::validate`]. `message` is the message as JSON. An empty list
    /// leaves it as it is; rewriting takes the grant `rewrite-message`. A rejection refuses the request.
    fn check(parameters: &Self::Parameters, request: Request, message: Json) -> Result<Vec<Rewrite>, Rejection>;
}

/// The hook `transition`: the states that a task goes through.
pub trait Transition: Extension {
    /// Called once per turn before the agent runs: lets it run, lets the task wait, or rejects it. An error refuses the
    /// request.
    fn begin(_parameters: &Self::Parameters, _request: Request, _beginning: Beginning) -> Result<Entry, String> {
        Ok(Entry::Proceed)
    }

    /// Called for each change of the task's state. An error fails the turn.
    fn change(parameters: &Self::Parameters, change: StateChange) -> Result<Ruling, String>;
}

/// The hook `method`: operations of the extension's own.
pub trait Method: Extension {
    /// Called once per load. The text of an error stops the load.
    fn methods(parameters: &Self::Parameters) -> Result<Vec<MethodDeclaration>, String>;

    /// Called for each call of a method that [`Method::methods`] declares. `params` is a JSON object that fits the
    /// declared schema.
    fn call(parameters: &Self::Parameters, request: Request, name: &str, params: Json) -> Result<Answer, Rejection>;

    /// The next result of a stream, after `call` has answered [`Answer::Results`]; `None` ends it.
    fn next(_parameters: &Self::Parameters) -> Result<Option<Json>, Rejection> {
        Ok(None)
    }
}

/// The hook `client`: the extension's half on the calling side.
pub trait Client: Extension {
    /// Called before each call. A rejection keeps it from being made.
    fn before(parameters: &Self::Parameters, call: Outgoing) -> Result<Addition, Rejection>;

    /// Called for each thing that comes back. What it returns is for the program that calls.
    fn after(_parameters: &Self::Parameters, _event: Incoming) -> Result<Option<Json>, String> {
        Ok(None)
    }
}
