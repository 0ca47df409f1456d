//! The errors of the crate, by who caused them: the operator ([`LoadError`]), the guest ([`Fault`]) or the client
//! ([`HookError::Refused`]).

use std::borrow::Cow;
use std::time::Duration;

use annex_protocol::{A2aError, ExtensionUri};
use uuid::Uuid;

use crate::confinement::grants::GrantNeeded;
use crate::confinement::limits::LimitReached;
use crate::digest::Digest;
use crate::hook::Hook;
use crate::load::source::Source;
use crate::observation::trap::Trap;

/// A reason for which the runtime itself cannot start.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The engine refused its settings.
    #[error("cannot set up the WebAssembly engine")]
    Engine(#[source] Source),
    /// The epoch ticker's thread could not be started.
    #[error("cannot start the epoch ticker")]
    Ticker(#[source] std::io::Error),
    /// Nothing would stop a guest that loops.
    #[error("a guest that loops is not stopped: the epoch does not tick, so no limit of CPU time would hold")]
    NotStopped,
}

/// A reason for which a component cannot be installed. Nothing of it stays behind.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file is larger than the host compiles.
    #[error("the component has {size} bytes; this host loads at most {limit}")]
    TooLarge {
        /// Bytes in the file.
        size: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// Not a component at all.
    #[error("not a WebAssembly component: {reason}")]
    NotAComponent {
        /// A description of the file.
        reason: String,
    },
    /// It exports no `annex:extension/descriptor`.
    #[error("the component exports no annex:extension/descriptor, so it is not an Annex extension")]
    NoDescriptor,
    /// Built against a contract that this host does not run.
    #[error("the component is built for annex:extension@{found}; this host runs {}", supported.join(", "))]
    Contract {
        /// The version in the component.
        found: String,
        /// The versions offered.
        supported: &'static [&'static str],
    },
    /// It exports a hook that the contract does not have.
    #[error("the component exports {name}, which annex:extension does not define")]
    UnknownHook {
        /// The export.
        name: String,
    },
    /// It imports something that no Annex host offers.
    #[error("the component imports {name}, which this host does not offer")]
    UnknownImport {
        /// The import.
        name: String,
    },
    /// It needs something that the operator did not grant.
    #[error(
        "{needs} needs a grant: add `{grant}` to this extension's [extension.grants] in the config, or to [grants] in a \
         file of its settings"
    )]
    NotGranted {
        /// The import, or the descriptor's demand.
        needs: String,
        /// The grant in the config's syntax.
        grant: GrantNeeded,
    },
    /// Its instances cannot be kept, and are to be.
    #[error("instances of the component cannot be kept: {reason}; leave out instances = \"kept\"")]
    Unkeepable {
        /// What cannot be put back between turns.
        reason: String,
    },
    /// A secret has the name of a parameter.
    #[error("the secret {name} has the name of a parameter; rename one of them")]
    SharedName {
        /// The name.
        name: String,
    },
    /// Its requests could not be sent.
    #[error("cannot set up the client for its HTTP requests")]
    HttpClient(#[source] Source),
    /// The engine refused to compile it.
    #[error("cannot compile the component {digest}")]
    Compile {
        /// Its identity.
        digest: Digest,
        /// The engine's reason.
        #[source]
        source: Source,
    },
    /// It is made of more than this host compiles.
    #[error("the component has {found} {what}; this host compiles at most {limit}")]
    TooComplex {
        /// The things that there are too many of.
        what: Cow<'static, str>,
        /// Their number, as far as was counted.
        found: u64,
        /// The number allowed.
        limit: u64,
    },
    /// Compiling it took too long.
    #[error(
        "compiling the component {digest} took longer than {} s; try again, or raise runtime.compile_seconds",
        limit.as_secs_f64()
    )]
    CompileTime {
        /// Its identity.
        digest: Digest,
        /// The time allowed.
        limit: Duration,
    },
    /// Compiling it took too much memory.
    #[error(
        "compiling the component {digest} takes more than {limit} bytes of memory; raise runtime.compile_memory_bytes \
         if it is worth it"
    )]
    CompileMemory {
        /// Its identity.
        digest: Digest,
        /// The bytes allowed.
        limit: u64,
    },
    /// No process that compiles could be started.
    #[error("cannot start a process that compiles components")]
    CompilerStart {
        /// The reason, and what to do.
        #[source]
        reason: Source,
    },
    /// The process that compiled it tried something that compiling does not need.
    #[error(
        "the process that compiled the component {digest} was killed, because it made a system call that compiling does \
         not need"
    )]
    CompilerForbidden {
        /// The component's identity.
        digest: Digest,
    },
    /// The process that compiled it ended without an answer.
    #[error("the process that compiled the component {digest} crashed: {how}")]
    CompilerCrash {
        /// The component's identity.
        digest: Digest,
        /// Its end.
        how: String,
    },
    /// The process that compiled it gave an answer that cannot be used.
    #[error("the process that compiled the component {digest} answered nonsense: {reason}")]
    CompilerAnswer {
        /// The component's identity.
        digest: Digest,
        /// The fault of the answer.
        reason: String,
    },
    /// Its imports or exports have other types than the contract says.
    #[error("the component does not fit the contract")]
    Link(#[source] Source),
    /// An exported function has another type than the contract says.
    #[error("its {} in annex:extension/{} has another type than the contract says", hook.functions().join(" or "), hook.name())]
    ExportType {
        /// The interface of the hook.
        hook: Hook,
        /// The place in the type, with the type that was expected there and the one that was found.
        #[source]
        source: Source,
    },
    /// A hook failed in the self-test.
    #[error("the self-test failed")]
    SelfTest(#[source] Fault),
    /// The extension does not take its parameters, in its own words; or its descriptor or its card entry breaks a rule.
    #[error("{reason}")]
    Description {
        /// The words, or the rule.
        reason: String,
    },
    /// The operator's parameters do not fit the descriptor's schema.
    #[error("extension.parameters{pointer}: {reason}{}", accepted(pointer, reason, schema))]
    Parameters {
        /// JSON pointer into the parameters.
        pointer: String,
        /// The fault there.
        reason: String,
        /// The schema, as JSON.
        schema: String,
    },
    /// Its entry on the card is too large.
    #[error("the entry of {uri} on the card has {size} bytes; at most {limit} are allowed, params and description")]
    CardEntry {
        /// The extension whose entry it is.
        uri: ExtensionUri,
        /// Bytes of the entry as JSON.
        size: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// The entries of all installed extensions on the card are too large.
    #[error(
        "with {uri} the entries of all extensions on the card have {size} bytes; at most {limit} are allowed, and the \
         largest is that of {largest}"
    )]
    CardEntries {
        /// The extension that comes last.
        uri: ExtensionUri,
        /// Bytes of all entries as JSON.
        size: usize,
        /// Bytes allowed.
        limit: usize,
        /// The extension with the largest entry.
        largest: ExtensionUri,
    },
    /// Two installed components claim one URI.
    #[error("two installed extensions have the URI {uri}")]
    Duplicate {
        /// The URI.
        uri: ExtensionUri,
    },
    /// Two installed components claim one metadata key.
    #[error("the extensions {uri} and {other} both own the metadata key {key:?}")]
    SharedKey {
        /// The later one.
        uri: ExtensionUri,
        /// The earlier one.
        other: ExtensionUri,
        /// The key.
        key: String,
    },
    /// Two installed components have a method of one name.
    #[error("the extensions {uri} and {other} both have the method {name}")]
    SharedMethod {
        /// The later one.
        uri: ExtensionUri,
        /// The earlier one.
        other: ExtensionUri,
        /// The method.
        name: String,
    },
    /// Two installed components with methods have one name, by which HTTP requests find their methods.
    #[error("the extensions {uri} and {other} are both called {name:?}, and both have methods")]
    SharedPath {
        /// The later one.
        uri: ExtensionUri,
        /// The earlier one.
        other: ExtensionUri,
        /// The name.
        name: String,
    },
    /// Extensions depend on one another in a ring.
    #[error("extensions depend on one another in a ring: {}", ring(uris))]
    Cycle {
        /// Each depends on the next, the last on the first.
        uris: Vec<ExtensionUri>,
    },
    /// An extension needs another one that is not installed before it.
    #[error("extension {uri} depends on {needs}, which must be installed and stand before it in the config")]
    Dependency {
        /// The extension that needs it.
        uri: ExtensionUri,
        /// The extension that is missing.
        needs: ExtensionUri,
    },
    /// A required extension needs one that requests can go on without.
    #[error("extension {uri} is required and depends on {needs}, which on_failure = \"skip\" lets requests go without")]
    SkippedDependency {
        /// The extension that needs it.
        uri: ExtensionUri,
        /// The extension that may be skipped.
        needs: ExtensionUri,
    },
    /// An extension needs one that is for fewer callers.
    #[error(
        "extension {uri} depends on {needs}, whose `allow` leaves out callers that {uri} is for; give both the same `allow`"
    )]
    NarrowDependency {
        /// The extension that needs it.
        uri: ExtensionUri,
        /// The extension with the shorter list.
        needs: ExtensionUri,
    },
}

