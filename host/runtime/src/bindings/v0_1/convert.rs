//! Conversions between generated types and those of `contract`. Strings are moved, not copied.

use annex_protocol::TaskState;
use annex_schema::Violation;

use super::generated::annex::extension::{caller, types};
use super::generated::exports::annex::extension as hooks;
use super::generated::wasi::keyvalue::store;
use super::generated::wasi::logging::logging;
use crate::caller::{Presence, VisibleCaller};
use crate::contract::{
    self, BeginRuling, BucketError, CardEntry, ChangeRuling, ClientAddition, ClientEvent, ClientRequest, Decision,
    Description, Event, EventKind, Events, ExtensionError, KeyPage, LiveCardEntry, Location, LogLevel,
    MethodDeclaration, MethodReply, ModelCall, ModelChange, ModelVerdict, OutputChunk, OutputContent, OutputPlace,
    OutputVerdict, Rejection, RemarkDraft, Replacement, ReplyAnswer, Rewrite, ShownEntry, ShownTask, StateChange,
    TaskVisibility, ToolCall, ToolResult, ToolVerdict, Wait,
};

/// The forms of the request and the beginning that the hooks take. A turn converts them once, because all of its hooks
/// get the same request and beginning.
pub(crate) type Request = types::Request;
pub(crate) type Beginning = hooks::transition::Beginning;
pub(super) type MetadataEntry = types::MetadataEntry;

impl From<contract::Request> for Request {
    fn from(request: contract::Request) -> Self {
        let contract::Request { operation, context_id, task_id, requested } = request;
        Self { operation, context_id, task_id, requested }
    }
}

impl From<contract::Beginning> for Beginning {
    fn from(beginning: contract::Beginning) -> Self {
        let contract::Beginning { task_id, context_id, waits_in, resumed } = beginning;
        Self { task_id, context_id, waits_in, resumed }
    }
}

impl From<hooks::descriptor::ExtensionDescriptor> for Description {
    fn from(described: hooks::descriptor::ExtensionDescriptor) -> Self {
        let events = described.events;
        Self {
            uri: described.uri,
            name: described.name,
            version: described.version,
            description: described.description,
            parameter_schema: described.parameter_schema,
            metadata_keys: described.metadata_keys,
            depends_on: described.depends_on,
            grants: described.grants,
            events: Events {
                message: events.contains(hooks::descriptor::EventKinds::MESSAGE),
                status: events.contains(hooks::descriptor::EventKinds::STATUS),
                artifact: events.contains(hooks::descriptor::EventKinds::ARTIFACT),
            },
            payload: described.payload,
        }
    }
}

impl From<hooks::card::Declaration> for CardEntry {
    fn from(declared: hooks::card::Declaration) -> Self {
        Self { description: declared.description, params: declared.params }
    }
}

impl From<hooks::live_card::LiveDeclaration> for LiveCardEntry {
    fn from(declared: hooks::live_card::LiveDeclaration) -> Self {
        let hooks::live_card::LiveDeclaration { description, params, seconds } = declared;
        Self { entry: CardEntry { description, params }, seconds }
    }
}

impl From<hooks::activation::Decision> for Decision {
    fn from(decision: hooks::activation::Decision) -> Self {
        match decision {
            hooks::activation::Decision::Active => Self::Active,
            hooks::activation::Decision::Inactive => Self::Inactive,
        }
    }
}

impl From<types::ExtensionError> for ExtensionError {
    fn from(error: types::ExtensionError) -> Self {
        Self { code: error.code, message: error.message, data: error.data }
    }
}

impl From<types::Rejection> for Rejection {
    fn from(rejection: types::Rejection) -> Self {
        match rejection {
            types::Rejection::Violations(violations) => {
                let violation = |types::Violation { pointer, message }| Violation { pointer, message };
                Self::Violations(violations.into_iter().map(violation).collect())
            }
            types::Rejection::Error(error) => Self::Error(error.into()),
        }
    }
}

impl From<Violation> for types::Violation {
    fn from(violation: Violation) -> Self {
        Self { pointer: violation.pointer, message: violation.message }
    }
}

impl From<contract::MetadataEntry> for MetadataEntry {
    fn from(entry: contract::MetadataEntry) -> Self {
        let location = match entry.location {
            Location::Message => types::Location::Message,
            Location::Request => types::Location::Request,
        };
        Self { location, key: entry.key, value: entry.value }
    }
}

impl From<MetadataEntry> for contract::MetadataEntry {
    fn from(entry: MetadataEntry) -> Self {
        let location = match entry.location {
            types::Location::Message => Location::Message,
            types::Location::Request => Location::Request,
        };
        Self { location, key: entry.key, value: entry.value }
    }
}

impl From<hooks::message::Rewrite> for Rewrite {
    fn from(rewrite: hooks::message::Rewrite) -> Self {
        Self { part: rewrite.part, replacement: rewrite.replacement }
    }
}

