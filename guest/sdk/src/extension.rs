//! The traits that an extension implements: one for the extension itself, and one for each hook.

use crate::{
    Addition, Answer, Beginning, Content, Decision, Declaration, Descriptor, Entry, EntryChange, Event, ExtensionError,
    FromConfig, Incoming, Json, LiveDeclaration, MetadataEntry, MethodDeclaration, ModelCall, ModelVerdict, Outgoing,
    Patch, ReadyAnswer, Rejection, Remark, Request, Rewrite, Ruling, ShownEntry, ShownTask, StateChange, ToolCall,
    ToolResult, ToolVerdict, Verdict, View,
};

/// The extension itself: its parameters and its descriptor. Every extension implements it.
pub trait Extension: Sized + 'static {
    /// The parameters in the operator's config, read at most once per instance. Add `#[serde(deny_unknown_fields)]` to
    /// the type, so that a misspelt parameter fails the load. Use [`NoParameters`](crate::NoParameters) for none.
    type Parameters: FromConfig + Send + Sync + 'static;

    /// The JSON Schema of the parameters. Tools show the schema before any parameters are set. Parameters that do not
    /// match fail the load, with an error that names the parameter. A schema in the descriptor takes precedence.
    const PARAMETER_SCHEMA: Option<&'static str> = None;

    /// Called once per load. An empty `name` or `version` is filled in from the crate's `Cargo.toml`. An error fails
    /// the load, and the operator gets its text: check the parameters here.
    fn descriptor(parameters: &Self::Parameters) -> Result<Descriptor, String>;
}

/// The hook `card`: the extension's entry on the Agent Card. Without this hook, the entry has the descriptor's
/// description.
pub trait Card: Extension {
    /// Called once per load, after [`Extension::descriptor`]. An error fails the load with its text.
    fn declare(parameters: &Self::Parameters) -> Result<Declaration, String>;
}

/// The hook `live-card`: an entry on the Agent Card that changes while the extension runs. Needs the grant `live-card`. A
/// component has this hook or [`Card`], but not both.
pub trait LiveCard: Extension {
    /// Called once per load, and again each time that the entry's seconds are over. At load, an error fails the load
    /// with its text. Later, an error leaves the entry as it is. Of the keys, only those of
    /// [`Keys::open`](crate::keyvalue::Keys::open) are available. At load they are empty, and changes are forgotten.
    fn declare_live(parameters: &Self::Parameters) -> Result<LiveDeclaration, String>;
}

/// The hook `activation`: decides whether the extension takes part in a request. It runs for requests that name the
/// URI, and for all requests if the operator made the extension always active. Without the hook the extension takes
/// part, and a request needs one call less.
pub trait Activation: Extension {
    /// Called once per request, before any task or session exists. An error refuses the request.
    fn activate(parameters: &Self::Parameters, request: Request) -> Result<Decision, ExtensionError>;
}

/// The hook `state`: session state that the client sends with its message.
pub trait State: Extension {
    /// Called once per request for which the extension is active. Returns the state delta as a JSON object, or `None`
    /// for no change. `metadata` has those metadata entries of the request whose keys are in the descriptor's
    /// `metadata_keys`. A rejection refuses the request.
    fn validate(
        parameters: &Self::Parameters,
        request: Request,
        metadata: Vec<MetadataEntry>,
    ) -> Result<Option<Json>, Rejection>;
}

/// The hook `response`: metadata on outgoing events.
pub trait Response: Extension {
    /// Called for each outgoing event of the kinds in the descriptor. A patch, even an empty one, marks the event with
    /// the extension's URI; `None` leaves the event unchanged. An error fails the turn.
    fn respond(parameters: &Self::Parameters, event: Event) -> Result<Option<Patch>, String>;
}

/// The hook `message`: checks and rewrites the client's message.
pub trait Message: Extension {
    /// Called once per request for which the extension is active, before [`State::validate`]. `message` is the message
    /// as JSON. An empty list leaves the message unchanged; rewriting needs the grant `rewrite-message`. A rejection
    /// refuses the request.
    fn check(parameters: &Self::Parameters, request: Request, message: Json) -> Result<Vec<Rewrite>, Rejection>;
}

/// The hook `transition`: the states that a task goes through.
pub trait Transition: Extension {
    /// Called once per turn before the agent runs. Lets the agent run, makes the task wait, or rejects the task. An
    /// error refuses the request.
    fn begin(_parameters: &Self::Parameters, _request: Request, _beginning: Beginning) -> Result<Entry, String> {
        Ok(Entry::Proceed)
    }