/// The parameters that the extension takes, after the refusal of one that it does not know.
fn accepted(pointer: &str, reason: &str, schema: &str) -> String {
    if !pointer.is_empty() || !reason.contains(" unexpected)") {
        return String::new();
    }
    let schema: serde_json::Value = serde_json::from_str(schema).unwrap_or_default();
    let properties = schema.get("properties").and_then(serde_json::Value::as_object);
    let names: Vec<&String> = properties.into_iter().flat_map(|properties| properties.keys()).take(MAX_NAMES).collect();
    annex_text::instead(reason.split('\'').nth(1).unwrap_or_default(), &names, "it takes")
}

/// The most parameters that are named.
const MAX_NAMES: usize = 64;

fn ring(uris: &[ExtensionUri]) -> String {
    let uris: Vec<&str> = uris.iter().chain(uris.first()).map(ExtensionUri::as_str).collect();
    uris.join(" needs ")
}

/// A guest broke off, overran a limit or broke the contract. The client learns nothing of it but an error id.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It trapped.
    #[error("extension {uri} trapped in {hook}")]
    Trapped {
        /// The extension.
        uri: ExtensionUri,
        /// The id that its lines in the log have.
        error_id: Uuid,
        /// In which hook.
        hook: Hook,
        /// The trap, with the stack of the guest.
        #[source]
        source: Trap,
    },
    /// It ran into a limit.
    #[error("extension {uri} reached its {limit} in {hook}")]
    LimitReached {
        /// The extension.
        uri: ExtensionUri,
        /// The id that its lines in the log have.
        error_id: Uuid,
        /// In which hook.
        hook: Hook,
        /// The limit.
        limit: LimitReached,
    },
    /// It returned an error where the contract says that this is a failure.
    #[error("extension {uri} failed in {hook}: {message}")]
    Failed {
        /// The extension.
        uri: ExtensionUri,
        /// The id that its lines in the log have.
        error_id: Uuid,
        /// In which hook.
        hook: Hook,
        /// Its own words.
        message: String,
    },
    /// It returned something that it may not.
    #[error("extension {uri} broke the contract in {hook}: {reason}")]
    BrokeContract {
        /// The extension.
        uri: ExtensionUri,
        /// The id that its lines in the log have.
        error_id: Uuid,
        /// In which hook.
        hook: Hook,
        /// The violation, with the offending path.
        reason: String,
    },
    /// No instance became free in time.
    #[error("no instance for extension {uri} became free in time")]
    Overloaded {
        /// The extension.
        uri: ExtensionUri,
    },
    /// It serves as many turns as it may, and none of them ended in time.
    #[error("extension {uri} serves {turns} turns already, as many as limits.turns allows")]
    Busy {
        /// The extension.
        uri: ExtensionUri,
        /// The number of turns that it may serve at once.
        turns: u32,
    },
    /// It failed in so many turns in a row that it is left alone for a while.
    #[error("extension {uri} is quarantined; the next trial is in {} ms", next_trial.as_millis())]
    Quarantined {
        /// The extension.
        uri: ExtensionUri,
        /// The time to the next trial.
        next_trial: Duration,
    },
    /// An outgoing event has more bytes than the extension is handed.
    #[error("an event of {size} bytes is more than the {limit} of limits.input_bytes that extension {uri} is handed")]
    EventTooLarge {
        /// The extension.
        uri: ExtensionUri,
        /// Bytes of the event as JSON.
        size: usize,
        /// Bytes allowed.
        limit: usize,
    },
}