impl From<StateChange> for hooks::transition::StateChange {
    fn from(change: StateChange) -> Self {
        let StateChange { task_id, context_id, current, next, message } = change;
        Self { task_id, context_id, current, next, message }
    }
}

impl From<hooks::transition::Interruption> for Wait {
    fn from(asked: hooks::transition::Interruption) -> Self {
        let state = match asked.waiting {
            hooks::transition::Waiting::Input => TaskState::InputRequired,
            hooks::transition::Waiting::Authorization => TaskState::AuthRequired,
        };
        Self { state, text: asked.text, metadata: asked.metadata }
    }
}

impl From<hooks::transition::Entry> for BeginRuling {
    fn from(entry: hooks::transition::Entry) -> Self {
        match entry {
            hooks::transition::Entry::Proceed => Self::Proceed,
            hooks::transition::Entry::Interrupt(asked) => Self::Interrupt(asked.into()),
            hooks::transition::Entry::Veto(reason) => Self::Veto(reason),
        }
    }
}

impl From<hooks::transition::Ruling> for ChangeRuling {
    fn from(ruling: hooks::transition::Ruling) -> Self {
        match ruling {
            hooks::transition::Ruling::Pass => Self::Pass,
            hooks::transition::Ruling::Annotate(entries) => Self::Annotate(entries),
            hooks::transition::Ruling::Interrupt(asked) => Self::Interrupt(asked.into()),
            hooks::transition::Ruling::Veto(reason) => Self::Veto(reason),
        }
    }
}

impl From<OutputContent> for hooks::output::Content {
    fn from(content: OutputContent) -> Self {
        let OutputContent { task_id, context_id, place, parts, held } = content;
        let place = match place {
            OutputPlace::Message => hooks::output::Place::Message,
            OutputPlace::Status(state) => hooks::output::Place::Status(state),
            OutputPlace::Artifact(OutputChunk { artifact_id, first, last }) => {
                hooks::output::Place::Artifact(hooks::output::Chunk { artifact_id, first, last })
            }
        };
        Self { task_id, context_id, place, parts, held }
    }
}

impl From<hooks::output::Replacement> for Replacement {
    fn from(replacement: hooks::output::Replacement) -> Self {
        Self { part: replacement.part, parts: replacement.parts, dropped: replacement.dropped }
    }
}

impl From<hooks::output::Verdict> for OutputVerdict {
    fn from(verdict: hooks::output::Verdict) -> Self {
        match verdict {
            hooks::output::Verdict::Leave => Self::Leave,
            hooks::output::Verdict::Replace(replacements) => {
                Self::Replace(replacements.into_iter().map(Replacement::from).collect())
            }
            hooks::output::Verdict::Hold => Self::Hold,
            hooks::output::Verdict::Refuse(reason) => Self::Refuse(reason),
        }
    }
}

impl From<hooks::reply::ReadyAnswer> for ReplyAnswer {
    fn from(answer: hooks::reply::ReadyAnswer) -> Self {
        let state = match answer.outcome {
            hooks::reply::Outcome::Completed => TaskState::Completed,
            hooks::reply::Outcome::Failed => TaskState::Failed,
            hooks::reply::Outcome::Rejected => TaskState::Rejected,
            hooks::reply::Outcome::InputRequired => TaskState::InputRequired,
            hooks::reply::Outcome::AuthRequired => TaskState::AuthRequired,
        };
        Self { state, parts: answer.parts, artifact: answer.artifact, metadata: answer.metadata }
    }
}

impl From<hooks::steering::Remark> for RemarkDraft {
    fn from(remark: hooks::steering::Remark) -> Self {
        Self { parts: remark.parts, metadata: remark.metadata }
    }
}

impl From<ModelCall> for hooks::steering::ModelCall {
    fn from(call: ModelCall) -> Self {
        let ModelCall { round, model, lent, instruction, parameters, tools } = call;
        Self { round, model, lent, instruction, parameters, tools }
    }
}

impl From<hooks::steering::ModelVerdict> for ModelVerdict {
    fn from(verdict: hooks::steering::ModelVerdict) -> Self {
        match verdict {
            hooks::steering::ModelVerdict::Pass => Self::Pass,
            hooks::steering::ModelVerdict::Change(change) => {
                let hooks::steering::ModelChange { model, instruction, parameters } = change;
                Self::Change(ModelChange { model, instruction, parameters })
            }
            hooks::steering::ModelVerdict::Refuse(reason) => Self::Refuse(reason),
        }
    }
}

impl From<ToolCall> for hooks::steering::ToolCall {
    fn from(call: ToolCall) -> Self {
        let ToolCall { id, name, origin, arguments, has_waited } = call;
        Self { id, name, origin, arguments, has_waited }
    }
}

impl From<hooks::steering::Pause> for Wait {
    fn from(pause: hooks::steering::Pause) -> Self {
        let state = if pause.authorization { TaskState::AuthRequired } else { TaskState::InputRequired };
        Self { state, text: pause.text, metadata: pause.metadata }
    }
}