    /// Called for each change of the task's state. An error fails the turn.
    fn change(parameters: &Self::Parameters, change: StateChange) -> Result<Ruling, String>;
}

/// The hook `reply`: answers in place of the agent. Needs the grant `answer`.
pub trait Reply: Extension {
    /// Called once per turn, before the agent runs. `message` is the message as JSON. `None` lets the agent answer. The
    /// first answer counts, and no other extension is asked. An error refuses the request.
    fn before_agent(
        parameters: &Self::Parameters,
        request: Request,
        message: Json,
    ) -> Result<Option<ReadyAnswer>, String>;
}

/// The hook `steering`: the steps of the server's own agent. Needs the grant `agent-steps = { steer = true }`. A server
/// whose agent is a remote one refuses to load an extension with this hook.
///
/// Each method may also return a [`Remark`], which the client gets as a status of the working task.
pub trait Steering: Extension {
    /// Called before each call of the model. An error fails the turn.
    fn before_model(
        _parameters: &Self::Parameters,
        _call: ModelCall,
    ) -> Result<(ModelVerdict, Option<Remark>), String> {
        Ok((ModelVerdict::Pass, None))
    }

    /// Called before each call of a tool, in the order in which the model asks, before any of the calls is made. An error
    /// fails the turn.
    fn before_tool(_parameters: &Self::Parameters, _call: ToolCall) -> Result<(ToolVerdict, Option<Remark>), String> {
        Ok((ToolVerdict::Pass, None))
    }

    /// Called for each result of a tool, before the model sees the result. A value replaces the output. An error fails the
    /// turn.
    fn after_tool(_parameters: &Self::Parameters, _made: ToolResult) -> Result<(Option<Json>, Option<Remark>), String> {
        Ok((None, None))
    }
}

/// The hook `output`: the content of outgoing messages, statuses and artifacts. Needs the grant `rewrite-answer`.
pub trait Output: Extension {
    /// Called for each event of the kinds in the descriptor, before [`Response::respond`]. [`Verdict::text`] replaces
    /// texts. An error fails the turn.
    fn revise(parameters: &Self::Parameters, content: Content) -> Result<Verdict, String>;
}

/// The hook `reads`: what readers of tasks are shown. Needs the grant `reads`.
pub trait Reads: Extension {
    /// Called once per read of a task and once per page of a list, for readers that activate the extension. Returns one
    /// view for each task, in the same order. After an error the tasks are shown without what this extension adds.
    fn show(parameters: &Self::Parameters, request: Request, tasks: Vec<ShownTask>) -> Result<Vec<View>, String>;
}

/// The hook `extended-card`: the extension's entry for one reader of the extended Agent Card. Needs the grant `reads`.
pub trait ExtendedCard: Extension {
    /// Called once per read of the extended card, for readers that activate the extension. `entry` is the entry on the
    /// card. [`EntryChange::default`] leaves it as it is. After an error the reader gets the entry as it is.
    fn show_entry(parameters: &Self::Parameters, request: Request, entry: ShownEntry) -> Result<EntryChange, String>;
}

/// The hook `method`: additional methods that the extension serves.
pub trait Method: Extension {
    /// Called once per load. An error fails the load with its text.
    fn methods(parameters: &Self::Parameters) -> Result<Vec<MethodDeclaration>, String>;

    /// Called for each call of a method in [`Method::methods`]. `params` is a JSON object that matches the declared
    /// schema.
    fn call(parameters: &Self::Parameters, request: Request, name: &str, params: Json) -> Result<Answer, Rejection>;

    /// The next result of a stream, after `call` has returned [`Answer::Results`]; `None` ends the stream.
    fn next(_parameters: &Self::Parameters) -> Result<Option<Json>, Rejection> {
        Ok(None)
    }
}

/// The hook `client`: the extension's side in a client.
pub trait Client: Extension {
    /// Called before each call. A rejection prevents the call.
    fn before(parameters: &Self::Parameters, call: Outgoing) -> Result<Addition, Rejection>;

    /// Called for each answer and each event. The returned value is for the calling program.
    fn after(_parameters: &Self::Parameters, _event: Incoming) -> Result<Option<Json>, String> {
        Ok(None)
    }
}