/// Bytes of a fault's text.
const MAX_TEXT: usize = 4 << 10;

impl Fault {
    /// The fault and what caused it, as one printable line of at most 4 KiB. It has a guest's words.
    #[must_use]
    pub fn text(&self) -> String {
        let text = match self {
            // Its stack is for the log.
            Self::Trapped { source, .. } => format!("{self}: {source}"),
            _ => self.to_string(),
        };
        annex_text::line_within(&text, MAX_TEXT)
    }

    /// The extension.
    #[must_use]
    pub fn uri(&self) -> &ExtensionUri {
        match self {
            Self::Trapped { uri, .. }
            | Self::LimitReached { uri, .. }
            | Self::Failed { uri, .. }
            | Self::BrokeContract { uri, .. }
            | Self::Overloaded { uri }
            | Self::Busy { uri, .. }
            | Self::Quarantined { uri, .. }
            | Self::EventTooLarge { uri, .. } => uri,
        }
    }

    /// The id that the client is told and the lines of the guest have; `None` when it has written none, because it was not
    /// run.
    #[must_use]
    pub fn error_id(&self) -> Option<Uuid> {
        match self {
            Self::Trapped { error_id, .. }
            | Self::LimitReached { error_id, .. }
            | Self::Failed { error_id, .. }
            | Self::BrokeContract { error_id, .. } => Some(*error_id),
            Self::Overloaded { .. } | Self::Busy { .. } | Self::Quarantined { .. } | Self::EventTooLarge { .. } => None,
        }
    }

    /// True when the guest is to blame, rather than the load on the host or the work of others.
    pub(crate) fn is_of_guest(&self) -> bool {
        match self {
            Self::Trapped { .. } | Self::LimitReached { .. } | Self::Failed { .. } | Self::BrokeContract { .. } => true,
            // The size of an event is the agent's doing.
            Self::Overloaded { .. } | Self::Busy { .. } | Self::Quarantined { .. } | Self::EventTooLarge { .. } => {
                false
            }
        }
    }
}

/// The reason for which the hooks stopped a request.
#[derive(Debug, thiserror::Error)]
pub enum HookError {
    /// The client's fault, in the words that it may read.
    #[error(transparent)]
    Refused(#[from] A2aError),
    /// An extension's fault.
    #[error(transparent)]
    Fault(#[from] Fault),
}