impl From<hooks::steering::ToolVerdict> for ToolVerdict {
    fn from(verdict: hooks::steering::ToolVerdict) -> Self {
        match verdict {
            hooks::steering::ToolVerdict::Pass => Self::Pass,
            hooks::steering::ToolVerdict::Change(arguments) => Self::Change(arguments),
            hooks::steering::ToolVerdict::Deny(text) => Self::Deny(text),
            hooks::steering::ToolVerdict::Wait(pause) => Self::Wait(pause.into()),
        }
    }
}

impl From<ToolResult> for hooks::steering::ToolResult {
    fn from(made: ToolResult) -> Self {
        let ToolResult { id, name, arguments, output, failed } = made;
        Self { id, name, arguments, output, failed }
    }
}

impl From<Event> for hooks::response::Event {
    fn from(event: Event) -> Self {
        let kind = match event.kind {
            EventKind::Message => hooks::response::EventKind::Message,
            EventKind::Status => hooks::response::EventKind::Status,
            EventKind::Artifact => hooks::response::EventKind::Artifact,
        };
        let Event { task_id, context_id, task_state, has_message, last_chunk, present, payload, .. } = event;
        Self { kind, task_id, context_id, task_state, has_message, last_chunk, present, payload }
    }
}

impl From<ShownTask> for hooks::reads::ShownTask {
    fn from(task: ShownTask) -> Self {
        let ShownTask { id, context_id, state, metadata } = task;
        Self { id, context_id, state, metadata }
    }
}

impl From<hooks::reads::View> for TaskVisibility {
    fn from(view: hooks::reads::View) -> Self {
        match view {
            hooks::reads::View::Unchanged => Self::Unchanged,
            hooks::reads::View::Add(entries) => Self::Add(entries),
            hooks::reads::View::LeaveOut(reason) => Self::LeaveOut(reason),
        }
    }
}

impl From<ShownEntry> for hooks::extended_card::ShownEntry {
    fn from(entry: ShownEntry) -> Self {
        let ShownEntry { description, params } = entry;
        Self { description, params }
    }
}

impl From<hooks::extended_card::EntryChange> for CardEntry {
    fn from(change: hooks::extended_card::EntryChange) -> Self {
        Self { description: change.description, params: change.params }
    }
}

impl From<hooks::method::Declaration> for MethodDeclaration {
    fn from(declared: hooks::method::Declaration) -> Self {
        let hooks::method::Declaration { name, description, params_schema, result_schema, streams } = declared;
        Self { name, description, params_schema, result_schema, streams }
    }
}

impl From<hooks::method::Answer> for MethodReply {
    fn from(answer: hooks::method::Answer) -> Self {
        match answer {
            hooks::method::Answer::Value(value) => Self::Value(value),
            hooks::method::Answer::Results => Self::Results,
        }
    }
}

impl From<ClientRequest> for hooks::client::Outgoing {
    fn from(call: ClientRequest) -> Self {
        let ClientRequest { operation, agent, declaration, input, message } = call;
        Self { operation, agent, declaration, input, message }
    }
}

impl From<hooks::client::Addition> for ClientAddition {
    fn from(added: hooks::client::Addition) -> Self {
        Self { activate: added.activate, metadata: added.metadata.into_iter().map(Into::into).collect() }
    }
}

impl From<ClientEvent> for hooks::client::Incoming {
    fn from(event: ClientEvent) -> Self {
        let ClientEvent { active, event, metadata } = event;
        Self { active, event, metadata }
    }
}

impl From<VisibleCaller> for caller::Identity {
    fn from(shown: VisibleCaller) -> Self {
        let presence = match shown.presence {
            Presence::Anonymous => caller::Presence::Anonymous,
            Presence::Authenticated => caller::Presence::Authenticated,
            Presence::Earlier => caller::Presence::Earlier,
        };
        let claims = shown.claims.to_json_string();
        Self { presence, principal: shown.principal, claims, headers: shown.headers }
    }
}

impl From<logging::Level> for LogLevel {
    /// Turns `critical` into `error`, the highest level in the log of the process.
    fn from(level: logging::Level) -> Self {
        match level {
            logging::Level::Trace => Self::Trace,
            logging::Level::Debug => Self::Debug,
            logging::Level::Info => Self::Info,
            logging::Level::Warn => Self::Warn,
            logging::Level::Error | logging::Level::Critical => Self::Error,
        }
    }
}

impl From<BucketError> for store::Error {
    fn from(error: BucketError) -> Self {
        match error {
            BucketError::NoSuchStore => Self::NoSuchStore,
            BucketError::AccessDenied => Self::AccessDenied,
            BucketError::Other(reason) => Self::Other(reason),
        }
    }
}

impl From<KeyPage> for store::KeyResponse {
    fn from(page: KeyPage) -> Self {
        Self { keys: page.keys, cursor: page.cursor }
    }
}
